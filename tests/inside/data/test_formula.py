"""Numbers made by a formula: the same bits everywhere, and spread as weights and inputs are."""

from __future__ import annotations

import hashlib

import pytest

np = pytest.importorskip("numpy")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.data.generated import formula, synthetic  # noqa: E402

PROBLEM = cards.load()["resnet50"].problem


def by_hand(name, index):
    """SplitMix64 in Python's unbounded integers."""
    mask = 2**64 - 1
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    mixed = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    mixed ^= mixed >> 31
    return (mixed >> 40) / 2**23 - 1


@given(st.text(max_size=20), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_number_is_that_of_whole_number_arithmetic(name, shape):
    values = formula.uniform(name, shape)
    assert values.dtype == np.float32 and values.shape == tuple(shape)
    assert values.ravel().tolist() == [by_hand(name, index) for index in range(values.size)]


def test_matrices_keep_the_size_of_what_passes_through_them():
    weight = formula.weight("layer1.0.conv1.weight", (256, 64, 3, 3))
    assert weight.mean() == pytest.approx(0, abs=1e-3)
    assert weight.std() == pytest.approx((1 / (64 * 9)) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("name", "centre"), [("bn1.weight", 1), ("bn1.running_var", 1), ("bn1.bias", 0), ("bn1.running_mean", 0)]
)
def test_vectors_lie_around_their_centre(name, centre):
    vector = formula.weight(name, (4096,))
    assert vector.mean() == pytest.approx(centre, abs=0.02)
    assert abs(vector - centre).max() <= 0.25


def test_a_recurrent_layer_that_remembers_differs_in_the_biases_of_its_forget_gates_alone():
    name, rows = "memory.bias_ih_l0", 40
    difference = formula.weight(name, (rows,), remembering=True) - formula.weight(name, (rows,))
    assert difference.tolist() == pytest.approx([0.0] * 10 + [5.0] * 10 + [0.0] * 20)
    for other, shape in (("memory.bias_hh_l0", (rows,)), ("memory.weight_ih_l0", (rows, 3))):
        assert (formula.weight(other, shape, remembering=True) == formula.weight(other, shape)).all()


def test_images_and_labels_cover_their_ranges():
    inputs, labels, *_ = synthetic.batch(PROBLEM, 64, formula.Formula())
    assert isinstance(inputs, np.ndarray) and isinstance(labels, np.ndarray)
    assert inputs.shape == (64, 3, 224, 224) and inputs.dtype == np.float32
    assert (inputs.mean(), inputs.var()) == (pytest.approx(0, abs=0.01), pytest.approx(1, rel=0.01))
    assert labels.dtype == np.int64 and labels.min() >= 0 and labels.max() < 1000
    assert len(set(labels.tolist())) > 50
