"""One module per command: parse its options, call one package, print, choose the exit code."""

import sys

# invoke turns bytecode off, lest it lie beside tasks.py: each command would compile again whatever it imports.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
