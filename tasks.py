"""`inv COMMAND ...` in a clone is `sifmark COMMAND ...`, for example `inv build cpu --dry-run`; `inv --list` lists all.

Invoke's parser has no lists of names, no help after a command and no suggestions. So the words of a command line never
reach it: our own parser gets them when `inv` loads this file.
"""

import sys
from collections.abc import Sequence

from invoke.parser import Parser
from invoke.program import Program

# invoke turns bytecode off, lest it lie beside this file: each command would compile again all that it imports.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from sifmark.commands.command_line import main
from sifmark.commands.framework import COMMANDS


def hand_over(words: Sequence[str]) -> int:
    """Carry out the command line that follows invoke's own options, and return the exit code."""
    parsed = Parser(initial=Program().initial_context, ignore_unknown=True).parse_argv(list(words))
    options, rest = parsed[0].args, parsed.unparsed
    if options.complete.value:
        sys.stdout.write("".join(f"{name}\n" for name in COMMANDS))
        return 0
    if isinstance(options.help.value, str):
        return main(["help", options.help.value])
    return main(words[words.index(rest[0]) :] if rest else [])


if sys.argv[0].endswith(("/inv", "/invoke", "/invoke/__main__.py")):
    sys.exit(hand_over(sys.argv[1:]))
