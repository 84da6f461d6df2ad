"""The GPUs that programs are compiled for, as their makers describe them, and the text that tells XLA of one.

The text is a `GpuTargetConfigProto` of XLA (`xla/stream_executor/device_description.proto`).
"""

import dataclasses

NVIDIA_BLOCK_LIMITS = "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535"
NVIDIA_THREAD_LIMITS = "thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64"


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One device.

    Attributes:
        name: as its driver calls it.
        capability: compute capability.
        cores: streaming multiprocessors.
        fpus_per_core: float32 units of each.
        clock_ghz: the highest.
        memory_bytes: of the device.
        bytes_per_s: between device memory and the processor.
        cache_bytes: of the second level.
        shared_bytes: shared memory of a multiprocessor.
    """

    name: str
    capability: tuple[int, int]
    cores: int
    fpus_per_core: int
    clock_ghz: float
    memory_bytes: int
    bytes_per_s: float
    cache_bytes: int
    shared_bytes: int

    @property
    def architecture(self) -> str:
        """As ptxas names it, with the features of this architecture alone from Hopper on."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    def target_config(self) -> str:
        """What XLA is told in place of asking a device."""
        feature = "ACCELERATED_FEATURES" if self.capability[0] >= 9 else "NONE"
        return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  {NVIDIA_BLOCK_LIMITS}
  {NVIDIA_THREAD_LIMITS}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {self.shared_bytes - 1024}
  shared_memory_per_core: {self.shared_bytes}
  core_count: {self.cores}
  fpus_per_core: {self.fpus_per_core}
  clock_rate_ghz: {self.clock_ghz}
  memory_bandwidth: {int(self.bytes_per_s)}
  l2_cache_size: {self.cache_bytes}
  device_memory_size: {self.memory_bytes}
  cuda_compute_capability {{ major: {self.capability[0]} minor: {self.capability[1]} feature_extension: {feature} }}
  device_vendor: "NVIDIA Corporation"
  name: "{self.name}"
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{self.name}"
"""


GPUS = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 1.41, 80 * 2**30, 2.039e12, 40 * 2**20, 164 * 2**10),
    "h100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 1.98, 80 * 2**30, 3.352e12, 50 * 2**20, 228 * 2**10),
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 128, 1.98, 141 * 2**30, 4.8e12, 50 * 2**20, 228 * 2**10),
    "b200": Gpu("NVIDIA B200", (10, 0), 148, 128, 1.965, 180 * 2**30, 7.7e12, 126 * 2**20, 228 * 2**10),
}
"""Those that the lane compiles for, SXM boards."""
