"""Settings, mirrors and what a plan makes of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from sifmark import settings as module
from sifmark.errors import SifmarkError, UsageError
from sifmark.plan import make_plan
from sifmark.settings import Settings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SIFMARK_SETTINGS", "SIFMARK_CACHE", "SIFMARK_DIST", "SIFMARK_BASES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def read() -> Settings:
    return module.settings.__wrapped__()


def test_defaults(here: Path) -> None:
    assert read() == Settings(cache=read().cache, dist=here / "dist")


def test_the_file_and_then_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "sifmark.toml").write_text('bases = "stand-in"\ndist = "out"\n')
    assert (read().bases, read().dist) == ("stand-in", here / "out")
    monkeypatch.setenv("SIFMARK_BASES", "pinned")
    assert read().bases == "pinned"


@pytest.mark.parametrize("text", ['bases = "mine"', "colour = 1", "time_limit = 0", 'mirrors = "x"', "= 1"])
def test_bad_settings_name_the_file(here: Path, text: str) -> None:
    (here / "sifmark.toml").write_text(text)
    with pytest.raises(UsageError, match="sifmark.toml"):
        read()


def test_a_bad_variable_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIFMARK_BASES", "mine")
    with pytest.raises(UsageError, match="SIFMARK_"):
        read()


def test_a_mirror_changes_the_address_and_nothing_else() -> None:
    plain = replace(read(), bases="pinned", mirrors={})
    mirrored = replace(plain, mirrors={"docker.io": "registry.site.example/hub"})
    here, there = make_plan("cpu", plain), make_plan("cpu", mirrored)
    assert there.base.pull.startswith("registry.site.example/hub/library/python@sha256:")
    assert there.base.digest == here.base.digest
    assert (there.build_key, there.base_key) == (here.build_key, here.base_key)


def test_compression_does_not_make_another_image() -> None:
    site = replace(read(), bases="pinned")
    assert make_plan("cpu", site, "gzip").build_key == make_plan("cpu", site, "zstd").build_key


def test_missing_stand_ins_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(SifmarkError) as caught:
        make_plan("cpu", Settings(cache=tmp_path, dist=tmp_path, bases="stand-in"))
    assert "ci/setup/stand-in" in caught.value.remedy


@pytest.mark.parametrize(
    "pins", ["", "{}", '{"schema_version": "1.0", "registry": "x", "bases": {"a": {"x86_64": "latest"}}}']
)
def test_damaged_pins_are_refused(tmp_path: Path, pins: str) -> None:
    (tmp_path / "stand-in").mkdir()
    (tmp_path / "stand-in" / "pins.json").write_text(pins)
    with pytest.raises(SifmarkError, match="pins.json"):
        make_plan("cpu", Settings(cache=tmp_path, dist=tmp_path, bases="stand-in"))
