"""What is known of runs: their results, logs and locks, and what their scheduler says of those that have a job."""

from collections.abc import Sequence

from sifmark.core.locks import is_held
from sifmark.studies.events import read_log
from sifmark.studies.folder import lock_of
from sifmark.studies.outcomes import entry_for
from sifmark.studies.states import Evidence
from sifmark.studies.study import PlannedRun


def read_evidence(runs: Sequence[PlannedRun], *, strict: bool = False) -> list[Evidence]:
    """Return what is known of each of some runs.

    If the scheduler does not answer, logs alone count, with a warning; with `strict` SifmarkError is raised.
    """
    found = [Evidence(each.result, entry_for(each), read_log(each.result), is_held(lock_of(each))) for each in runs]
    if not any(each.asks for each in found):
        return found
    from sifmark.studies.slurm.answers import with_answers  # here: plans without jobs should not wait for it

    return with_answers(found, strict=strict)
