"""The sections of a recipe as frozen dataclasses. The only place with defaults."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from jhgnn.config.class_weights import class_weights_text
from jhgnn.config.fan_out import to_text as fan_out_text
from jhgnn.config.memory import to_bytes
from jhgnn.config.remat import to_text as remat_text
from jhgnn.config.share import to_share


def _option(
    default: Any,
    help_text: str,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    canonical: Callable[[Any, str], Any] | None = None,
) -> Any:
    """A field with its help text and its bounds, which hold for every element of a list as well.

    `canonical` turns what a recipe may hold, given where it stands, into the field's type, or raises a ValueError.
    """
    bounds = {"minimum": minimum, "above": above, "maximum": maximum, "below": below}
    return dataclasses.field(default=default, metadata={"help": help_text, "canonical": canonical, **bounds})


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Where a run lives and what it starts from."""

    dir: str = _option("", "run folder; empty: runs/RECIPE-NAME")
    seed: int = _option(0, "seed of weights and dropout", minimum=0, below=2**32)
    log_every: int = _option(10, "epochs between two lines where output is not a terminal", minimum=1)
    tensorboard: bool = _option(True, "write TensorBoard scalars to the run folder")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which heterograph to read."""

    format: Literal[
        "hgb", "magnn", "acm_mat", "rdf", "ogb_mag", "arrays", "triples", "lastfm", "tables", "synthetic", "jhgnn"
    ] = _option("synthetic", "layout of the files at data.path; for synthetic, data.path names a preset")
    path: str = _option("", "folder or file as downloaded; empty: the synthetic graph that data.preset names")
    preset: str = _option("acm", "synthetic graph to train on while data.path is empty: acm, imdb, dblp or mag")
    target: str = _option("", "labelled node type; empty: the only one there is")
    scale: float = _option(1.0, "share of the full size, for synthetic data", above=0, maximum=1)
    seed: int = _option(0, "seed of synthetic data and of a drawn validation split", minimum=0, below=2**32)
    validation: bool = _option(True, "false: validation nodes join the training nodes, and the last epoch is the best")
    one_hot: bool = _option(
        False, "one-hot features for types that have none (the R-GCN paper) instead of learnable embeddings"
    )
    reverse_relations: bool = _option(False, "add the reverse of every relation that has none")


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """What is learnt: the classes of nodes, or which edges there are. All but `name` are of link prediction."""

    name: str = _option(
        "node_classification",
        "node_classification; link_prediction: train on the edges of task.relations; MODULE:CLASS: a task of your own",
    )
    relations: tuple[str, ...] = _option(
        (), "relations to predict, between any node types; empty: those of the data's own link split"
    )
    val_share: float = _option(
        0.05, "share of the edges that validate, where the data has no link split", minimum=0, below=1
    )
    test_share: float = _option(0.1, "share of the edges that test, where the data has no link split", above=0, below=1)
    scorer: Literal["distmult", "dot"] = _option(
        "distmult", "score of head h, relation r, tail t: sum of h * r * t, or of h * t"
    )
    encoder: Literal["graph", "none"] = _option(
        "graph", "graph: the model's layers; none: learnt embeddings alone, the baseline without message passing"
    )
    skip: bool = _option(False, "add a node's input embedding to what the layers make of it")
    exclude_targets: bool = _option(
        False,
        "keep the batch's own edges and their reverses out of message passing; over the whole graph for R-GCN alone",
    )
    until_training: bool = _option(
        False,
        "for links that are split by time: messages pass over edges and nodes until the last training link alone, in"
        " training and in evaluation",
    )
    loss: Literal["softmax", "binary"] = _option(
        "softmax", "softmax: cross entropy of the true head and tail among negatives; binary: logistic loss of each"
    )
    negatives: int = _option(
        0, "negatives drawn for each side; 0: all nodes of the type, over the whole graph alone", minimum=0
    )
    negatives_of: Literal["batch", "link"] = _option(
        "batch", "batch: all links of a batch share its negatives; link: each draws its own"
    )
    batch_size: int = _option(
        4096, "links an update over the whole graph; 0: all; in mini-batches sampling.batch_size counts them", minimum=0
    )
    scorer_dropout: float = _option(0.0, "dropout of the scored rows", minimum=0, below=1)
    regularization: float = _option(0.0, "weight of the mean square of the scored rows in the loss", minimum=0)
    evaluation_links: int = _option(
        0, "validate on at most this many links, a fixed random choice; 0: on all", minimum=0
    )
    test_links: int = _option(0, "test on at most this many links, a fixed random choice; 0: on all", minimum=0)


@dataclasses.dataclass(frozen=True)
class SgbConfig:
    """Semantic graph build."""

    memory_limit_gib: float = _option(0.0, "refuse larger builds; 0: half of the available memory", minimum=0)
    cache_dir: str = _option("~/.cache/jhgnn/semantic_graphs", "cache of built semantic graphs; empty: none")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model; the defaults are Table 2 of the characterization paper."""

    name: str = _option(
        "han",
        "han, rgcn or rgat; gcn and gat are the controls: the same graph with its types erased; MODULE:CLASS: a model"
        " of your own",
    )
    metapaths: tuple[str, ...] = _option(
        (), "HAN's metapaths: 'PAP' (initials), 'paper,author,paper' (types) or relation names; empty: derived"
    )
    hidden: int = _option(64, "width of hidden representations, all heads together", minimum=1)
    heads: int = _option(8, "attention heads; each is hidden / heads wide", minimum=1)
    layers: int = _option(0, "layers; 0: 1 for HAN, 3 for R-GCN and R-GAT, 2 for GCN and GAT", minimum=0)
    bases: int = _option(
        0,
        "R-GCN basis decomposition with this many bases; 0: none; -1: as many as the R-GCN paper takes for a graph of"
        " the data's size: none below 10,000 nodes, then 30, and 40 from 100,000 on",
        minimum=-1,
    )
    blocks: int = _option(0, "R-GCN block-diagonal decomposition with this many blocks; 0: none", minimum=0)
    self_loop: bool = _option(True, "R-GCN and R-GAT: add each node's own projection")
    edge_features: bool = _option(
        False, "R-GCN and R-GAT: read the features of edges, in messages or in attention logits"
    )
    shared_projection: bool = _option(
        False, "HAN: one feature projection for all metapaths (the HAN paper, PyG) instead of one each (DGL)"
    )
    projection_bias: bool = _option(
        False, "HAN: bias on projected rows (PyG) instead of one a metapath on aggregated rows (DGL)"
    )
    semantic_hidden: int = _option(128, "HAN: width of the semantic attention", minimum=1)
    feature_dropout: float = _option(0.0, "dropout of input features", minimum=0, below=1)
    dropout: float = _option(0.5, "dropout of each layer's input but the first", minimum=0, below=1)
    attention_dropout: float = _option(0.0, "dropout of attention weights", minimum=0, below=1)
    negative_slope: float = _option(0.2, "slope of the attention's LeakyReLU", minimum=0, maximum=1)
    activation: Literal["auto", "relu", "elu", "gelu", "tanh", "none"] = _option(
        "auto", "after each layer; auto: ELU where there is attention, else ReLU"
    )
    residual: bool = _option(False, "add each layer's input to its output, from the second layer on")
    layer_norm: bool = _option(False, "normalise each layer's output")
    dtype: Literal["float32", "bfloat16"] = _option(
        "float32", "of projections and messages; sums, softmax, weights and optimizer stay float32"
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Optimization."""

    epochs: int = _option(200, "epochs at most", minimum=1)
    patience: int = _option(50, "stop after this many epochs without a better validation figure; 0: never", minimum=0)
    monitor: str = _option(
        "auto",
        "validation figure that picks the best epoch: loss or micro_f1, for link prediction mrr, auc or loss; auto: the"
        " first of these",
    )
    optimizer: Literal["adam", "adamw", "sgd", "lamb"] = _option(
        "adam", "weight decay is added to the gradient (adam, sgd) or decoupled (adamw, lamb)"
    )
    learning_rate: float = _option(0.005, "peak learning rate", above=0)
    weight_decay: float = _option(0.001, "weight decay", minimum=0)
    schedule: Literal["constant", "cosine", "linear"] = _option("constant", "decay to zero over training.epochs")
    warmup_epochs: int = _option(0, "epochs of linear warm-up", minimum=0)
    gradient_clip: float = _option(0.0, "clip the global gradient norm; 0: never", minimum=0)
    label_smoothing: float = _option(0.0, "share of the target spread over all classes", minimum=0, below=1)
    class_weights: str = _option(
        "",
        "weights of classes in the loss: balanced, so that rare ones count as much as frequent ones, or"
        " CLASS=WEIGHT,..., in a recipe also a table; a class that is not named weighs 1; empty: all do",
        canonical=class_weights_text,
    )
    loss: str = _option(
        "",
        "MODULE:FUNCTION: a loss of your own, of each row from logits and labels; empty: cross entropy",
    )
    rows: Literal["auto", "all", "needed"] = _option(
        "auto",
        "rows that a full-batch step computes: all, or needed: those that the training nodes' outputs depend on, which"
        " gives the same gradients; auto: needed for R-GCN and R-GAT where it leaves out a fifth of the work or more",
    )
    remat: str = _option(
        "none",
        "what the backward pass recomputes: none; na: tensors of the edges' size; dots: all but matrix products; stage:"
        " all but what stages hand on; full: all but layers' inputs; offload: as stage, kept in host memory; or the"
        " tensors to keep, such as fp_out,na_out",
        canonical=remat_text,
    )
    micro_batches: int = _option(
        1,
        "mini-batches: parts into which each device's share of a batch is cut, one after the other on the device; the"
        " update is that of the whole batch",
        minimum=1,
    )
    memory_budget: int = _option(
        0,
        "bytes of device memory, or text such as 12GiB: training.remat and, in mini-batches, training.micro_batches are"
        " then chosen before training as the fastest that fit; 0: they are as given",
        canonical=to_bytes,
    )
    evaluate_every: int = _option(1, "epochs between two evaluations", minimum=1)
    checkpoint_every_s: float = _option(
        20.0, "seconds between two checkpoints; there is always one at the end", minimum=0
    )


@dataclasses.dataclass(frozen=True)
class KernelsConfig:
    """Which implementation each op uses, of those that `jhgnn.ops.registry` lists for the platform; a named one works
    or raises, it never falls back.
    """

    attention: str = _option(
        "auto",
        "neighbor attention: auto, native, bucketed, dense, segment; of samples native, bucketed, fanout, or rows:"
        " senders' rows are weighted first, and projected once they are summed",
    )
    mean: str = _option("auto", "neighbor mean: as attention")
    projection: str = _option(
        "auto",
        "projection of sparse features: auto, native, bucketed, segment; of samples bucketed, rows; dense: densified",
    )
    relations: Literal["auto", "packed", "apart"] = _option(
        "auto",
        "relations or metapaths of a layer of a whole graph: packed: all in one call, of the nodes that have an edge"
        " there; apart: one after the other, for all nodes; auto: packed where that is less work",
    )
    tables: str = _option(
        "auto", "rows of embedding tables that a mini-batch reads and updates: auto, xla, native (kernels of a GPU)"
    )


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
    """Mini-batch training on sampled neighbours; the whole graph at once while batch_size is 0."""

    batch_size: int = _option(0, "target nodes a batch, over all devices; 0: full-batch training", minimum=0)
    fan_out: str = _option(
        "25,20",
        "neighbours drawn at each hop from the targets outwards: 25,20, or one number for all hops, or 'all', or by"
        " relation: 'default=25,20; cites=all,5'; in a recipe also a list or a table",
        canonical=fan_out_text,
    )
    walks: int = _option(
        0,
        "HAN: random walks from each target along each metapath, of whose ends the fan-out most visited are the"
        " neighbours, so that no metapath graph is built; 0: draw from built metapath graphs",
        minimum=0,
        maximum=1024,
    )
    temporal: Literal["none", "until", "before"] = _option(
        "none",
        "for graphs with timestamps: a seed's neighbourhood has no edge and no node later than the seed's own time"
        " (until), or only earlier ones (before); none: times are not looked at",
    )
    side: Literal["auto", "device", "host"] = _option("auto", "where to sample: inside the compiled step, or before it")
    features: Literal["auto", "device", "host"] = _option("auto", "where input features stay; host: gathered per batch")
    feature_dtype: Literal["float32", "bfloat16"] = _option(
        "float32",
        "what dense input features are kept, gathered and copied to devices as; bfloat16: they are rounded once, and"
        " take half of the memory and of the bytes; steps compute in model.dtype all the same",
    )
    tables: Literal["device", "mapped"] = _option(
        "device",
        "where embedding tables and their optimizer's moments live; mapped: in a file of the run's folder, of which"
        " batches read and write the rows that they need",
    )
    cache: int = _option(
        0,
        "bytes, or text such as 2GiB, for the rows read most: of features on the host that stay in files (a graph that"
        " save_graph wrote), kept in its memory, and of mapped tables with their moments, kept on the device; 0: none",
        canonical=to_bytes,
    )
    cache_steps: int = _option(
        100, "batches drawn before training to count which rows are read most; 0: the whole first epoch", minimum=0
    )
    threads: int = _option(2, "host threads that sample one batch together", minimum=1, maximum=256)
    prefetch_threads: int = _option(
        1, "batches prepared on the host at the same time; 0: each when it is needed", minimum=0, maximum=256
    )
    prefetch_depth: int = _option(2, "batches prepared ahead at most", minimum=1)
    prefetch_memory_gib: float = _option(
        2.0,
        "memory of the batches prepared ahead, at most; also of what rows of hot vertices are computed from at once,"
        " for which all processes need the same",
        above=0,
    )
    max_steps: int = _option(0, "stop after this many batches; 0: only training.epochs and patience count", minimum=0)
    evaluation: Literal["sampled", "layerwise"] = _option(
        "sampled", "sampled: with the fan-out of training; layerwise: over all neighbours, a layer at a time"
    )
    evaluation_nodes: int = _option(
        0, "evaluate on at most this many nodes of each split, a fixed random choice; 0: on all", minimum=0
    )
    hot: Literal["none", "exact", "stale", "literal"] = _option(
        "none",
        "exact: the first layer's means over all neighbours with features are computed once for hot vertices, those met"
        " most often, which then draw none of these neighbours; for R-GCN. stale: the first layer's sums over hot"
        " vertices' neighbours are computed beside training, one super-batch ahead, and reused while they are less than"
        " two super-batches old; each is computed in the step once a super-batch, and that gradient counts for all of"
        " its batches; for R-GCN, R-GAT and, a sum for each metapath, HAN of two layers. literal: the same without that"
        " gradient, as NeutronOrch's public code does, for comparisons: its first layer learns from a BIASED gradient",
    )
    hot_share: float | str = _option(
        0.1,
        "hot vertices at most, as a share of those that receive from types with features (exact) or from any (stale,"
        " literal); 0: none; auto: as a cost model says, fed by a few batches measured before training",
        canonical=to_share,
    )
    super_batch: int = _option(
        4, "stale and literal: batches that reuse the same rows of hot vertices", minimum=2, maximum=1024
    )


@dataclasses.dataclass(frozen=True)
class DistributedConfig:
    """Training on several devices: each draws its own share of every batch, or its own relations."""

    strategy: Literal["data", "owner", "leapgnn", "raf"] = _option(
        "data",
        "data: equal shares of a batch, in its order; owner: each target at its home, the device that keeps its row;"
        " leapgnn: the baseline whose models move from home to home; raf: relations first, each shard of devices draws"
        " and aggregates its own relations for all targets, and they meet once a step",
    )
    time_steps: int = _option(
        0,
        "leapgnn: time steps of the ring, over which the sub-batches of each home are spread; 0: one for each device;"
        " -1: tuned, by timing a few batches with ever fewer before training",
        minimum=-1,
    )
    relation_shards: int = _option(
        0, "raf: shards that the relations into the targets are dealt out to; 0: as distributed.plan says", minimum=0
    )
    plan: str = _option(
        "",
        "raf: a plan of `python -m jhgnn.partition --method meta --out`, for HAN and residuals with --whole-branches;"
        " empty: dealt out by size",
    )
    programs: Literal["auto", "one", "own"] = _option(
        "auto",
        "raf: one: all processes compile one program with the relations of all shards; own: each compiles its own"
        " shard's alone, on CPUs, with one device a process; auto: own where that is so",
    )
    parts: str = _option(
        "",
        "folder of python -m jhgnn.partition with a part for each device: rows of features and embeddings are then cut"
        " over the devices by it, and fetched once a step; empty: every device holds all rows",
    )
    read: Literal["data", "parts"] = _option(
        "data",
        "data: each process reads the data of the recipe, whole; parts: edges and labels from the folder of"
        " distributed.parts, mapped into memory, and of features the rows of its own parts alone",
    )
    topology: Literal["replicated", "partitioned"] = _option(
        "replicated",
        "replicated: every process draws from all edges; partitioned: each device keeps the in-edges of the nodes that"
        " are at home there, and draws their neighbours for all, in mini-batches; the sampled graphs are the same",
    )
    method: Literal["", "random", "metis", "metapath"] = _option(
        "", "the same with parts that are made when training starts, in one process, by this method"
    )
    devices: int = _option(0, "local devices to train on; 0: all", minimum=0)
    coordinator: str = _option(
        "", "HOST:PORT of process 0 where several train together; empty: a single one, or found from the cluster"
    )
    num_processes: int = _option(0, "processes that train together; 0: one, or found from the cluster", minimum=0)
    process_id: int = _option(-1, "number of this process, from 0; -1: found from the cluster", minimum=-1)
    heartbeat_timeout_s: int = _option(
        30, "seconds after which a silent process counts as dead, which ends the run on the others", minimum=5
    )


@dataclasses.dataclass(frozen=True)
class ExplainConfig:
    """What an explanation computes; no part of a recipe."""

    top: int = _option(10, "edges that fidelity leaves out or keeps, and rows that are listed of each kind", minimum=1)
    steps: int = _option(200, "steps of Adam for edge masks; 0: learn none", minimum=0)
    learning_rate: float = _option(0.1, "of edge masks", above=0)
    size: float = _option(1.0, "weight of the masks' mean in their loss", minimum=0)
    entropy: float = _option(0.1, "weight of the masks' mean entropy in their loss", minimum=0)
    most_edges: int = _option(200_000, "edges that a receptive field may have, counted once a layer", minimum=1)
