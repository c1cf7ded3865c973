"""The `sifmark` command."""

import sys

from sifmark.commands.command_line import main as run


def main() -> None:
    """Run the command of this process's command line and end the process with its exit code."""
    sys.exit(run())
