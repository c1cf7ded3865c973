"""Every command of the documentation, executed: page by page, in the order of the page, each in a folder of its own."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import documentation
import pytest
from documentation import README, ROOT, WRITTEN, name
from images.sites import NOBODY, Site, call, docker_alone

from sifmark.core import paths
from sifmark.core.settings import load_settings
from sifmark.datasets.image_files import grey_png
from sifmark.engines.docker.engine import Docker

# ci/test is what runs this test; running it here would never end.
BY_OTHERS = {"ci/test"}
# Pages that need more than a folder: test_publishing.py runs the one on a registry, test_analyse.py that on results.
OTHERS = {ROOT / "docs" / "pull-and-run.md", ROOT / "docs" / "analyse.md"}
IN_GATE = {README}
# The README's runs are shortened, and in the gate they are of another workload.
FEW = "--warmup-steps 1 --batch-size 2"
SHORTER = {"ci/start": f"ci/start --steps 3 {FEW}", "--steps 12": f"--steps 4 {FEW}"}
SMALLER = {"resnet50-cpu": "image_compression-cpu"}
SONNET = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance, or nature's changing course untrimm'd;
"""


@pytest.fixture
def folder(built: Site) -> Iterator[Path]:
    """What a page starts from: images of the recipe cpu, some pictures and a text, for an ordinary user too."""
    path = Path(tempfile.mkdtemp(prefix="sifmark-docs-"))
    for file in ("tasks.py", ".venv", "ci"):
        (path / file).symlink_to(paths.ROOT / file)
    shutil.copytree(built.dist, path / "dist", copy_function=os.link)
    for kind in ("people", "things"):
        (path / "photographs" / kind).mkdir(parents=True)
        for number in range(12):
            content = grey_png(48, 32, bytes((number * 7 + at) % 256 for at in range(48 * 32)))
            (path / "photographs" / kind / f"{number}.png").write_bytes(content)
    (path / "shakespeare.txt").write_text(SONNET)
    path.chmod(0o1777)  # everybody may write there, but only to what is theirs: a signature asks for that
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run_line(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would: Apptainer's as an ordinary user, ours as they are typed in a clone."""
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment |= {"SIFMARK_DIST": str(folder / "dist"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    identity: dict[str, Any] = {}
    if line.startswith("apptainer "):
        home = folder / "home"
        home.mkdir(exist_ok=True)
        home.chmod(0o777)
        environment |= {"HOME": str(home), "USER": "nobody"}
        identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if load_settings().bases == "stand-in":
            environment["APPTAINER_NOHTTPS"] = "1"  # the stand-in's registry on the loopback address speaks no TLS
    where = paths.ROOT if line.startswith("ci/") else folder
    return call(["bash", "-c", f"{{ {line}; }} 2>&1"], check=False, cwd=where, env=environment, **identity)


def shorter(line: str, gate: bool) -> str:
    """Return what runs in place of a line of the README."""
    for part, other in (SHORTER | SMALLER if gate else SHORTER).items():
        line = line.replace(part, other)
    return line


# What test bases and other tests do to a run, in words and in marks behind a number; pages do not show it.
DISTURBED = re.compile(
    r".*(?:the host was busy|outlying steps took).*\n|, (?:busy host|stopped for a time)| \((?:[A-Z],)*[A-Z]\)"
    r"|warning: (?:not steady|something stopped the run).*\n|.*: do not publish these\n"
)
MARKED = [
    pytest.param(page, marks=[] if page in IN_GATE else [pytest.mark.full], id=name(page))
    for page in WRITTEN
    if page not in OTHERS
]


@pytest.mark.parametrize("page", MARKED)
def test_every_command_of_a_page_works_and_prints_what_the_page_shows(page: Path, folder: Path, gate: bool) -> None:
    outputs: dict[str, str] = {}

    def run(line: str) -> str:
        if line not in outputs and line not in BY_OTHERS:
            with docker_alone() if "docker" in line or "to-sif" in line else nullcontext():
                done = run_line(shorter(line, gate) if page == README else line, folder)
            assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}"
            outputs[line] = DISTURBED.sub("", done.stdout)
        return outputs.get(line, "")

    if (
        any("--engine docker" in line for line in documentation.commands(page))
        and not Docker(load_settings()).version()
    ):
        pytest.skip("no Docker Engine answers: ci/setup/docker")
    for block in documentation.blocks(page):
        if block.language == "sh":
            for line in filter(str.strip, block.lines):
                run(line)
        elif block.language == "console":
            for line, shown in documentation.sessions(block):
                output = run(line)
                if not (gate and page == README):  # its commands run on another workload
                    assert documentation.pattern(shown).search(output), f"$ {line}\n{output[-3000:]}"


def test_the_readme_has_what_is_shortened() -> None:
    lines = documentation.commands(README)
    assert len(lines) > 8 and set(lines) >= BY_OTHERS
    assert all(any(part in line for line in lines) for part in (*SHORTER, *SMALLER))
