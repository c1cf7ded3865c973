"""Bases that are made here: one with caches, which images leave out, and one of the size of vendors' bases."""

import gzip
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from images.sites import Site, make_site

from sifmark.core.environment import platform_name, temporary_folder
from sifmark.core.errors import RegistryError
from sifmark.core.files import compact_json, sha256_bytes
from sifmark.core.settings import Settings, load_settings, with_options
from sifmark.engines.apptainer.build import SQUASHFS, converted_base
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.apptainer.squashfs import ROOT, extract, list_files
from sifmark.oci.client import Registry
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import Descriptor, descriptor_of, read_manifest, write_manifest
from sifmark.recipes.plan import Plan, make_plan

RECIPE = "ipu"
CONFIG_MEDIA = "application/vnd.oci.image.config.v1+json"
LAYER_MEDIA = "application/vnd.oci.image.layer.v1.tar"
GO = {"x86_64": "amd64", "aarch64": "arm64"}
LARGE = 4_400_000_000  # bytes: more than 32 bits count, and more than any stand-in has
FREE = 30 * 2**30  # bytes that the large base, its stages and its copies take at most


def written(plan: Plan, sources: Path, layers: list[Descriptor], config: dict[str, object]) -> Plan:
    """Complete a layout in a folder of sources; return the plan of a build on it."""
    draft = Layout(sources / "draft")
    content = compact_json({"architecture": GO[platform_name()], "os": "linux", **config})
    manifest = write_manifest(descriptor_of(CONFIG_MEDIA, content), layers)
    draft.add(content)
    draft.add(manifest.content)
    draft.write_index([replace(manifest.descriptor, artifact_type="", annotations={})])
    draft.folder.rename(sources / "bases" / manifest.digest.removeprefix("sha256:"))
    return replace(plan, base=replace(plan.base, digest=manifest.digest))


def tar_of(names: list[str]) -> bytes:
    """A layer with these files, each of which holds its own name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return buffer.getvalue()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with a cache of their own, which knows the stand-ins, and a folder of sources."""
    (tmp_path / "sources" / "bases").mkdir(parents=True)
    (tmp_path / "cache" / "stand-in").mkdir(parents=True)
    shutil.copy(load_settings().stand_in_pins, tmp_path / "cache" / "stand-in")
    return replace(
        with_options(load_settings(), bases="stand-in"), cache=tmp_path / "cache", sources=tmp_path / "sources"
    )


def test_caches_of_a_base_are_left_out_and_nothing_beside_them(settings: Settings, tmp_path: Path) -> None:
    kept = ["bin/sh", "root/.bashrc", "home/root/.cache/x", "var/tmp/x", "tmpfile", "opt/conda/pkgs/linked/x"]
    kept += ["var/cache/apt/archives/lock", "srv/tmp/x"]
    caches = ["root/.cache/pip/x", "tmp/x", "tmp/.x", "tmp/folder/x", "var/cache/apt/archives/x.deb"]
    caches += ["opt/conda/pkgs/x.conda", "opt/conda/pkgs/x.tar.bz2"]
    layer = tar_of(kept + caches)
    packed = gzip.compress(layer, mtime=0)
    sources = settings.sources
    assert sources is not None
    Layout(sources / "draft").add(packed)
    rootfs = {"rootfs": {"type": "layers", "diff_ids": [sha256_bytes(layer)]}}
    plan = written(
        make_plan(RECIPE, settings), sources, [descriptor_of(f"{LAYER_MEDIA}+gzip", packed)], {"config": {}, **rootfs}
    )
    with converted_base(plan, settings, tmp_path / "log").use() as content:
        names = {row[-1].removeprefix(ROOT) for row in list_files(content / SQUASHFS, 0)}
        (text,) = extract(content / SQUASHFS, 0, tmp_path / "tree", 600, [".singularity.d/Singularity"]).rglob("Singu*")
        said = text.read_text()
    assert set(kept) <= names and not names & set(caches)
    assert "tmp" in names, "the folder itself is where runs mount the host's"
    assert str(tmp_path) not in said and plan.base.digest.replace(":", "-") in said


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry of its own, whose blobs are gone afterwards."""
    if (program := shutil.which("docker-registry")) is None:
        pytest.skip("docker-registry is not installed: ci/setup/registry")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config = tmp_path / "registry.yml"
    storage = f"storage: {{filesystem: {{rootdirectory: {tmp_path / 'registry'}}}}}"
    config.write_text(f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n{storage}\n")
    with config.open("a") as stream:
        stream.write(f"http: {{addr: {host}}}\n")
    process = subprocess.Popen([program, "serve", config])
    while process.poll() is None and not answers(host):
        time.sleep(0.05)
    yield host
    process.terminate()
    process.wait()


def answers(host: str) -> bool:
    try:
        return Registry(host).get("").status_code == 200
    except RegistryError:
        return False


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that is removed at once: pytest keeps those of its last three runs."""
    with tempfile.TemporaryDirectory(prefix="sifmark-test-", dir=temporary_folder()) as name:
        yield Path(name)


def with_random_layer(settings: Settings, sources: Path, size: int) -> Plan:
    """The stand-in with a layer more, of one file of random bytes."""
    plan = make_plan(RECIPE, settings)
    first = sources / "bases" / plan.base.digest.removeprefix("sha256:")
    layout = Layout(first)
    manifest = read_manifest(layout.read(layout.index()["manifests"][0]["digest"]))
    config = json.loads(layout.read(manifest.config.digest))
    member = tarfile.TarInfo("srv/random")
    member.size = size
    with layout.writer() as blob, tarfile.open(fileobj=blob, mode="w|") as archive:  # type: ignore[call-overload]
        archive.addfile(member, Random())
    config["rootfs"]["diff_ids"].append(blob.digest)
    config.pop("history", None)
    layer = Descriptor(LAYER_MEDIA, blob.digest, blob.size)
    first.rename(sources / "draft")
    return written(plan, sources, [*manifest.layers, layer], config)


class Random(io.RawIOBase):
    """A stream of random bytes without end."""

    read: Callable[[int], bytes] = staticmethod(os.urandom)  # type: ignore[assignment]


@pytest.mark.full
def test_a_base_of_the_size_of_vendors_is_built_verified_pushed_and_pulled(
    settings: Settings, tmp_path: Path, registry: str
) -> None:
    if (free := shutil.disk_usage(tmp_path).free) < FREE:
        pytest.skip(f"{tmp_path} has {free / 2**30:.0f} GiB left, and this needs {FREE / 2**30:.0f}")
    sources = settings.sources
    assert sources is not None
    site = make_site(tmp_path).using(SIFMARK_CACHE=str(settings.cache), SIFMARK_SOURCES=str(sources))
    site.inv("recipe.fetch", str(sources), "--name", RECIPE, "--bases", "stand-in")
    plan = with_random_layer(settings, sources, LARGE)
    pins = json.loads(settings.stand_in_pins.read_text())
    (pin,) = [each for name, each in pins["bases"].items() if name == plan.recipe.base.reference]
    pin[platform_name()]["digest"] = plan.base.digest
    settings.stand_in_pins.write_text(json.dumps(pins))
    site.inv("build", RECIPE)
    shutil.rmtree(sources)
    site.inv("verify", f"resnet50-{RECIPE}", "--stages", "structure")
    image = site.dist / f"{RECIPE}.sif"
    assert image.stat().st_size > LARGE
    hashes = read_sif(image).identity()
    shutil.rmtree(settings.cache / "bases")
    shutil.rmtree(settings.cache / "bases-with-wheels")
    site.inv("registry.push", RECIPE, "--registry", f"{registry}/images")
    pulled = pulling(tmp_path / "pulled", site, registry)
    assert read_sif(pulled).identity() == hashes


def pulling(folder: Path, site: Site, registry: str) -> Path:
    """Pull the image into another folder, once the first is gone."""
    shutil.rmtree(site.dist)
    site.inv("registry.pull", f"resnet50-{RECIPE}", "--registry", f"{registry}/images", SIFMARK_DIST=str(folder))
    return folder / f"{RECIPE}.sif"
