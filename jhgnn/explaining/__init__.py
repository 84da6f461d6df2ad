"""What a prediction rests on: relations, metapaths, edges and features of a node's receptive field."""
