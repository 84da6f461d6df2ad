"""What of the project's dependencies is not installed, and what that means for a run."""

import importlib.util
import shutil

NEEDED = {
    "jax": "nothing can be measured",
    "flax": "nothing can be measured",
    "optax": "nothing can be measured",
    "orbax": "nothing can be measured: `jhgnn` saves its checkpoints by it",
    "scipy": "nothing can be measured",
    "rich": "nothing can be measured: `jhgnn` prints by it",
    "pytest": "ops are not checked: the graphs of the checks are those of the tests",
}
"""Module -> what is lost without it."""
OPTIONAL = {
    "jraph": "nothing of a run needs it",
    "tensorboardX": "nothing of a run needs it",
    "matplotlib": "steps are not profiled: `jhgnn.profile` draws by it",
}
TOOLS = {
    "nvidia-smi": "the device's compute capability is not known, and kernels are built for 8.0, 9.0 and 10.0",
    "nvcc": "`native` is left out",
    "cmake": "the kernels are not built: `native` and sampling on the host are left out",
    "ncu": "no counters are read",
}


def missing(rehearsal: bool) -> list[str]:
    """One line each, in words; a rehearsal needs no tool of CUDA's."""
    modules = {name: why for name, why in {**NEEDED, **OPTIONAL}.items() if importlib.util.find_spec(name) is None}
    lines = [f"{name} is not installed: {why}" for name, why in modules.items()]
    tools = {} if rehearsal else {name: why for name, why in TOOLS.items() if shutil.which(name) is None}
    return lines + [f"{name} is not on PATH: {why}" for name, why in tools.items()]
