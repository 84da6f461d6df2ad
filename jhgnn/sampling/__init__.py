"""Stateless samplers: the neighbours drawn are a pure function of (seed, step, hop, relation, vertex)."""
