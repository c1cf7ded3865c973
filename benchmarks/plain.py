"""The plain loop: a workload written in the obvious way, with nothing done for speed; or, with --tuned, a little.

    python plain.py WORKLOAD TASK PRECISION BATCH SECONDS THREADS [--device cuda] [--tuned] [--compile]

Networks are torchvision's (image_compression and deep_voice_3: written from the card), those of Hugging Face's library
for text, which also continues texts, and PyTorch's own LSTM. Loss and optimizer are the card's, in PyTorch's own
classes with their defaults, over one synthetic batch. Chains are sampled by leapfrog steps with gradients by autograd.
It prints steps and seconds of the timed window, and of the parts of it, as JSON.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "inside" / "support"))

import torch
from torch import nn
from torch.nn import functional

from entrypoints.contract import cards
from entrypoints.contract.cards import Card, pictures
from entrypoints.contract.session import OptimizerRule
from entrypoints.data.generated import synthetic
from entrypoints.workloads.pytorch import loader, optimizers

WARMUP = 4  # steps
AHEAD = 2  # steps that the host may be ahead of a GPU
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
FUSED = ("adam", "adamw", "sgd")  # optimizers of which PyTorch has a single kernel


class How(NamedTuple):
    """How a loop computes. A tuned one keeps its data in the layout that is fastest, and does not wait in each step."""

    device: str = "cpu"
    precision: str = "fp32"
    tuned: bool = False
    compiled: bool = False
    micro_batch: int | None = None  # samples of each backward pass; None: all at once

    @property
    def autocast(self) -> Callable[[], Any]:
        """A context in which products are computed in half precision, if that is asked for."""
        if self.precision not in HALF:
            return contextlib.nullcontext
        return functools.partial(torch.autocast, self.device, dtype=HALF[self.precision])

    def compile(self, made: Any, replayed: bool = True) -> Any:
        """Return what torch.compile makes of a function or module, replayed as CUDA graphs on a GPU."""
        mode = "reduce-overhead" if replayed and self.device == "cuda" else None
        return torch.compile(made, mode=mode) if self.compiled else made

    def placed(self, tensors: Any, dtype: torch.dtype | None = None) -> Any:
        """Return a tensor, or each of a tuple, on the device, numbers as `dtype` if that is given."""
        if isinstance(tensors, tuple):
            return tuple(self.placed(each, dtype) for each in tensors)
        moved = tensors.to(self.device, dtype if tensors.is_floating_point() else None)
        return moved.contiguous(memory_format=torch.channels_last) if self.tuned and moved.dim() == 4 else moved


class Series(nn.Module):
    """PyTorch's own LSTM, and a linear layer over the last state."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.lstm = nn.LSTM(model["features"], model["hidden"], model["layers"], batch_first=True)
        self.linear = nn.Linear(model["hidden"], model["outputs"])

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """(N, T, features) -> (N, outputs)."""
        return self.linear(self.lstm(series)[0][:, -1])


def network_of(card: Card) -> nn.Module:
    """Return the network that a user would take."""
    if card.family == "lstm":
        return Series(card.problem["model"])
    if card.family == "deep_voice_3":
        from written_speech import Speech  # late, as all of these: each needs another library

        return Speech(card.problem["model"])
    from written import NETWORKS  # also for text: where torchvision is broken, Hugging Face's library needs its repair

    if card.name in NETWORKS:
        return NETWORKS[card.name]()
    import of_transformers

    return of_transformers.Network(card)


def loss_of(problem: Mapping[str, Any]) -> Callable[[Any, Any], torch.Tensor]:
    """Return the card's loss."""
    name = problem["loss"]["name"]
    if name == "mean_squared_error":
        return nn.MSELoss()
    if name == "span_cross_entropy":
        return lambda output, ends: (
            (
                functional.cross_entropy(output[..., 0], ends[:, 0])
                + functional.cross_entropy(output[..., 1], ends[:, 1])
            )
            / 2
        )
    if name == "sum_of_cross_entropies":
        return lambda outputs, targets: (
            functional.cross_entropy(outputs[0].flatten(0, 1), targets[0].flatten())
            + functional.cross_entropy(outputs[1], targets[1])
        )
    if name == "speech":
        return speech_loss(problem["loss"]["guided_attention_deviation"])
    smoothing = problem["loss"]["label_smoothing"]
    return lambda output, labels: functional.cross_entropy(
        output.flatten(0, -2), labels.flatten(), label_smoothing=smoothing
    )


def speech_loss(deviation: float) -> Callable[[Any, Any], torch.Tensor]:
    """Return the loss of speech: absolute differences of spoken frames and of done flags, and guided attention."""

    def loss(outputs: Any, targets: Any) -> torch.Tensor:
        (mel, linear, done, attention), (mel_frames, linear_frames, over) = outputs, targets
        spoken = 1 - over[:, :, 1:]
        frames, characters = attention.shape[2:]
        at = functools.partial(torch.arange, device=attention.device)
        places = at(frames)[:, None] / frames - at(characters)[None, :] / characters
        guide = 1 - torch.exp(-(places**2) / (2 * deviation**2))
        return (
            functional.l1_loss(mel[:, :, :-1] * spoken, mel_frames[:, :, 1:] * spoken)
            + functional.l1_loss(linear[:, :, :-1] * spoken, linear_frames[:, :, 1:] * spoken)
            + functional.l1_loss(done, over)
            + (attention.sum(1) * guide).mean()
        )

    return loss


def optimizer_of(model: nn.Module, rule: OptimizerRule, **faster: bool) -> torch.optim.Optimizer:
    """Return the card's optimizer, with a separate group for normalisation parameters if they have no decay.

    PyTorch's own take `faster`, such as fused=True.
    """
    kinds = {"normalisation": (nn.BatchNorm2d, nn.LayerNorm), "embedding": (nn.Embedding,)}
    spared = tuple(kind for name in rule.no_weight_decay_on for kind in kinds.get(name, ()))
    exempt = [p for layer in model.modules() if isinstance(layer, spared) for p in layer.parameters()]
    if "bias" in rule.no_weight_decay_on:
        exempt += [p for name, p in model.named_parameters() if "bias" in name and not any(p is q for q in exempt)]
    others = [p for p in model.parameters() if not any(p is q for q in exempt)]
    groups = [{"params": others, "weight_decay": rule.weight_decay}, {"params": exempt, "weight_decay": 0.0}]
    settings = rule.settings
    if rule.name == "adamw":
        return torch.optim.AdamW(
            groups, lr=rule.learning_rate, betas=settings["betas"], eps=settings["epsilon"], **faster
        )
    if rule.name == "lamb":
        return optimizers.Lamb(groups, rule, False)  # PyTorch has none
    if rule.name == "sgd":
        return torch.optim.SGD(
            groups, lr=rule.learning_rate, momentum=settings["momentum"], nesterov=settings["nesterov"], **faster
        )
    if rule.name == "rmsprop":
        return torch.optim.RMSprop(
            groups,
            lr=rule.learning_rate,
            alpha=settings["smoothing"],
            eps=settings["epsilon"],
            momentum=settings["momentum"],
        )
    betas = tuple(settings["betas"])
    return torch.optim.Adam(groups, lr=rule.learning_rate, betas=betas, eps=settings["epsilon"], **faster)


def sampling(card: Card, chains: int) -> Callable[[], None]:
    """Return a transition of all chains: the density in batched form, its gradient by autograd."""
    model, rule = card.problem["model"], card.problem["sampler"]
    batch = loader.as_batch(synthetic.batch(card.problem, chains, synthetic.SeededRandom(0)))
    features, targets = batch.inputs * model["feature_scale"], batch.targets
    units, count = model["hidden"], model["features"]
    around, prior = model["likelihood"], torch.distributions.Normal(0.0, model["prior"]["scale"])

    def log_density(position: torch.Tensor) -> torch.Tensor:
        weight, bias, output, output_bias, scale, shift = position.split([units * count, units, units, 1, 1, 1], dim=1)
        hidden = torch.tanh(features @ weight.view(chains, units, count).transpose(1, 2) + bias[:, None])
        location = ((hidden @ output[..., None]).squeeze(-1) + output_bias) * scale + shift
        student = torch.distributions.StudentT(around["degrees_of_freedom"], location, around["scale"])
        return student.log_prob(targets).sum(1) + prior.log_prob(position).sum(1)

    def sloped(position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        position = position.detach().requires_grad_()
        value = log_density(position)
        return value.detach(), torch.autograd.grad(value.sum(), position)[0]

    state = torch.zeros(chains, card.problem["parameters"])

    def transition() -> None:
        nonlocal state
        position, momentum = state, torch.randn_like(state)
        value, gradient = sloped(position)
        before = value - momentum.square().sum(1) / 2
        for _ in range(rule["leapfrog_steps"]):
            momentum = momentum + rule["step_size"] / 2 * gradient
            position = position + rule["step_size"] * momentum
            value, gradient = sloped(position)
            momentum = momentum + rule["step_size"] / 2 * gradient
        accepted = torch.rand(chains).log() < value - momentum.square().sum(1) / 2 - before
        state = torch.where(accepted[:, None], position, state)

    return transition


def prepare(workload: str, task: str, batch_size: int, how: How) -> Callable[[], Any]:
    """Return a step of the task; one of training that is not tuned returns the loss."""
    card = cards.load()[workload]
    torch.manual_seed(0)
    if task == "sampling":
        return sampling(card, batch_size)
    batch = loader.as_batch(synthetic.batch(card.problem, batch_size, synthetic.SeededRandom(0)))
    network = network_of(card).to(how.device)
    if how.tuned:
        network = network.to(memory_format=torch.channels_last) if pictures(card.problem) else network
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high" if how.precision != "fp32" else "highest")
    inputs = batch.inputs if isinstance(batch.inputs, tuple) else (batch.inputs,)
    if task == "inference" and "generation" in card.problem:
        make = tuned_generation if how.tuned else generation
        return make(network.eval(), how.placed(inputs[0]), card.problem["generation"], how)
    if task == "inference":
        return (tuned_inference if how.tuned else inference)(network.eval(), inputs, how)
    rule = OptimizerRule.from_problem(card.problem["optimizer"], batch_size)
    loss, given = loss_of(card.problem), (how.placed(inputs), how.placed(batch.targets))
    if how.tuned:
        return tuned_training(network.train(), loss, rule, *given, how)
    model = how.compile(network).train()
    return training(model, loss, optimizer_of(network, rule), *given, rule.gradient_norm, how.autocast)


def inference(network: nn.Module, inputs: Any, how: How) -> Callable[[], None]:
    """Return a forward pass."""
    model, inputs = how.compile(network), how.placed(inputs)

    def infer() -> None:
        with torch.no_grad(), how.autocast():
            model(*inputs)

    return infer


def tuned_inference(network: nn.Module, inputs: Any, how: How) -> Callable[[], None]:
    """Return a forward pass with weights in half precision, compiled with them as constants."""
    if how.compiled:
        from torch._inductor import config  # late: only a compiled one needs it

        config.freezing = True  # folds normalisations into convolutions
    dtype = HALF.get(how.precision)
    model, given = how.compile(network.to(dtype=dtype)), how.placed(inputs, dtype)

    def infer() -> None:
        with torch.no_grad():  # freezing asks for it
            model(*given)

    return infer


def generation(network: Any, tokens: torch.Tensor, rule: Mapping[str, int], how: How) -> Callable[[], None]:
    """Return a step that continues texts by the likeliest token, with the key-value cache of Hugging Face's library."""

    def generate() -> None:
        fed, memory = tokens[:, : rule["prompt"]], None
        with torch.no_grad(), how.autocast():
            for _ in range(rule["new"]):
                output = network.library(fed, past_key_values=memory, use_cache=True)
                fed, memory = output.logits[:, -1:].argmax(-1), output.past_key_values

    return generate


def tuned_generation(network: Any, tokens: torch.Tensor, rule: Mapping[str, int], how: How) -> Callable[[], None]:
    """Return the same by the library's own loop, with its static cache, for which it compiles a token on a GPU."""
    library, prompts = network.library.to(dtype=HALF.get(how.precision)), tokens[:, : rule["prompt"]]
    library.generation_config.eos_token_id = None  # so that no text ends early
    words = {"attention_mask": torch.ones_like(prompts), "do_sample": False, "max_new_tokens": rule["new"]}

    def generate() -> None:
        library.generate(prompts, cache_implementation="static", pad_token_id=0, **words)

    return generate


def training(
    model: nn.Module,
    loss_function: Callable[[Any, Any], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    inputs: tuple[torch.Tensor, ...],
    targets: Any,
    gradient_norm: float | None = None,
    autocast: Callable[[], Any] = contextlib.nullcontext,
) -> Callable[[], float]:
    """Return a training step, which returns the loss."""

    def train() -> float:
        optimizer.zero_grad()
        with autocast():
            loss = loss_function(model(*inputs), targets)
        loss.backward()
        if gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_norm)
        optimizer.step()
        return float(loss.item())

    return train


def tuned_training(
    network: nn.Module,
    loss_function: Callable[[Any, Any], torch.Tensor],
    rule: OptimizerRule,
    inputs: tuple[torch.Tensor, ...],
    targets: Any,
    how: How,
) -> Callable[[], None]:
    """Return a step whose network and loss are compiled together, and whose optimizer is a single kernel.

    Micro-batches are not replayed as a graph: that of one overwrites the gradients of the one before
    (github.com/pytorch/pytorch, issue 96693).
    """
    optimizer = optimizer_of(network, rule, **({"fused": True} if rule.name in FUSED else {}))
    size = len(inputs[0])
    starts = range(0, size, how.micro_batch or size)
    parts = [tuple(_part(each, at, len(starts)) for each in (inputs, targets)) for at in starts]
    forward = how.compile(lambda given, wanted: loss_function(network(*given), wanted), len(parts) == 1)

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        for given, wanted in parts:
            with how.autocast():
                loss = forward(given, wanted) / len(parts)
            loss.backward()
        if rule.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(network.parameters(), rule.gradient_norm)
        optimizer.step()

    return train


def _part(tensors: Any, start: int, parts: int) -> Any:
    """Return one of equal parts of a tensor, or of each of a tuple."""
    if isinstance(tensors, tuple):
        return tuple(_part(each, start, parts) for each in tensors)
    return tensors[start : start + len(tensors) // parts]


def timed(step: Callable[[], Any], seconds: float, device: str) -> tuple[int, float]:
    """Return steps, and the seconds from the first's beginning to the last's end, of about so many seconds."""
    gpu = getattr(torch, device) if device != "cpu" else None
    pending: collections.deque[Any] = collections.deque()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
        if gpu:
            pending.append(gpu.Event())
            pending[-1].record()
            if len(pending) > AHEAD:
                pending.popleft().synchronize()
    if gpu:
        gpu.synchronize()
    return steps, time.perf_counter() - began


def _options() -> argparse.Namespace:
    grammar = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = grammar.add_argument
    for name, kind in {"workload": str, "task": str, "precision": str, "batch_size": int, "seconds": float}.items():
        add(name, type=kind)
    add("threads", type=int)
    add("--device", default="cpu", choices=("cpu", "cuda"))
    add("--tuned", action="store_true", help="with what makes it faster, as far as that fits a screen")
    add("--compile", action="store_true")
    add("--micro-batch-size", type=int, metavar="N", help="of a tuned training step")
    add("--warmup-steps", type=int, default=WARMUP, metavar="N", help=f"default {WARMUP}")
    add("--windows", type=int, default=1, metavar="N", help="parts of the timed window; default 1")
    return grammar.parse_args()


def main() -> None:
    """Time steps for a number of seconds after the warm-up."""
    options = _options()
    torch.set_num_threads(options.threads)
    how = How(options.device, options.precision, options.tuned, options.compile, options.micro_batch_size)
    step = prepare(options.workload, options.task, options.batch_size, how)
    for _ in range(options.warmup_steps):
        step()
    if how.device != "cpu":
        getattr(torch, how.device).synchronize()
    parts = [timed(step, options.seconds / options.windows, how.device) for _ in range(options.windows)]
    steps, seconds = map(sum, zip(*parts, strict=True))
    sys.stdout.write(json.dumps({"steps": steps, "seconds": seconds, "parts": parts}) + "\n")


if __name__ == "__main__":
    main()
