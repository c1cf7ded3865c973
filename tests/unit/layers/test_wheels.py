"""The cache of wheels, filled from a folder or an index made here."""

from dataclasses import replace
from pathlib import Path

import pytest
from unit.layers.conftest import Site
from unit.refusals import refused
from unit.wheel_files import STEP, TARGET, make_wheel

from sifmark.core.errors import SifmarkError
from sifmark.layers.resolve import lock_wheels
from sifmark.layers.wheels import unpack


def test_fetch_and_unpack(site: Site, tmp_path: Path) -> None:
    unpack(site.fetch(), TARGET, tmp_path / "layer", site.settings, STEP, site.log)
    assert (tmp_path / "layer" / "tiny.py").read_text() == "x = 1\n"
    assert not (tmp_path / "layer" / "bin").exists(), "scripts would name this host's interpreter"
    texts = [path.read_text() for path in (tmp_path / "layer").rglob("*") if path.is_file()]
    assert not any(str(tmp_path) in text for text in texts)


def test_fetching_again_asks_nobody(site: Site) -> None:
    first = site.fetch()
    site.wheel.unlink()
    assert site.fetch() == first


def test_a_site_s_own_index_is_asked_alone_and_its_password_stays_out_of_the_log(
    site: Site, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")  # nobody answers there
    site.settings = replace(site.settings, wheel_indexes=(index,))
    site.recipe = replace(site.recipe, index="http://127.0.0.1:1/vendor")
    (path,) = site.fetch()
    assert path.name == "tiny-1.0-py3-none-any.whl"
    log = site.log.read_text()
    assert " download --require-hashes " in log and "hunter2" not in log
    site.recipe.lock(TARGET).unlink()
    lock = lock_wheels(replace(site.recipe, index=None), site.settings, "3.11", "x86_64")
    assert "\ntiny==1.0 --hash=sha256:" in lock.read_text()


def test_another_hash_stops_the_build_and_keeps_nothing(site: Site) -> None:
    make_wheel(site.wheel.parent, body="x = 'not what was locked'\n")
    with pytest.raises(SifmarkError, match="(?i)hash") as caught:
        site.fetch()
    assert "do not use it" in caught.value.remedy
    assert not list(site.settings.cache.rglob("*.whl"))


def test_a_damaged_cache_entry_is_found_and_removed(site: Site) -> None:
    (cached,) = site.fetch()
    cached.write_bytes(b"damaged")
    with refused(SifmarkError, "digest-mismatch"):
        site.fetch()
    assert site.fetch() == (cached,)


def test_wheels_come_from_the_sources_folder_if_they_are_there_and_whole(site: Site, tmp_path: Path) -> None:
    (cached,) = site.fetch()
    sources = tmp_path / "sources" / "wheels" / cached.parent.name
    sources.mkdir(parents=True)
    cached.rename(sources / cached.name)
    cached.parent.rmdir()
    site.wheel.unlink()
    site.settings = replace(site.settings, sources=tmp_path / "sources")
    assert site.fetch() == (cached,)
    cached.unlink()
    (sources / cached.name).write_bytes(b"damaged")
    with refused(SifmarkError, "digest-mismatch") as caught:
        site.fetch()
    assert str(sources) in caught.value.cause
