"""jhgnn: train heterogeneous graph neural networks in JAX, and see where their time and memory go."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("jhgnn")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"
