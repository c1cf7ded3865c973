"""`python -m sifmark VERB`: the `sifmark` command, by an interpreter of one's choice."""

from sifmark.cli import main

main()
