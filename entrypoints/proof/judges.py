"""Judges of results: each says whether a claim held, from the documents of an experiment's runs."""

from __future__ import annotations

import statistics
from typing import Any, Callable, Mapping, Sequence, Tuple

from entrypoints.contract.points import MEMORY_COPY
from entrypoints.proof.finding import FAILED, HELD, NOT_PROVABLE, Finding

Documents = Sequence[Mapping[str, Any]]
Judge = Callable[[Documents], Finding]
Question = Callable[[Documents], Tuple[str, str]]  # state and text
COMPLETED, CUT_SHORT = "completed", ("time_limit", "interrupted")
CLOCK_TOLERANCE = 0.02  # of the timed window: the edges of a window are marks between steps
ENERGY_TOLERANCE = 0.05  # NVIDIA states 5 % for the power of its boards; RAPL and its samples are closer
SPREAD = 0.05  # standard deviation over mean of equal runs
LEAST_OF_PEAK = 0.3  # matrix products of a library reach more than that of any peak in the table
MOST_OF_PEAK = 1.0
LEAST_OF_ONE_CLIENT = 0.95  # requests that overlap are not slower together
NO_RESULT = "the run left no result; see its log"


def judged(claim: str, subject: str, question: Question, completed: bool = True) -> Judge:
    """Return a judge that asks a question of results; without any, or if they should have `completed`, it fails."""

    def finding(documents: Documents) -> Finding:
        if not documents:
            return Finding(claim, subject, FAILED, NO_RESULT)
        failure = _failure(documents) if completed else None
        return Finding(claim, subject, *(failure or question(documents)))

    return finding


def device(documents: Documents) -> tuple[str, str]:
    """Say what the device is."""
    accelerator = documents[0]["accelerator"]
    facts = [accelerator.get("name", accelerator["kind"]), accelerator.get("execution", "")]
    return HELD, ", ".join(filter(None, facts))


def arithmetic(documents: Documents) -> tuple[str, str]:
    """Compare the fastest matrix product with the vendor's peak."""
    document = documents[0]
    flops, peak = _metric(document, "peak_flops"), document["accelerator"].get("peak", {}).get("value")
    if flops is None:
        return FAILED, _reason(document, "peak_flops")
    text = f"{flops / 1e12:.4g} TFLOP/s"
    if peak is None:
        return NOT_PROVABLE, f"{text}; no peak is cited for this device in this precision"
    share = flops / peak
    state = HELD if LEAST_OF_PEAK <= share <= MOST_OF_PEAK else FAILED
    return state, f"{text}, {share:.0%} of the vendor's {peak / 1e12:.4g}"


def bandwidth(documents: Documents) -> tuple[str, str]:
    """Say the bandwidth of copies, whose contents the run has checked; of those in memory, with the vendor's."""
    document = documents[0]
    if document["workload"]["name"] != MEMORY_COPY:
        rate = _metric(document, "peak_bandwidth")
        return (HELD, f"{rate:.4g} GB/s") if rate is not None else (FAILED, _reason(document, "peak_bandwidth"))
    rate, size = _metric(document, "memory_bandwidth"), _metric(document, "memory_bandwidth_size")
    if rate is None:
        return NOT_PROVABLE, _reason(document, "memory_bandwidth")
    stated, text = document["accelerator"]["memory_bandwidth"]["value"], f"{rate:.4g} GB/s by copies of {size:.4g} MiB"
    if stated is None:
        return HELD, text
    share = rate * 1e9 / stated
    state = HELD if share <= MOST_OF_PEAK else FAILED
    return state, f"{text}, {share:.0%} of what the vendor states of the memory"


def time(documents: Documents) -> tuple[str, str]:
    """Compare the sum of the timed steps, by the device's clock, with the window by the host's."""
    steps, window = documents[0]["steps"], documents[0]["phases"]["steady"]["seconds"]
    if steps["seconds"] is None or not window:
        return NOT_PROVABLE, "the result has no time of each step"
    total = sum(steps["seconds"][steps["untimed"] :])
    state = HELD if abs(total / window - 1) <= CLOCK_TOLERANCE else FAILED
    return state, f"steps add up to {total:.4f} s of a window of {window:.4f} s ({total / window - 1:+.2%})"


def repeatability(documents: Documents) -> tuple[str, str]:
    """Compare the throughput of equal runs."""
    rates = [rate for rate in (_metric(document, "throughput") for document in documents) if rate is not None]
    if len(rates) < 2:
        return NOT_PROVABLE, "fewer than two runs have a throughput"
    spread = statistics.stdev(rates) / statistics.mean(rates)
    text = (
        f"{statistics.mean(rates):.4g} {documents[0]['workload']['unit']}/s in {len(rates)} runs, spread {spread:.1%}"
    )
    return (HELD if spread <= SPREAD else FAILED), text


def energy(documents: Documents) -> tuple[str, str]:
    """Compare sampled power with the energy counter."""
    power = documents[0]["power"]
    difference = power.get("counter_integral_difference", {}).get("value")
    if difference is None:
        why = power.get("reason") or power.get("counter_integral_difference", {}).get("reason")
        return NOT_PROVABLE, why or f"{power.get('source', 'this meter')} has no counter beside its samples"
    state = HELD if abs(difference) <= ENERGY_TOLERANCE else FAILED
    return state, f"{power['source']}: samples add up to {1 + difference:.1%} of the counter"


def graphs(documents: Documents) -> tuple[str, str]:
    """Say how a compiled training step ran, by what the compiler counted."""
    accelerator = documents[0]["accelerator"]
    execution, counts = accelerator.get("execution", ""), accelerator.get("compilation")
    if counts is None:
        return NOT_PROVABLE, f"{execution}; its framework does not count what it compiles"
    if not counts["graphs"]:
        return FAILED, execution
    if documents[0]["configuration"]["device"] != "cuda":
        return HELD, execution
    replayed = counts["cuda_graphs"]
    return (NOT_PROVABLE if replayed is None else HELD if replayed else FAILED), execution


def streams(documents: Documents) -> tuple[str, str]:
    """Compare the throughput of several clients with that of one."""
    if len(documents) < 2:
        return FAILED, NO_RESULT
    alone, together = (_metric(document, "throughput") for document in documents)
    if alone is None or together is None:
        return NOT_PROVABLE, "a run has no throughput"
    clients = documents[1]["configuration"]["concurrency"]
    text = f"{clients} clients get {together:.4g} answers/s, one gets {alone:.4g}"
    if documents[0]["configuration"]["device"] == "cpu":
        return NOT_PROVABLE, f"{text}; clients share the cores of a CPU"
    return (HELD if together >= LEAST_OF_ONE_CLIENT * alone else FAILED), text


def throughput(documents: Documents) -> tuple[str, str]:
    """Say the throughput in the workload's defaults, and which part of its bound that is."""
    document = documents[0]
    rate, share = _metric(document, "throughput"), _metric(document, "fraction_of_bound")
    if rate is None:
        return FAILED, _reason(document, "throughput")
    how = document["configuration"]
    text = f"{rate:.4g} {document['workload']['unit']}/s, {how['precision']}, batch {how['batch_size']}"
    if share is None:
        return NOT_PROVABLE, f"{text}; {_reason(document, 'fraction_of_bound')}"
    return (HELD if share <= 1 else FAILED), f"{text}, {share:.1%} of the most that this device can do"


def memory(documents: Documents) -> tuple[str, str]:
    """Say which batch was the largest, and that a larger one was reported as a lack of memory."""
    document = documents[-1]
    search = document["search"]
    tried = search["trials"] if search else []
    short = [trial["batch_size"] for trial in tried if trial["state"] == "out_of_memory"]
    fitting = [trial["batch_size"] for trial in tried if trial["state"] == COMPLETED]
    other = sorted({trial["state"] for trial in tried} - {COMPLETED, "out_of_memory"})
    if other or not fitting:
        state = NOT_PROVABLE if other and set(other) <= set(CUT_SHORT) else FAILED
        return state, f"trials ended as {', '.join(other) or document['status']['state']}"
    if short:
        return HELD, f"batch {max(fitting)} fits, {min(short)} does not"
    return NOT_PROVABLE, f"batch {max(fitting)} fits; the search ended before memory did"


def limit(documents: Documents) -> tuple[str, str]:
    """Say what a run has kept that its time limit stopped: it cannot keep a step that did not end before."""
    status, steps = documents[0]["status"], documents[0]["steps"]["count"]
    state = FAILED
    if status["state"] == "time_limit":
        state = HELD if steps > 0 else NOT_PROVABLE
    return state, f"it ended as {status['state']} with {steps} steps"


def _failure(documents: Documents) -> tuple[str, str] | None:
    status = next((each["status"] for each in documents if each["status"]["state"] != COMPLETED), None)
    if status is None:
        return None
    state = NOT_PROVABLE if status["state"] in ("unsupported", *CUT_SHORT) else FAILED
    return state, f"{status['state']}: {status['message']}"


def _metric(document: Mapping[str, Any], name: str) -> float | None:
    value: float | None = document["metrics"].get(name, {}).get("value")
    return value


def _reason(document: Mapping[str, Any], name: str) -> str:
    return str(document["metrics"].get(name, {}).get("reason", f"the result has no {name}"))
