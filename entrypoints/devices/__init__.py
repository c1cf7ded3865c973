"""One module per framework and kind of hardware, found by its file name.

Each has the same three functions in the same order: `prepare(precision, threads, streams=1)` refuses what the hardware
cannot do and undoes what an earlier call in the same process set (`threads` is for each of the streams of requests that
compute at once), `free_mib()` says how much memory is left there (None where nobody knows), and
`open_session(model, rule, precision, compiled)` returns an `entrypoints.session.Session`, also after an earlier one
was closed.
"""
