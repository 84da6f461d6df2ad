"""Link prediction: which author wrote which paper, and which subject a paper has."""

# %% A graph, and the links to predict
# `relations` names what is to be predicted, over several pairs of node types at once. A share of its edges is held
# out for validation and test. Held-out edges and their reverses are taken out of the graph before any message passes.
import jhgnn

graph = jhgnn.load("synthetic", "acm", scale=0.15)
for relation in graph.edges:
    print(f"relation {relation}")
links = {"name": "link_prediction", "relations": ["writes", "has_subject"], "negatives": 64, "exclude_targets": True}

# %% Over the whole graph
# Each update scores a batch of links against negatives, with messages over all of the graph. A batch's own links must
# not be seen in the graph either: `exclude_targets` leaves them and their reverses out of that update.
settings = {"model": "rgcn", "hidden": 32, "layers": 1, "learning_rate": 0.01, "progress": False}
full = jhgnn.fit(graph, task=links | {"batch_size": 1024}, epochs=6, **settings)
print(f"full-graph: test MRR {full.scores['test_mrr']:.3f}")

# %% In mini-batches
# Each batch of links draws the neighbourhoods of its nodes. This is the way for graphs that do not fit as a whole;
# validation and test nodes are computed with all their neighbours, a layer at a time.
sampling = {"batch_size": 1024, "fan_out": "10"}
batches = jhgnn.fit(graph, task=links, epochs=6, sampling=sampling, **settings)
print(f"mini-batches: test MRR {batches.scores['test_mrr']:.3f}")

# %% What comes out
# The mean reciprocal rank (MRR) is 1 if every true link ranks first among all nodes that could stand in its place;
# other true links do not count against it. `predict` has the ranks of each held-out link.
held_out = full.predict()
test = held_out[held_out["split"] == "test"]
best = test[test["tail_rank"].argmin()]
print(f"{len(test)} test links; best: {best['head']} {best['relation']} {best['tail']} at rank {best['tail_rank']:.0f}")
print(f"embeddings of authors {full.embeddings('author').shape}")
