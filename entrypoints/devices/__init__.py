"""One module per framework and kind of hardware, found by its file name.

Each has the same three functions in the same order: `prepare(precision, threads)` refuses what the hardware cannot do
and undoes what an earlier call in the same process set, `free_mib()` says how much memory is left there (None where
nobody knows), `open_session(model, rule, precision)` returns an
`entrypoints.session.Session`, also after an earlier one was closed.
"""
