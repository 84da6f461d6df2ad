"""Training: what is optimised, the compiled step, the loop around it, checkpoints and reports."""
