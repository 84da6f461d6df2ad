"""The process around a run: memory, devices, several processes, signals, files and what is said on a terminal."""
