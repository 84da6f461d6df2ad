"""Which settings go together: what no single section of a recipe can know, before any data is read."""

import dataclasses

from jhgnn.config import Config
from jhgnn.config.share import AUTO
from jhgnn.errors import InputError
from jhgnn.nn.model import Model
from jhgnn.ops.registry import check_names

TASKS = ("node_classification", "link_prediction")
"""What `task.name` may be without a module."""


def check(config: Config, model: type[Model]) -> None:
    """Refuses a recipe whose settings do not fit its model or each other.

    Raises:
        InputError: one line that says which, and what would be right.
    """
    check_names(config.kernels)
    _check_kernels(config)
    model.settled(config.model)
    _check_task(config, model)
    _check_sampling(config, model)
    _check_temporal(config, model)
    _check_hot(config, model)
    _check_strategy(config, model)
    _check_rows(config, model)
    _check_edge_features(config)
    _check_parts(config, model)


def _check_kernels(config: Config) -> None:
    if config.kernels.tables != "auto" and not config.sampling.batch_size:
        raise InputError(
            f"kernels.tables = {config.kernels.tables!r} is of mini-batches, which read some rows of embedding tables:"
            " set sampling.batch_size, or use 'auto'"
        )
    if config.kernels.relations != "auto" and config.sampling.batch_size:
        raise InputError(
            f"kernels.relations = {config.kernels.relations!r} is of whole graphs, and sampling.batch_size ="
            f" {config.sampling.batch_size} asks for mini-batches: use 'auto'"
        )


def _check_task(config: Config, model: type[Model]) -> None:
    task = config.task
    if task.name not in TASKS and ":" not in task.name:
        raise InputError(
            f"task.name = {task.name!r} is not one of {', '.join(TASKS)}; a task of your own is MODULE:CLASS"
        )
    if task.name != "link_prediction":
        if ":" in task.name and config.training.label_smoothing:
            raise InputError(
                f"training.label_smoothing is for 'node_classification'; {task.name!r} has a loss of its own"
            )
        if config.training.class_weights and (":" in task.name or config.training.loss):
            raise InputError("training.class_weights weigh the cross entropy; a task or loss of your own weighs itself")
        for field in dataclasses.fields(task):
            if field.name != "name" and getattr(task, field.name) != field.default:
                raise InputError(
                    f"task.{field.name} = {getattr(task, field.name)!r} is for task.name = 'link_prediction';"
                    " leave it out, or name the task"
                )
        return
    if model.over != "relations":
        raise InputError(
            f"model.name = {config.model.name!r} embeds one node type or none by relation; links need 'rgcn' or 'rgat'"
        )
    if config.training.label_smoothing:
        raise InputError("training.label_smoothing spreads a class over others; links have none: leave it out")
    if config.training.class_weights:
        raise InputError("training.class_weights weigh classes; links have none: leave it out")
    if not config.data.validation:
        raise InputError("data.validation = false is for classes; links that validate never train: leave it out")
    if task.encoder == "none" and (task.exclude_targets or task.skip):
        raise InputError("task.exclude_targets and task.skip are about message passing; task.encoder is 'none'")
    if task.negatives_of == "link" and not task.negatives:
        raise InputError("task.negatives_of = 'link' draws task.negatives for each link, which is 0; set it")
    if config.sampling.batch_size:
        if not task.negatives:
            raise InputError(
                "task.negatives = 0 scores against all nodes, whose rows a mini-batch does not have; set it to a number"
            )
        if task.encoder == "none":
            raise InputError("task.encoder = 'none' has no neighbours to sample; set sampling.batch_size = 0")
    elif task.exclude_targets and not model.weighs_edges:
        raise InputError(
            f"task.exclude_targets over the whole graph works with 'rgcn', whose means take weights of edges, not with"
            f" {config.model.name!r}; set sampling.batch_size"
        )


def _check_sampling(config: Config, model: type[Model]) -> None:
    sampling, name = config.sampling, config.model.name
    if not sampling.batch_size:
        return
    if sampling.walks and model.over != "metapaths":
        raise InputError(f"sampling.walks = {sampling.walks}: walks are HAN's; set it to 0 for {name!r}")
    if sampling.evaluation == "layerwise" and sampling.walks:
        raise InputError(
            "sampling.evaluation = 'layerwise' reads whole metapath graphs, which"
            f" sampling.walks = {sampling.walks} does without: use 'sampled'"
        )


def _check_temporal(config: Config, model: type[Model]) -> None:
    """What does not keep each seed's neighbourhood to the seed's own time."""
    sampling, distributed = config.sampling, config.distributed
    named = f"sampling.temporal = {sampling.temporal!r}"
    if sampling.temporal == "none":
        return
    if not sampling.batch_size:
        raise InputError(
            f"{named} gives each seed the neighbours of its own time, and a full batch gives all the same; set"
            " sampling.batch_size"
        )
    if config.task.name == "link_prediction":
        raise InputError(f"{named} is for nodes; for links use task.until_training, which cuts the graph at one time")
    if model.over == "erased":
        raise InputError(f"{named} goes by times of relations, and {config.model.name!r} erases types: use 'none'")
    if model.over == "metapaths" and not sampling.walks:
        raise InputError(
            f"{named}: metapath graphs that are built hold no times of their edges; walk the metapaths with"
            " sampling.walks"
        )
    if sampling.side == "device":
        raise InputError(f"{named} samples on the host; leave sampling.side out")
    if sampling.evaluation == "layerwise":
        raise InputError(
            f"{named}: sampling.evaluation = 'layerwise' gives each node one row, whoever asks and when; use 'sampled',"
            " with sampling.fan_out = 'all' for all neighbours"
        )
    if sampling.hot != "none":
        raise InputError(f"{named}: sampling.hot = {sampling.hot!r} keeps one row for all times; use 'none'")
    if sampling.cache:
        raise InputError(f"{named} does not go with sampling.cache = {sampling.cache}; leave one of them out")
    for key, default in (("strategy", "data"), ("parts", ""), ("method", "")):
        if getattr(distributed, key) != default:
            raise InputError(
                f"{named} does not go with distributed.{key} = {getattr(distributed, key)!r}; leave one of them out"
            )


def _check_hot(config: Config, model: type[Model]) -> None:
    """What means that are computed before training, and rows that are reused, do not cover."""
    sampling = config.sampling
    named = f"sampling.hot = {sampling.hot!r}"
    if sampling.hot == "none":
        return
    if not sampling.batch_size:
        raise InputError(f"{named} spares mini-batches some draws; set sampling.batch_size, or leave it out")
    if sampling.hot_share == AUTO and (config.distributed.num_processes > 1 or config.distributed.coordinator):
        raise InputError(
            "sampling.hot_share = 'auto' is measured in one process, and several would choose differently; train there"
            " first, and take the number from its recipe.toml"
        )
    if sampling.hot != "exact":
        _check_reuse(config, model, named)
        return
    if not model.means_of_inputs:
        raise InputError(
            f"{named} keeps means of input rows, and {config.model.name!r} aggregates its input by other weights; use"
            " 'rgcn', or 'none'"
        )
    if config.task.name == "link_prediction":
        raise InputError(f"{named} keeps means over all neighbours, which batches of links may leave out: use 'none'")
    if config.model.feature_dropout:
        raise InputError(
            f"{named} keeps means of whole rows, of which model.feature_dropout = {config.model.feature_dropout} drops"
            " some; set it to 0"
        )
    if config.distributed.read == "parts":
        raise InputError(
            f"{named} sums features of all parts, of which distributed.read = 'parts' has its own alone; leave one of"
            " them out"
        )
    if config.distributed.strategy == "raf":
        raise InputError(f"{named} does not go with distributed.strategy = 'raf'; leave one of them out")


def _check_reuse(config: Config, model: type[Model], named: str) -> None:
    distributed = config.distributed
    if not model.reuses_parts and (model.over != "relations" or model.fuses_over_targets):
        why = "fuses over all targets of a batch at once" if model.fuses_over_targets else f"is over {model.over}"
        raise InputError(
            f"{named} takes over rows of single vertices, and {config.model.name!r} {why}; use 'rgcn', 'rgat' or 'han',"
            " or 'none'"
        )
    if config.task.name == "link_prediction":
        raise InputError(f"{named} reuses rows in several batches, each of which leaves out its own links: use 'none'")
    if config.sampling.side == "device":
        raise InputError(f"{named} draws its batches from different graphs, on the host; leave sampling.side out")
    if distributed.strategy == "raf":
        raise InputError(f"{named} does not go with distributed.strategy = 'raf'; leave one of them out")


def _check_strategy(config: Config, model: type[Model]) -> None:
    """What relation-aggregation-first training does not cover."""
    distributed, training, sampling = config.distributed, config.training, config.sampling
    if distributed.strategy != "raf":
        for key, default in (("relation_shards", 0), ("plan", ""), ("programs", "auto")):
            if (value := getattr(distributed, key)) != default:
                raise InputError(f"distributed.{key} = {value!r} is for distributed.strategy = 'raf'; leave it out")
        return
    if distributed.parts or distributed.method:
        raise InputError(
            "distributed.strategy = 'raf' divides relations, not parts; leave distributed.parts and method out"
        )
    if not sampling.batch_size:
        raise InputError("distributed.strategy = 'raf' trains on mini-batches; set sampling.batch_size")
    if config.task.name != "node_classification":
        raise InputError(
            f"distributed.strategy = 'raf' is for node classification, not for task.name = {config.task.name!r}"
        )
    if model.over == "erased":
        raise InputError(f"distributed.strategy = 'raf' divides relations, and {config.model.name!r} erases them")
    if sampling.side == "device":
        raise InputError("distributed.strategy = 'raf' samples on the host; leave sampling.side out")
    if training.micro_batches > 1 or training.memory_budget:
        key = "micro_batches" if training.micro_batches > 1 else "memory_budget"
        raise InputError(f"training.{key} does not go with distributed.strategy = 'raf'; leave it out")


def _check_rows(config: Config, model: type[Model]) -> None:
    rows, name = config.training.rows, config.model.name
    if rows == "auto":
        return
    if config.sampling.batch_size or config.task.name == "link_prediction":
        raise InputError(
            f"training.rows = {rows!r} is for full-batch classification; leave it out for mini-batches and links"
        )
    if rows == "needed" and not takes_fields(model):
        why = "its fusion averages over all targets" if model.fuses_over_targets else f"{name!r} is a control"
        raise InputError(f"training.rows = 'needed' is for 'rgcn' and 'rgat'; {why}: use 'all'")


def _check_edge_features(config: Config) -> None:
    """What edge features are not read by yet."""
    sampling, distributed = config.sampling, config.distributed
    if not config.model.edge_features:
        return
    if sampling.hot != "none":
        raise InputError(
            f"model.edge_features: sampling.hot = {sampling.hot!r} keeps sums over neighbours without them; use 'none'"
        )
    if config.task.name == "link_prediction":
        raise InputError("model.edge_features are for classes of nodes, not for links; leave them out")
    if config.training.rows == "needed":
        raise InputError("model.edge_features are read over all rows; use training.rows = 'all' or 'auto'")
    for key in ("parts", "method"):
        if getattr(distributed, key):
            raise InputError(f"model.edge_features are not cut into parts; leave distributed.{key} out")
    if distributed.strategy == "raf":
        raise InputError("model.edge_features are not divided by relation; use distributed.strategy = 'data'")


def _check_parts(config: Config, model: type[Model]) -> None:
    distributed = config.distributed
    key = "parts" if distributed.parts else "method"
    if not getattr(distributed, key):
        return
    if config.task.name != "node_classification":
        raise InputError(
            f"distributed.{key} is for task.name = 'node_classification', whose targets have a home each; leave it out"
        )
    if model.over == "erased":
        raise InputError(f"distributed.{key} cuts rows by node type; {config.model.name!r} erases types: leave it out")
    if distributed.strategy == "leapgnn":
        if model.fuses_over_targets:
            raise InputError(
                f"distributed.strategy = 'leapgnn' trains sub-batches apart, but {config.model.name!r} averages over"
                " all targets of a batch; use 'owner'"
            )
        if config.sampling.evaluation != "layerwise":
            raise InputError("distributed.strategy = 'leapgnn' needs sampling.evaluation = 'layerwise'")


def takes_fields(model: type[Model]) -> bool:
    """Whether a model can compute some targets from their receptive field alone, without all other rows."""
    return model.over == "relations" and not model.fuses_over_targets
