"""Builds without a network: in a namespace that has no route, from a folder that was filled before."""

import json
from contextlib import suppress

import pytest
from docker.errors import ImageNotFound
from images.sites import INV, NO_NETWORK, Site, call, docker_alone

from sifmark.core.files import sha256_file
from sifmark.core.settings import load_settings, with_options
from sifmark.engines.docker.engine import Docker, stage_tag
from sifmark.recipes.plan import make_plan


@pytest.fixture
def bare(site: Site) -> Site:
    """A site with an empty cache, but for the names of the stand-ins, and a folder of sources for recipe ipu."""
    done = site.inv("recipe.fetch", "sources", "--name", "ipu", "--bases", "stand-in")
    assert done.stdout.strip() == str(site.folder / "sources")
    return site.with_cache(site.folder / "cache").using(SIFMARK_SOURCES=str(site.folder / "sources"))


def test_a_build_in_a_network_namespace_without_routes(bare: Site) -> None:
    """The same build without the folder proves that the namespace has none."""
    alone = {key: value for key, value in bare.environment.items() if key != "SIFMARK_SOURCES"}
    failed = call([*NO_NETWORK, *INV, "build", "ipu"], check=False, env=alone, cwd=bare.folder)
    assert failed.returncode == 1 and not (bare.dist / "ipu.sif").exists()
    call([*NO_NETWORK, *INV, "build", "ipu"], env=bare.environment, cwd=bare.folder)
    image = bare.dist / "ipu.sif"
    offline = sha256_file(image)
    bare.with_cache(bare.folder / "another").using(SIFMARK_SOURCES="").inv("build", "ipu", "--force")
    assert sha256_file(image) == offline, "what a registry gives is the same image"
    (stages,) = json.loads(bare.inv("verify", "image_compression-ipu", "--json").stdout).values()
    assert {verdict["outcome"] for verdict in stages} <= {"passed", "skipped"}


def test_fetching_again_takes_nothing_anew(bare: Site) -> None:
    before = {path: path.stat().st_ino for path in (bare.folder / "sources").rglob("sha256/*")}
    (index,) = (bare.folder / "sources" / "bases").glob("*/index.json")
    manifest = json.loads(index.read_text())["manifests"][0]["digest"]
    bare.inv("recipe.fetch", "sources", "--name", "ipu", "--bases", "stand-in")
    after = {path: path.stat().st_ino for path in (bare.folder / "sources").rglob("sha256/*")}
    changed = {path.name for path in before if before[path] != after[path]}
    assert changed <= {manifest.removeprefix("sha256:")}


# The gate has a damaged wheel without an image: layers/test_wheels.py.
@pytest.mark.parametrize("what", ["base", pytest.param("wheel", marks=pytest.mark.full)])
def test_what_is_damaged_is_not_built_on(bare: Site, what: str) -> None:
    sources = bare.folder / "sources"
    files = sources.glob("bases/*/blobs/sha256/*") if what == "base" else sources.glob("wheels/*/*.whl")
    file = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    done = bare.inv("build", "ipu", check=False)
    assert done.returncode == 1 and not (bare.dist / "ipu.sif").exists()
    assert ("damaged" if what == "base" else "has hash") in done.stderr


@pytest.mark.full
@pytest.mark.skipif(Docker(load_settings()).version() is None, reason="no Docker Engine answers: ci/setup/docker")
def test_docker_builds_from_it_too(bare: Site) -> None:
    pins = bare.folder / "cache" / "stand-in" / "pins.json"
    pins.write_text(json.dumps({**json.loads(pins.read_text()), "registry": "127.0.0.1:1"}))
    site = bare.using(SIFMARK_ENGINE="docker")
    with docker_alone():
        with suppress(ImageNotFound):
            Docker(load_settings()).daemon.remove(
                stage_tag(make_plan("ipu", with_options(load_settings(), bases="stand-in")))
            )
        site.inv("build", "ipu", "--force")
        (stages,) = json.loads(site.inv("verify", "image_compression-ipu", "--json").stdout).values()
    (structure,) = [verdict for verdict in stages if verdict["stage"] == "structure"]
    assert structure["outcome"] == "passed" and "layers of the base" in str(structure["reasons"])
