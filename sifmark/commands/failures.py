"""How a command fails: a cause with its code and a remedy on stderr, the same as JSON on request, and an exit code."""

import json
import traceback
from collections.abc import Callable

from sifmark.core.console import fail, is_verbose, output, output_count, printable, status
from sifmark.core.errors import SifmarkError
from sifmark.core.signals import unwind_on_signals

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
    remedy = [printable(line) for line in f"  remedy: {error.remedy}".splitlines()] if error.remedy else []
    return [*lines, *remedy]


def error_json(error: SifmarkError) -> str:
    """Return an error as programs read it."""
    fields = {"code": error.code or None, "cause": error.cause, "remedy": error.remedy or None}
    return json.dumps({"error": fields}, indent=2)


def _system_error(error: OSError) -> SifmarkError:
    return SifmarkError(str(error), "check that path's permissions and its disk's free space", code="system-error")
