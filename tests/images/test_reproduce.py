"""The same image again: bit for bit as a SIF, layer for layer with Docker, and what is told where it is not."""

import json
from pathlib import Path

import pytest
from images.sites import Site, call, copy_project, docker_alone

from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.docker.engine import Docker

RECIPE = "ipu"  # the smallest


@pytest.mark.full  # the gate has it in test_pipelines.py: the step `reproduce`; other ways to pack are below
def test_a_sif_is_built_again_bit_for_bit(site: Site) -> None:
    site.inv("build", RECIPE)
    report = json.loads(site.inv("image.reproduce", f"resnet50-{RECIPE}", "--json").stdout)
    assert (report["recipe"], report["reproduced"], report["difference"]) == (RECIPE, True, None)
    assert report["identity"] == read_sif(site.dist / f"{RECIPE}.sif").identity()
    # Apptainer itself takes what we wrote, and adds to it.
    listed = call(["apptainer", "sif", "list", site.dist / f"{RECIPE}.sif"]).stdout
    assert "FS (Squashfs/*System/amd64)" in listed or "FS (Squashfs/*System/arm64)" in listed
    assert not list(site.dist.glob(".*partial*"))


def test_who_built_it_and_how_it_was_packed_need_not_be_as_here(site: Site) -> None:
    builder = "https://ci.site.example/runs/7"
    site.inv("build", RECIPE, "--compression", "lz4", "--force", SIFMARK_BUILDER=builder)
    assert json.loads(site.inv("image.reproduce", RECIPE, "--json").stdout)["reproduced"] is True
    assert not list(site.dist.glob(".*partial*"))


@pytest.mark.full
def test_another_date_is_the_first_difference(site: Site, tmp_path: Path) -> None:
    site.inv("build", RECIPE, SOURCE_DATE_EPOCH="86400")
    labels = read_sif(site.dist / f"{RECIPE}.sif").labels()
    assert labels["org.opencontainers.image.created"] == "1970-01-02T00:00:00+00:00"
    failed = site.inv("image.reproduce", RECIPE, check=False)
    assert failed.returncode == 1
    assert "was not reproduced: the definition" in failed.stderr and "1970-01-02" in failed.stderr
    refused = site.inv("build", RECIPE, "--force", check=False, SOURCE_DATE_EPOCH="yesterday")
    assert refused.returncode == 2 and "SOURCE_DATE_EPOCH is 'yesterday'" in refused.stderr


def test_an_image_of_other_code_is_refused_before_anything_is_built(site: Site) -> None:
    site.inv("build", RECIPE)
    clone = copy_project(site.folder / "clone")
    (clone / "entrypoints" / "more.py").write_text("")
    refused = site.inv("image.reproduce", RECIPE, check=False, PYTHONPATH=str(clone))
    assert refused.returncode == 1 and "built from another recipe or other code than those here" in refused.stderr


@pytest.mark.full
@pytest.mark.parametrize("recipe", ["cpu", "cpu_tf"])
def test_the_recipes_of_the_cpu_are_too(site: Site, recipe: str) -> None:
    site.inv("build", recipe)
    assert json.loads(site.inv("image.reproduce", recipe, "--json").stdout)["reproduced"] is True


@pytest.mark.matrix("docker", recipe=RECIPE)
@pytest.mark.skipif(Docker(load_settings()).version() is None, reason="no Docker Engine answers: ci/setup/docker")
def test_docker_gives_the_same_layers_again(site: Site) -> None:
    with docker_alone():
        site.inv("build", RECIPE, "--engine", "docker", "--compression", "gzip", "--force")
        report = json.loads(site.inv("image.reproduce", RECIPE, "--engine", "docker", "--json").stdout)
    assert report["reproduced"] is True
