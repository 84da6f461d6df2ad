"""Pure functions on arrays: one folder an op, one file an implementation, all of one signature."""
