"""A card's model together with its loss."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Mapping, Tuple, Union

import numpy as np
import PIL
import tensorflow as tf

from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Software
from entrypoints.contract.statuses import RunError
from entrypoints.data.generated import formula, synthetic
from entrypoints.workloads.tensorflow.layers import Dropout, from_pytorch, to_pytorch, variables
from entrypoints.workloads.tensorflow.samplers import Density

Tensors = Union[tf.Tensor, Tuple[tf.Tensor, ...]]
Loss = Callable[[Tensors, Tensors], tf.Tensor]


class Objective(tf.Module):
    """A network and its loss as one module, since some compilers want the whole step in one graph."""

    def __init__(self, network: tf.Module, loss: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.network = network
        self.loss = LOSSES[loss["name"]](loss) if loss else None  # None: the network is a density

    def __call__(
        self, inputs: Tensors, targets: Tensors | None = None, training: bool = False
    ) -> tuple[Tensors, tf.Tensor | None]:
        """Output, and the mean loss over the batch where targets are given."""
        output = self.network(*(inputs if isinstance(inputs, tuple) else (inputs,)), training=training)
        return output, None if targets is None or self.loss is None else self.loss(output, targets)


def cross_entropy(loss: Mapping[str, Any]) -> Loss:
    """Of logits (..., classes) and labels (...), the mean over all labels, smoothed as the card says."""
    smoothing = loss["label_smoothing"]
    if not smoothing:
        return label_cross_entropy

    def smoothed(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        classes = logits.shape[-1]
        shares = tf.one_hot(labels, classes, 1 - smoothing + smoothing / classes, smoothing / classes)
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(shares, logits))

    return smoothed


def label_cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Cross entropy of logits (..., classes) and labels (...), the mean over all labels."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def span_cross_entropy(_: Mapping[str, Any]) -> Loss:
    """Of logits (N, T, 2), how likely a span begins and ends at each place, and both ends (N, 2): the mean of two cross
    entropies over places."""
    return lambda logits, ends: label_cross_entropy(tf.transpose(logits, [0, 2, 1]), ends)


def sum_of_cross_entropies(_: Mapping[str, Any]) -> Loss:
    """Of several outputs, logits (..., classes) each, and as many targets (...): each one's mean, added up."""
    return lambda outputs, targets: tf.add_n([label_cross_entropy(*each) for each in zip(outputs, targets)])


def mean_squared_error(_: Mapping[str, Any]) -> Loss:
    """The mean over all numbers of squared differences between output and target of one shape."""
    return lambda output, targets: tf.reduce_mean(tf.math.squared_difference(output, targets))


LOSSES = {
    "cross_entropy": cross_entropy,
    "mean_squared_error": mean_squared_error,
    "span_cross_entropy": span_cross_entropy,
    "sum_of_cross_entropies": sum_of_cross_entropies,
}


def software() -> Software:
    """Versions of TensorFlow and of what input data pass through."""
    return Software(tf.__version__, {"numpy": np.__version__, "pillow": PIL.__version__})


def model(card: Card, seed: int) -> Objective:
    """The card's model, initialised from `seed`. Raises RunError where its size is not the card's."""
    tf.random.set_seed(seed)
    family = importlib.import_module(f"entrypoints.workloads.tensorflow.{card.family}")
    built = Objective(family.network(card.problem["model"]), card.problem.get("loss"))
    count = sum(int(np.prod(parameter.shape)) for parameter in built.trainable_variables)
    if count != card.problem["parameters"]:
        expected = card.problem["parameters"]
        raise RunError("crashed", f"{card.name} was built with {count} parameters, its card says {expected}")
    return with_random_source(built, synthetic.Random(seed, 1))  # synthetic observations are drawn from the seed alone


def weights(model: Objective) -> dict[str, np.ndarray]:
    """The network's parameters by name, named and laid out as in PyTorch."""
    found = variables(model.network)
    return {name: to_pytorch(variable.numpy()) for name, variable in found if variable.trainable}


def without_randomness(model: Objective) -> Objective:
    """The same model, in which nothing is dropped at random and chains follow a formula in place of chance."""
    for layer in model.submodules:
        if isinstance(layer, Dropout):
            layer.p = 0.0
    return with_random_source(model, formula.Formula())


def with_random_source(model: Objective, chance: synthetic.Draw) -> Objective:
    """The same model, whose chains draw from a source where it is a density."""
    if isinstance(model.network, Density):
        model.network.chance = chance
    return model


def load_probe_weights(model: Objective) -> None:
    """Set weights and running means to what `data.generated.formula` makes of their names, in PyTorch's layout."""
    for name, variable in variables(model.network):
        shape = to_pytorch(variable.numpy()).shape
        variable.assign(from_pytorch(formula.weight(name, shape)))
