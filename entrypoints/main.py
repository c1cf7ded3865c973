"""The program: it sets Python's module path, then hands over."""

from __future__ import annotations

import os
import sys

LARGEST_ORDINARY_EXIT = 128  # those above are of signals
ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
SITE = f"{ROOT}-site"


def arrange_path(worker: bool) -> None:
    """Put this package first, and drop the user's current folder and home.

    The packages we add come before those of the base in the parent, which imports no other ones: a jsonschema of ours
    does not work with an older attrs of the base. They come last in the worker, where the vendor's framework is to find
    what its vendor tested it with.

    A relative or empty entry of PYTHONPATH means the current folder, where any file called `torch.py` would be
    imported; a home folder is the host's, and Gaudi's base names that of root. Other absolute entries stay, since
    vendor images find their own SDK through them.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    dropped = {os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)}
    dropped.update(home for home in (os.environ.get("HOME"), "/root") if home)
    kept = [entry for entry in sys.path[1:] if entry and entry.rstrip("/") not in dropped]
    ours = [SITE] if os.path.isdir(SITE) else []
    sys.path[:] = [ROOT, *kept, *ours] if worker else [ROOT, *ours, *kept]


def open_standard_streams() -> None:
    """Open standard streams that the caller has closed, so that no file gets their numbers.

    What is written to standard error is discarded then; writing a result to standard output fails.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(number):
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the program ends


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    open_standard_streams()
    child = sys.argv[1:2] == ["--child"]
    arrange_path(worker=child)
    if child:
        from entrypoints.worker.child import main
    else:
        from entrypoints.cli.command import main
    code = main(sys.argv[1:])
    if code > LARGEST_ORDINARY_EXIT:
        # Slurm signals all processes of a step, among them the one that mounts the image: nothing more can be loaded.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
