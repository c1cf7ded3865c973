"""How long a run is: its steps, those of warm-up, and the target that ends it."""

from __future__ import annotations

from entrypoints.contract.cards import Card, labelled
from entrypoints.contract.choices import DEFAULT_MODE
from entrypoints.contract.statuses import UsageError
from entrypoints.contract.target import Target
from entrypoints.planning.arguments import Options

EVALUATION_STEPS = 100  # between two evaluations if data have no end


def steps(options: Options, default: int, per_epoch: int | None) -> int | None:
    """Return the number of steps, with those of warm-up; None if the run lasts for a duration."""
    if options.duration:
        return None
    if options.epochs and per_epoch:
        return options.epochs * per_epoch
    return options.steps or default


def warmup_steps(options: Options, default: int, steps: int | None, least: int) -> int:
    """Return the warm-up steps, at least as many as are recorded before they are replayed.

    A short run reduces a default, but not a number that was asked for.
    """
    if options.warmup_steps is None:
        default = default if steps is None else min(default, max(1, steps // 2))
    warmup = options.warmup_steps or max(default, least)
    if warmup < least:
        raise UsageError(
            f"--warmup-steps {warmup} with --compile: CUDA graphs are recorded before they are replayed, which takes "
            f"{least} steps",
            f"give --warmup-steps {least} or more, or --compile {DEFAULT_MODE}",
        )
    if steps is not None and warmup >= steps:
        raise UsageError(
            f"{warmup} warm-up of {steps} steps leave none to time",
            f"ask for at least {warmup + 1} steps, or for fewer --warmup-steps",
        )
    return warmup


def goal(options: Options, card: Card, per_epoch: int | None) -> Target | None:
    """Return the target, evaluated after each epoch by default; None without one."""
    metric = "accuracy" if options.target_accuracy is not None else "loss"
    value = options.target_accuracy if options.target_accuracy is not None else options.target_loss
    if value is None:
        if options.evaluation_steps:
            raise UsageError(
                "--evaluation-steps without a target: nothing is evaluated", "add --target-accuracy or --target-loss"
            )
        return None
    if options.task != "training":
        raise UsageError(f"--target-{metric}: {options.task} trains nothing", "leave it out, or --task training")
    if metric == "accuracy" and not labelled(card.problem):
        raise UsageError(f"--target-accuracy: {card.name} has no labels", "use --target-loss")
    if not (options.steps or options.epochs or options.duration or options.smoke):
        raise UsageError(f"--target-{metric} may never be reached", "give --steps, --epochs or --duration as a bound")
    return {
        "metric": metric,
        "value": value,
        "evaluation_steps": options.evaluation_steps or per_epoch or EVALUATION_STEPS,
    }
