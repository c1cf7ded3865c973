"""`python -m sifmark COMMAND`: the `sifmark` command, run by a chosen interpreter."""

from sifmark.cli import main

main()
