"""Which sizes of a micro-benchmark are measured."""

from __future__ import annotations

import pytest

from entrypoints.contract import cards
from entrypoints.contract.points import EMBEDDING_BAG, MEMORY_COPY, LastLevelCache
from entrypoints.contract.statuses import RunError
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.worker.point_loop import plan

MIB, GIB = 2**20, 2**30
LARGE = 1 << 30  # MiB of free memory


def planned(cache_mib: float | None, free_mib: float = LARGE, *words: str, workload: str = MEMORY_COPY):
    """Return the largest measured size, and the reasons by size of what is left out."""
    card = cards.load()[workload]
    configuration = resolve(parse([workload, "--device", "cpu", *words]), card, None)
    cache = None if cache_mib is None else LastLevelCache(cache_mib * MIB, "the kernel")
    measured, omitted = plan(card, configuration, 1, free_mib, cache)
    assert [point.size for point in measured] == sorted({point.size for point in measured})
    return measured[-1].size, {each.size: each.reason for each in omitted}


@pytest.mark.parametrize(
    ("cache_mib", "largest"),
    [(None, 256 * MIB), (1, 256 * MIB), (64, 256 * MIB), (65, GIB), (256, GIB), (288, 2 * GIB), (1152, 8 * GIB)],
)
def test_copies_go_on_until_one_is_four_times_the_caches(cache_mib, largest):
    measured, omitted = planned(cache_mib)
    assert measured == largest and set(omitted) == {size for size in sizes() if size > largest}
    assert all("--largest-size measures more" in reason for reason in omitted.values())


def test_what_is_asked_for_counts_more_than_the_caches():
    assert planned(288, LARGE, "--largest-size", "16M")[0] == 16 * MIB
    assert planned(1, LARGE, "--largest-size", "4G")[0] == 4 * GIB
    assert planned(288, LARGE, "--smoke")[0] == 4096


def test_a_copy_that_leaves_the_caches_may_take_half_of_the_memory():
    assert planned(288, 9 * 1024.0)[0] == 2 * GIB
    largest, omitted = planned(288, 7 * 1024.0)
    assert largest == 256 * MIB and "4096 MiB" in omitted[2 * GIB]
    assert planned(1, 9 * 1024.0, "--largest-size", "1G")[0] == 256 * MIB  # a tenth


def test_other_operations_end_where_their_card_says():
    assert planned(None, LARGE, workload="matmul")[0] == 2048


def test_tables_may_take_half_of_the_memory():
    for words, largest, free in (((), 448790528, 4401), (("--precision", "bf16"), 448790528, 2305)):
        assert planned(None, free, *words, workload=EMBEDDING_BAG)[0] == largest
    assert planned(None, 4300, workload=EMBEDDING_BAG)[0] == 112197632
    with pytest.raises(RunError, match="its buffers of 2090 MiB are more than the 2050 MiB") as refusal:
        planned(None, 4100, workload=EMBEDDING_BAG)
    assert refusal.value.state == "out_of_memory"


def sizes() -> list[int]:
    """The sizes of the card of copies."""
    return list(cards.load()[MEMORY_COPY].problem["input"]["sizes"])
