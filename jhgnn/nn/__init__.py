"""The paper's stages as modules: feature projection, neighbor aggregation, semantic fusion."""
