"""`python -m bench.gpu run`: what is measured where a GPU is, in an order of value, within a budget of time."""
