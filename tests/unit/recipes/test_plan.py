"""Plans: which base, and what is in the build key."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.recipes import plan as plan_module
from sifmark.recipes.hardware import Access
from sifmark.recipes.plan import make_plan, shipped_files
from sifmark.recipes.recipe import Driver, Recipe

SITE = Settings(cache=Path("/nowhere/cache"), dist=Path("/nowhere/dist"))


def test_a_mirror_changes_the_address_and_nothing_else() -> None:
    direct = make_plan("cpu", SITE)
    mirrored = make_plan("cpu", replace(SITE, mirrors={"docker.io": "registry.site.example/hub"}))
    assert mirrored.base.pull.startswith("registry.site.example/hub/library/python@sha256:")
    assert mirrored.base.digest == direct.base.digest
    assert (mirrored.build_key, mirrored.base_key) == (direct.build_key, direct.base_key)


def test_compression_does_not_make_another_image() -> None:
    assert make_plan("cpu", replace(SITE, compression="gzip")).build_key == make_plan("cpu", SITE).build_key


def test_what_only_the_host_knows_of_hardware_is_in_no_image() -> None:
    plan = make_plan("cpu", SITE)
    assert replace(plan, recipe=replace(plan.recipe, aliases=("other",))).build_key == plan.build_key
    assert not [name for name in shipped_files() if name.startswith("recipes/")]


# The name finds the lock; what is asked of the index is in the lock, and the index is where from.
IN_NO_KEY = {"name", "requires", "index", "aliases"}


@pytest.mark.parametrize("field", sorted({f.name for f in fields(Recipe)} - IN_NO_KEY))
def test_every_field_of_a_recipe_is_in_the_build_key(field: str) -> None:
    plan = make_plan("cpu", SITE)
    others: dict[str, Any] = {
        "environment": {"X": "1"},
        "base": replace(plan.recipe.base, tag="3.11-slim-trixie"),
        "driver": Driver("NVIDIA", "580"),
        "access": Access(("/dev/kfd",), ("--rocm",)),
    }
    other = others.get(field, "other")
    assert replace(plan, recipe=replace(plan.recipe, **{field: other})).build_key != plan.build_key


def test_the_code_of_the_image_is_in_the_build_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_plan("cpu", SITE).build_key
    monkeypatch.setattr(plan_module, "code_hash", lambda: "sha256:other")
    assert make_plan("cpu", SITE).build_key != before


@pytest.mark.parametrize("change", [{"licence": "other"}, {"redistributable": False}, {"image": "docker.io/x/y"}])
def test_every_statement_about_the_base_is_in_the_build_key(change: dict[str, Any]) -> None:
    plan = make_plan("cpu", SITE)
    other = replace(plan.recipe, base=replace(plan.recipe.base, **change))
    assert replace(plan, recipe=other).build_key != plan.build_key


def test_missing_stand_ins_say_how_to_make_them(tmp_path: Path) -> None:
    with refused(SifmarkError, "stand-ins-missing") as caught:
        make_plan("cpu", Settings(cache=tmp_path, dist=tmp_path, bases="stand-in"))
    assert "ci/setup/stand-in" in caught.value.remedy


@pytest.mark.parametrize(
    "pins", ["", "{}", '{"schema_version": "1.0", "registry": "x", "bases": {"a": {"x86_64": "latest"}}}']
)
def test_damaged_pins_are_refused(tmp_path: Path, pins: str) -> None:
    (tmp_path / "stand-in").mkdir()
    (tmp_path / "stand-in" / "pins.json").write_text(pins)
    with refused(SifmarkError, "document-invalid", "pins.json"):
        make_plan("cpu", Settings(cache=tmp_path, dist=tmp_path, bases="stand-in"))


def test_a_plan_without_digest_is_refused_with_a_way_on() -> None:
    plan = make_plan("xpu_ipex", SITE)
    assert plan.base.pull == "docker.io/intel/intel-extension-for-pytorch:2.8.10-xpu"
    with refused(SifmarkError, "base-unresolved") as caught:
        plan.require_resolved()
    assert "stand-in" in caught.value.remedy
