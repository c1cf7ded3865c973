"""Run an image and collect what it wrote: what `sifmark.run` calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sifmark.core.console import status, step
from sifmark.core.errors import SifmarkError
from sifmark.core.permissions import FileState, file_state
from sifmark.core.process import describe_failure
from sifmark.core.process import run as run_command
from sifmark.core.settings import Settings, load_settings, with_options
from sifmark.engines import open_engine
from sifmark.engines.start import check_image, find, run_options
from sifmark.results.envelope import sign_results
from sifmark.results.load import result_files


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


def run(
    image: "str | Path | BuiltHere",
    workload: str = "",
    *,
    output: str | Path = "results/",
    settings: Settings | None = None,
    engine: str = "",
    require_signature: bool = False,
    **options: Any,
) -> RunOutput:
    """Run an image, given by name, recipe, file or as it was built, and return the files of results that it wrote.

    `options` are those of images: `batch_size=8` is `--batch-size 8`, `smoke=True` is `--smoke`; None and False are
    left out. `output` is a folder, or a file that ends with .json. A run that fails writes a result, too. Raises
    SifmarkError if the image cannot be started, or wrote no result.
    """
    site = with_options(settings or load_settings(), engine=engine)
    if isinstance(image, str | Path):
        address, opened = find(str(image), site)
    else:
        address, opened = image.path, open_engine(with_options(site, engine=image.engine))
    target = Path(output)
    folder = f"{target}/" if target.suffix != ".json" else str(target)
    words = [*filter(None, [workload]), *_words(options), "--output", folder]
    flags = run_options(opened, address, words)
    with step(f"look at {Path(address).name}"):
        checked = check_image(address, opened, site, require_signature)
    argv = checked.command(words, flags)
    checked.require_unchanged()
    before = result_states(target)
    done = run_command(argv, environment=checked.variables, watch_errors=status, check=False)
    files = tuple(Path(file) for file, state in result_states(target).items() if before.get(file) != state)
    if not files:
        remedy = "the last lines above say why; the options of images: sifmark run NAME -- --help"
        raise SifmarkError(describe_failure(done, log=None), remedy, code="command-failed")
    if site.results_key is not None:
        for file in files:
            sign_results(file, site.results_key)
    return RunOutput(done.exit_code, files)


def _words(options: dict[str, Any]) -> Iterator[str]:
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
