"""GPUs: programs compiled for them on a machine that has none, and measured where there is one."""
