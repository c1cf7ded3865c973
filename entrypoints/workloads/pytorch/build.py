"""A card's model together with its loss."""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
from collections import Counter
from types import ModuleType
from typing import Any, Callable, Iterator, Mapping, Tuple, Union

import numpy as np
import PIL
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.checkpoint import checkpoint

from entrypoints.contract.cards import Card, trained_parameters
from entrypoints.contract.messages import Software
from entrypoints.contract.statuses import RunError
from entrypoints.data.generated import formula, synthetic
from entrypoints.workloads.pytorch import float8
from entrypoints.workloads.pytorch.deferred import DeferredWeights, deferred
from entrypoints.workloads.pytorch.experts import GroupedLinear
from entrypoints.workloads.pytorch.layers import LazyLogits, SqueezeExcitation, StochasticDepth, chunked_cross_entropy
from entrypoints.workloads.pytorch.samplers import Density

Tensors = Union[torch.Tensor, Tuple[torch.Tensor, ...]]
# In every family here, a normalisation declared after a convolution is applied to its output.
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class Objective(nn.Module):
    """A network and its loss as one module, since some compilers want the whole step in one graph."""

    def __init__(self, network: nn.Module, loss: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.network = network
        self.loss = LOSSES[loss["name"]](loss) if loss else None  # None: the network is a density
        self.deferred: DeferredWeights | None = None  # what the model does not have yet

    def fill(self, part: nn.Module, hardware: torch.device, recurse: bool = True) -> None:
        """Make the weights of a part of the model on the hardware, if they are deferred.

        With `recurse` also those of the modules in it.
        """
        if self.deferred:
            self.deferred.fill(part, hardware, recurse)
            self.deferred = None if part is self and recurse else self.deferred

    def forward(self, inputs: Tensors, targets: Tensors | None = None) -> tuple[Any, torch.Tensor | None]:
        """Return the output, and the mean loss over the batch if targets are given; in training then the loss alone.

        A compiled step makes a gradient of zeros for every output that it returns beside its loss.
        """
        output = self.network(*inputs) if isinstance(inputs, tuple) else self.network(inputs)
        if targets is None or self.loss is None:
            return output, None
        loss = self.loss_of(output, targets)
        return None if self.training else output, loss

    def loss_of(self, output: Tensors, targets: Tensors) -> torch.Tensor:
        """Return the mean loss of an output over the batch. Raises TypeError for a density, which has no loss."""
        if self.loss is None:
            raise TypeError("a density has no loss")
        mean: torch.Tensor = self.loss(output, targets)
        return mean


class CrossEntropy(nn.Module):
    """The mean cross entropy of logits (..., classes) and labels (...), with the card's label smoothing."""

    def __init__(self, loss: Mapping[str, Any]) -> None:
        super().__init__()
        self.smoothing = loss["label_smoothing"]

    def forward(self, logits: torch.Tensor | LazyLogits, labels: torch.Tensor) -> torch.Tensor:
        """Return a scalar."""
        if isinstance(logits, LazyLogits):
            return chunked_cross_entropy(logits, labels, self.smoothing)
        return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=self.smoothing)


class SpanCrossEntropy(nn.Module):
    """The mean of two cross entropies over positions, for the start and the end of a span.

    Logits are (N, T, 2), both ends (N, 2).
    """

    def __init__(self, _: Mapping[str, Any]) -> None:
        super().__init__()

    def forward(self, logits: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Return a scalar."""
        return functional.cross_entropy(logits, ends)


class SumOfCrossEntropies(nn.Module):
    """The sum of mean cross entropies of several outputs (..., classes) and as many targets (...)."""

    def __init__(self, _: Mapping[str, Any]) -> None:
        super().__init__()

    def forward(self, outputs: tuple[torch.Tensor, ...], targets: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return a scalar."""
        each = (functional.cross_entropy(o.flatten(0, -2), t.flatten()) for o, t in zip(outputs, targets))
        return torch.stack(list(each)).sum()


class SpeechLoss(nn.Module):
    """The mean absolute differences of mel frames, linear frames and done flags, plus the guided attention loss.

    Guided attention (Tachibana et al., arXiv:1710.08969) penalises distance from the diagonal. Spectrograms are
    predicted one frame ahead. Frames beyond the end count as correct.
    """

    def __init__(self, loss: Mapping[str, Any]) -> None:
        super().__init__()
        self.deviation = loss["guided_attention_deviation"]

    def forward(self, outputs: tuple[torch.Tensor, ...], targets: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Mel (N, bands, T), linear (N, bins, T) and done flags (N, 1, T) -> a scalar.

        The outputs also have the weights of each attention (N, attentions, T, L).
        """
        *spectrograms, done, shares = outputs
        *expected, done_flags = targets
        spoken = 1 - done_flags[..., 1:]
        differences = (
            ((predicted[..., :-1] - frames[..., 1:]) * spoken).abs().mean()
            for predicted, frames in zip(spectrograms, expected)
        )
        attention_loss = (self.distances(shares) * shares.sum(1)).mean()
        return sum(differences, (done - done_flags).abs().mean() + attention_loss)

    def distances(self, shares: torch.Tensor) -> torch.Tensor:
        """Return the penalty (T, L), from 0 to 1, of each frame's distance from each character, both as fractions."""
        frames, characters = (torch.arange(size, device=shares.device) / size for size in shares.shape[-2:])
        return 1 - torch.exp(-((frames[:, None] - characters) ** 2) / (2 * self.deviation**2))


class MeanSquaredError(nn.Module):
    """The mean squared error of outputs and targets of one shape; of so many leading channels, if the card says so."""

    def __init__(self, loss: Mapping[str, Any]) -> None:
        super().__init__()
        self.channels = loss.get("channels")

    def forward(self, output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return a scalar."""
        return functional.mse_loss(output[:, : self.channels], targets)


LOSSES: dict[str, Callable[[Mapping[str, Any]], nn.Module]] = {
    "cross_entropy": CrossEntropy,
    "mean_squared_error": MeanSquaredError,
    "span_cross_entropy": SpanCrossEntropy,
    "speech": SpeechLoss,
    "sum_of_cross_entropies": SumOfCrossEntropies,
}


def software() -> Software:
    """Return the versions of PyTorch and of the libraries that prepare input data."""
    return Software(torch.__version__, {"numpy": np.__version__, "pillow": PIL.__version__})


def family(card: Card) -> ModuleType:
    """Return the module of the card's family."""
    return importlib.import_module(f"entrypoints.workloads.pytorch.{card.family}")


def model(card: Card, seed: int) -> Objective:
    """Return the card's model, initialised from `seed`. Raises RunError (`crashed`) if its size is not the card's."""
    torch.manual_seed(seed)
    return _of_its_size(card, _built(card), seed)


def deferred_model(card: Card, seed: int) -> Objective:
    """Return the same model, whose weights a session makes part by part; made at once where that cannot be."""
    torch.manual_seed(seed)
    made = deferred(functools.partial(_built, card), seed)
    if made is None:
        return model(card, seed)
    built, weights = made
    built.deferred = weights
    return _of_its_size(card, built, seed)


def _built(card: Card) -> Objective:
    return Objective(family(card).network(card.problem["model"]), card.problem.get("loss"))


def _of_its_size(card: Card, built: Objective, seed: int) -> Objective:
    counts = [sum(p.numel() for p in built.parameters() if p.requires_grad or whole) for whole in (True, False)]
    for count, expected in zip(counts, (card.problem["parameters"], trained_parameters(card.problem))):
        if count == expected:
            continue
        raise RunError("crashed", f"{card.name} was built with {count} parameters, its card says {expected}")
    return with_random_source(
        built, synthetic.SeededRandom(seed, 1)
    )  # a stream apart from that of synthetic observations


def weights(model: Objective) -> dict[str, np.ndarray]:
    """Return the network's parameters by name. On the host they are views, which change with the next step."""
    return {name: on_host(weight) for name, weight in model.network.named_parameters()}


def on_host(weight: torch.Tensor) -> np.ndarray:
    """Return a weight on the host: a view if it is there, a copy if NumPy does not have its precision."""
    array: np.ndarray = (weight.float() if weight.dtype == torch.bfloat16 else weight).detach().cpu().numpy()
    return array


def without_effect(network: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the weights that move something which what follows ignores: in exact numbers, they have no gradient."""
    for layer in network.modules():
        if hasattr(layer, "without_effect"):
            yield from layer.without_effect()


def units(network: nn.Module) -> Iterator[tuple[str, nn.Parameter, tuple[int, ...]]]:
    """Yield by name what every training step reaches of the trained weights, and the axes over which it reaches all.

    A batch has not every entry of an embedding. Left out are weights whose gradient is 0 but for rounding, which layers
    name as `without_effect`, and those on either side of a squeeze's activation: with one vector per sample, a ReLU may
    silence all of its units. A vector is one unit: of the bias of queries, keys and values, keys have no gradient.
    """
    tables = {id(layer.weight) for layer in network.modules() if isinstance(layer, nn.Embedding)}
    squeezes = [layer for layer in network.modules() if isinstance(layer, SqueezeExcitation)]
    silent = {id(weight) for layer in squeezes for weight in (*layer.squeeze.parameters(), layer.excite.weight)}
    silent.update(map(id, without_effect(network)))
    for name, weight in network.named_parameters():
        if id(weight) not in silent and weight.requires_grad:
            axes = (1,) if id(weight) in tables else (0, 1)
            yield name, weight, axes if weight.dim() > 1 else ()


def fold_batch_norms(model: Objective) -> Objective:
    """Return a copy for inference with each batch normalisation folded into the convolution before it.

    That saves a pass over memory. A model without batch normalisation is returned itself, in evaluation mode.
    """
    return fold(copy.deepcopy(model)).eval() if has_batch_norms(model) else model.eval()


def has_batch_norms(model: nn.Module) -> bool:
    """Return whether a model has batch normalisations."""
    return any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())


def fold(model: Objective) -> Objective:
    """Return the same model, for inference only, with each batch normalisation folded into the convolution before."""
    model.eval()  # folds running statistics
    for module in list(model.modules()):
        layers = list(module.named_children())
        for (name, layer), (name_after, after) in zip(layers, layers[1:]):
            if isinstance(layer, CONVOLUTIONS) and isinstance(after, nn.BatchNorm2d):
                transposed = isinstance(layer, nn.ConvTranspose2d)
                module.add_module(name, fuse_conv_bn_eval(layer, after, transposed))
                module.add_module(name_after, nn.Identity())
    return model


def sharing(model: Objective) -> Objective:
    """Return a copy of the modules of a model, with the same weights."""
    shared = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
    copied: Objective = copy.deepcopy(model, shared)  # type: ignore[arg-type]
    return copied


def half_weights(model: Objective, dtype: torch.dtype) -> Objective:
    """Return the model for inference with what autocast would cast at every call already in half precision.

    It shares everything else, and computes the same. Transposed convolutions stay: not every autocast has them.
    """
    copied = sharing(model)
    for layer in copied.modules():
        halve(layer, dtype)
    return copied


def halve(layer: nn.Module, dtype: torch.dtype) -> None:
    """Cast a layer's own weights for inference, if it is one of those of `half_weights`."""
    if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, GroupedLinear)):
        for name, weight in list(layer._parameters.items()):
            if weight is not None:
                layer._parameters[name] = nn.Parameter(weight.detach().to(dtype), requires_grad=False)


def halve_frozen(model: Objective, dtype: torch.dtype) -> None:
    """Cast the weights of linear layers that are not trained to half precision, as autocast would in every step."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.requires_grad:
            layer.weight.data = layer.weight.data.to(dtype)


def loaded_for_inference(model: Objective, hardware: torch.device, dtype: torch.dtype | None) -> Objective:
    """Return the same model on the hardware, for inference only: as `fold_batch_norms` and `half_weights` have it.

    Neither the host nor the hardware has more than one layer's weights in single precision, if they are deferred;
    otherwise the hardware has none.
    """
    if has_batch_norms(model):
        model.fill(model, torch.device("cpu"))
        fold(model)
    for layer in model.modules():
        model.fill(layer, hardware, recurse=False)
        if dtype is not None:
            halve(layer, dtype)
    model.deferred = None
    return model.eval().to(hardware)


def with_chunked_loss(model: Objective) -> Objective:
    """Return the same model, whose loss makes the logits of a large vocabulary in training, part by part."""
    return _with_switch(model, "chunked_loss", on=True)


def stage_boundaries(network: nn.Module) -> list[nn.Module]:
    """Return the layers before which a pipeline may be cut, in order: a network's `blocks`, otherwise its children."""
    blocks = getattr(network, "blocks", None)
    return list(blocks if blocks is not None else network.children())


def tied_head(network: nn.Module) -> nn.Module | None:
    """Return the head of a network whose weights are also those of its embedding; None without one."""
    head = getattr(network, "head", None)
    if head is None:
        return None
    tables = {id(layer.weight) for layer in network.modules() if isinstance(layer, nn.Embedding)}
    return head if any(id(weight) in tables for weight in head.parameters()) else None


def find_blocks(network: nn.Module) -> list[nn.Module]:
    """Return the blocks of a network in order: the outermost modules with layers whose class recurs."""
    own = [module for module in network.modules() if not type(module).__module__.startswith("torch.")]
    modules = [module for module in own if any(True for _ in module.children())]
    counts = Counter(type(module) for module in modules)
    blocks: list[nn.Module] = []
    inner: set[int] = set()
    for module in modules:
        if counts[type(module)] > 1 and id(module) not in inner:
            blocks.append(module)
            inner.update(map(id, module.modules()))
    return blocks


def recomputed(model: Objective) -> Objective:
    """Return the same model, whose blocks keep no activations for backward: it computes them again.

    Raises RunError (`unsupported`) if there are no blocks, or if they have batch normalisations.
    """
    blocks = find_blocks(model.network)
    if not blocks or any(isinstance(layer, nn.BatchNorm2d) for block in blocks for layer in block.modules()):
        raise RunError(
            "unsupported",
            "--activation-checkpointing is for networks of blocks without batch normalisation, whose statistics would "
            "count each batch twice. Leave it out",
        )
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[assignment]
    return model


def in_float8(model: Objective, device: str, scaling: str) -> Objective:
    """Return the same model, whose blocks compute their linear layers in the FP8 of a kind of device."""
    float8.convert(model.network, torch.device(device), scaling)
    return model


def without_sdpa(model: Objective) -> Objective:
    """Return the same model with attention written out, for compilers without scaled_dot_product_attention."""
    return _with_switch(model, "fused", on=False)


def _with_switch(model: Objective, name: str, on: bool) -> Objective:
    for layer in model.modules():
        if hasattr(layer, name):
            setattr(layer, name, on)
    return model


def transposed_linear_weights(model: Objective) -> Objective:
    """Return the same model with transposed weights in layers that have at least as many outputs as inputs.

    Products with one or two rows, as in text generation, then read weights 1.2 to 1.6 times as fast on a CPU (torch
    2.13, MKL); from four rows on there is no gain. Layers with fewer outputs lose, and so do embedding tables.
    """
    tables = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and layer.out_features >= layer.in_features and id(layer.weight) not in tables:
            layer.weight.data = layer.weight.data.t().contiguous().t()
    return model


def without_randomness(model: Objective) -> Objective:
    """Return the same model without dropout and stochastic depth, its chains driven by a formula."""
    for layer in model.modules():
        if isinstance(layer, (nn.Dropout, StochasticDepth)):
            layer.p = 0.0
    return with_random_source(model, formula.Formula())


def with_random_source(model: Objective, chance: synthetic.RandomSource) -> Objective:
    """Return the same model; if it is a density, its chains draw from the random source `chance`."""
    if isinstance(model.network, Density):
        model.network.chance = chance
    return model


def load_probe_weights(model: Objective, remembering: bool = False) -> None:
    """Set weights and buffers to the values that `data.generated.formula` makes of their names.

    So a weight that is renamed needs new references, and results by the old ones are no longer comparable. What layers
    name as `given` is not learnt, and stays.
    """
    given = {id(weight) for layer in model.network.modules() if hasattr(layer, "given") for weight in layer.given()}
    state = itertools.chain(model.network.named_parameters(), model.network.named_buffers())
    persistent = model.network.state_dict().keys()  # other buffers are constants
    with torch.no_grad():
        for name, value in state:
            if name in persistent and value.is_floating_point() and id(value) not in given:
                value.copy_(torch.from_numpy(formula.weight(name, value.shape, remembering)))
