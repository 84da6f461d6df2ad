"""Quick start: a graph, a trained model, and what it gives."""

# %% A graph
# A heterograph has several node types and several relations. This one comes with the package and is of the size of
# ACM (papers, authors, subjects; the papers have labels) times `scale`. For a downloaded file the line is
# `jhgnn.load("hgb", "ACM.zip")`, and for tables of your own see `tables_to_predictions.py`.
import tempfile
from pathlib import Path

import jhgnn

graph = jhgnn.load("synthetic", "acm", scale=0.3)
for node_type, count in graph.num_nodes.items():
    print(f"{count} nodes of type {node_type}")
for relation, edges in graph.edges.items():
    print(f"{edges.num_edges} edges of relation {relation}")

# %% Training
# Every setting of a recipe is an argument under its own name. A callback hears of each epoch; one that returns True
# ends the training.
losses = []


def remember(epoch):
    losses.append(epoch.loss)


run = jhgnn.fit(graph, model="rgat", hidden=64, layers=2, epochs=15, callbacks=[remember])
print(f"loss {losses[0]:.3f} in the first epoch, {losses[-1]:.3f} in the last")

# %% Scores, predictions and embeddings
# The parameters are those of the epoch with the best validation loss.
print(f"test micro-F1 {run.scores['test_micro_f1']:.3f}, best epoch {run.best_epoch}")
probabilities = run.predict()  # of each paper and class
print(f"probabilities {probabilities.shape}; the first paper is of class {probabilities[0].argmax()}")
embeddings = run.embeddings("paper")  # what the classifier reads of each paper
print(f"embeddings {embeddings.shape}")

# %% Curves, and a run that stays
# `plot` gives a Matplotlib figure. With `folder=...` the run keeps its checkpoints, scores and recipe there, and
# `Run.open` opens it again.
with tempfile.TemporaryDirectory() as folder:
    curves = Path(folder) / "curves.png"
    run.plot().savefig(curves)
    print(f"curves: {curves.stat().st_size} bytes")
    kept = jhgnn.fit(graph, model="rgcn", hidden=32, layers=1, epochs=5, folder=Path(folder) / "run", progress=False)
    again = jhgnn.Run.open(kept.folder, graph=graph)
    print(f"opened again, the same scores: {again.scores == kept.scores}")
