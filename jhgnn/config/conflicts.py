"""Settings of one or several sections that contradict each other. Each check raises an InputError that names them."""

from jhgnn.config.options import DistributedConfig, ModelConfig, RunConfig, SamplingConfig, TrainingConfig
from jhgnn.errors import InputError


def check_model(model: ModelConfig) -> None:
    """Decompositions of R-GCN's weights exclude each other, and blocks divide the width."""
    if model.bases and model.blocks:
        raise InputError(f"model.bases = {model.bases} and model.blocks = {model.blocks}: set one of them to 0")
    if model.blocks and model.hidden % model.blocks:
        raise InputError(f"model.hidden = {model.hidden} is not a multiple of model.blocks = {model.blocks}")


def check_memory(training: TrainingConfig, sampling: SamplingConfig) -> None:
    """A memory budget chooses what is not also given, and micro-batches are equal parts of a batch."""
    chosen = [key for key, default in (("remat", "none"), ("micro_batches", 1)) if getattr(training, key) != default]
    if training.memory_budget and chosen:
        raise InputError(
            f"training.{chosen[0]} = {getattr(training, chosen[0])!r} beside training.memory_budget, which chooses"
            " it: leave one of them out"
        )
    if training.micro_batches > 1 and not sampling.batch_size:
        raise InputError(
            f"training.micro_batches = {training.micro_batches} cuts mini-batches, but sampling.batch_size is 0: a"
            " full-batch step computes each layer for all nodes at once; set sampling.batch_size"
        )
    if sampling.batch_size % training.micro_batches:
        raise InputError(
            f"sampling.batch_size = {sampling.batch_size} does not divide into training.micro_batches ="
            f" {training.micro_batches} parts"
        )


def check_parts(sampling: SamplingConfig, distributed: DistributedConfig, training: TrainingConfig) -> None:
    """Rows that are cut over the devices are read, placed and updated in ways of their own."""
    keys = [key for key in ("parts", "method") if getattr(distributed, key)]
    if distributed.read == "parts":
        if not distributed.parts:
            raise InputError("distributed.read = 'parts' reads the folder of distributed.parts, which is empty")
        if sampling.evaluation == "layerwise":
            raise InputError(
                "distributed.read = 'parts' has no rows of other parts, which sampling.evaluation = 'layerwise'"
                " reads; use 'sampled'"
            )
    if distributed.time_steps and distributed.strategy != "leapgnn":
        raise InputError(
            f"distributed.time_steps = {distributed.time_steps} is of the ring of distributed.strategy = 'leapgnn';"
            " leave it out"
        )
    if distributed.topology == "partitioned":
        _check_topology(sampling, distributed)
    if not keys:
        if distributed.strategy in ("owner", "leapgnn"):
            raise InputError(
                f"distributed.strategy = {distributed.strategy!r} trains targets where their rows are: give"
                " distributed.parts, or distributed.method"
            )
        return
    if len(keys) > 1:
        raise InputError("distributed.parts and distributed.method: the parts are written or made, not both")
    named = f"distributed.{keys[0]}"
    if not sampling.batch_size and distributed.strategy != "owner":
        raise InputError(
            f"{named} with sampling.batch_size = 0 trains every target where its row is; set distributed.strategy ="
            " 'owner', or sampling.batch_size"
        )
    if not sampling.batch_size and training.rows == "needed":
        raise InputError(f"training.rows = 'needed' is for a graph on one device; leave it out beside {named}")
    if distributed.method and distributed.num_processes > 1:
        raise InputError(
            f"distributed.method = {distributed.method!r} makes parts in one process; for several, write them with"
            " python -m jhgnn.partition and give distributed.parts"
        )
    if sampling.features == "host":
        raise InputError(f"{named} keeps features on the devices; leave out sampling.features = 'host'")
    if sampling.cache:
        raise InputError(f"{named} keeps features on the devices; leave out sampling.cache")
    if training.optimizer == "lamb":
        raise InputError(
            f"{named}: training.optimizer = 'lamb' scales by the norms of whole tables, which no device holds; use"
            " adam, adamw or sgd"
        )
    for key, default in (("micro_batches", 1), ("memory_budget", 0)):
        if getattr(training, key) != default:
            raise InputError(f"{named} fetches the rows of a share at once; leave out training.{key}")


def _check_topology(sampling: SamplingConfig, distributed: DistributedConfig) -> None:
    """Edges that are cut over the devices are drawn from by the devices, for mini-batches."""
    named = "distributed.topology = 'partitioned'"
    if not (distributed.parts or distributed.method):
        raise InputError(f"{named} keeps edges where nodes are at home: give distributed.parts, or distributed.method")
    if not sampling.batch_size:
        raise InputError(f"{named} is about drawing neighbours for mini-batches; set sampling.batch_size")
    if sampling.side == "host":
        raise InputError(f"{named} draws on the devices, each from the edges that it keeps; leave out sampling.side")
    if sampling.hot != "none":
        raise InputError(f"{named} does not go with sampling.hot = {sampling.hot!r}; leave one of them out")


def check_cache(sampling: SamplingConfig) -> None:
    """A cache of rows is for mini-batches whose rows the host gathers."""
    if not sampling.cache:
        return
    if not sampling.batch_size:
        raise InputError(
            f"sampling.cache = {sampling.cache} keeps rows of mini-batches, but sampling.batch_size is 0; set it"
        )
    if sampling.hot != "none":
        raise InputError(
            f"sampling.cache = {sampling.cache} beside sampling.hot = {sampling.hot!r}, which keeps rows of its"
            " own: leave one of them out"
        )
    for key in ("features", "side"):
        if getattr(sampling, key) == "device":
            raise InputError(
                f"sampling.cache = {sampling.cache} keeps rows for the host to gather, but sampling.{key} ="
                " 'device'; change one of them"
            )


def check_feature_dtype(sampling: SamplingConfig, distributed: DistributedConfig) -> None:
    """Features are rounded where mini-batches gather them from memory."""
    if sampling.feature_dtype == "float32":
        return
    named = f"sampling.feature_dtype = {sampling.feature_dtype!r}"
    if not sampling.batch_size:
        raise InputError(f"{named} is what mini-batches gather, but sampling.batch_size is 0; set it")
    if sampling.hot == "exact":
        raise InputError(f"{named} would round the means that sampling.hot = 'exact' keeps; leave one of them out")
    if distributed.read == "parts":
        raise InputError(f"{named} does not go with distributed.read = 'parts'; leave one of them out")


def check_tables(sampling: SamplingConfig, distributed: DistributedConfig, training: TrainingConfig) -> None:
    """Mapped tables are staged by the host for one device, a whole batch at a time."""
    if sampling.tables == "device":
        return
    named = "sampling.tables = 'mapped'"
    if not sampling.batch_size:
        raise InputError(f"{named} keeps the rows of mini-batches, but sampling.batch_size is 0; set it")
    given = {  # whether it is set
        "sampling.side": sampling.side == "device",
        "sampling.hot": sampling.hot != "none",
        "training.micro_batches": training.micro_batches > 1,
        "training.memory_budget": bool(training.memory_budget),
        "distributed.strategy": distributed.strategy != "data",
        "distributed.parts": bool(distributed.parts),
        "distributed.method": bool(distributed.method),
        "distributed.num_processes": distributed.num_processes > 1,
    }
    sections = {"sampling": sampling, "distributed": distributed, "training": training}
    for key, is_set in given.items():
        if is_set:
            section, field = key.split(".")
            value = getattr(sections[section], field)
            raise InputError(
                f"{named} with {key} = {value!r}: its rows are staged by the host for one device, a whole batch at"
                " a time; leave one of them out"
            )


def check_processes(run: RunConfig, sampling: SamplingConfig, distributed: DistributedConfig) -> None:
    """Several processes are told about each other whole, and share one run folder."""
    if not sampling.batch_size and not distributed.parts:
        if distributed.coordinator or distributed.num_processes > 1:
            raise InputError(
                "distributed.coordinator is set, but full batches of a graph that is not in parts run in one"
                " process; set sampling.batch_size or distributed.parts"
            )
        return
    if sampling.side == "device" and sampling.features == "host":
        raise InputError(
            "sampling.side = 'device' samples inside the step, where the host cannot gather sampling.features ="
            " 'host'; change one of them"
        )
    if bool(distributed.coordinator) != (distributed.num_processes > 0) or (
        distributed.coordinator and not 0 <= distributed.process_id < distributed.num_processes
    ):
        raise InputError(
            f"distributed.coordinator = {distributed.coordinator!r}, num_processes = {distributed.num_processes},"
            f" process_id = {distributed.process_id}: give all three, with process_id from 0 to num_processes - 1"
        )
    if distributed.num_processes > 1 and not run.dir:
        raise InputError("distributed.num_processes > 1 needs run.dir, one folder that all processes reach")
