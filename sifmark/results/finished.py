"""Whether a result need not be measured again."""

from sifmark.results.load import LoadedResult

# A run that does not fit into memory is an answer, which does not change when it is asked for again.
FINISHED = ("completed", "out_of_memory")


def unfinished_reason(result: LoadedResult) -> str:
    """Return why a valid result is not finished, or nothing."""
    state = result.document["status"]["state"]
    return "" if state in FINISHED else f"status.state: {state}, and not {' or '.join(FINISHED)}"
