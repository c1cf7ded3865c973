"""One module per command: parse its options, call one package, print, choose the exit code."""
