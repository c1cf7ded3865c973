"""Run an image and collect what it wrote: what `sifmark.run` calls."""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sifmark.core.console import status, step
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.permissions import FileState, file_state
from sifmark.core.process import describe_failure
from sifmark.core.process import run as run_command
from sifmark.core.settings import Settings, load_settings, with_options
from sifmark.engines import APPTAINER, Engine, open_engine
from sifmark.engines.repeating import Repeats, Unit, Values, figure_of, repeats_of
from sifmark.engines.repeating import repeat as repeat_in_turn
from sifmark.engines.start import CheckedImage, check_image, find, run_options
from sifmark.results.envelope import sign_results
from sifmark.results.load import SUFFIXES, load_file, result_files


class BuiltHere(Protocol):
    """An image as `sifmark.build` returns it."""

    @property
    def engine(self) -> str:
        """The name of its engine."""

    @property
    def path(self) -> str:
        """Its address for the engine."""


@dataclass(frozen=True)
class RunOutput:
    """What a run of an image left: its exit code and the result files that it wrote, one for each run."""

    exit_code: int
    files: tuple[Path, ...]


@dataclass(frozen=True)
class ReadyRun:
    """An image that was looked at, with the words of a run of it."""

    name: str  # for people
    image: CheckedImage
    arguments: tuple[str, ...]
    flags: tuple[str, ...]  # for the engine


class ResultWatch:
    """The results that runs started here leave at a place, to which others may write meanwhile."""

    def __init__(self, target: Path) -> None:
        self._target, self._before = target, result_states(target)
        lines = [file for file in self._before if file.endswith(".jsonl")]
        self._seen = {each.document.get("id") for file in lines for each in load_file(file)}

    def changed(self) -> tuple[Path, ...]:
        """Return the files that were written since this was asked before."""
        after = result_states(self._target)
        files = tuple(Path(file) for file, state in after.items() if self._before.get(file) != state)
        self._before = after
        return files

    def values(self, files: Iterable[Path], arguments: Sequence[str], is_local: bool) -> Values:
        """Return what a run with these arguments measured, by its results among files.

        With `is_local` the image knows this host's name, and results of other hosts are left out.
        """
        host = {"value": socket.gethostname()}
        new = [each.document for file in files for each in load_file(str(file)) if not each.problems]
        new = [document for document in new if document["id"] not in self._seen]
        self._seen |= {document["id"] for document in new}
        own = [each for each in new if each["provenance"]["command"] == list(arguments)]
        return dict(filter(None, (figure_of(each) for each in own if not is_local or each["host"]["hostname"] == host)))


def run(
    image: "str | Path | BuiltHere | Sequence[str | Path | BuiltHere]",
    workload: str = "",
    *,
    output: str | Path = "results/",
    settings: Settings | None = None,
    engine: str = "",
    require_signature: bool = False,
    repeat: int | str = 1,
    within: float | None = None,
    most_repeats: int | None = None,
    variants: Sequence[Mapping[str, Any]] = ({},),
    **options: Any,
) -> RunOutput:
    """Run an image, given by name, recipe, file or as it was built, and return the files of results that it wrote.

    `options` are those of images: `batch_size=8` is `--batch-size 8`, `smoke=True` is `--smoke`; None and False are
    left out. `output` is a folder, or a file that ends with .json or .jsonl. Several images, or `variants` with further
    options, take turns, as with `sifmark run --interleave`. `repeat="auto"` repeats until half the interval of each
    mean is at most `within` of it, or `most_repeats` is reached. A run that fails writes a result, too. Raises
    SifmarkError if an image cannot be started, or wrote no result.
    """
    site = with_options(settings or load_settings(), engine=engine)
    repeats, target = repeats_of(repeat, within, most_repeats), Path(output)
    images = list(image) if isinstance(image, Sequence) and not isinstance(image, str) else [image]
    in_turn = repeats.is_auto or len(images) * len(variants) > 1
    if in_turn and target.suffix == ".json":
        raise one_result_only(str(target))
    if not in_turn and repeats.most > 1:  # an image checks its numbers once for all repeats
        options, repeats = {**options, "repeat": repeats.most}, Repeats()
    place = str(target) if target.suffix in SUFFIXES else f"{target}/"
    asked = []
    for address, opened in (_located(each, site) for each in images):
        for variant in variants:
            words = (*filter(None, [workload]), *_words({**options, **variant}), "--output", place)
            asked.append((address, opened, _words(variant), words, tuple(run_options(opened, address, words))))
    checked = {address: _checked_image(address, opened, site, require_signature) for address, opened, *_ in asked}
    ready = [
        ReadyRun(" ".join([Path(address).stem, *own]), checked[address], words, flags)
        for address, _, own, words, flags in asked
    ]
    runs = _Runs(ready, target, site)
    code = repeat_in_turn([Unit(each.name) for each in runs.ready], repeats, runs.start)
    return RunOutput(code, tuple(dict.fromkeys(runs.files)))


class _Runs:
    """Runs whose results are collected; `files` are those that they have written so far."""

    def __init__(self, ready: Sequence[ReadyRun], target: Path, settings: Settings) -> None:
        self.ready, self.files = ready, list[Path]()
        self._watch, self._key = ResultWatch(target), settings.results_key

    def start(self, place: int) -> tuple[int, Values]:
        """Run one to its end, and return its exit code and what it measured. Raises SifmarkError without a result."""
        each = self.ready[place]
        each.image.require_unchanged()
        argv = each.image.command(each.arguments, each.flags)
        done = run_command(argv, environment=each.image.variables, watch_errors=status, check=False)
        written = self._watch.changed()
        if not written:
            remedy = "the last lines above say why; the options of images: sifmark run NAME -- --help"
            raise SifmarkError(describe_failure(done, log=None), remedy, code="command-failed")
        if self._key is not None:
            for file in written:
                sign_results(file, self._key)
        self.files += written
        return done.exit_code, self._watch.values(written, each.arguments, each.image.engine.name == APPTAINER)


def _located(image: "str | Path | BuiltHere", settings: Settings) -> tuple[str, Engine]:
    if isinstance(image, str | Path):
        return find(str(image), settings)
    return image.path, open_engine(with_options(settings, engine=image.engine))


def _checked_image(address: str, engine: Engine, settings: Settings, signed: bool) -> CheckedImage:
    with step(f"look at {Path(address).name}"):
        return check_image(address, engine, settings, signed)


def one_result_only(file: str) -> UsageError:
    """Return the error for a file that each of several runs would replace."""
    cause = f"{file}: one file holds one result, and these are several runs"
    return UsageError(cause, "name a folder or a .jsonl file: --output results/", code="invalid-option")


def _words(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield options as an image's command line has them."""
    for name, value in options.items():
        if value is not None and value is not False:
            yield f"--{name.replace('_', '-')}"
            if value is not True:
                yield str(value)


def result_states(target: Path) -> dict[str, FileState]:
    """Return the state of each result file at a path, which need not exist yet."""
    found = result_files(str(target)) if target.exists() else ()
    return {file: file_state(Path(file)) for file, problem in found if not problem}
