"""The plain loop: a workload written with torchvision in the obvious way, with nothing done for speed.

    python plain.py WORKLOAD TASK PRECISION BATCH SECONDS THREADS [compiled]

Networks are torchvision's (image_compression and deep_voice_3: written from the card), those of Hugging Face's library
for text, which also continues texts, and PyTorch's own LSTM. Loss and optimizer are the card's, in PyTorch's own
classes with their defaults, over one synthetic batch. Chains are sampled by leapfrog steps with gradients by autograd.
It prints steps and seconds of the timed window as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "inside" / "support"))

import torch
from torch import nn
from torch.nn import functional
from written import NETWORKS
from written_speech import Speech

from entrypoints.contract import cards
from entrypoints.contract.cards import Card
from entrypoints.contract.session import OptimizerRule
from entrypoints.data.generated import synthetic
from entrypoints.workloads.pytorch import loader, optimizers

WARMUP = 4  # steps


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
    if card.name in NETWORKS:
        return NETWORKS[card.name]()
    own = {"lstm": Series, "deep_voice_3": Speech}
    if card.family in own:
        return own[card.family](card.problem["model"])
    import of_transformers  # late: only this needs the library

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
        places = torch.arange(frames)[:, None] / frames - torch.arange(characters)[None, :] / characters
        guide = 1 - torch.exp(-(places**2) / (2 * deviation**2))
        return (
            functional.l1_loss(mel[:, :, :-1] * spoken, mel_frames[:, :, 1:] * spoken)
            + functional.l1_loss(linear[:, :, :-1] * spoken, linear_frames[:, :, 1:] * spoken)
            + functional.l1_loss(done, over)
            + (attention.sum(1) * guide).mean()
        )

    return loss


def optimizer_of(model: nn.Module, rule: OptimizerRule) -> torch.optim.Optimizer:
    """Return the card's optimizer, with a separate group for normalisation parameters if they have no decay."""
    kinds = {"normalisation": (nn.BatchNorm2d, nn.LayerNorm), "embedding": (nn.Embedding,)}
    spared = tuple(kind for name in rule.no_weight_decay_on for kind in kinds.get(name, ()))
    exempt = [p for layer in model.modules() if isinstance(layer, spared) for p in layer.parameters()]
    if "bias" in rule.no_weight_decay_on:
        exempt += [p for name, p in model.named_parameters() if "bias" in name and not any(p is q for q in exempt)]
    others = [p for p in model.parameters() if not any(p is q for q in exempt)]
    groups = [{"params": others, "weight_decay": rule.weight_decay}, {"params": exempt, "weight_decay": 0.0}]
    settings = rule.settings
    if rule.name == "adamw":
        return torch.optim.AdamW(groups, lr=rule.learning_rate, betas=settings["betas"], eps=settings["epsilon"])
    if rule.name == "lamb":
        return optimizers.Lamb(groups, rule, False)  # PyTorch has none
    if rule.name == "sgd":
        return torch.optim.SGD(
            groups, lr=rule.learning_rate, momentum=settings["momentum"], nesterov=settings["nesterov"]
        )
    if rule.name == "rmsprop":
        return torch.optim.RMSprop(
            groups,
            lr=rule.learning_rate,
            alpha=settings["smoothing"],
            eps=settings["epsilon"],
            momentum=settings["momentum"],
        )
    return torch.optim.Adam(groups, lr=rule.learning_rate, betas=tuple(settings["betas"]), eps=settings["epsilon"])


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


def prepare(
    workload: str, task: str, precision: str, batch_size: int, made: Callable[[nn.Module], Any]
) -> Callable[[], Any]:
    """Return a step of the task; a training step returns the loss."""
    card = cards.load()[workload]
    torch.manual_seed(0)
    if task == "sampling":
        return sampling(card, batch_size)
    network = network_of(card)
    model = made(network)
    batch = loader.as_batch(synthetic.batch(card.problem, batch_size, synthetic.SeededRandom(0)))
    inputs = batch.inputs if isinstance(batch.inputs, tuple) else (batch.inputs,)
    autocast: Callable[[], Any] = contextlib.nullcontext
    if precision == "bf16":
        autocast = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    if task == "inference" and "generation" in card.problem:
        return generation(network.eval(), inputs[0], card.problem["generation"], autocast)
    if task == "inference":
        model.eval()

        def infer() -> None:
            with torch.no_grad(), autocast():
                model(*inputs)

        return infer
    rule = OptimizerRule.from_problem(card.problem["optimizer"], batch_size)
    loss, optimizer = loss_of(card.problem), optimizer_of(network, rule)
    return training(model.train(), loss, optimizer, inputs, batch.targets, rule.gradient_norm, autocast)


def generation(
    network: Any, tokens: torch.Tensor, rule: Mapping[str, int], autocast: Callable[[], Any]
) -> Callable[[], None]:
    """Return a step that continues texts by the likeliest token, with the key-value cache of Hugging Face's library."""

    def generate() -> None:
        fed, memory = tokens[:, : rule["prompt"]], None
        with torch.no_grad(), autocast():
            for _ in range(rule["new"]):
                output = network.library(fed, past_key_values=memory, use_cache=True)
                fed, memory = output.logits[:, -1:].argmax(-1), output.past_key_values

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


def main() -> None:
    """Time steps for a number of seconds after the warm-up."""
    workload, task, precision, batch_size, seconds, threads, *compiled = sys.argv[1:]
    torch.set_num_threads(int(threads))
    step = prepare(workload, task, precision, int(batch_size), torch.compile if compiled else lambda model: model)
    for _ in range(WARMUP):
        step()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < float(seconds):
        step()
        steps += 1
    sys.stdout.write(json.dumps({"steps": steps, "seconds": time.perf_counter() - began}) + "\n")


if __name__ == "__main__":
    main()
