"""Tiny valid data sets, one for each public layout: file name -> bytes. Tests break them one file at a time."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import scipy.io
from scipy import sparse

Files = dict[str, bytes]


def write(files: Files, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def zipped(files: Files, path: Path, below: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(below + name, data)
    return path


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def sparse_npz(matrix: sparse.sparray) -> bytes:
    file = io.BytesIO()
    sparse.save_npz(file, matrix)
    return file.getvalue()


def hgb() -> Files:
    """4 movies (3 attributes, 2 classes each), 2 actors (floats), 1 keyword (none); multi-label; weighted `about`."""
    info = {
        "node.dat": {"node type": {"0": "movie", "1": "actor", "2": "keyword"}},
        "link.dat": {
            "link type": {
                "0": {"start": 0, "end": 1, "meaning": "movie->actor"},
                "1": {"start": 1, "end": 0, "meaning": "actor->movie"},
                "2": {"start": 0, "end": 2, "meaning": "movie-about-keyword"},
            }
        },
        "label.dat": {"node type": {"0": {"0": "drama", "1": "comedy", "2": "action"}}},
    }
    return {
        "info.dat": json.dumps(info).encode(),
        "node.dat": b"0\tJaws, 1\t0\t0,1,0\n1\tAlien\t0\t0,0,0\r\n2\t\t0\t0,0,0\n3\tHeat\t0\t0,0,0\n"
        b"4\tA\t1\t0.5,-1e-3\n5\tB\t1\t2,3\n6\tfun\t2\n",
        "link.dat": b"0\t4\t0\t1.0\n1\t4\t0\t1.0\n3\t5\t0\t1.0\n4\t0\t1\t1.0\n4\t1\t1\t1.0\n5\t3\t1\t1.0\n"
        b"2\t6\t2\t2.5\n",
        "label.dat": b"0\tJaws, 1\t0\t0,2\n1\tAlien\t0\t2\n",
        "label.dat.test": b"3\tHeat\t0\t1,2\n",
    }


def magnn() -> Files:
    """3 of type 0 (sparse features), 2 of type 1 (dense); interleaved rows of the adjacency."""
    types = np.array([0, 1, 0, 0, 1], np.int32)
    pairs = [(0, 1), (2, 1), (3, 4)]
    adjacency = sparse.lil_array((5, 5), dtype=np.int32)
    for first, second in pairs:
        adjacency[first, second] = adjacency[second, first] = 1
    return {
        "adjM.npz": sparse_npz(sparse.csr_array(adjacency)),
        "node_types.npy": npy(types),
        "features_0.npz": sparse_npz(sparse.csr_array(np.eye(3, 8))),
        "features_1.npy": npy(np.array([[0.5, 1], [2, 3]])),
        "labels.npy": npy(np.array([0, 1, 1], np.int32)),
        "train_val_test_idx.npz": npz(train_idx=np.array([0]), val_idx=np.array([2]), test_idx=np.array([1])),
    }


def acm_mat(**changes: np.ndarray | None) -> Files:
    """4 papers in 2 classes."""
    variables: dict[str, np.ndarray | None] = {
        "PAP": np.eye(4, dtype=np.uint8),
        "PLP": np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]], np.uint8),
        "PTP": np.ones((4, 4), np.uint8),
        "feature": np.eye(4, 6, dtype=np.uint8),
        "label": np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.uint8),
        "train_idx": np.array([[0, 1]], np.int32),
        "val_idx": np.array([[2]], np.int32),
        "test_idx": np.array([[3]], np.int32),
        **changes,
    }
    file = io.BytesIO()
    scipy.io.savemat(file, {key: value for key, value in variables.items() if value is not None})
    return {"ACM3025.mat": file.getvalue()}


PERSON = "http://example.org/person/{}"
GROUP = "http://example.org/group#{}"


def rdf(extra: str = "") -> Files:
    """6 people in 2 groups; `worksIn` and `employs` give the groups away, `knows` and `name` do not."""
    lines = ["# people", ""]
    for i in range(6):
        person, group = f"<{PERSON.format(i)}>", f"<{GROUP.format(i % 2)}>"
        lines += [
            f"{person} <http://example.org/worksIn> {group} .",
            f"{group}\t<http://example.org/employs>\t{person} .",
            f"{person} <http://example.org/knows> <{PERSON.format((i + 1) % 6)}> . # in a ring",
            f'{person} <http://example.org/name> "say \\"{i}\\" <x> ."@en .',
            f"_:b{i} <http://other.org/name> {person}.",
        ]
    rows = [f"{i}\t{PERSON.format(i)}\t{GROUP.format(i % 2)}" for i in range(6)]
    header = "id\tperson\tlabel_group"
    return {
        "people_stripped.nt.gz": gzip.compress(("\n".join(lines) + "\n" + extra).encode()),
        "completeDataset.tsv": "\n".join([header, *rows]).encode(),
        "trainingSet.tsv": "\n".join([header, *rows[:4]]).encode(),
        "testSet.tsv": "\r\n".join([header, *rows[4:], ""]).encode(),
    }


def ogb_mag() -> Files:
    """3 papers, 2 authors, 1 institution and 2 fields, with every relation of ogbn-mag, in its exact layout."""

    def rows(*lines: str) -> bytes:
        return gzip.compress(("\n".join(lines) + "\n").encode())

    relations = {
        "author___affiliated_with___institution": ("0,0", "1,0"),
        "author___writes___paper": ("0,0", "0,1", "1,2"),
        "paper___cites___paper": ("0,1", "1,0", "0,2", "2,2"),
        "paper___has_topic___field_of_study": ("0,0", "1,1", "2,1"),
    }
    types = "author,field_of_study,institution,paper"
    files = {
        "raw/num-node-dict.csv.gz": rows(types, "2,2,1,3"),
        "raw/triplet-type-list.csv.gz": rows(*(name.replace("___", ",") for name in relations)),
        "raw/nodetype-has-feat.csv.gz": rows(types, "False,False,False,True"),
        "raw/nodetype-has-label.csv.gz": rows(types, "False,False,False,True"),
        "raw/node-feat/paper/node-feat.csv.gz": rows("0.5,-1.25e-2", "1,2", "3,4"),
        "raw/node-feat/paper/node_year.csv.gz": rows("2015", "2018", "2019"),
        "raw/node-label/paper/node-label.csv.gz": rows("1", "0", "2"),
        "split/time/nodetype-has-split.csv.gz": rows(types, "False,False,False,True"),
        "split/time/paper/train.csv.gz": rows("0"),
        "split/time/paper/valid.csv.gz": rows("1"),
        "split/time/paper/test.csv.gz": rows("2"),
        "RELEASE_v1.txt": b"",
    }
    for number, (name, edges) in enumerate(relations.items()):
        files[f"raw/relations/{name}/edge.csv.gz"] = rows(*edges)
        files[f"raw/relations/{name}/num-edge-list.csv.gz"] = rows(str(len(edges)))
        files[f"raw/relations/{name}/edge_reltype.csv.gz"] = rows(*[str(number)] * len(edges))
    return files


def triples() -> Files:
    """3 entities and 2 relations, whose names hold what schemas forbid; one entity is in the test file alone."""
    return {
        "train.txt": b"/m/a\t/film/actor\t/m/b\n/m/b\tis a\t/m/a\r\n\n/m/a\tis a\t/m/b\n",
        "valid.txt": b"/m/b\t/film/actor\t/m/a\n",
        "test.txt": b"/m/a\tis a\t/m/c\n",
    }


def lastfm() -> Files:
    """3 users, 4 artists, 2 tags in use; every number from 1."""
    splits = {"train_idx": np.array([0, 2, 3]), "val_idx": np.array([1], np.int32), "test_idx": np.array([4], np.int32)}
    return {
        "user_artist.dat": b"1\t1\t50\n1\t2\t7\n2\t2\t9\n3\t4\t1\n3\t1\t2\n",
        "user_user(original).dat": b"1\t2\n2\t1\n",
        "artist_tag.dat": b"1\t5\n1\t5\n2\t9\n3\t5\n",
        "train_val_test_idx.npz": npz(**splits),
    }


def arrays(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """3 papers (CSR features), 2 authors (dense), 1 venue (none)."""
    whole: dict[str, np.ndarray | None] = {
        "paper_author": np.array([[0, 1, 2], [0, 1, 1]], np.int16),
        "paper__in__venue": np.array([[0, 2], [0, 0]]),
        "paper__in__venue_weight": np.array([0.5, 2.0]),
        "num_nodes": np.array([3, 2, 1]),
        "paper_feat_indptr": np.array([0, 1, 1, 2]),
        "paper_feat_indices": np.array([7, 0], np.int16),
        "paper_feat_shape": np.array([3, 9]),
        "author_feat": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "label": np.array([1, 0, -1], np.int8),
        "train_idx": np.array([0]),
        "val_mask": np.array([False, True, False]),
        "curator_note": np.array([1]),
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}
