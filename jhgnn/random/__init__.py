"""Randomness as pure functions of integers: the counter-based hash, and JAX keys made of it."""
