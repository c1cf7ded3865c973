"""All runs of one command line: each executed in turn, its document checked and written as soon as it is there."""

from __future__ import annotations

import json
import sys
from typing import Any, Mapping, Sequence

from entrypoints import host, result
from entrypoints.arguments import Options
from entrypoints.cards import Card
from entrypoints.output import Contract, Writer, line_text, open_writer
from entrypoints.plain import Json
from entrypoints.plan import plan
from entrypoints.progress import say
from entrypoints.proving import prove
from entrypoints.running import Executed, execute
from entrypoints.search import Search, search
from entrypoints.statuses import INVALID_RESULT_EXIT, STATUSES, exit_code
from entrypoints.supervise import Orders
from entrypoints.verdict import with_numerics


def run(card: Card, image: Mapping[str, Any] | None, options: Options) -> int:
    """Do every run and return the exit code of them all. Raises UsageError before anything runs.

    An order to stop ends the run at hand; those behind it are not begun.
    """
    planned, contract = plan(options, card, image), Contract()
    writer = open_writer(options.output, len(planned))
    orders = Orders(options.time_limit)
    facts, conditions = host.facts(), host.conditions()  # before anything of ours keeps the host busy
    numerics = prove(card, planned[0], orders)

    def finish(executed: Executed, found: Search | None) -> int:
        verdict = with_numerics(executed.verdict, numerics)
        if verdict != executed.verdict:
            say(f"{verdict.state}: {verdict.message}")
        context = result.Context(
            card=card,
            configuration=executed.configuration,
            image=image,
            host=facts,
            conditions=conditions,
            conditions_after=executed.conditions_after,
            site=options.site,
            command=sys.argv[1:],
            started=executed.started,
            finished=executed.finished,
            search=found and found.as_json(),
            numerics=numerics,
            jsonschema_version=contract.library_version,
        )
        return deliver(result.document(executed.measurement, verdict, context), contract, writer)

    found = None
    if options.find_max_batch:
        found = search(card, planned[0], orders)
        if found.largest is None or not found.succeeded:
            return close([finish(found.last, found)], len(planned), orders)
        planned = [run.of_size(found.largest, found.limit) for run in planned]
    codes: list[int] = []
    for number, configuration in enumerate(planned, start=1):
        if codes and orders.stop():
            break
        if len(planned) > 1:
            say(f"run {number} of {len(planned)}")
        codes.append(finish(execute(card, configuration, orders), found))
    return close(codes, len(planned), orders)


def close(codes: Sequence[int], planned: int, orders: Orders) -> int:
    """The exit code of a series, and a word on the runs that were not begun.

    A document that is not valid or not written counts first, then an order to stop, then the first failure.
    """
    missing = planned - len(codes)
    stopped = 0
    if missing:
        say(f"{missing} of {planned} runs were not begun")
        state = orders.stop()
        stopped = exit_code(state, next(iter(orders.signals), None)) if state else 0
    stops = [code for code in (*codes, stopped) if code >= STATUSES["time_limit"].exit_code]
    ranked = [*(code for code in codes if code == INVALID_RESULT_EXIT), *stops, *codes]
    return next(filter(None, ranked), 0)


def deliver(document: Json, contract: Contract, writer: Writer) -> int:
    """Validate and write. Where either fails the document still goes somewhere: measuring it took time."""
    complaints = contract.problems(document)
    if complaints:
        say("the result does not validate, a defect of sifmark:")
        sys.stderr.write("\n".join([*complaints, json.dumps(document), ""]))
        return INVALID_RESULT_EXIT
    try:
        writer.write(document)
    except OSError as error:
        say(f"the result could not be written: {error}. Here it is:")
        sys.stderr.write(line_text(document).decode())
        return INVALID_RESULT_EXIT
    code: int = document["status"]["exit_code"]
    return code
