"""Building for real: up to date, stale, killed, at once, on a full disk, without a registry; fast against plain."""

import contextlib
import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests
from images.sites import Site, answer, call, copy_project, make_site

from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.engine import user_flags
from sifmark.engines.apptainer.sif import read_sif
from sifmark.recipes.names import cards

RECIPE = "ipu"  # of all that every machine can build the smallest: how it is built is the same for each
NAMES = (f"{RECIPE}.sif", *(f"{workload}-{RECIPE}.sif" for workload in cards()))


@pytest.fixture
def site(site: Site) -> Site:
    """A site without images, for the images of the smallest recipe."""
    return replace(site, recipe=RECIPE)


@pytest.fixture
def clone(site: Site) -> Site:
    """A site with a copy of the project that a test may change, and that its verbs run from."""
    copy = copy_project(site.folder / "clone")
    return site.using(PYTHONPATH=str(copy))


def finished(site: Site) -> list[str]:
    """The images that look finished."""
    return sorted(path.name for path in site.dist.glob("*.sif"))


def written(site: Site) -> list[tuple[int, int]]:
    """Which files there are, and when they were written."""
    return [((site.dist / name).stat().st_ino, (site.dist / name).stat().st_mtime_ns) for name in NAMES]


def states(site: Site) -> dict[str, set[str]]:
    """The states of the images of each recipe."""
    rows = json.loads(site.inv("list", "--json").stdout)["images"]
    return {row["recipe"]: {other["state"] for other in rows if other["recipe"] == row["recipe"]} for row in rows}


def leftovers(site: Site) -> list[Path]:
    """What a build should have taken away."""
    folders = [site.dist, site.folder / "cache"]
    return [path for folder in folders for path in folder.rglob(".*.partial-*")]


def test_a_second_build_calls_no_engine(site: Site) -> None:
    site.build()
    before = written(site)
    fakes = site.folder / "fakes"
    fakes.mkdir()
    for tool in ("apptainer", "singularity", "mksquashfs", "docker", "pip"):
        (fakes / tool).write_text(f"#!/bin/sh\necho {tool} >> {site.folder}/called\nexit 1\n")
        (fakes / tool).chmod(0o755)
    done = site.build(PATH=f"{fakes}:{os.environ['PATH']}")
    assert "up to date" in done.stdout
    assert not (site.folder / "called").exists()
    assert written(site) == before


@pytest.mark.full  # the gate has it without an image: engines/test_apptainer_build.py; for real: test_catalogue.py
def test_all_names_are_one_file(site: Site) -> None:
    site.build()
    (site.dist / f"resnet50-{RECIPE}.sif").unlink()
    (site.dist / f"resnet50-{RECIPE}.sif").write_text("something else")
    site.build()
    assert (site.dist / f"{RECIPE}.sif").samefile(site.dist / f"resnet50-{RECIPE}.sif")


def test_changed_code_makes_an_image_stale(clone: Site) -> None:
    clone.build()
    present = {recipe: of_images for recipe, of_images in states(clone).items() if of_images != {"missing"}}
    assert present == {RECIPE: {"built"}}
    card = clone.folder / "clone" / "entrypoints" / "workloads" / "resnet50.json"
    card.write_text(card.read_text().replace("ResNet-50", "ResNet-fifty"))
    assert states(clone)[RECIPE] == {"stale"}
    assert "built in" in clone.build().stdout
    done = call(["apptainer", "--quiet", "inspect", clone.dist / f"{RECIPE}.sif"])
    assert read_sif(clone.dist / f"{RECIPE}.sif").labels()["org.sifmark.build-key"] in done.stdout


@pytest.mark.full  # the gate has it without an image: layers/test_wheels.py; for real: test_catalogue.py
def test_a_wheel_with_another_hash_stops_the_build(clone: Site) -> None:
    lock = clone.folder / "clone" / "recipes" / "locks" / "ipu-cp38-x86_64.txt"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join(line[:-4] + "0000" if line.startswith("attrs==") else line for line in lines))
    done = clone.build(check=False)
    assert done.returncode == 1
    assert "hash" in done.stderr.lower()
    assert "do not use it" in done.stderr
    assert finished(clone) == []


def test_a_broken_recipe_names_file_key_and_remedy(clone: Site) -> None:
    recipe = clone.folder / "clone" / "recipes" / f"{RECIPE}.toml"
    recipe.write_text(recipe.read_text().replace('digest = "sha256:', 'digest = "sha257:'))
    done = clone.build(check=False)
    assert done.returncode == 2
    assert f"{RECIPE}.toml" in done.stderr
    assert "base.digests.x86_64.digest" in done.stderr
    assert "remedy" in done.stderr


def test_an_unknown_name_lists_the_nearest(site: Site) -> None:
    done = site.inv("build", "resnet5-cpu", check=False)
    assert done.returncode == 2
    assert "did you mean resnet50-cpu" in done.stderr


@pytest.mark.parametrize(
    "moment",
    [
        "append the wheels",
        pytest.param("convert the base", marks=pytest.mark.full),
        pytest.param("append the code", marks=pytest.mark.full),
    ],
)
def test_a_killed_build_leaves_nothing_that_looks_finished(cold: Site, moment: str) -> None:
    process = cold.start("build", RECIPE, until=moment)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert finished(cold) == []
    cold.build()
    assert finished(cold) == sorted(NAMES)
    assert leftovers(cold) == []
    cold.inv("verify", f"resnet50-{RECIPE}")


def test_a_terminated_build_stops_what_it_started(cold: Site) -> None:
    process = cold.start("build", RECIPE, until="append the wheels")
    process.terminate()
    process.communicate()
    assert process.returncode == 143
    assert finished(cold) == []
    assert leftovers(cold) == []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert str(cold.folder).encode() not in command.read_bytes()


def test_an_option_with_a_bad_value_is_refused(site: Site) -> None:
    for option in (("--bases", "standin"), ("--compression", "zip")):
        done = site.build(*option, check=False)
        assert done.returncode == 2
        assert option[0] in done.stderr and f"'{option[1]}' is not one of" in done.stderr


@pytest.mark.full
def test_another_compression_is_built_when_asked_for(cold: Site) -> None:
    cold.build()
    assert "up to date" in cold.build("--compression", "zstd").stdout
    assert "built in" in cold.build("--compression", "lz4").stdout
    assert "up to date" in cold.build().stdout


def test_two_builds_at_once(cold: Site) -> None:
    both = [cold.start("build", RECIPE), cold.start("build", RECIPE)]
    said = ["".join(process.communicate()) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("built in" in text for text in said) == 1
    assert sum("up to date" in text for text in said) == 1
    cold.inv("verify", f"resnet50-{RECIPE}")


@pytest.fixture
def disk(site: Site) -> Iterator[Path]:
    """A file system that takes a build, but no second one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    folder = site.folder / "small"
    folder.mkdir()
    call(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", folder])
    yield folder
    call(["umount", "--lazy", folder])


def fill(disk: Path) -> None:
    """Leave a megabyte of a file system, or less: a build may write to it meanwhile."""
    with contextlib.suppress(OSError):
        (disk / "fill").write_bytes(bytes(shutil.disk_usage(disk).free - 2**20))


@pytest.mark.parametrize(
    "role", ["SIFMARK_DIST", *(pytest.param(name, marks=pytest.mark.full) for name in ("SIFMARK_CACHE", "TMPDIR"))]
)
def test_a_disk_that_fills_up_is_named_and_nothing_is_left(cold: Site, disk: Path, role: str) -> None:
    cold = cold.with_cache(disk / "cache") if role == "SIFMARK_CACHE" else cold.using(**{role: str(disk)})
    process = cold.start("build", RECIPE, until="- fetch the base")
    fill(disk)
    _, said = process.communicate()
    assert process.returncode == 1, said
    assert "no space left" in said.lower()
    assert "Traceback" not in said
    left = [path for path in disk.rglob("*.sif") if not path.name.startswith(".")]
    assert left == []
    assert finished(cold) == []


@pytest.mark.parametrize("role", ["APPTAINER_TMPDIR", pytest.param("SIFMARK_DIST", marks=pytest.mark.full)])
def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(cold: Site, disk: Path, role: str) -> None:
    fill(disk)
    done = cold.build(check=False, **{role: str(disk)})
    assert done.returncode == 1 and f"to {disk}, with no more than 1 MiB left" in done.stderr, done.stderr
    assert "fetch the base" not in done.stderr and not (cold.folder / "cache" / "fetched").exists()


def test_a_registry_that_is_down(cold: Site) -> None:
    pins = cold.folder / "cache" / "stand-in" / "pins.json"
    document = json.loads(pins.read_text())
    pins.write_text(json.dumps({**document, "registry": "127.0.0.1:1"}))
    done = cold.build(check=False)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "sifmark doctor" in done.stderr
    assert finished(cold) == []


@pytest.fixture
def dying_registry() -> Iterator[str]:
    """The address of a registry that passes on what the real one says, and goes away in the middle of a layer."""
    real = json.loads(load_settings().stand_in_pins.read_text())["registry"]

    session = requests.Session()
    session.trust_env = False  # no proxy leads to this machine's own address

    class Dying(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = {"Accept": self.headers["Accept"] or "*/*", "Accept-Encoding": "identity"}
            answer = session.request(self.command, f"http://{real}{self.path}", headers=asked)
            dies = len(answer.content) >= 2**20
            self.send_response(answer.status_code)
            for name in {"Content-Type", "Content-Length", "Docker-Content-Digest"} & set(answer.headers):
                self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(answer.content[: len(answer.content) // 2] if dies else answer.content)
            if dies:
                self.close_connection = True
                Thread(target=die).start()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_words: object) -> None:
            pass

    def die() -> None:
        server.shutdown()
        server.server_close()  # else it would take connections, and answer none

    server = ThreadingHTTPServer(("127.0.0.1", 0), Dying)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    die()


def test_a_registry_that_goes_half_way(cold: Site, dying_registry: str) -> None:
    pins = cold.folder / "cache" / "stand-in" / "pins.json"
    whole = pins.read_text()
    pins.write_text(json.dumps({**json.loads(whole), "registry": dying_registry}))
    done = cold.build(check=False)
    assert done.returncode == 1, done.stderr
    assert "sifmark doctor" in done.stderr and "Traceback" not in done.stderr
    assert finished(cold) == []
    assert leftovers(cold) == []
    fetched = cold.folder / "cache" / "fetched"
    parts = [path.stat().st_size for path in fetched.rglob("sha256/.*.partial")]
    assert any(size >= 2**19 for size in parts), "half of a layer waits for the next build"
    pins.write_text(whole)
    cold.build()
    assert finished(cold) == sorted(NAMES)
    assert not list(fetched.glob("[!.]*")), "the converted base has taken its place"


def test_apptainer_s_own_cache_is_left_alone(cold: Site) -> None:
    """Another program may be writing its list of images: here it stands half written."""
    listed = cold.folder / "apptainer" / "cache" / "blob" / "index.json"
    listed.parent.mkdir(parents=True)
    listed.write_text('{"schemaVersion": 2, "manif')
    cold.build(APPTAINER_CACHEDIR=str(cold.folder / "apptainer"))
    assert finished(cold) == sorted(NAMES)
    assert [path for path in listed.parents[1].rglob("*") if path.is_file()] == [listed]


@pytest.mark.full
@pytest.mark.parametrize("compression", ["gzip", "lz4", "xz"])
def test_other_compressions(cold: Site, compression: str) -> None:
    cold.build("--compression", compression)
    path = cold.dist / f"{RECIPE}.sif"
    said = call(["unsquashfs", "-offset", str(read_sif(path).system.offset), "-s", path]).stdout
    assert f"Compression {compression}" in said
    image = cold.dist / f"image_compression-{RECIPE}.sif"
    done = call(["apptainer", "--quiet", "run", *user_flags(), image, "--smoke"], check=False)
    assert answer(done)["status"]["state"] == "no_device"


@pytest.mark.full  # images-docker builds from Dockerfiles too
def test_the_dockerfile_names_what_lies_in_its_context(site: Site) -> None:
    folder = site.folder / "of a user"  # with blanks, as users' folders have them
    folder.mkdir()
    text = make_site(folder).inv("image.render", "resnet50-cpu", "--format", "dockerfile").stdout
    context = Path(shlex.split(text.splitlines()[0])[-1])
    copied = [line.split()[1] for line in text.splitlines() if line.startswith("COPY")]
    assert copied
    assert all((context / name).is_dir() for name in copied)
