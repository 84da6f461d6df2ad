"""Graphs in parts: who owns which node, folders of parts, what a shard computes, what a cache keeps."""
