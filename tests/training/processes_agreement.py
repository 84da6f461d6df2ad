"""One of several processes that train each model by each strategy: `python -m tests.training.processes_agreement FOLDER
WIDTH PARTS ADDRESS PROCESSES NUMBER MODEL:STRATEGY...`.

Writes `MODEL-STRATEGY-NUMBER.npz` into FOLDER: the gradient (momentum after a first step), parameters after all steps,
losses, and what the process's devices drew. A single process needs no PARTS and no ADDRESS.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from jhgnn.config import DistributedConfig
from jhgnn.runtime.processes import join
from tests.training.agreement import execution, trained

STEPS = {"32": 20, "64": 3}


def main(folder: str, width: str, parts: str, address: str, processes: str, number: str, *cases: str) -> None:
    jax.config.update("jax_enable_x64", width == "64")
    if int(processes) > 1:
        join(DistributedConfig(coordinator=address, num_processes=int(processes), process_id=int(number)))
    for case in cases:
        name, strategy = case.split(":")
        first, last, losses, drawn = trained(execution(name, strategy, "", 1, parts=parts), STEPS[width])
        np.savez(
            Path(folder) / f"{name}-{strategy}-{number}.npz",
            gradient=_flat(first.opt_state),
            params=_flat(last.params),
            losses=np.array(losses),
            drawn=np.array([json.dumps(sorted(each)) for each in drawn]),
        )


def _flat(tree: object) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


if __name__ == "__main__":
    main(*sys.argv[1:])
