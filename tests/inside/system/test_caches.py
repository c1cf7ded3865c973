"""Where compilers keep what they made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from entrypoints.system import caches

HOME = {"HOME": "/home/user"}


def space(**mib):
    """Free MiB by folder, of those that can be written to."""
    return lambda folder: mib.get(str(folder).strip("/").replace("/", "_"))


@pytest.fixture(autouse=True)
def temporary(monkeypatch):
    monkeypatch.setattr(caches.tempfile, "gettempdir", lambda: "/tmp")


def test_caches_stay_where_they_have_room():
    assert caches.moved(HOME, space(tmp=4000.0, home_user=4000.0)) == {}


@pytest.mark.parametrize(
    ("free", "place"),
    [
        ({"tmp": 60.0, "home_user": 60.0, "var_tmp": 60.0, "dev_shm": 12000.0}, "/dev/shm"),
        ({"tmp": 60.0, "home_user": 4000.0, "var_tmp": 60.0, "dev_shm": 12000.0}, "/home/user"),
        ({"tmp": 4000.0, "home_user": 60.0}, "/tmp"),
        ({"tmp": 60.0, "home_user": 61.0}, "/home/user"),
    ],
)
def test_caches_of_a_contained_image_go_where_there_is_room(free, place):
    moved = caches.moved(HOME, space(**free))
    assert set(moved) == set(caches.FOLDERS)
    assert all(value.startswith(f"{place}/sifmark-caches-{os.getuid()}/") for value in moved.values())


def test_what_the_user_chose_stays():
    moved = caches.moved({**HOME, "TRITON_CACHE_DIR": "/mine"}, space(tmp=60.0, dev_shm=4000.0))
    assert "TRITON_CACHE_DIR" not in moved and "TORCHINDUCTOR_CACHE_DIR" in moved


def test_nothing_moves_where_nothing_can_be_written():
    assert caches.moved(HOME, space()) == {}


def test_a_folder_that_cannot_be_written_to_has_no_space(tmp_path):
    assert (caches.free_mib(tmp_path) or 0.0) > 0
    assert caches.free_mib(Path("/proc/absent")) is None
