"""The `sifmark` command: the same commands as `inv` in a clone, from an installed wheel."""

import importlib.util

from invoke.collection import Collection
from invoke.program import Program

from sifmark import __version__
from sifmark.core import paths


def main() -> None:
    """Run the commands of tasks.py. Exit codes: 0 done, 1 failed, 2 unknown names and bad values."""
    program.run()


def _load_commands() -> Collection:
    spec = importlib.util.spec_from_file_location("sifmark_tasks", paths.TASKS)
    if spec is None or spec.loader is None:
        raise SystemExit(f"this installation is damaged: {paths.TASKS} does not read; install sifmark again")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Collection.from_module(module)


program = Program(name="sifmark", binary="sifmark", version=__version__, namespace=_load_commands())
