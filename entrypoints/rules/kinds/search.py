"""Rules about the search for the largest batch that fits into memory."""

from __future__ import annotations

from typing import Iterator

from entrypoints.planning.bracket import MOST_BATCH, Bracket, limit_of_trials
from entrypoints.rules.facts import Document, Facts, is_number
from entrypoints.rules.rule import differ, rule

FITS, DOES_NOT_FIT = "completed", "out_of_memory"
LONGEST = 366 * 86400.0  # s: no job lasts a year


@rule(
    "`search.largest` is the largest batch of a trial that completed, and the batch of the run; a document of a search "
    "without an answer has batch and state of its last trial",
    "The run is at the size found.",
)
def search_found_the_batch(facts: Facts) -> Iterator[str]:
    """Look for the largest trial again."""
    search = facts.document["search"]
    if search is None:
        return
    trials = search["trials"]
    largest = max((each["batch_size"] for each in trials if each["state"] == FITS), default=None)
    if search["largest"] != largest:
        yield differ("search.largest", search["largest"], largest, "search.trials")
        return
    batch = largest
    if facts.is_trial:
        batch, state = trials[-1]["batch_size"], trials[-1]["state"]
        if facts.state != state:
            yield differ("status.state", facts.state, state, "the last of search.trials")
    if facts.configuration["batch_size"] != batch:
        yield differ("configuration.batch_size", facts.configuration["batch_size"], batch, "search.largest")


@rule(
    "sizes double until one does not fit, then halve the bracket, at most 65536 or an epoch; only a trial that failed "
    "otherwise ends a search before its answer is known",
    "A search has one order.",
)
def trials_follow_the_bracket(facts: Facts) -> Iterator[str]:
    """Search again with the trials' states."""
    search = facts.document["search"]
    if search is None or not search["trials"]:
        return
    trials: list[Document] = search["trials"]
    start, most = trials[0]["batch_size"], min(MOST_BATCH, facts.configuration["samples_per_epoch"] or MOST_BATCH)
    bracket, size = Bracket(), start
    for number, trial in enumerate(trials):
        if trial["batch_size"] != size:
            yield differ(f"search.trials.{number}.batch_size", trial["batch_size"], size, "the trials before it")
            return
        if trial["state"] not in (FITS, DOES_NOT_FIT):
            size = None
            continue
        bracket = bracket.after(size, fits=trial["state"] == FITS)
        size = bracket.next(start, most)
    if size is not None:
        yield f"search.trials: a trial with {size} is missing"


@rule(
    "`search.memory_limit_mib` = nine tenths of `configuration.memory_limit_mib`, or that of a document of the last "
    "trial; no trial used more than the host's memory, or took a year",
    "The run has a tenth more memory than the trials, so that more steps fit.",
    "1 % of the memory",
)
def trials_have_their_limit(facts: Facts) -> Iterator[str]:
    """Compare the limits and the memory of trials."""
    search, limit = facts.document["search"], facts.configuration["memory_limit_mib"]
    if search is None:
        return
    expected = limit if facts.is_trial or limit is None else limit_of_trials(limit)
    if search["memory_limit_mib"] != expected:
        yield differ("search.memory_limit_mib", search["memory_limit_mib"], expected, "configuration.memory_limit_mib")
    memory = facts.document["host"]["memory"]["value"]
    for number, trial in enumerate(search["trials"]):
        peak = trial["peak_process_mib"]
        if peak is not None and is_number(memory) and peak > 1.01 * memory:
            yield differ(f"search.trials.{number}.peak_process_mib", peak, memory, "at most host.memory")
        if trial["seconds"] > LONGEST:
            yield f"search.trials.{number}.seconds: {trial['seconds']!r} are more than a year"
