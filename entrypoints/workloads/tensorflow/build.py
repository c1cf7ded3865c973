"""A card's model together with its loss."""

from __future__ import annotations

import copy
import importlib
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Tuple, Union

import numpy as np
import PIL
import tensorflow as tf

from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Software
from entrypoints.contract.statuses import RunError
from entrypoints.data.generated import formula, synthetic
from entrypoints.workloads.tensorflow.layers import (
    TO_PYTORCH,
    Dropout,
    Embedding,
    Layer,
    dropouts,
    from_pytorch,
    to_pytorch,
    variables,
)
from entrypoints.workloads.tensorflow.samplers import Density

Tensors = Union[tf.Tensor, Tuple[tf.Tensor, ...]]
Loss = Callable[[Tensors, Tensors], tf.Tensor]
ONES = 100_000  # numbers to which a dropout is applied


class Objective(tf.Module):
    """A network and its loss as one module, since some compilers want the whole step in one graph."""

    def __init__(self, network: tf.Module, loss: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.network = network
        self.loss = LOSSES[loss["name"]](loss) if loss else None  # None: the network is a density

    def __call__(
        self, inputs: Tensors, targets: Tensors | None = None, training: bool = False
    ) -> tuple[Tensors, tf.Tensor | None]:
        """Return the output, and the mean loss over the batch if targets are given."""
        output = self.network(*(inputs if isinstance(inputs, tuple) else (inputs,)), training=training)
        output = tf.nest.map_structure(lambda part: tf.cast(part, tf.float32), output)  # as losses want it
        return output, None if targets is None or self.loss is None else self.loss(output, targets)


def cross_entropy(loss: Mapping[str, Any]) -> Loss:
    """Return the mean cross entropy of logits (..., classes) and labels (...), with the card's label smoothing."""
    smoothing = loss["label_smoothing"]
    if not smoothing:
        return label_cross_entropy

    def smoothed(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        classes = logits.shape[-1]
        probabilities = tf.one_hot(labels, classes, 1 - smoothing + smoothing / classes, smoothing / classes)
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(probabilities, logits))

    return smoothed


def label_cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of logits (..., classes) and labels (...)."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def span_cross_entropy(_: Mapping[str, Any]) -> Loss:
    """Return the mean of two cross entropies over positions, for the start and the end of a span.

    Logits are (N, T, 2), both ends (N, 2).
    """
    return lambda logits, ends: label_cross_entropy(tf.transpose(logits, [0, 2, 1]), ends)


def sum_of_cross_entropies(_: Mapping[str, Any]) -> Loss:
    """Return the sum of mean cross entropies of several outputs (..., classes) and as many targets (...)."""
    return lambda outputs, targets: tf.add_n([label_cross_entropy(*each) for each in zip(outputs, targets)])


def mean_squared_error(_: Mapping[str, Any]) -> Loss:
    """Return the mean squared error of outputs and targets of one shape."""
    return lambda output, targets: tf.reduce_mean(tf.math.squared_difference(output, targets))


LOSSES = {
    "cross_entropy": cross_entropy,
    "mean_squared_error": mean_squared_error,
    "span_cross_entropy": span_cross_entropy,
    "sum_of_cross_entropies": sum_of_cross_entropies,
}


def software() -> Software:
    """Return the versions of TensorFlow and of the libraries that prepare input data."""
    return Software(tf.__version__, {"numpy": np.__version__, "pillow": PIL.__version__})


def model(card: Card, seed: int) -> Objective:
    """Return the card's model, initialised from `seed`. Raises RunError (`crashed`) if its size is not the card's."""
    tf.random.set_seed(seed)
    family = importlib.import_module(f"entrypoints.workloads.tensorflow.{card.family}")
    built = Objective(family.network(card.problem["model"]), card.problem.get("loss"))
    count = sum(int(np.prod(parameter.shape)) for parameter in built.trainable_variables)
    if count != card.problem["parameters"]:
        expected = card.problem["parameters"]
        raise RunError("crashed", f"{card.name} was built with {count} parameters, its card says {expected}")
    return with_random_source(
        built, synthetic.SeededRandom(seed, 1)
    )  # a stream apart from that of synthetic observations


def weights(model: Objective) -> dict[str, np.ndarray]:
    """Return the network's parameters, named and laid out as in PyTorch."""
    named = variables(model.network)
    return {name: to_pytorch(variable.numpy()) for name, variable in named if variable.trainable}


def without_effect(network: tf.Module) -> Iterator[tf.Variable]:
    """Yield the weights that move something which what follows ignores: in exact numbers, they have no gradient."""
    for layer in (network, *network.submodules):
        if hasattr(layer, "without_effect"):
            yield from layer.without_effect()


def units(network: tf.Module) -> Iterator[tuple[str, tf.Variable, tuple[int, ...]]]:
    """Yield by name the weights that every training step reaches, and the axes over which it reaches every unit.

    A batch has not every entry of an embedding. Left out are weights whose gradient is 0 but for rounding, which layers
    name as `without_effect`. A vector is one unit: of the bias of queries, keys and values, keys have no gradient.
    """
    left_out = set(map(id, without_effect(network)))
    tables = {id(layer.weight) for layer in network.submodules if isinstance(layer, Embedding)}
    for name, weight in variables(network):
        if weight.trainable and id(weight) not in left_out:
            axes = TO_PYTORCH[weight.shape.rank][:2] if weight.shape.rank > 1 else ()
            yield name, weight, (1,) if id(weight) in tables else axes


def dropped_fractions(network: tf.Module) -> dict[str, float]:
    """Return by dropout the fraction of ones that it drops; 0.0 if no traced training step applied it."""
    applied = {name: layer for name, layer in dropouts(network) if layer.applied}
    dropped = {name: float(tf.math.zero_fraction(layer(tf.ones(ONES), True))) for name, layer in applied.items()}
    return {name: dropped.get(name, 0.0) for name, _ in dropouts(network)}


class HalfWeights(NamedTuple):
    """A model for inference, with the weights in half precision that its layers would cast at every call.

    It has everything else in common with the model it is of, and computes the same.
    """

    model: Objective
    pairs: list[tuple[tf.Variable, tf.Variable]]  # in half precision, and as training has it

    @classmethod
    def of(cls, model: Objective, dtype: tf.DType) -> HalfWeights:
        """Return those of a model; a weight that layers share stays shared."""
        layers = (layer for layer in model.submodules if isinstance(layer, Layer) and layer.casts_weights)
        weights = {id(weight): weight for layer in layers for weight in layer.trainable_variables}
        halves = {key: tf.Variable(tf.cast(weight, dtype), trainable=False) for key, weight in weights.items()}
        shared = {id(variable): variable for variable in model.variables}
        copied = copy.deepcopy(model, {**shared, **halves})
        return cls(copied, [(halves[key], weight) for key, weight in weights.items()])

    def renew(self) -> None:
        """Take the weights that training has by now."""
        for half, weight in self.pairs:
            half.assign(tf.cast(weight, half.dtype))


def without_randomness(model: Objective) -> Objective:
    """Return the same model without dropout, its chains driven by a formula."""
    for layer in model.submodules:
        if isinstance(layer, Dropout):
            layer.p = 0.0
    return with_random_source(model, formula.Formula())


def with_random_source(model: Objective, chance: synthetic.RandomSource) -> Objective:
    """Return the same model; if it is a density, its chains draw from the random source `chance`."""
    if isinstance(model.network, Density):
        model.network.chance = chance
    return model


def load_probe_weights(model: Objective, remembering: bool = False) -> None:
    """Set weights and running means to the values that `data.generated.formula` makes of their names in PyTorch."""
    for name, variable in variables(model.network):
        shape = to_pytorch(variable.numpy()).shape
        variable.assign(from_pytorch(formula.weight(name, shape, remembering)))
