"""What a build by Apptainer decides before and around its tools, which `tests/images` run for real."""

import errno
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from unit.fakes import write_image
from unit.refusals import refused

from sifmark.core.errors import RegistryError
from sifmark.core.files import write_json
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed, Forecast
from sifmark.engines.apptainer import build, forecast
from sifmark.engines.apptainer.build import build_definition, build_sif, cache_entries
from sifmark.engines.apptainer.engine import Apptainer
from sifmark.engines.apptainer.forecast import forecast_build
from sifmark.layers.cache import BASES, BASES_WITH_WHEELS, LAYERS, Entry
from sifmark.recipes.names import names_of
from sifmark.recipes.plan import Plan, make_plan


@pytest.fixture
def plan(site: Settings) -> Plan:
    return make_plan("cpu", site)


def keep(entry: Entry, size: int) -> None:
    """Let an entry of the cache be there; it says that it took a second."""
    write_json(entry.folder / "seal.json", {"digest": "x", "size": size, "seconds": 1.0})


MIB = 1024**2


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """What base and wheels weigh, as registries and the cache would say."""
    sizes: dict[str, int | None] = {"base": 100 * MIB, "wheels": 50 * MIB}

    def compressed_size(*_: str) -> int:
        if sizes["base"] is None:
            raise RegistryError("no answer", code="registry-unreachable")
        return sizes["base"]

    monkeypatch.setattr(forecast, "compressed_size", compressed_size)
    monkeypatch.setattr(forecast, "cached_size", lambda *_: sizes["wheels"])
    return sizes


def test_what_nobody_knows_is_not_guessed(plan: Plan, site: Settings, sizes: dict[str, int | None]) -> None:
    sizes["base"] = None
    assert forecast_build(plan, site) == Forecast()


def test_the_space_for_a_base_is_known_before_the_wheels(
    plan: Plan, site: Settings, sizes: dict[str, int | None]
) -> None:
    """Else the first build on a host, which downloads the most, would have no check."""
    sizes["wheels"] = None
    assert forecast_build(plan, site) == Forecast(cached=200 * MIB, temporary=350 * MIB, stored=100 * MIB)


def test_a_first_build_makes_every_stage(plan: Plan, site: Settings, sizes: dict[str, int | None]) -> None:
    estimate = forecast_build(plan, site)
    assert estimate.size == estimate.stored == 150 * MIB
    assert estimate.cached == (100 + 3 * 50 + 150) * MIB and estimate.temporary == 350 * MIB
    assert estimate.seconds and 10 < estimate.seconds < 60
    assert Apptainer(site).stages(plan) == {BASES: False, LAYERS: False, BASES_WITH_WHEELS: False}


def test_stages_that_are_kept_cost_nothing(plan: Plan, site: Settings, sizes: dict[str, int | None]) -> None:
    entries = cache_entries(plan, site)
    keep(entries[BASES], 120 * MIB)
    keep(entries[LAYERS], 140 * MIB)
    assert forecast_build(plan, site) == replace(
        forecast_build(plan, site), size=170 * MIB, stored=170 * MIB, cached=170 * MIB, temporary=0
    )
    keep(entries[BASES_WITH_WHEELS], 165 * MIB)
    sizes["base"] = sizes["wheels"] = None  # what has the whole base asks nobody
    last = forecast_build(plan, site)
    assert (last.size, last.cached) == (165 * MIB, 0) and last.seconds and last.seconds < 2
    assert all(Apptainer(site).stages(plan).values())


class Stages:
    """Stands in for the stages of a build, and writes down what is done with them."""

    def __init__(self, kept: bool, layer_made: bool) -> None:
        self.kept, self.layer_made = kept, layer_made
        self.done: list[str] = []

    def entry(self, name: str, **options: Any) -> "Stages._Entry":
        return self._Entry(self, name, options)

    class _Entry:
        def __init__(self, stages: "Stages", name: str, options: dict[str, Any]) -> None:
            self.stages, self.name, self.options = stages, name, options

        def checksum(self) -> object | None:
            return object() if self.stages.kept else None

        def ensure(self) -> bool:
            self.stages.done.append(f"{self.name}{', checked' if self.options.get('check', True) else ''}")
            return self.stages.layer_made

        def read(self, write: partial[object]) -> None:
            write.args[2].write_bytes(b"an image")


@pytest.mark.parametrize(
    ("kept", "layer_made", "done"),
    [
        (True, False, ["bases-with-wheels, checked"]),
        (False, True, ["base", "layer", "bases-with-wheels"]),  # what was made just now was read for its checksum
        (False, False, ["base", "layer", "bases-with-wheels, checked"]),
    ],
)
def test_which_stages_a_build_makes(
    plan: Plan,
    site: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kept: bool,
    layer_made: bool,
    done: list[str],
) -> None:
    stages = Stages(kept, layer_made)
    monkeypatch.setattr(build, "converted_base", lambda *_, **__: stages.entry("base", check=False))
    monkeypatch.setattr(build, "site_layer", lambda *_, **__: stages.entry("layer", check=False))
    monkeypatch.setattr(
        build, "base_with_wheels", lambda *_, check=True, **__: stages.entry("bases-with-wheels", check=check)
    )
    monkeypatch.setattr(build, "code_layer", lambda *_, **__: None)
    build_sif(plan, tmp_path / "cpu.sif", tmp_path / "log", site)
    assert sorted(stages.done[:-1]) + stages.done[-1:] == done
    assert (tmp_path / "cpu.sif").read_bytes() == b"an image"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".build-")] == []


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_a_definition_is_built_without_apptainer_s_own_cache(
    site: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """That cache has no locks: of builds at once, some would find its index half written."""
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$SOURCE_DATE_EPOCH $@" > {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    plan = make_plan("cpu", replace(site, compression=compression))
    build_definition(plan, 86400, tmp_path / "x.def", tmp_path / "x.sif", None, site, lambda _: None, 0)
    said = (tmp_path / "said").read_text()
    assert said.startswith("86400 build --disable-cache ") and f"-comp {compression}" in said


def test_a_large_base_may_take_longer(site: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 GB at the 15 MB/s that two cores managed take 22 minutes, and up to ten times as long is no fault."""
    limits: list[float] = []
    monkeypatch.setattr(build, "run", lambda *_, time_limit, **__: limits.append(time_limit))
    for size in (0, 20_000_000_000):
        build_definition(make_plan("cpu", site), 0, tmp_path / "x.def", tmp_path / "x", None, site, print, size)
    assert limits[0] == site.time_limit and 10 * 20e9 / 15e6 < limits[1] < 20_000


def test_names_are_links_and_are_replaced_in_one_step(site: Settings) -> None:
    apptainer = Apptainer(site)
    path = Path(apptainer.address("cpu"))
    write_image(path, "cpu", site)
    Path(apptainer.address("resnet50-cpu")).write_text("an earlier image")
    assert apptainer.tag_workloads("cpu") == names_of("cpu")
    assert all(Path(apptainer.address(name)).samefile(path) for name in names_of("cpu"))
    (removed,) = apptainer.remove("cpu")
    assert removed.startswith(f"{path} and {len(names_of('cpu'))} names of it (") and not list(site.dist.glob("*.sif"))


@pytest.mark.parametrize("fault", [errno.EPERM, errno.ENOSPC])
def test_without_hard_links_names_are_copies(site: Settings, monkeypatch: pytest.MonkeyPatch, fault: int) -> None:
    apptainer = Apptainer(site)
    path = Path(apptainer.address("cpu"))
    write_image(path, "cpu", site)

    def link(*_: object) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "link", link)
    if fault == errno.ENOSPC:
        with pytest.raises(OSError):
            apptainer.tag_workloads("cpu")
        return
    apptainer.tag_workloads("cpu")
    copy = Path(apptainer.address("resnet50-cpu"))
    assert copy.read_bytes() == path.read_bytes() and copy.stat().st_mode & 0o777 == 0o755


def test_what_a_written_image_shows(site: Settings, tmp_path: Path) -> None:
    plan = write_image(tmp_path / "resnet50-cpu.sif", "cpu", site)
    image = Apptainer(site).inspect(str(tmp_path / "resnet50-cpu.sif"))
    assert image.labels == plan.labels() and image.workload == "resnet50" and not image.signed()
    assert set(image.sboms()) == {"sbom.spdx.json", "sbom.cyclonedx.json"} and image.provenance() is not None
    assert image.require_digest(image.digest(), None) == "identity and digest as recorded"
    signed_since = "identity as recorded; the digest is not the one recorded: signed since, by site.pub"
    assert image.require_digest("sha256:0", "site.pub") == signed_since
    with refused(CheckFailed, "digest-mismatch") as error:
        image.require_digest("sha256:0", None)
    assert "signed since: --key" in error.value.remedy
    assert image.require_base(plan) == "base: not in the cache, its tree was not compared"
