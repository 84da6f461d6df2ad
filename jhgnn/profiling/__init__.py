"""Where a training step's time, memory traffic and memory go: XLA's trace and compiled program, read stage by stage."""
