"""Settings, mirrors and what a plan makes of them."""

import os
from dataclasses import fields, replace
from pathlib import Path

import pytest

from sifmark.core import settings as module
from sifmark.core.environment import tool_environment
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import Access, Driver, Recipe


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SIFMARK_SETTINGS", "SIFMARK_CACHE", "SIFMARK_DIST", "SIFMARK_BASES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def read() -> Settings:
    return module.settings.__wrapped__()


def test_defaults(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert read() == Settings(cache=Path("/somewhere/sifmark"), dist=here / "dist")


def test_options_of_a_command_line_are_checked(here: Path) -> None:
    assert module.with_options(read(), bases="stand-in", compression=None).bases == "stand-in"
    with pytest.raises(UsageError, match="the command line: bases"):
        module.with_options(read(), bases="standin")


def test_a_shell_s_wishes_for_containers_do_not_reach_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APPTAINER_BIND", "APPTAINERENV_PYTHONPATH", "SINGULARITY_OVERLAYIMAGE", "APPTAINER_CACHEDIR"):
        monkeypatch.setenv(name, "x")
    seen = tool_environment(EXTRA="y")
    assert "APPTAINER_CACHEDIR" in seen
    assert seen["EXTRA"] == "y"
    assert not {"APPTAINER_BIND", "APPTAINERENV_PYTHONPATH", "SINGULARITY_OVERLAYIMAGE"} & set(seen)


def test_the_file_and_then_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "sifmark.toml").write_text('bases = "stand-in"\ndist = "out"\n')
    assert (read().bases, read().dist) == ("stand-in", here / "out")
    monkeypatch.setenv("SIFMARK_BASES", "pinned")
    assert read().bases == "pinned"


def test_keys_of_a_file_lie_beside_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works in a folder with a key of the same name trusts the site's all the same."""
    (here / "etc").mkdir()
    (here / "etc" / "sifmark.toml").write_text(f'keys = ["site.pub", "/other/site.pub", "{"A" * 40}"]\n')
    monkeypatch.setenv("SIFMARK_SETTINGS", "etc/sifmark.toml")
    assert read().keys == (str(here / "etc" / "site.pub"), "/other/site.pub", "A" * 40)
    (here / "etc" / "sifmark.toml").write_text('keys = ["~nobody_of_this_name/site.pub"]\n')
    with pytest.raises(UsageError, match="keys: ~nobody_of_this_name"):
        read()


def test_variables_that_are_no_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIFMARK_KEYS", f"a.pub{os.pathsep}b.pub")
    monkeypatch.setenv("SIFMARK_PRIVATE_REGISTRIES", "a.example:5000, b.example")
    monkeypatch.setenv("SIFMARK_CACHE_LIMIT", "0.5")
    found = read()
    assert found.keys == ("a.pub", "b.pub")
    assert found.private_registries == ("a.example:5000", "b.example")
    assert found.cache_limit == 0.5
    monkeypatch.setenv("SIFMARK_CACHE_LIMIT", "much")
    with pytest.raises(UsageError, match="cache_limit: 'much' is not of type 'number'"):
        read()


@pytest.mark.parametrize("text", ["cache_limit = nan", "cache_limit = inf", "time_limit = inf"])
def test_a_number_that_is_none_is_no_setting(here: Path, text: str) -> None:
    (here / "sifmark.toml").write_text(f"{text}\n")
    with pytest.raises(UsageError, match=f"{text.split()[0]}: that is no finite number"):
        module.settings()


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
    assert make_plan("cpu", replace(site, compression="gzip")).build_key == make_plan("cpu", site).build_key


# The name finds the lock; what is asked of the index is in the lock, and the index is where from.
@pytest.mark.parametrize("field", sorted({f.name for f in fields(Recipe)} - {"name", "requires", "index"}))
def test_every_field_of_a_recipe_is_in_the_build_key(field: str) -> None:
    plan = make_plan("cpu", replace(read(), bases="pinned"))
    others = {
        "environment": {"X": "1"},
        "base": replace(plan.recipe.base, tag="3.11-slim-trixie"),
        "driver": Driver("NVIDIA", "580"),
        "access": Access(("/dev/kfd",), ("--rocm",)),
    }
    other = others.get(field, "other")
    assert replace(plan, recipe=replace(plan.recipe, **{field: other})).build_key != plan.build_key


@pytest.mark.parametrize("change", [{"licence": "other"}, {"redistributable": False}, {"image": "docker.io/x/y"}])
def test_every_statement_about_the_base_is_in_the_build_key(change: dict) -> None:
    plan = make_plan("cpu", replace(read(), bases="pinned"))
    other = replace(plan.recipe, base=replace(plan.recipe.base, **change))
    assert replace(plan, recipe=other).build_key != plan.build_key


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
