"""A hostile image: what it sees, writes and reaches when it is checked, and how a check of it ends."""

import json
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from images.sites import make_site

from sifmark.core.process import CommandError
from sifmark.core.settings import Settings, load_settings
from sifmark.doctor.image import check_variables
from sifmark.engines import Engine, open_engine
from sifmark.engines.apptainer.sif import INSPECT_NAME, METADATA, Extent, SifObject, write_sif
from sifmark.engines.locate import run_isolated
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, STAND_IN, WORKLOADS
from sifmark.recipes.names import SMALLEST

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
    daemon = open_engine(settings, "docker")
    packed = subprocess.run(["tar", "-c", "-C", tree, "."], check=True, capture_output=True).stdout
    changes = ['ENTRYPOINT ["/opt/sifmark/run"]', *(f"LABEL {name}={value}" for name, value in LABELS.items())]
    words = [word for change in changes for word in ("--change", change)]
    argv = ["docker", "import", *words, "-", "sifmark:hostile"]
    subprocess.run(argv, input=packed, check=True, capture_output=True)
    return daemon.address("hostile")


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
