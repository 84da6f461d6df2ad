"""HAN, R-GCN and R-GAT in DGL and PyG as their users write them; runs under the peers' interpreter, without jax."""
