"""Which programs a recipe's variants are today: traced, not compiled.

`python -m bench.recompute_study.traced REQUEST`, where the request is JSON: `recipe` (TOML text), `where` (`cpu`, or a
GPU that is not here), and `implementations`. One line of JSON for each variant on the standard output, with its
`program` as the study's rows have it.
"""

import json
import sys
import tomllib

from bench.recompute_study.variants import program_of, variants
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.runtime.jax_settings import configure_jax
from jhgnn.runtime.platform import compiling_for
from jhgnn.training.execution import Execution
from jhgnn.training.problem import read_problem


def main() -> None:
    request = json.loads(sys.argv[1])
    where = request["where"]
    if where == "cpu":
        configure_jax()
    config = override(Config(), tomllib.loads(request["recipe"]), where="bench.recompute")
    with compiling_for("cpu" if where == "cpu" else "cuda"):
        problem = read_problem(config, progress=False)
        for implementation in request["implementations"]:
            try:
                for variant, execution in variants(problem, implementation):
                    print(
                        json.dumps(variant._asdict() | {"program": program_of(text_of(execution, where))}), flush=True
                    )
            except InputError:
                continue


def text_of(execution: Execution, where: str) -> str:
    """The update as it is traced for a kind of device."""
    if where == "cpu":
        return execution.lower_update().as_text()
    from bench.gpu.programs import programs

    (update,) = (each for each in programs(execution, 1) if each.name == "update")
    return update.lower(where).as_text()


if __name__ == "__main__":
    main()
