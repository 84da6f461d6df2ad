"""One run: all sections of a recipe together."""

import dataclasses

from jhgnn.config import conflicts
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


@dataclasses.dataclass(frozen=True)
class Config:
    """One run; a recipe is its TOML form.

    Raises:
        InputError: sections that contradict each other.
    """

    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    task: TaskConfig = dataclasses.field(default_factory=TaskConfig)
    sgb: SgbConfig = dataclasses.field(default_factory=SgbConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    kernels: KernelsConfig = dataclasses.field(default_factory=KernelsConfig)
    sampling: SamplingConfig = dataclasses.field(default_factory=SamplingConfig)
    distributed: DistributedConfig = dataclasses.field(default_factory=DistributedConfig)

    def __post_init__(self) -> None:
        conflicts.check_model(self.model)
        conflicts.check_memory(self.training, self.sampling)
        conflicts.check_parts(self.sampling, self.distributed, self.training)
        conflicts.check_processes(self.run, self.sampling, self.distributed)
        conflicts.check_cache(self.sampling)
        conflicts.check_feature_dtype(self.sampling, self.distributed)
        conflicts.check_tables(self.sampling, self.distributed, self.training)
