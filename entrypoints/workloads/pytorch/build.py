"""A card's model together with its loss."""

from __future__ import annotations

import copy
import importlib
import itertools
from typing import Any, Mapping, Tuple, Union

import numpy as np
import PIL
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Software
from entrypoints.contract.statuses import RunError
from entrypoints.data.generated import formula, synthetic
from entrypoints.workloads.pytorch.layers import StochasticDepth
from entrypoints.workloads.pytorch.samplers import Density

Tensors = Union[torch.Tensor, Tuple[torch.Tensor, ...]]
# In every family here, a normalisation that is declared after a convolution is applied to what comes of it.
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class Objective(nn.Module):
    """A network and its loss as one module, since some compilers want the whole step in one graph."""

    def __init__(self, network: nn.Module, loss: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.network = network
        self.loss = LOSSES[loss["name"]](loss) if loss else None  # None: the network is a density

    def forward(self, inputs: Tensors, targets: Tensors | None = None) -> tuple[Tensors, torch.Tensor | None]:
        """Output, and the mean loss over the batch where targets are given."""
        output = self.network(*inputs) if isinstance(inputs, tuple) else self.network(inputs)
        return output, None if targets is None or self.loss is None else self.loss_of(output, targets)

    def loss_of(self, output: Tensors, targets: Tensors) -> torch.Tensor:
        """The mean loss of an output over the batch. Only where there is a loss."""
        if self.loss is None:
            raise TypeError("a density has no loss")
        mean: torch.Tensor = self.loss(output, targets)
        return mean


class CrossEntropy(nn.Module):
    """Of logits (..., classes) and labels (...), the mean over all labels, smoothed as the card says."""

    def __init__(self, loss: Mapping[str, Any]) -> None:
        super().__init__()
        self.smoothing = loss["label_smoothing"]

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """A scalar."""
        return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=self.smoothing)


class SpanCrossEntropy(nn.Module):
    """Of logits (N, T, 2), how likely a span begins and ends at each place, and both ends (N, 2): the mean of two cross
    entropies over places."""

    def __init__(self, _: Mapping[str, Any]) -> None:
        super().__init__()

    def forward(self, logits: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """A scalar."""
        return functional.cross_entropy(logits, ends)


class SumOfCrossEntropies(nn.Module):
    """Of several outputs, logits (..., classes) each, and as many targets (...): each one's mean, added up."""

    def __init__(self, _: Mapping[str, Any]) -> None:
        super().__init__()

    def forward(self, outputs: tuple[torch.Tensor, ...], targets: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """A scalar."""
        each = (functional.cross_entropy(o.flatten(0, -2), t.flatten()) for o, t in zip(outputs, targets))
        return torch.stack(list(each)).sum()


class SpeechLoss(nn.Module):
    """Mean absolute differences of mel frames, of linear frames and of done flags, and how far attention strays from
    the diagonal (Tachibana et al., arXiv:1710.08969): their sum.

    Spectrograms are told one frame ahead. Frames beyond the end count as right.
    """

    def __init__(self, loss: Mapping[str, Any]) -> None:
        super().__init__()
        self.deviation = loss["guided_attention_deviation"]

    def forward(self, outputs: tuple[torch.Tensor, ...], targets: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Mel (N, bands, T), linear (N, bins, T) and done flags (N, 1, T) both, of the outputs also the shares of each
        attention (N, attentions, T, L) -> a scalar."""
        *spectrograms, done, shares = outputs
        *expected, done_flags = targets
        spoken = 1 - done_flags[..., 1:]
        differences = (
            ((told[..., :-1] - frames[..., 1:]) * spoken).abs().mean() for told, frames in zip(spectrograms, expected)
        )
        strayed = (self.distances(shares) * shares.sum(1)).mean()
        return sum(differences, (done - done_flags).abs().mean() + strayed)

    def distances(self, shares: torch.Tensor) -> torch.Tensor:
        """How far a frame lies from a character, both as shares of their whole: (T, L), from 0 to 1."""
        frames, characters = (torch.arange(size, device=shares.device) / size for size in shares.shape[-2:])
        return 1 - torch.exp(-((frames[:, None] - characters) ** 2) / (2 * self.deviation**2))


def mean_squared_error(_: Mapping[str, Any]) -> nn.Module:
    """The mean over all numbers of squared differences between output and target of one shape."""
    return nn.MSELoss()


LOSSES = {
    "cross_entropy": CrossEntropy,
    "mean_squared_error": mean_squared_error,
    "span_cross_entropy": SpanCrossEntropy,
    "speech": SpeechLoss,
    "sum_of_cross_entropies": SumOfCrossEntropies,
}


def software() -> Software:
    """Versions of PyTorch and of what input data pass through."""
    return Software(torch.__version__, {"numpy": np.__version__, "pillow": PIL.__version__})


def model(card: Card, seed: int) -> Objective:
    """The card's model, initialised from `seed`. Raises RunError where its size is not the card's."""
    torch.manual_seed(seed)
    family = importlib.import_module(f"entrypoints.workloads.pytorch.{card.family}")
    built = Objective(family.network(card.problem["model"]), card.problem.get("loss"))
    count = sum(parameter.numel() for parameter in built.parameters())
    if count != card.problem["parameters"]:
        expected = card.problem["parameters"]
        raise RunError("crashed", f"{card.name} was built with {count} parameters, its card says {expected}")
    return with_random_source(built, synthetic.Random(seed, 1))  # synthetic observations are drawn from the seed alone


def weights(model: Objective) -> dict[str, np.ndarray]:
    """The network's parameters by name. Where they lie on the host they are views, which change with the next step."""
    return {name: weight.detach().cpu().numpy() for name, weight in model.network.named_parameters()}


def fold_batch_norms(model: Objective) -> Objective:
    """For inference a copy, each normalisation folded into the convolution before it: one pass over memory less.

    Where there is none, it is the model itself, in evaluation mode.
    """
    if not any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()):
        return model.eval()
    copied = copy.deepcopy(model).eval()
    for module in list(copied.modules()):
        layers = list(module.named_children())
        for (name, layer), (name_after, after) in zip(layers, layers[1:]):
            if isinstance(layer, CONVOLUTIONS) and isinstance(after, nn.BatchNorm2d):
                transposed = isinstance(layer, nn.ConvTranspose2d)
                module.add_module(name, fuse_conv_bn_eval(layer, after, transposed))
                module.add_module(name_after, nn.Identity())
    return copied


def stage_boundaries(network: nn.Module) -> list[nn.Module]:
    """The layers before which a pipeline may be cut, in the order in which they compute: a network's `blocks`, else its
    parts."""
    blocks = getattr(network, "blocks", None)
    return list(blocks if blocks is not None else network.children())


def without_sdpa(model: Objective) -> Objective:
    """The same model, whose attention is written out for compilers that do not know PyTorch's."""
    for layer in model.modules():
        if hasattr(layer, "fused"):
            layer.fused = False
    return model


def transposed_linear_weights(model: Objective) -> Objective:
    """The same model, in which the weights of layers that do not narrow lie input by input.

    Multiplied with one or two rows, as when a text is continued, they are read 1.2 to 1.6 times as fast on a CPU (torch
    2.13, MKL); from four rows on there is no gain. Layers that narrow lose by it, and so do tables that are looked up.
    """
    tables = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and layer.out_features >= layer.in_features and id(layer.weight) not in tables:
            layer.weight.data = layer.weight.data.t().contiguous().t()
    return model


def without_randomness(model: Objective) -> Objective:
    """The same model, in which nothing is dropped at random; chains follow a formula in place of chance."""
    for layer in model.modules():
        if isinstance(layer, (nn.Dropout, StochasticDepth)):
            layer.p = 0.0
    return with_random_source(model, formula.Formula())


def with_random_source(model: Objective, chance: synthetic.Draw) -> Objective:
    """The same model, whose chains draw from a source where it is a density."""
    if isinstance(model.network, Density):
        model.network.chance = chance
    return model


def load_probe_weights(model: Objective) -> None:
    """Set weights and buffers to what `data.generated.formula` makes of their names."""
    state = itertools.chain(model.network.named_parameters(), model.network.named_buffers())
    kept = model.network.state_dict().keys()  # a buffer that is not kept is a constant
    with torch.no_grad():
        for name, value in state:
            if name in kept and value.is_floating_point():
                value.copy_(torch.from_numpy(formula.weight(name, value.shape)))
