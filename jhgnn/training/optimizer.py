"""The Optax optimizer and schedule that a recipe asks for."""

import optax

from jhgnn.config import TrainingConfig


def make_schedule(config: TrainingConfig, steps_per_epoch: int = 1) -> optax.Schedule:
    """Learning rate by step (one a full-batch epoch): linear warm-up, then constant, or a decay to zero."""
    warmup_steps = config.warmup_epochs * steps_per_epoch
    rest = max(1, config.epochs * steps_per_epoch - warmup_steps)
    peak = config.learning_rate
    main = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(peak, rest),
        "linear": optax.linear_schedule(peak, 0.0, rest),
    }[config.schedule]
    if not warmup_steps:
        return main
    warmup = optax.linear_schedule(peak / (warmup_steps + 1), peak, warmup_steps)
    return optax.join_schedules([warmup, main], [warmup_steps])


def make_optimizer(config: TrainingConfig, steps_per_epoch: int = 1) -> optax.GradientTransformation:
    """Gradient clipping, weight decay (coupled for adam and sgd, as in PyTorch's Adam), then the optimizer."""
    schedule = make_schedule(config, steps_per_epoch)
    steps = [optax.clip_by_global_norm(config.gradient_clip)] if config.gradient_clip else []
    if config.optimizer in ("adam", "sgd") and config.weight_decay:
        steps.append(optax.add_decayed_weights(config.weight_decay))
    steps.append(
        {
            "adam": lambda: optax.adam(schedule),
            "adamw": lambda: optax.adamw(schedule, weight_decay=config.weight_decay),
            "sgd": lambda: optax.sgd(schedule, momentum=0.9),
            "lamb": lambda: optax.lamb(schedule, weight_decay=config.weight_decay),
        }[config.optimizer]()
    )
    return optax.chain(*steps)
