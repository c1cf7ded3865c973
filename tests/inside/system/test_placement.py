"""Where ranks run: shares of processors, and those near a device."""

from __future__ import annotations

import pytest

from entrypoints.system import host, placement


@pytest.fixture()
def two_sockets(monkeypatch):
    """Two sockets of two cores with two threads each, numbered as Linux usually does: 0 and 4 are of one core."""
    monkeypatch.setattr(host, "topology", lambda numbers: {(number % 4 // 2, number % 2) for number in numbers})


@pytest.mark.parametrize(
    ("count", "shares"),
    [
        (1, [{0, 1, 2, 3, 4, 5, 6, 7}]),
        (2, [{0, 1, 4, 5}, {2, 3, 6, 7}]),
        (4, [{0, 4}, {1, 5}, {2, 6}, {3, 7}]),
        (8, [{number} for number in range(8)]),
    ],
)
def test_ranks_get_neighbouring_cores(two_sockets, count, shares):
    assert [placement.share_of(set(range(8)), index, count) for index in range(count)] == shares


def test_three_ranks_leave_a_core_of_four_to_others(two_sockets):
    shares = [placement.share_of(set(range(8)), index, 3) for index in range(3)]
    assert shares == [{0, 4}, {1, 5}, {2, 6}]


def test_more_ranks_than_processors_share_all_of_them(two_sockets):
    assert placement.share_of({0, 4}, 2, 3) == {0, 4}


def test_where_the_kernel_names_no_cores_processors_are_divided(monkeypatch):
    def unknown(_):
        raise FileNotFoundError

    monkeypatch.setattr(host, "topology", unknown)
    assert placement.share_of({0, 1, 2, 3}, 1, 2) == {2, 3}


def test_processors_near_a_device(tmp_path, monkeypatch):
    monkeypatch.setattr(placement, "PCI", tmp_path)
    (tmp_path / "0000:c1:00.0").mkdir()
    (tmp_path / "0000:c1:00.0" / "local_cpulist").write_text("48-63,176-191\n")
    assert placement.nearest(["0000:C1:00.0", "0000:01:00.0"]) == {*range(48, 64), *range(176, 192)}
    assert placement.nearest(["0000:01:00.0"]) == placement.nearest([]) == set()


def test_memory_nodes_of_processors(tmp_path, monkeypatch):
    monkeypatch.setattr(placement, "NODES", tmp_path)
    for name, processors in {"node0": "0-3", "node1": "4-7", "node2": ""}.items():  # the last has only memory
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(f"{processors}\n")
    assert placement.memory_nodes({3, 4}) == "0-1" and placement.memory_nodes({6}) == "1"
    assert placement.memory_nodes({9}) is None
