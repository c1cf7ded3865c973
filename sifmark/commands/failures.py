"""How a command fails: a cause with its code and a remedy on stderr, the same as JSON on request, and an exit code."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from invoke.exceptions import Exit

from sifmark.core.console import output, output_count, printable
from sifmark.core.errors import SifmarkError
from sifmark.core.process import unwind_on_signals

EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
EXIT_INTERRUPTED = 130  # 128 + SIGINT


@contextmanager
def reported_failures(as_json: bool) -> Iterator[None]:
    """End a command's failure as invoke's Exit, with a message and an exit code.

    With `as_json` a failure is also printed on stdout, unless something has been printed there.
    """
    unwind_on_signals()
    before = output_count()
    try:
        yield
    except BrokenPipeError:  # the reader of our answer has stopped reading
        raise Exit(code=EXIT_BROKEN_PIPE) from None
    except (SifmarkError, OSError) as error:
        failure = error if isinstance(error, SifmarkError) else _system_error(error)
        if as_json and output_count() == before:
            output(error_json(failure))
        raise Exit(error_text(failure), code=failure.exit_code) from error
    except KeyboardInterrupt:
        raise Exit("interrupted; nothing half done was left under a final name", code=EXIT_INTERRUPTED) from None


def error_text(error: SifmarkError) -> str:
    """Return `error: CAUSE [CODE]` and the remedy. The code ends the first line of a longer cause."""
    first, *rest = [printable(line) for line in error.cause.splitlines() or [""]]
    lines = [f"error: {first} [{error.code}]" if error.code else f"error: {first}", *rest]
    remedy = [printable(line) for line in f"  remedy: {error.remedy}".splitlines()] if error.remedy else []
    return "\n".join([*lines, *remedy])


def error_json(error: SifmarkError) -> str:
    """Return an error as programs read it."""
    fields = {"code": error.code or None, "cause": error.cause, "remedy": error.remedy or None}
    return json.dumps({"error": fields}, indent=2)


def _system_error(error: OSError) -> SifmarkError:
    return SifmarkError(str(error), "check that path's rights and its disk's space", code="system-error")
