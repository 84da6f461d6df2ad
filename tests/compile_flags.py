"""How tests let XLA compile: no jax here, since `XLA_FLAGS` counts only before its first import."""

QUICK_TO_COMPILE = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
    ]
)
"""Most programs of tests run a few times. Without LLVM's optimization and XLA's newer emitters of fusions they compile
in 0.4 of the time that those of users take (6.4 s in the place of 15.6 for two of test_partitioned_topology.py)."""

EMITTED_AS_FOR_USERS = {"xla_cpu_use_fusion_emitters": True}
"""An option for programs that are compared to the bit: the older emitters round two programs of the same sums
differently."""
