"""Generated batches: at random, so that input costs nothing, or by a formula, for the correctness check."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Protocol, Sequence, Tuple, Union

import numpy as np

from entrypoints.contract.cards import reconstructs

Shape = Sequence[int]
Problem = Mapping[str, Any]
Arrays = Union[np.ndarray, Tuple[np.ndarray, ...]]


class RandomSource(Protocol):
    """A source of random or formula-generated numbers. A formula's depend only on the name; the others ignore it."""

    def normal(self, name: str, shape: Shape) -> np.ndarray:
        """Return float32 of mean 0 and variance 1."""

    def share(self, name: str, shape: Shape) -> np.ndarray:
        """Return float32 in [0, 1)."""

    def index(self, name: str, shape: Shape, count: int) -> np.ndarray:
        """Return int64 from 0 to `count` - 1."""

    def lengths(self, name: str, samples: int, most: int) -> np.ndarray:
        """Return int64 (samples,): how much of `most` each sample fills."""


class SeededRandom:
    """Numbers of a seeded generator. Samples are full: speed is measured without padding."""

    def __init__(self, *seed: int) -> None:
        self.generator = np.random.default_rng(list(seed))

    def normal(self, _: str, shape: Shape) -> np.ndarray:
        """Return standard normal numbers, like normalised photographs."""
        return self.generator.standard_normal(tuple(shape), dtype=np.float32)

    def share(self, _: str, shape: Shape) -> np.ndarray:
        """Return uniform float32 in [0, 1)."""
        return self.generator.random(tuple(shape), dtype=np.float32)

    def index(self, _: str, shape: Shape, count: int) -> np.ndarray:
        """Return uniform int64 from 0 to `count` - 1."""
        return self.generator.integers(count, size=tuple(shape))

    def lengths(self, _: str, samples: int, most: int) -> np.ndarray:
        """Return `most` for every sample."""
        return np.full(samples, most)


class SyntheticBatch(NamedTuple):
    """Inputs and targets of a batch, samples along the first axis of each array. For tokens also their number and the
    number of padded positions."""

    inputs: Arrays
    targets: Arrays
    tokens: int | None = None
    padding: int | None = None


def images(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return float32 (N, C, H, W) and labels (N,). If the input is its own target, pixels are in [0, 1)."""
    shape = (samples, *problem["input"]["shape"])
    if reconstructs(problem):
        pixels = draw.share("inputs", shape)
        return SyntheticBatch(pixels, pixels)
    inputs = draw.normal("inputs", shape)
    return SyntheticBatch(inputs, draw.index("labels", (samples,), problem["model"]["classes"]))


def series(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return float32 (N, T, features) and the number (N, 1) to predict for each."""
    inputs = draw.normal("inputs", (samples, *problem["input"]["shape"]))
    return SyntheticBatch(inputs, draw.normal("targets", (samples, problem["model"]["outputs"])))


def table(problem: Problem, _: int, draw: RandomSource) -> SyntheticBatch:
    """Return features (N, F) and targets (N,): the card's number of observations, for which all samples are drawn."""
    rule = problem["input"]
    features = draw.normal("inputs", (rule["observations"], rule["features"])) * np.float32(rule["feature_deviation"])
    return SyntheticBatch(features, draw.normal("targets", features.shape[:1]) * np.float32(rule["target_deviation"]))


def observations(features: Sequence[Sequence[float]], targets: Sequence[float]) -> SyntheticBatch:
    """Return observations that were read instead of generated: float32 (N, F) and (N,)."""
    return SyntheticBatch(np.array(features, dtype=np.float32), np.array(targets, dtype=np.float32))


def text(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return tokens (N, T), and for each the token that follows it."""
    length = problem["input"]["length"]
    tokens = draw.index("inputs", (samples, length + 1), problem["model"]["vocabulary"])
    return SyntheticBatch(tokens[:, :-1], tokens[:, 1:], tokens=samples * length, padding=0)


def passage(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return tokens and segments (N, T), a question and its passage, and first and last token (N, 2) of the answer."""
    lengths, inputs = _segmented(problem, samples, draw)
    first = (draw.share("first", (samples,)) * lengths).astype(np.int64)
    last = first + (draw.share("last", (samples,)) * (lengths - first)).astype(np.int64)
    return _padded(inputs, np.stack([first, last], axis=1), lengths)


def masked_text(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return tokens and segments (N, T) with the positions (N, K) to predict, and as targets the tokens at these
    positions and whether the second segment follows the first (N,)."""
    lengths, inputs = _segmented(problem, samples, draw)
    rule = problem["input"]
    order = np.argsort(draw.share("places", (samples, rule["length"] // 2)), axis=1)  # in the half that all fill
    places = np.sort(order[:, : rule["masked"]], axis=1)
    guessed = draw.index("guessed", places.shape, problem["model"]["vocabulary"])
    return _padded((*inputs, places), (guessed, draw.index("follows", (samples,), 2)), lengths)


def speech(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return characters (N, L), speakers (N,) and mel frames (N, bands, T). Targets are the same mel frames, linear
    frames (N, bins, T), and 1 for each frame beyond the end, else 0 (N, 1, T). Padded characters and frames are 0."""
    rule, model = problem["input"], problem["model"]
    lengths = draw.lengths("characters", samples, rule["characters"])
    filled = np.arange(rule["characters"]) < lengths[:, None]
    characters = (1 + draw.index("inputs", filled.shape, model["vocabulary"] - 1)) * filled
    ends = draw.lengths("frames", samples, rule["frames"])[:, None, None]
    done = (np.arange(rule["frames"]) >= ends).astype(np.float32)
    mel, linear = (
        draw.share(name, (samples, model[name], rule["frames"])) * (1 - done) for name in ("mel_bands", "linear_bins")
    )
    speakers = draw.index("speakers", (samples,), model["speakers"])
    return _padded((characters, speakers, mel), (mel, linear, done), lengths)


def latents(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return latent images and noise (N, C, H, W), times (N,), and classes (N,), of which the one after the last stands
    for none, or texts (N, L, width) and their vectors. Targets are what the network is to predict of the noise."""
    shape, model = (samples, *problem["input"]["shape"]), problem["model"]
    clean, noise, rule = draw.normal("inputs", shape), draw.normal("noise", shape), model["noise"]
    if rule["kind"] == "flow":
        times, targets = draw.share("times", (samples,)), noise - clean
    else:
        times, targets = draw.index("times", (samples,), rule["steps"]), noise
    told = model["condition"]
    if told["kind"] == "class":
        labels = draw.index("labels", (samples,), told["classes"])
        dropped = draw.share("dropped", (samples,)) < told["dropped"]
        return SyntheticBatch((clean, noise, times, np.where(dropped, told["classes"], labels)), targets)
    text = draw.normal("text", (samples, told["text_length"], told["text_width"]))
    return SyntheticBatch((clean, noise, times, text, draw.normal("vector", (samples, told["vector"]))), targets)


def _segmented(problem: Problem, samples: int, draw: RandomSource) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return lengths (N,), tokens (N, T), 0 beyond the length, and segments (N, T); the first segment has a sixth."""
    length = problem["input"]["length"]
    lengths = draw.lengths("lengths", samples, length)
    places = np.arange(length)
    filled = places < lengths[:, None]
    tokens = (1 + draw.index("inputs", (samples, length), problem["model"]["vocabulary"] - 1)) * filled
    return lengths, (tokens, ((places >= length // 6) & filled).astype(np.int64))


def _padded(inputs: Arrays, targets: Arrays, lengths: np.ndarray) -> SyntheticBatch:
    tokens = int(lengths.sum())
    return SyntheticBatch(inputs, targets, tokens, inputs[0].size - tokens)


Kind = Callable[[Problem, int, RandomSource], SyntheticBatch]
KINDS: Mapping[str, Kind] = {
    "photographs": images,
    "drawings": images,
    "series": series,
    "table": table,
    "text": text,
    "passage": passage,
    "masked_text": masked_text,
    "speech": speech,
    "latents": latents,
}


def batch(problem: Problem, samples: int, draw: RandomSource) -> SyntheticBatch:
    """Return a batch of what a card's `problem.input` describes."""
    return KINDS[problem["input"]["kind"]](problem, samples, draw)
