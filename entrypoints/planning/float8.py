"""What `--precision fp8` is for, and how it scales."""

from __future__ import annotations

from entrypoints.contract.cards import Card
from entrypoints.contract.choices import FP8, SERVING, TENSORWISE
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options
from entrypoints.serving.load import TRANSFORMERS

FAMILY = "decoder"  # whose layers are converted, and checked
DEVICES = ("cpu", "cuda")  # on which torch._scaled_mm is known
INSTEAD = "take --precision bf16"


def require(options: Options, card: Card, framework: str, device: str) -> None:
    """Raise UsageError for FP8 of what has none here, and for scales without FP8."""
    if options.precision != FP8:
        if options.fp8_scaling:
            raise UsageError(
                f"--fp8-scaling {options.fp8_scaling} is for --precision {FP8}", "add that, or leave it out"
            )
        return
    where = f"--precision {FP8}"
    if framework != "pytorch":
        raise UsageError(f"{where}: only PyTorch has layers in FP8 here, and not {framework}", INSTEAD)
    if device not in DEVICES:
        raise UsageError(f"{where} is for {' and '.join(DEVICES)} here, and not for {device}", INSTEAD)
    if card.family != FAMILY or "experts" in card.problem["model"]:
        raise UsageError(
            f"{where}: FP8 is for linear layers of dense decoders, and {card.name} is none",
            f"{INSTEAD}, or a workload as llama_1b",
        )
    if options.task == SERVING:
        _require_engine(options, device)
        return
    if options.task != "training":
        raise UsageError(f"{where} is for training, which converts its weights at each step, and for serving", INSTEAD)
    if options.tensor > 1:
        raise UsageError(
            f"{where} with --tensor {options.tensor}: ranks would scale parts of a tensor apart",
            "take --strategy fsdp, or --precision bf16",
        )
    if options.measured_peak:
        raise UsageError(f"{where} with --measured-peak: no product is measured in FP8", "leave --measured-peak out")


def _require_engine(options: Options, device: str) -> None:
    """Raise UsageError for an engine that has no FP8 on a kind of device."""
    if options.engine == TRANSFORMERS or device != "cuda":
        engine = f"--engine {TRANSFORMERS}" if options.engine == TRANSFORMERS else f"vLLM on {device}"
        raise UsageError(
            f"--precision {FP8}: {engine} has none here", f"{INSTEAD}, or an image of cuda_vllm or rocm_vllm"
        )


def scaling(options: Options, precision: str) -> str | None:
    """Return what has a scale of its own; None without FP8."""
    return (options.fp8_scaling or TENSORWISE) if precision == FP8 else None
