"""What a run is told: its sections and their defaults, strict TOML recipes, and the options of the commands."""

from jhgnn.config.config import Config
from jhgnn.config.options import (
    DataConfig,
    DistributedConfig,
    KernelsConfig,
    ModelConfig,
    RunConfig,
    SamplingConfig,
    SgbConfig,
    TaskConfig,
    TrainingConfig,
)

__all__ = [
    "Config",
    "DataConfig",
    "DistributedConfig",
    "KernelsConfig",
    "ModelConfig",
    "RunConfig",
    "SamplingConfig",
    "SgbConfig",
    "TaskConfig",
    "TrainingConfig",
]
