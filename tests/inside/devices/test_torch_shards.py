"""Norms of many tensors by a few kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from entrypoints.devices.pytorch.strategies import shards  # noqa: E402

SHAPES = ((31, 8), (0, 4), (8,), (5, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_squares_are_those_of_each_shard(dtype):
    random = torch.Generator().manual_seed(1)
    tensors = [torch.randn(shape, generator=random).to(dtype) for shape in SHAPES]
    expected = torch.stack([tensor.float().square().sum() for tensor in tensors])
    actual = shards.squares(tensors)
    assert actual.dtype == torch.float32 and expected[1] == 0 < expected[0]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=0.0)
    assert shards.squares(tensors[1:2]).tolist() == [0.0]


def test_squares_of_many_shards_start_as_few_operations_as_those_of_few():
    launches = pytest.importorskip("launches")
    counts = []
    for times in (1, 50):
        tensors = [torch.ones(shape) for shape in SHAPES * times]
        with launches.Launches() as counted:
            shards.squares(tensors)
        counts.append(counted.count)
    assert counts[0] == counts[1] < len(SHAPES) * 2
