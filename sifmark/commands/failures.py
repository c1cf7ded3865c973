"""How a command fails: a cause with its code and a remedy on stderr, the same as JSON on request, and an exit code."""

import errno
import json
import traceback
from collections.abc import Callable
from pathlib import Path

from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, locate_scripts
from sifmark.core.files import existing_part, is_full
from sifmark.core.settings import load_settings
from sifmark.core.signals import unwind_on_signals
from sifmark.core.terminal import fail, is_verbose, output, output_count, status

EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
EXIT_INTERRUPTED = 130  # 128 + SIGINT


def run_body(body: Callable[[], None], as_json: bool) -> int:
    """Carry out a command and return its exit code. A failure is printed.

    With `as_json` it is also printed on stdout, unless something has been printed there.
    """
    unwind_on_signals()
    before = output_count()
    try:
        body()
    except BrokenPipeError:  # the reader of our answer has stopped reading
        return EXIT_BROKEN_PIPE
    except (SifmarkError, OSError) as error:
        failure = error if isinstance(error, SifmarkError) else _system_error(error)
        if is_verbose():
            status("".join(traceback.format_exception(error)).rstrip())
        return report(failure, as_json and output_count() == before)
    except KeyboardInterrupt:
        fail("interrupted; nothing half done was left under a final name")
        return EXIT_INTERRUPTED
    return 0


def report(error: SifmarkError, as_json: bool) -> int:
    """Print a failure and return its exit code."""
    if as_json:
        output(error_json(error))
    fail(*error_lines(error))
    return error.exit_code


def error_lines(error: SifmarkError) -> list[str]:
    """Return `error: CAUSE [CODE]` and the remedy. The code ends the first line of a longer cause."""
    first, *rest = [printable(line) for line in error.cause.splitlines() or [""]]
    lines = [f"error: {first} [{error.code}]" if error.code else f"error: {first}", *rest]
    if not error.remedy:
        return lines
    return [*lines, *map(printable, f"  remedy: {locate_scripts(error.remedy)}".splitlines())]


def error_json(error: SifmarkError) -> str:
    """Return an error as programs read it."""
    fields = {"code": error.code or None, "cause": error.cause, "remedy": locate_scripts(error.remedy) or None}
    return json.dumps({"error": fields}, indent=2)


def _system_error(error: OSError) -> SifmarkError:
    """Return an error of the operating system as ours, with the path and a remedy by what went wrong."""
    cause = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if is_full(error):
        return SifmarkError(cause, _remedy_for_space(error.filename), code="disk-full")
    remedies = {
        errno.EROFS: "that place is read-only; choose another with SIFMARK_DIST, SIFMARK_CACHE or in sifmark.toml",
        errno.EACCES: "change its permissions, or choose another place with SIFMARK_DIST or SIFMARK_CACHE",
    }
    remedy = remedies.get(error.errno or 0, "check that path's permissions and its disk's free space")
    return SifmarkError(cause, remedy, code="system-error")


def _remedy_for_space(path: object) -> str:
    """Return how to make room: images and the cache can go where they are on the same file system."""
    remedy = "free space there, or name a place on another disk"
    try:
        settings, disk = load_settings(), existing_part(Path(str(path)).absolute()).stat().st_dev
        ours = {"sifmark clean": settings.dist, "sifmark clean --cache": settings.cache}
        commands = [command for command, folder in ours.items() if existing_part(folder).stat().st_dev == disk]
    except (SifmarkError, OSError):
        return remedy
    return f"{remedy}; {', '.join(commands)} may help" if path and commands else remedy
