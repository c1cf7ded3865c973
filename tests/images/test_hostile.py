"""A hostile image: what it sees, writes and reaches when it is checked, and how a check of it ends."""

import io
import json
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from images.sites import call, make_site

from sifmark.attestations.provenance import NAME as PROVENANCE
from sifmark.core.errors import RegistryError, SifmarkError
from sifmark.core.files import write_json
from sifmark.core.process import CommandError, CompletedCommand
from sifmark.core.settings import Settings, load_settings
from sifmark.doctor import image as doctor_image
from sifmark.doctor.image import check_variables
from sifmark.engines import CheckFailed, Engine, open_engine, start
from sifmark.engines.apptainer.sif import INSPECT_NAME, METADATA, Extent, SifObject, write_sif
from sifmark.engines.docker import engine as docker_engine
from sifmark.engines.docker.attestations import IMAGE, attestation_folder
from sifmark.engines.docker.engine import Docker
from sifmark.engines.locate import locate, require_platform, run_isolated
from sifmark.oci.images import connect, fetch_manifest
from sifmark.publish import attestations, repositories
from sifmark.publish import docker as publish_docker
from sifmark.publish.attestations import MEDIA_TYPES
from sifmark.recipes import render
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, STAND_IN, WORKLOADS
from sifmark.recipes.names import SMALLEST
from sifmark.trust import stages
from sifmark.trust.image import image_under_test

LABELS = {WORKLOADS: SMALLEST, RECIPE: "cpu", STAND_IN: "true", PLATFORM: platform.machine()}
LABELS |= dict.fromkeys((BUILD_KEY, BASE_DIGEST), f"sha256:{'0' * 64}")
PROGRAMS = ("bash", "cat", "env", "ls", "sleep")
FOLDERS = ("bin", "dev", "etc", "home", "lib64", "proc", "root", "sys", "tmp", "var/tmp")
OF_ENGINES = (".singularity.d", "opt/sifmark")
# Files of the host that engines show to images.
TARGETS = (
    *("/etc/localtime", "/etc/hosts", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches"),
    *("/sys/kernel/uevent_helper", "/sys/fs/cgroup/cpu/release_agent", "/sys/fs/cgroup/cgroup.procs"),
)
SPY = """#!/bin/bash
tell() { echo "$1=$2"; }
tell user "$UID"
while read -r name value; do [ "$name" = CapEff: ] && tell capabilities "$value"; done < /proc/self/status
for file in ~/* /tmp/* /var/tmp/* /dev/shm/*; do [ -e "$file" ] && tell found "$file"; done
for file in @TARGETS@; do (: >> "$file") 2>/dev/null && tell wrote "$file"; done
for file in @OURS@; do (cat "$file") 2>/dev/null | { read -r line && tell read "$line"; }; done
for file in @OURS@; do (echo changed > "$file") 2>/dev/null; done
(exec 3<> /dev/tcp/127.0.0.1/@PORT@) 2>/dev/null && tell connected yes
while read -r line; do tell variable "$line"; done < <(env)
for process in /proc/[0-9]*; do tell process "${process#/proc/}"; done
"""
FLOOD = "#!/bin/bash\ntrap '' TERM HUP INT PIPE\nwhile :; do echo 'a line of a flood, and no end of it: {'; done\n"
ONE_LINE = "#!/bin/bash\ntrap '' TERM\nprintf '{'; exec cat /dev/zero\n"
FOREVER = """#!/bin/bash
trap '' TERM HUP INT
(while :; do sleep 1; done) &
while :; do sleep 1; done
"""
ESCAPES = """#!/bin/bash
printf '\\033]0;owned\\007\\033[2J{\\n'
printf '\\033[31merror: red\\n' >&2
exit 5
"""


def _tree(folder: Path, script: str) -> None:
    """Make an image of a shell, its libraries and one script, which is whatever the image can be started as."""
    for name in (*FOLDERS, *OF_ENGINES):
        (folder / name).mkdir(parents=True)
    for program in filter(None, map(shutil.which, PROGRAMS)):
        shutil.copy(program, folder / "bin")
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            (folder / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, folder / library[1:])
    (folder / "bin" / "sh").symlink_to("bash")
    for name in (".singularity.d/runscript", ".singularity.d/test", "opt/sifmark/run"):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)


def _sif(tree: Path, target: Path) -> str:
    squashed = target.with_suffix(".squashfs")
    subprocess.run(["mksquashfs", tree, squashed, "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL)
    attributes = {"labels": LABELS, "apps": {}, "runscript": "/bin/true"}
    metadata = json.dumps({"data": {"attributes": attributes}, "type": "container"}).encode()
    parts = [SifObject(METADATA, metadata, INSPECT_NAME)]
    write_sif(target, Extent(squashed, 0, squashed.stat().st_size), platform.machine(), lambda _: parts, 0, bytes(16))
    return str(target)


def _docker_image(tree: Path, settings: Settings) -> str:
    address = open_engine(settings, "docker").address("hostile")
    _import(tree, address)
    return address


def _import(tree: Path, name: str, *more: str) -> None:
    """Give the Docker Engine a tree as an image of this name."""
    packed = subprocess.run(["tar", "-c", "-C", tree, "."], check=True, capture_output=True).stdout
    changes = ['ENTRYPOINT ["/opt/sifmark/run"]', *(f"LABEL {key}={value}" for key, value in LABELS.items()), *more]
    words = [word for change in changes for word in ("--change", change)]
    argv = ["docker", "import", *words, "-", name]
    subprocess.run(argv, input=packed, check=True, capture_output=True)


@pytest.fixture(params=["apptainer", "docker"])
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = open_engine(replace(load_settings(), dist=tmp_path, cache=tmp_path, time_limit=60.0), request.param)
    if made.version() is None:
        pytest.skip(f"no {request.param} here: ci/setup/{request.param}")
    yield made
    if request.param == "docker":
        for words in (["rm", "--force", *_left(made)], ["image", "rm", "--force", "sifmark:hostile"]):
            subprocess.run(["docker", *words], check=False, capture_output=True)


def _image(tool: Engine, folder: Path, script: str) -> str:
    tree = folder / "tree"
    _tree(tree, script)
    return _sif(tree, folder / "hostile.sif") if tool.name == "apptainer" else _docker_image(tree, tool.settings)


@pytest.fixture
def listener() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Files and a variable that are nobody else's business: at home, beside the image, in /tmp and in shared memory."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SECRET_OF_USER", "secret")
    monkeypatch.setenv("APPTAINERENV_SECRET", "secret")
    monkeypatch.chdir(home)
    shared = Path("/dev/shm") / f"sifmark-secret-{os.getpid()}"
    files = [home / "secret", tmp_path / "secret", shared]
    for file in files:
        file.write_text("secret\n")
        file.chmod(0o666)
    yield files
    shared.unlink()


def _spy(ours: list[Path], port: int) -> str:
    """Return a script that tells what it sees, reads, changes and reaches."""
    words = {"@TARGETS@": " ".join(TARGETS), "@OURS@": " ".join(map(str, ours)), "@PORT@": str(port)}
    return re.sub(r"@\w+@", lambda match: words[match[0]], SPY)


def _seen(tool: Engine, address: str, **options: object) -> dict[str, set[str]]:
    seen: dict[str, set[str]] = {}
    for line in run_isolated(tool, address, "run", [], **options).output.splitlines():  # type: ignore[arg-type]
        name, _, value = line.partition("=")
        seen.setdefault(name, set()).add(value)
    return seen


def test_an_image_that_is_checked_reaches_nothing_of_ours(
    tool: Engine, tmp_path: Path, ours: list[Path], listener: int
) -> None:
    seen = _seen(tool, _image(tool, tmp_path, _spy(ours, listener)))
    assert {name: seen[name] for name in ("wrote", "read", "connected", "found") if name in seen} == {}
    assert {file.read_text() for file in ours} == {"secret\n"}
    assert seen["user"] == {"65534" if os.geteuid() == 0 or tool.name == "docker" else str(os.geteuid())}
    assert seen["capabilities"] == {"0" * 16}
    assert not [each for each in seen["variable"] if "secret" in each.lower()]
    assert len(seen["process"]) < 10


def test_the_look_at_variables_shows_nothing_else(
    tool: Engine, tmp_path: Path, ours: list[Path], listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0", "SLURM_PROCID": "1"}.items():
        monkeypatch.setenv(name, value)
    address = _image(tool, tmp_path, _spy(ours, listener))
    (check,) = check_variables(address, tool)
    assert ("sees SLURM" in check.detail) == (tool.name == "apptainer")
    handed = {name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST") if name in os.environ}
    seen = _seen(tool, address, variables=handed)
    assert {name: seen[name] for name in ("wrote", "read", "connected", "found") if name in seen} == {}
    assert {file.read_text() for file in ours} == {"secret\n"}
    assert not [each for each in seen["variable"] if "secret" in each.lower()]


@pytest.mark.parametrize("script", [FLOOD, ONE_LINE])
def test_an_image_that_prints_without_end_is_stopped(tool: Engine, tmp_path: Path, script: str) -> None:
    address = _image(tool, tmp_path, script)
    with pytest.raises(CommandError, match="more than") as error:
        run_isolated(tool, address, "run", [], check=False)
    assert len(str(error.value)) < 5000
    assert not _left(tool)


def test_an_image_that_does_not_end_is_stopped(tool: Engine, tmp_path: Path) -> None:
    address = _image(tool, tmp_path, FOREVER)
    limited = open_engine(replace(tool.settings, time_limit=5.0), tool.name)
    with pytest.raises(CommandError, match="did not finish"):
        run_isolated(limited, address, "run", [], check=False)
    assert not _left(tool)


@pytest.mark.parametrize("tool", ["apptainer"], indirect=True)
def test_what_an_image_says_does_not_steer_a_terminal(tool: Engine, tmp_path: Path) -> None:
    address = _image(tool, tmp_path, ESCAPES)
    (tmp_path / "dist").mkdir()
    site = make_site(tmp_path / "dist")
    for words, said in (
        (("verify", address, "--stages", "smoke"), "error: red"),
        (("doctor", "--image", address), "did not answer with a result"),
    ):
        done = site.inv(*words, check=False)
        shown = done.stdout + done.stderr
        assert done.returncode and said in shown and not {"\x1b", "\x07"} & {*shown}


def _left(tool: Engine) -> list[str]:
    """Return the processes, or containers, of checks that still run."""
    if tool.name == "docker":
        argv = ["docker", "ps", "--all", "--quiet", "--filter", "name=sifmark-check-"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"/.singularity.d/runscript" in words:
            commands.append(f"{path}: {words!r}")
    return commands


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Docker]:
    """The Docker Engine, with names that no other test has."""
    monkeypatch.setattr(docker_engine, "REPOSITORY", f"sifmark-test-{token_hex(4)}")
    made = Docker(replace(load_settings(), cache=tmp_path, engine="docker", time_limit=60.0))
    if made.version() is None:
        pytest.skip("no docker here: ci/setup/docker")
    yield made
    for image in made.daemon.sdk.images.list():
        for name in image.tags:
            if docker_engine.REPOSITORY in name:
                made.daemon.sdk.images.remove(name, force=True)


def _named(docker: Docker, name: str, folder: Path, word: str, *changes: str) -> str:
    """Make an image that says a word, give it a name, and return its identifier."""
    tree = folder / f"tree-{word}"
    if not tree.exists():
        _tree(tree, f"#!/bin/bash\necho {word}\n")
        for place in (render.SITE, render.CODE, render.APPS):
            (tree / place).mkdir(parents=True, exist_ok=True)
    _import(tree, docker.address(name), "ENV PATH=/bin", *changes)
    return docker.inspect(docker.address(name)).identifier


SMALL_NAME = f"{SMALLEST}-cpu"


@pytest.mark.parametrize("how", ["run", "run again", "print", "verify", "doctor"])
def test_the_image_that_was_looked_at_is_started_though_its_name_moves(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    other = _named(docker, SMALL_NAME, tmp_path, "other")
    looked_at = _named(docker, SMALL_NAME, tmp_path, "mine")
    address, said = docker.address(SMALL_NAME), list[str]()

    def move() -> None:
        docker.daemon.tag(other, docker_engine.REPOSITORY, SMALL_NAME)

    def moved_run(engine: Engine, address: str, *words: Any, **options: Any) -> CompletedCommand:
        move()
        said.append(run_isolated(engine, address, *words, **options).output.strip())
        raise CheckFailed("that is enough", code="run-failed")

    if how in ("run", "run again"):
        image = start.check_image(address, docker, docker.settings, signed=False)
        move()
        if how == "run again":
            image.require_unchanged()
        said = [call(image.command([], [])).stdout.strip()]
        assert image.facts["digest"] == looked_at
    elif how == "print":
        monkeypatch.setattr(start, "require_signed", lambda *_: move())
        said = [call(start.printed_command(address, docker, [], docker.settings, signed=True)).stdout.strip()]
    elif how == "verify":
        monkeypatch.setattr(stages, "run_isolated", moved_run)
        passed = stages.Stage("trust", lambda image: [image.inspection.digest()])
        first, _ = stages.verify(docker, address, docker.settings, [passed, stages.STAGES[2]])
        assert first.findings == (looked_at,)
    else:
        monkeypatch.setattr(doctor_image, "run_isolated", moved_run)
        with pytest.raises(CheckFailed, match="enough"):
            list(doctor_image.check_image(SMALL_NAME, docker, docker.settings))
    assert said == ["mine"]
    assert docker.inspect(address).identifier == other


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('ENTRYPOINT ["/bin/env"]', "is another image than that of its recipe"),
        (f"ENV SCIF_APPNAME={SMALLEST} PYTHONPATH=/tmp", "is another image than that of its recipe"),
        ("ENV SCIF_APPNAME=lstm", "is an image of workload lstm"),
    ],
)
def test_a_name_that_means_another_start_is_refused_and_set_again(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, why: str
) -> None:
    """Layers and labels are the recipe's, and its parent is the recipe's image."""
    monkeypatch.setattr(docker_engine, "names_of", lambda _: (SMALL_NAME,))
    monkeypatch.setattr(docker_engine, "workloads_of", lambda _: (SMALLEST,))
    whole = _named(docker, "cpu", tmp_path, "mine")
    docker.tag_workloads("cpu")
    assert locate(SMALL_NAME, docker) == docker.address(SMALL_NAME)
    docker.daemon.build(f"FROM {whole}\n{change}\n", tag=docker.address(SMALL_NAME))
    with pytest.raises(SifmarkError, match=why) as error:
        locate(SMALL_NAME, docker)
    assert error.value.code == "names-stale"
    build, other = docker.daemon.build, _named(docker, "other", tmp_path, "other")

    def moved_build(*words: Any, **options: Any) -> str:
        docker.daemon.tag(other, docker_engine.REPOSITORY, "cpu")
        return build(*words, **options)

    monkeypatch.setattr(docker.daemon, "build", moved_build)
    docker.tag_workloads("cpu")
    assert docker.inspect(docker.address(SMALL_NAME)).identity() == docker.inspect(whole).identity()


def test_a_look_at_an_image_leaves_no_volume(docker: Docker, tmp_path: Path) -> None:
    def volumes() -> set[str]:
        return {each.name for each in docker.daemon.sdk.volumes.list()}

    address, before = _named(docker, SMALL_NAME, tmp_path, "mine", "VOLUME /volume"), volumes()
    assert list(docker.inspect(address).file_modes())
    run_isolated(docker, address, "run", [])
    assert volumes() <= before


@pytest.mark.parametrize("label", [RECIPE, BUILD_KEY, PLATFORM])
@pytest.mark.parametrize("value", ["\x1b[2J\x07", "a" * 100_000])
def test_labels_reach_a_terminal_as_short_printable_lines(
    docker: Docker, tmp_path: Path, label: str, value: str
) -> None:
    whole, address = _named(docker, "other", tmp_path, "mine"), docker.address(SMALL_NAME)
    options: dict[str, Any] = {"labels": {label: value}, "tag": address, "network_mode": "none", "rm": True}
    docker.daemon.sdk.images.build(fileobj=io.BytesIO(f"FROM {whole}\n".encode()), **options)
    looks: list[Callable[[], object]] = [
        lambda: locate(SMALL_NAME, docker),
        lambda: require_platform(docker, address),
        lambda: image_under_test(docker, address, docker.settings),
    ]
    said = []
    for look in looks:
        try:
            look()
        except SifmarkError as error:
            said.append(str(error))
    assert said and all(len(each) < 500 and not {"\x1b", "\x07"} & {*each} for each in said)


@pytest.mark.parametrize("moves", ["the name here", "the name in the registry", "none"])
def test_what_was_looked_at_is_pushed_though_its_names_move(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    """The engine pushes names alone: what it sent is looked at before anything is attested of it."""
    host = json.loads(load_settings().stand_in_pins.read_text())["registry"]
    registry, tag = f"{host}/{docker_engine.REPOSITORY}", docker.daemon.tag
    monkeypatch.setattr(publish_docker, "REPOSITORY", docker_engine.REPOSITORY)
    monkeypatch.setattr(publish_docker, "names_of", lambda _: (), raising=False)
    monkeypatch.setattr(repositories, "names_of", lambda _: ())
    other, mine = (_named(docker, "cpu", tmp_path, word) for word in ("other", "mine"))
    subject = {"name": IMAGE, "digest": {"sha256": docker.inspect(mine).identity().removeprefix("sha256:")}}
    papers = attestation_folder("cpu", docker.settings.cache)
    for name in MEDIA_TYPES:
        write_json(papers / name, {"subject": [subject]})

    def moving_tag(address: str, repository: str, name: str) -> None:
        if moves == "the name here":
            tag(other, docker_engine.REPOSITORY, "cpu")
        tag(address, repository, name)
        if moves == "the name in the registry":
            tag(other, repository, name)

    monkeypatch.setattr(docker.daemon, "tag", moving_tag)
    statement = papers / PROVENANCE
    written = statement.read_bytes()
    for damaged in (b"{", b"[]", b"\xff", b"[" * 100_000):
        statement.write_bytes(damaged)
        with pytest.raises(SifmarkError) as error:
            publish_docker.push("cpu", registry, "1", docker, docker.settings)
        assert error.value.code == "document-invalid"
    statement.write_bytes(written)
    if moves == "the name in the registry":
        with pytest.raises(SifmarkError, match="is not the image that was looked at") as error:
            publish_docker.push("cpu", registry, "1", docker, docker.settings)
        assert error.value.code == "digest-mismatch"
        manifest = fetch_manifest(connect(host), f"{docker_engine.REPOSITORY}/cpu", "1-docker")
        with pytest.raises(RegistryError, match="no attestations"):
            attestations.find(connect(host), f"{docker_engine.REPOSITORY}/cpu", manifest.digest)
        return
    publish_docker.push("cpu", registry, "1", docker, docker.settings)
    manifest = fetch_manifest(connect(host), f"{docker_engine.REPOSITORY}/cpu", "1-docker")
    assert manifest.config.digest == mine
    assert attestations.find(connect(host), f"{docker_engine.REPOSITORY}/cpu", manifest.digest).documents
