"""The run command: become the run of an image, with the flags that this host needs, or run several in turn."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from sifmark.core.console import printable
from sifmark.core.errors import UsageError
from sifmark.core.process import run_foreground, start_failure
from sifmark.core.settings import Settings
from sifmark.core.signals import postponed_signals
from sifmark.core.terminal import can_draw, output, status, step, warn
from sifmark.engines import APPTAINER, Engine
from sifmark.engines.binds import ON_STDOUT, OUTPUT_OPTION, Bind, output_of
from sifmark.engines.library import ReadyRun, ResultWatch, one_result_only, result_states
from sifmark.engines.locate import access_of_image, names_file
from sifmark.engines.progress import new_pipe, progress_folder
from sifmark.engines.repeating import Repeats, Unit, Values, all_known, combined, conclusions, repeat
from sifmark.engines.start import (
    CheckedImage,
    check_image,
    find,
    is_run,
    kept_in,
    printed_command,
    read_arguments,
    run_options,
    with_results_kept,
)
from sifmark.recipes.hardware import Hardware, hardware_of
from sifmark.recipes.recipe import recipe_names
from sifmark.results.envelope import sign_results


@dataclass(frozen=True)
class RunRequest:
    """What `sifmark run` is to do: images with their words, how often, and what has to hold before."""

    settings: Settings
    repeats: Repeats
    signed: bool = False
    plain: bool = False  # nothing is drawn on a terminal
    interleaved: bool = False
    wait_idle: float = 0.0  # seconds; 0: not at all
    binds: tuple[Bind, ...] = ()  # which all images see, besides the paths that their words name
    report: str = ""  # folder for a report of the results; empty for none


@dataclass(frozen=True)
class AskedRun:
    """A run that is asked for: an image at an address of an engine, which is given the arguments word for word."""

    name: str  # for people
    address: str
    engine: Engine
    arguments: tuple[str, ...]


def asked_runs(
    names: Sequence[str], variants: Sequence[str], words: Sequence[str], settings: Settings
) -> list[AskedRun]:
    """Return the runs of a command line: each image with each variant, which has words of its own.

    Images may also be the first of the words, as far as these are none of the image. Raises SifmarkError.
    """
    more = 0
    while more < len(words) and _names_image(words[more]):
        more += 1
    asked = []
    for name in (*names, *words[:more]):
        address, engine = find(name, settings)
        for variant in variants or ("",):
            arguments = (*words[more:], *shlex.split(variant))
            asked.append(AskedRun(f"{Path(name).name} {variant}".strip(), address, engine, arguments))
    return asked


def _names_image(word: str) -> bool:
    """Return whether a word can be no option and no workload: these have no dash, and names of images have one."""
    return not word.startswith("-") and (names_file(word) or "-" in word or word in recipe_names())


def start_images(asked: Sequence[AskedRun], request: RunRequest) -> None:
    """Do the runs that are asked for, one after the other or in turn, and exit as they did.

    Exit code, signals and terminal are the image's. Where the settings or the request require a signature, an image
    without a trusted one is not started. Options that the image would refuse are refused before it is looked at. On a
    terminal its results go to the folder of the settings, unless the arguments name a place. This process becomes an
    image that runs once, unless it has to draw its progress or to sign its results. Raises SifmarkError.
    """
    from sifmark.doctor.load import LoadSample, report_load  # here: printing a command should not wait for it

    sample = LoadSample()
    in_turn = request.repeats.is_auto or (request.interleaved and len(asked) > 1)
    asked = [_with_place(each if in_turn else _repeated(each, request.repeats), request, in_turn) for each in asked]
    before = _results_at(asked) if request.report else {}
    ready = _look_at(asked, request)
    report_load(sample, _hardware(ready), request.wait_idle)
    if not in_turn and len(ready) == 1 and not request.report:
        _become_or_exit(ready[0], request)
    code = _run_all(ready, request, in_turn)
    if request.report:
        _report({file for file, state in _results_at(asked).items() if before.get(file) != state}, request)
    sys.exit(code)


def _run_all(ready: Sequence[ReadyRun], request: RunRequest, in_turn: bool) -> int:
    """Do runs one after the other or in turn, and return the exit code of all."""
    if in_turn:
        groups = [ready] if request.interleaved else [[each] for each in ready]
        return combined([_run_in_turn(group, request) for group in groups])
    if request.repeats.most > 1 and len(ready) > 1:
        status("one after the other: what changes meanwhile looks like a difference; --interleave takes turns")
    return repeat([Unit(each.name) for each in ready], Repeats(), lambda at: (_start(ready[at], request), {}))


def _results_at(asked: Sequence[AskedRun]) -> dict[str, Any]:
    """Return the state of each result file at the places of some runs."""
    places = filter(None, (output_of(each.arguments) for each in asked))
    return {file: state for place in places for file, state in result_states(place).items()}


def _report(files: Collection[str], request: RunRequest) -> None:
    """Write a report of what runs have written. Raises SifmarkError."""
    from sifmark.report.library import report  # here: it loads slowly
    from sifmark.report.write import PAGE

    if not files:
        warn("no run wrote a result for the report")
        return
    written = report(sorted(files), request.report, settings=request.settings)
    status(f"open {printable(str(written.folder / PAGE))} in a browser")


def print_commands(asked: Sequence[AskedRun], request: RunRequest) -> None:
    """Print the commands of runs for a job's script, in their order. Raises SifmarkError."""
    if request.repeats.is_auto or (request.interleaved and request.repeats.most > 1):
        cause = "--print has no commands for runs that take turns or end when they are known well enough"
        raise UsageError(cause, "leave out --print, or --repeat and --interleave", code="invalid-option")
    for each in asked:
        words = _repeated(each, request.repeats).arguments
        place = (each.address, each.engine)
        output(shlex.join(printed_command(*place, words, request.settings, request.signed, request.binds)))


def _repeated(asked: AskedRun, repeats: Repeats) -> AskedRun:
    """Return a run that repeats itself: an image checks its numbers once for all repeats."""
    if repeats.most == 1:
        return asked
    return replace(asked, arguments=(*asked.arguments, "--repeat", str(repeats.most)))


def _with_place(asked: AskedRun, request: RunRequest, in_turn: bool) -> AskedRun:
    """Return a run with the place of its results, where several need one and the arguments name none.

    Raises UsageError for arguments that the image would refuse, and for a place that cannot take several results.
    """
    options = read_arguments(asked.engine, asked.address, asked.arguments)
    if not in_turn:
        kept = tuple(with_results_kept(options, asked.arguments, request.settings))
        return replace(asked, arguments=_with_results_for(kept, request) if request.report else kept)
    if options is not None and not is_run(options):
        raise UsageError(
            f"{asked.name}: only runs are repeated", "leave out --repeat and --interleave", code="invalid-option"
        )
    place = output_of(asked.arguments)
    if place is not None and place.suffix == ".json":
        raise one_result_only(str(place))
    named = any(word.partition("=")[0] == OUTPUT_OPTION for word in asked.arguments)
    if request.repeats.is_auto and named and place is None:
        cause = f"{OUTPUT_OPTION} {ON_STDOUT}: how often it is repeated follows from results in a place"
        raise UsageError(cause, f"name a folder: {OUTPUT_OPTION} results/", code="invalid-option")
    return asked if named else replace(asked, arguments=(*asked.arguments, *kept_in(request.settings)))


def _with_results_for(arguments: tuple[str, ...], request: RunRequest) -> tuple[str, ...]:
    """Return arguments that name a place of results, of which a report is made. Raises UsageError for another one."""
    if output_of(arguments) is not None:
        return arguments
    if any(word.partition("=")[0] == OUTPUT_OPTION for word in arguments):
        cause = f"{OUTPUT_OPTION} {ON_STDOUT}: --report is of results in a place"
        raise UsageError(cause, f"name a folder: {OUTPUT_OPTION} results/", code="invalid-option")
    return (*arguments, *kept_in(request.settings))


def _look_at(asked: Sequence[AskedRun], request: RunRequest) -> list[ReadyRun]:
    """Look at each image once, and return the runs as they are started. Raises SifmarkError."""
    flags = [tuple(run_options(each.engine, each.address, each.arguments, request.binds)) for each in asked]
    checked: dict[str, CheckedImage] = {}
    for each in asked:
        if each.address not in checked:
            with step(f"look at {Path(each.address).name}"):
                checked[each.address] = check_image(each.address, each.engine, request.settings, request.signed)
    return [
        ReadyRun(each.name, checked[each.address], each.arguments, own) for each, own in zip(asked, flags, strict=True)
    ]


def _hardware(ready: Sequence[ReadyRun]) -> list[Hardware]:
    """Return the kinds of accelerator that images are for."""
    accesses = filter(None, (access_of_image(each.image.engine, each.image.address) for each in ready))
    return list({each.name: each for access in accesses if (each := hardware_of(access))}.values())


def _become_or_exit(ready: ReadyRun, request: RunRequest) -> NoReturn:
    status(f"+ {shlex.join(ready.image.command(ready.arguments, ready.flags))}")
    ready.image.require_unchanged()
    is_signed = request.settings.results_key is not None and output_of(ready.arguments) is not None
    if not is_signed and (request.plain or not can_draw()):
        _become(ready.image.command(ready.arguments, ready.flags), ready.image.variables)
    sys.exit(_start(ready, request))


def _run_in_turn(ready: Sequence[ReadyRun], request: RunRequest) -> int:
    """Run images in turn, say how well their means are known, and return the exit code of all."""
    units, repeats = [Unit(each.name) for each in ready], request.repeats
    places = [output_of(each.arguments) for each in ready]
    watches = {place: ResultWatch(place) for place in places if place is not None}

    def start(at: int) -> tuple[int, Values]:
        code = _start(ready[at], request)
        if (place := places[at]) is None:
            return code, {}
        is_local = ready[at].image.engine.name == APPTAINER
        return code, watches[place].values(watches[place].changed(), ready[at].arguments, is_local)

    code = repeat(units, repeats, start)
    for line in conclusions(units):
        status(line)
    if repeats.within is not None and not code:
        width = f"± {100 * repeats.within:g} %"
        if all_known(units, repeats):
            status(f"all within {width}")
        else:
            warn(f"{repeats.most} repeats did not suffice for {width}: longer runs, a quieter host, or --most-repeats")
    return code


def _start(ready: ReadyRun, request: RunRequest) -> int:
    """Run an image to its end, sign what it wrote if the settings say so, and return its exit code."""
    ready.image.require_unchanged()
    start = partial(_run_drawn, ready) if can_draw() and not request.plain else partial(_run_plain, ready)
    results, key = output_of(ready.arguments), request.settings.results_key
    return start() if key is None or results is None else _run_and_sign(start, results, key)


def _run_plain(ready: ReadyRun) -> int:
    return run_foreground(ready.image.command(ready.arguments, ready.flags), ready.image.variables)


def _run_drawn(ready: ReadyRun) -> int:
    """Run an image to its end and draw its progress; without a pipe it writes plain lines. Return its exit code.

    Raises SifmarkError.
    """
    from sifmark.live.run import run_with_view  # here: a run that becomes the image should not wait for it

    with progress_folder() as folder:
        pipe = new_pipe(folder, "run")
        if pipe is None:
            return _run_plain(ready)
        with closing(pipe):
            argv = ready.image.command(ready.arguments, [*ready.flags, *pipe.options(ready.image.engine)])
            return run_with_view(argv, ready.image.variables, pipe)


def _run_and_sign(start: Callable[[], int], results: Path, key: Path) -> int:
    """Run an image to its end, sign what it wrote to `results`, and return its exit code. Raises SifmarkError."""
    before = result_states(results)
    with postponed_signals():  # what was measured is signed, whatever is to end afterwards
        code = start()
        for file, state in result_states(results).items():
            if before.get(file) != state:
                status(f"signed: {sign_results(Path(file), key)}")
    return code


def _become(argv: list[str], variables: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, {**os.environ, **variables})
    except OSError as error:
        raise start_failure(argv[0], error) from error
