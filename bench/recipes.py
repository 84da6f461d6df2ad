"""Whether a stored result is of the recipe that would be measured today."""

import dataclasses
import tomllib

from jhgnn.config import Config
from jhgnn.config.options import SamplingConfig
from jhgnn.config.recipe import override
from jhgnn.errors import InputError


def is_recipe(text: str, config: Config) -> bool:
    """Whether a stored recipe takes the same steps, wherever this machine has its data; later options are as unset."""
    try:
        then = override(Config(), tomllib.loads(text), where="a stored result")
    except InputError:  # of options that there are no more
        return False
    return of_steps(then) == of_steps(config)


def of_steps(config: Config) -> Config:
    """A recipe without paths of a machine, and without what a whole batch does not read: how batches are sampled."""
    data, sgb = dataclasses.replace(config.data, path=""), dataclasses.replace(config.sgb, cache_dir="")
    sampling = config.sampling if config.sampling.batch_size else SamplingConfig()
    return dataclasses.replace(config, data=data, sgb=sgb, sampling=sampling)
