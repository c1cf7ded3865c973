"""The stages of `ci/test`: what each runs, which files decide its outcome, and which set-ups it needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GATE = ("-m", "not full", "--hypothesis-profile=gate")
# The oldest Python that mypy can read code for. The tests on a real 3.8 prove that ours runs there.
OLDEST_FOR_MYPY = "3.10"
# Inputs of every stage: how it is run and set up.
SHARED = ("ci/test", "ci/testing", "ci/setup/lib.sh", "pyproject.toml", "tests/conftest.py")
IN_IMAGE = (*SHARED, "entrypoints", "schemas", "tests/inside", "tests/*.py", "benchmarks/*.py")
IMAGES = (
    *SHARED,
    "sifmark",
    "entrypoints",
    "schemas",
    "recipes",
    "studies",
    "tasks.py",
    "ci/setup",
    "ci/setup/stand-ins",
)
# First a quick check of the change, then the longest stages, so that nothing long is left at the end; then the others.
FIRST: tuple[str, ...] = (
    "lint",
    "unit",
    "torch_new",
    "tf_old",
    "images-docker",
    "images-docs",
    "images-recipes",
    "images-tensorflow",
)
FIRST += ("images-catalogue", "torch_old", "tf_new", "py38", "images-publishing", "images-study_slurm", "images-build")
FIRST += ("images-image", "images-slurm")
# What only one stage may use at a time: Docker's images, and the nodes of the cluster, which tests take down.
SHARED_PARTS = {
    "docker": ("docker", "hostile", "reproduce", "sources"),
    "slurm": ("slurm", "many_devices", "study_slurm", "study_exports"),
}
# Images of TensorFlow add a build like that of the others, and runs that tf_new has without an image; other suites take
# minutes to set up, and golden texts show what they are given; a proof takes its minutes, and py38 has one of a double;
# vLLM's base is made in the full run only.
FULL_ONLY = ("tensorflow", "study_exports", "prove", "acceptance", "watch", "serving")
READS = {  # in addition to the code, the recipes and the test file with everything it imports
    "docs": ("README.md", "docs", "ci/start", "tests/documentation.py"),
    "publishing": ("docs",),
    "watch": ("docs", "tests/documentation.py"),
    "pipelines": ("ci/pipelines", "tests/golden"),
    "recipes": ("tests/inside",),
    "verify": ("tests/golden",),
}


@dataclass(frozen=True)
class Stage:
    """One part of the tests: a run of pytest, or the linters if it has no tests."""

    name: str
    title: str
    python: str  # the folder of its environment
    tests: tuple[str, ...]  # globs below the root
    reads: tuple[str, ...]  # files, folders and globs that decide its outcome, besides its tests
    needs: tuple[str, ...] = ()  # names of set-ups
    gate: tuple[str, ...] | None = GATE  # pytest's options in the gate; None: only with --full
    full: tuple[str, ...] = ()  # pytest's options with --full
    exclusive: str = ""  # a resource that only one stage may use at a time
    splits: bool = True  # whether its tests may be distributed over processes
    processes: int = 1  # minimum: several if tests mostly wait

    @property
    def interpreter(self) -> Path:
        """The Python of its environment."""
        return ROOT / self.python / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """What is set for it. Beside other stages, two threads of PyTorch would wait for each other."""
        return {} if self.python == ".venv" else {"OMP_NUM_THREADS": "1"}

    def missing(self) -> str | None:
        """Return why its environment is missing; None if it is there."""
        if self.interpreter.exists():
            return None
        reason = ROOT / f"{self.python}.missing"
        return reason.read_text().strip() if reason.is_file() else f"{self.python} was not set up"

    def files(self) -> list[str]:
        """Return the test files and folders, relative to the root."""
        return [str(path.relative_to(ROOT)) for glob in self.tests for path in sorted(ROOT.glob(glob))]

    def commands(self, full: bool, workers: int, report: Path) -> list[list[str]]:
        """Return what to run, in order, with the tests distributed over `workers` processes."""
        if not self.tests:
            return _linters()
        options = self.full if full else self.gate or ()
        workers = max(workers, self.processes) if self.splits else 1
        parallel = [f"--numprocesses={workers}", "--dist=worksteal"] if workers > 1 else []
        pytest = [str(self.interpreter), "-m", "pytest", "-q", f"--junitxml={report}"]
        return [[*pytest, *parallel, *options, *self.files()]]


def _linters() -> list[list[str]]:
    """Return the linters, the type checker of each side, and the documentation as a site."""
    python = [sys.executable, "-m"]
    in_image = ["--config-file=", "--python-version", OLDEST_FOR_MYPY, "--disallow-untyped-defs"]
    in_image += ["--ignore-missing-imports", "--cache-dir=.mypy_cache/in-image", "--package", "entrypoints"]
    return [
        [*python, "ruff", "check", "."],
        [*python, "ruff", "format", "--check", "."],
        [*python, "mypy"],
        [*python, "mypy", *in_image],
        [*python, "mypy", "--config-file=tests/inside/mypy.ini"],
        ["ci/site"],
    ]


def _with_framework(
    name: str, title: str, *tests: str, gate: tuple[str, ...] | None = GATE, full: tuple[str, ...] = ()
) -> Stage:
    compared = ("torch_new",) if name.startswith("tf_") else ()  # TensorFlow is compared with its PyTorch
    return Stage(name, title, f".venvs/{name}", tests, IN_IMAGE, (name, *compared), gate, full)


def _without_framework(name: str, environment: str, title: str, gate: tuple[str, ...] | None = None) -> Stage:
    """Return a stage on one Python: its tests start programs and sleep, two thirds of the time."""
    others = ("--ignore-glob=*/test_torch_*.py", "--ignore-glob=*/test_tf_*.py")
    gate = (*gate, *others) if gate else None
    tests = ("tests/inside",)
    return Stage(name, title, f".venvs/{environment}", tests, IN_IMAGE, (environment,), gate, others, processes=3)


def _of_images() -> Iterator[Stage]:
    """Yield a stage for each file of tests/images."""
    files = {path.stem.removeprefix("test_"): path for path in sorted((ROOT / "tests" / "images").rglob("test_*.py"))}
    for name in files:
        needs: tuple[str, ...] = ("apptainer", "bases", "docker", "cosign")
        needs += ("chromium",) if name == "page" or name.startswith("report") else ()
        needs += ("suites",) if name == "study_exports" else ()
        needs += ("torch_new",) if name == "prove" else ()
        needs += ("consumers",) if name in ("modules", "watch") else ()
        reads = (*IMAGES, *READS.get(name, ()))
        exclusive = next((part for part, users in SHARED_PARTS.items() if name in users), "")
        file = str(files[name].relative_to(ROOT))
        gate = None if name in FULL_ONLY else GATE
        yield Stage(f"images-{name}", f"images: {name}", ".venv", (file,), reads, needs, gate, (), exclusive, False)


def all_stages() -> list[Stage]:
    """Return every stage, in the order in which they start."""
    torch, tensorflow = "tests/inside/**/test_torch_*.py", "tests/inside/**/test_tf_*.py"
    pictures = "tests/inside/**/test_images.py"
    # The same with every version of a framework, so that one proves it.
    for_old = "not (a_mistake or the_stand_in or idx or synthetic_data or photograph)"
    # What is left is about the version: runs, devices, networks.
    few_for_old = f"{for_old} and not (learn or poem or speech or seed or table or as_it_is)"
    few_for_old += " and not (right_strategies or train_as_one or copies_and_multiplies or two_parts or killed)"
    few_for_old += " and not (run_checks or the_window or products_need or exactly_the_weights or no_token)"
    few_for_old += " and not (test_torch_serving or the_formula_says or dit_xl or flux)"
    # PopTorch comes with torch 1.13 and 2.0. torch_old has ranks that answer, and torch_new those that train. A run
    # with its check is torch_old's, and with the new torch that of images-image.
    few_for_new = "not (test_torch_ipu or the_units_of_all_ranks or says_that_its_numerics_passed)"
    stages = [
        Stage("lint", "ruff and mypy", ".venv", (), ("",)),
        Stage("unit", "tests without an engine", ".venv", ("tests/unit",), ("",)),
        _with_framework(
            *("torch_new", "in-image code with a current torch", torch, pictures),
            gate=(*GATE, "-k", few_for_new),
        ),
        _with_framework(
            *("tf_old", "in-image code with TensorFlow 2.6", tensorflow),
            gate=None,
            # XLA of 2.6 takes minutes for a small network on a CPU, and more than half an hour for a ResNet-50.
            full=(*GATE, "-k", f"{for_old} and not a_compiled_model"),
        ),
        *_of_images(),
        _with_framework(
            *("torch_old", "in-image code with torch 1.13", torch, pictures),
            gate=(*GATE, "-k", few_for_old),
            full=("-k", for_old),
        ),
        _with_framework("tf_new", "in-image code with a current TensorFlow", tensorflow),
        _without_framework("py38", "py38", "in-image code on Python 3.8", GATE),
        _without_framework("py313", "py313", "in-image code on Python 3.13"),
        _without_framework("py311", "torch_new", "in-image code on Python 3.11, with NumPy and ArviZ"),
    ]
    return sorted(stages, key=lambda stage: FIRST.index(stage.name) if stage.name in FIRST else len(FIRST))


def environment_of(python: str) -> str:
    """Return the contents of an environment, as recorded by the script that made it."""
    record = ROOT / python / ".sifmark-inputs"
    return record.read_text() if record.is_file() else sys.version
