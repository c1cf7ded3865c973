"""`inv COMMAND ...` in a clone is `sifmark COMMAND ...`, for example `inv build cpu --dry-run`; `inv --list` lists all.

Invoke's parser has no lists of names, no help after a command and no suggestions. So the words of a command line never
reach it: our own parser gets them when `inv` loads this file.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

# invoke turns bytecode off, lest it lie beside this file: each command would compile again all that it imports.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from sifmark.commands.command_line import main
from sifmark.commands.framework import COMMANDS


def hand_over(words: Sequence[str]) -> int:
    """Carry out a command line of `inv` and return the exit code. Options of invoke before the command are left out."""
    if "--complete" in words:
        sys.stdout.write("".join(f"{name}\n" for name in COMMANDS))
        return 0
    if words[:1] in (["-h"], ["--help"]):
        return main(["help", *words[1:]])
    groups = {name.partition(".")[0] for name in COMMANDS}
    starts = (at for at, word in enumerate(words) if word.partition(".")[0] in groups or (not at and word[0] != "-"))
    return main(words[next(starts, len(words)) :])


if "inv" in Path(sys.argv[0]).name or Path(sys.argv[0]).parent.name == "invoke":
    sys.exit(hand_over(sys.argv[1:]))
