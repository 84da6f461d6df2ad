"""What `predict` writes for a run of link prediction: representations, and the held-out links with scores and ranks."""

import csv
import io
from typing import Any

import jax
import numpy as np

from jhgnn.config import Config
from jhgnn.models.link_predictor import LinkRows
from jhgnn.training.link_problem import LinkProblem
from jhgnn.training.link_programs import EVALUATION_SALT, compile_links, evaluation_set, link_ranks
from jhgnn.training.state import Params


def predict_links(problem: LinkProblem, config: Config, params: Params) -> tuple[LinkRows, str]:
    """Rows of nodes and relations as NumPy arrays, and `links.csv`.

    The table has one row a validation or test link: head, relation, tail, split, score, and the filtered ranks of head
    and tail.
    """
    programs = compile_links(problem, config)
    rows = programs.encode(params, problem.data.inputs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["head", "relation", "tail", "split", "score", "head_rank", "tail_rank"])
    for split in ("val", "test"):
        if not problem.split_size(split):
            continue
        links = evaluation_set(problem, split, config.data.seed + EVALUATION_SALT)
        ranks, scores = link_ranks(rows, links)
        for number, (head, relation, tail) in enumerate(links.positive.tolist()):
            name = str(problem.links.relations[relation])
            shown = [f"{ranks[side][number]:g}" for side in ("head", "tail")]
            writer.writerow([head, name, tail, split, f"{scores[number]:.6f}", *shown])
    return jax.tree.map(np.asarray, rows), text.getvalue()


def arrays(rows: Any, ends: tuple[str, str]) -> dict[str, np.ndarray]:
    """File stem -> array: one `embeddings_TYPE` for each node type, and `relations`."""
    return {f"embeddings_{ends[0]}": rows.head, f"embeddings_{ends[1]}": rows.tail, "relations": rows.relation}
