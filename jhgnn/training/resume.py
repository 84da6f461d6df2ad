"""Which settings a resumed run may have differently."""

import dataclasses
from pathlib import Path

from jhgnn.config import Config
from jhgnn.config.share import AUTO
from jhgnn.errors import InputError
from jhgnn.training.ring_steps import TUNED


def with_settled(config: Config, settled: Config) -> Config:
    """The recipe with what it leaves to a measurement as another one, measured before, has it."""
    if config.sampling.hot_share == AUTO:
        sampling = dataclasses.replace(config.sampling, hot_share=settled.sampling.hot_share)
        config = dataclasses.replace(config, sampling=sampling)
    if config.distributed.time_steps == TUNED:
        distributed = dataclasses.replace(config.distributed, time_steps=settled.distributed.time_steps)
        config = dataclasses.replace(config, distributed=distributed)
    return config


def check_resumable(folder: Path, config: Config, recipe_config: Config) -> None:
    """Refuses to continue a run with a recipe that trains something else.

    Raises:
        InputError: a setting differs that changes the data, the model or the updates.
    """
    for section in ("data", "task", "model", "kernels", "training", "run", "sampling"):
        for field in dataclasses.fields(getattr(config, section)):
            now, then = (getattr(getattr(each, section), field.name) for each in (config, recipe_config))
            if now != then and f"{section}.{field.name}" not in MAY_CHANGE:
                raise InputError(
                    f"resume: {section}.{field.name} is {now!r}, but the run in {folder} was started with"
                    f" {then!r}; start a new run.dir, or leave it as it was"
                )
    epochs, schedule = config.training.epochs, config.training.schedule
    if schedule != "constant" and epochs != recipe_config.training.epochs:
        raise InputError(
            f"resume: training.epochs is {epochs}, but the {schedule} schedule of the run in {folder} decays over"
            f" {recipe_config.training.epochs}; leave it as it was"
        )


MAY_CHANGE = frozenset(
    {"run.dir", "run.log_every", "run.tensorboard", "training.epochs", "training.patience"}
    | {"training.checkpoint_every_s", "sampling.side", "sampling.features", "sampling.threads"}
    | {"sampling.prefetch_threads", "sampling.prefetch_depth", "sampling.prefetch_memory_gib", "sampling.max_steps"}
    | {"sampling.cache", "sampling.cache_steps", "sampling.tables"}
)
"""Settings that a resumed run may have differently without training something else."""
