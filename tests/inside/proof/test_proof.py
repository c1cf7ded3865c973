"""A proof from end to end on a device that is a double, and what its judges say of results."""

from __future__ import annotations

import base64
import copy
import hashlib
import html
import json
import re
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from processes import wait_for
from program import ROOT

from entrypoints.contract import cards, reference
from entrypoints.contract.messages import Probed
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.proof import conduct, correctness, experiments, judges, page
from entrypoints.proof.finding import CLAIMS, FAILED, HELD, NOT_PROVABLE, NOT_RUN, Finding
from entrypoints.proof.judges import judged
from entrypoints.results.numerics import Deviation, Numerics, PrecisionResult
from entrypoints.results.outcome import Outcome

SCHEMA = json.loads((ROOT / "schemas" / "proof-1.0.json").read_text("utf-8"))
TRAINING = json.loads((ROOT / "schemas" / "examples" / "result-1.2" / "training.json").read_text("utf-8"))


def proof_of(folder):
    """The proof of a folder, which fits its schema, and its page."""
    document = json.loads((folder / "proof.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document, (folder / "proof.html").read_text("utf-8")


def states(document):
    return {(each["claim"], each["subject"]): each["state"] for each in document["findings"]}


@pytest.mark.full
def test_a_proof_ends_with_a_folder_and_a_page(few, tmp_path):
    folder = tmp_path / "proof"
    code, output, errors = few.run("--prove", "lstm", "--output", f"{folder}/", "--time-limit", "60", "--site", "alpha")
    document, shown = proof_of(folder)
    assert code == (7 if FAILED in states(document).values() else 0) and output == "", errors
    assert states(document)["device", "lstm"] == states(document)["limit", "lstm"] == HELD
    assert document["finished"] and document["device"]["kind"] == "double"
    for experiment in document["experiments"]:
        lines = [
            line for path in folder.glob(f"results/{experiment['name']}*.jsonl") for line in path.open(encoding="utf-8")
        ]
        kept = {json.loads(line)["id"]: json.loads(line)["site"] for line in lines}
        assert set(experiment["results"]) <= set(kept) and set(kept.values()) == {"alpha"}
        assert list(folder.glob(f"logs/{experiment['name']}*.log"))
    for finding in document["findings"]:
        assert html.escape(CLAIMS[finding["claim"]]) in shown and html.escape(finding["text"]) in shown
    assert few.run("--prove", "lstm", "--output", f"{folder}/")[0] == 2, "a proof is not overwritten"


def test_without_a_device_nothing_else_is_tried(few, tmp_path):
    code, _, errors = few.run("--prove", "lstm", "--output", tmp_path / "proof", fault="no_device")
    document, _ = proof_of(tmp_path / "proof")
    assert code == 7 and "failed: 1 device" in errors
    assert states(document) == {("device", "lstm"): FAILED} and len(document["experiments"]) == 1


def test_what_there_is_no_time_for_is_not_run(few, tmp_path):
    assert few.run("--prove", "lstm", "--output", tmp_path / "proof", "--time-limit", 1)[0] == 0
    document, _ = proof_of(tmp_path / "proof")
    assert set(states(document).values()) == {NOT_RUN} and document["experiments"] == []


def test_a_signal_ends_a_proof_and_keeps_what_was_measured(few, tmp_path):
    process = few.start("--prove", "lstm", "--output", tmp_path / "proof")
    wait_for(process, "proof: busy")
    log = tmp_path / "proof" / "logs" / "busy.log"
    while not log.exists() or "measuring" not in log.read_text("utf-8"):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    document, _ = proof_of(tmp_path / "proof")
    assert states(document)["device", "lstm"] == HELD and document["finished"]
    assert [experiment["name"] for experiment in document["experiments"]] == ["device", "busy"]
    busy = json.loads((tmp_path / "proof" / "results" / "busy.jsonl").read_text("utf-8"))
    assert busy["status"]["state"] == "interrupted" and busy["steps"]["count"] > 0
    assert states(document)["time", "lstm"] == NOT_PROVABLE


def test_an_unknown_workload_is_wrong_usage(few, tmp_path):
    code, _, errors = few.run("--prove", "no", "--output", tmp_path / "proof")
    assert code == 2 and "no workload 'no'" in errors and not (tmp_path / "proof").exists()


def changed(**values):
    """The example of a training run with other values, by dotted path with `__` for dots."""
    document = copy.deepcopy(TRAINING)
    for path, value in values.items():
        *parents, name = path.split("__")
        part = document
        for parent in parents:
            part = part[parent]
        part[name] = value
    return document


STEADY = sum(TRAINING["steps"]["seconds"][TRAINING["steps"]["untimed"] :])
TRIED = [{"batch_size": 1, "state": "completed"}, {"batch_size": 2, "state": "out_of_memory"}]


@pytest.mark.parametrize(
    ("question", "state", "documents"),
    [
        (judges.time, HELD, [changed(phases__steady={"seconds": STEADY * 1.01})]),
        (judges.time, FAILED, [changed(phases__steady={"seconds": STEADY * 1.05})]),
        (judges.time, NOT_PROVABLE, [changed(steps__seconds=None)]),
        (judges.energy, HELD, [changed(power={"source": "nvml", "counter_integral_difference": {"value": 0.04}})]),
        (judges.energy, FAILED, [changed(power={"source": "nvml", "counter_integral_difference": {"value": -0.06}})]),
        (judges.energy, NOT_PROVABLE, [changed(power={"reason": "no meter"})]),
        (judges.repeatability, HELD, [changed(metrics__throughput={"value": rate}) for rate in (100, 101, 102)]),
        (judges.repeatability, FAILED, [changed(metrics__throughput={"value": rate}) for rate in (100, 120, 102)]),
        (judges.repeatability, NOT_PROVABLE, [changed(metrics__throughput={"value": None})] * 2),
        (judges.memory, HELD, [changed(search={"trials": TRIED})]),
        (judges.memory, NOT_PROVABLE, [changed(search={"trials": TRIED[:1]})]),
        (judges.memory, FAILED, [changed(search={"trials": [*TRIED, {"batch_size": 4, "state": "crashed"}]})]),
        (judges.memory, NOT_PROVABLE, [changed(search={"trials": [*TRIED, {"batch_size": 4, "state": "time_limit"}]})]),
        (judges.memory, FAILED, [changed(search=None)]),
        (judges.limit, FAILED, [changed()]),
        (judges.limit, HELD, [changed(status__state="time_limit")]),
        (judges.limit, NOT_PROVABLE, [changed(status__state="time_limit", steps__count=0)]),
    ],
)
def test_what_a_judge_says(question, state, documents):
    finding = judged("claim", "subject", question, completed=False)(documents)
    assert finding.state == state and finding.text


def on(device, **values):
    return changed(configuration__device=device, **values)


def compiled(device, **counts):
    return on(device, accelerator__compilation=counts)


def flops(value, peak):
    return changed(
        metrics={"peak_flops": {"value": value, "reason": "none"}},
        accelerator={"kind": "cuda", "peak": {"value": peak}},
    )


def rated(rate, share):
    return changed(metrics={"throughput": {"value": rate}, "fraction_of_bound": {"value": share, "reason": "no peak"}})


def copied(rate, name="memory_copy", stated=4.8e12):
    metric = "memory_bandwidth" if name == "memory_copy" else "peak_bandwidth"
    return changed(
        workload={"name": name},
        metrics={metric: {"value": rate, "reason": "none"}, "memory_bandwidth_size": {"value": 1024.0}},
        accelerator={"kind": "cuda", "memory_bandwidth": {"value": stated}},
    )


def answers(device, rate):
    return on(device, metrics__throughput={"value": rate}, configuration__concurrency=4)


@pytest.mark.parametrize(
    ("question", "state", "documents"),
    [
        (judges.graphs, HELD, [compiled("cuda", graphs=1, cuda_graphs=2)]),
        (judges.graphs, FAILED, [compiled("cuda", graphs=1, cuda_graphs=0)]),
        (judges.graphs, NOT_PROVABLE, [compiled("cuda", graphs=1, cuda_graphs=None)]),
        (judges.graphs, HELD, [compiled("cpu", graphs=1, cuda_graphs=None)]),
        (judges.graphs, FAILED, [compiled("cpu", graphs=0, cuda_graphs=None)]),
        (judges.graphs, NOT_PROVABLE, [on("cpu")]),
        (judges.streams, HELD, [answers("cuda", 10.0), answers("cuda", 30.0)]),
        (judges.streams, FAILED, [answers("cuda", 10.0), answers("cuda", 9.0)]),
        (judges.streams, NOT_PROVABLE, [answers("cpu", 10.0), answers("cpu", 9.0)]),
        (judges.streams, FAILED, [answers("cuda", 10.0)]),
        (judges.arithmetic, HELD, [flops(6e14, 9e14)]),
        (judges.arithmetic, FAILED, [flops(1e15, 9e14)]),
        (judges.arithmetic, FAILED, [flops(1e14, 9e14)]),
        (judges.arithmetic, FAILED, [flops(None, 9e14)]),
        (judges.arithmetic, NOT_PROVABLE, [flops(1e14, None)]),
        (judges.throughput, HELD, [rated(100.0, 0.5)]),
        (judges.throughput, FAILED, [rated(100.0, 1.01)]),
        (judges.throughput, NOT_PROVABLE, [rated(100.0, None)]),
        (judges.throughput, FAILED, [rated(None, None)]),
        (judges.bandwidth, HELD, [copied(3000.0)]),
        (judges.bandwidth, HELD, [copied(3000.0, stated=None)]),
        (judges.bandwidth, FAILED, [copied(4900.0)]),
        (judges.bandwidth, NOT_PROVABLE, [copied(None)]),
        (judges.bandwidth, HELD, [copied(55.0, "host_device")]),
        (judges.bandwidth, FAILED, [copied(None, "host_device")]),
    ],
)
def test_what_a_judge_says_of_a_kind_of_device(question, state, documents):
    assert question(documents)[0] == state


@pytest.mark.parametrize(
    ("ended", "state"),
    [("unsupported", NOT_PROVABLE), ("time_limit", NOT_PROVABLE), ("crashed", FAILED), ("out_of_memory", FAILED)],
)
def test_a_run_that_did_not_complete_shows_nothing_else(ended, state):
    document = changed(status={"state": ended, "message": "why"})
    assert judged("time", "lstm", judges.time)([document]).state == state


def test_a_experiment_without_a_result_has_failed():
    assert judged("time", "lstm", judges.time)([]).state == FAILED


@pytest.mark.parametrize("device", sorted(experiments.PRECISIONS))
def test_every_claim_about_a_device_has_a_experiment(device):
    every = cards.load()
    focus, lengths = experiments.focus_of(device, every), experiments.Lengths.within(1200)
    made = [experiments.first(focus, device), *experiments.of_device(focus, device, every, lengths)]
    made += [experiments.of_workload(card, card.tasks[0], device, lengths) for card in every.values()]
    assert len({experiment.name for experiment in made}) == len(made)
    claims = {finding.claim for experiment in made for finding in experiments.not_made(experiment, "why")}
    assert claims == set(CLAIMS) - {"correctness"}
    assert all(words[-2:] == ("--device", device) for experiment in made for words in experiment.runs)


def test_experiments_ask_for_what_they_are_to_show():
    every = cards.load()
    of_device = experiments.of_device(every["resnet50"], "cuda", every, experiments.Lengths.within(1200))
    runs = {experiment.name: experiment.runs for experiment in of_device}
    assert "--compile" in runs["compiled"][0] and "--find-max-batch" in runs["memory"][0]
    assert [words[words.index("--concurrency") + 1] for words in runs["clients"]] == ["1", str(experiments.CLIENTS)]
    ((*_, repeated),) = [words[: words.index("--repeat") + 2] for words in runs["repeats"]]
    assert int(repeated) > 1
    assert {"matmul-fp32", "matmul-bf16", "matmul-tf32", "matmul-fp16"} <= set(runs)


@pytest.mark.parametrize(
    ("left", "most", "seconds"), [(1000.0, 300, 250), (100.0, 300, 60), (30.0, 300, 30), (0, 9, 1)]
)
def test_a_run_leaves_time_to_others(left, most, seconds):
    of_a_proof: Any = SimpleNamespace(left=lambda: left)
    assert conduct.Proof.share(of_a_proof, most) == seconds


COUNTING = """
import pathlib, signal, sys, time
received = []
signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
pathlib.Path(sys.argv[1]).touch()
until = time.monotonic() + 0.5
while time.monotonic() < until:
    time.sleep(0.01)
sys.exit(len(received))
"""


def test_an_order_to_stop_is_passed_on_once(monkeypatch, tmp_path):
    """A run that gets a second one kills its child at once."""
    program, ready, signals = tmp_path / "program.py", tmp_path / "ready", []
    program.write_text(COUNTING)
    monkeypatch.setattr(conduct, "MAIN", program)
    monkeypatch.setattr(conduct, "TICK", 0.02)
    for folder in (conduct.RESULTS, conduct.LOGS):
        (tmp_path / folder).mkdir()

    def order():
        while not ready.exists():
            time.sleep(0.01)
        signals.append(signal.SIGTERM)

    options, orders = SimpleNamespace(site=None), SimpleNamespace(signals=signals)
    of_a_proof: Any = SimpleNamespace(folder=tmp_path, options=options, orders=orders)
    thread = threading.Thread(target=order)
    thread.start()
    assert conduct.Proof.start(of_a_proof, "a run", (str(ready),), 60.0) == 1
    thread.join()


def test_an_order_to_stop_ends_an_experiment_between_its_runs(tmp_path):
    """Of one run out of two nothing can be said."""
    started: list[str] = []
    findings: list[Finding] = []

    def start(name, words, seconds):
        started.append(name)
        return 143

    of_a_proof: Any = SimpleNamespace(
        folder=tmp_path,
        document={"experiments": []},
        orders=SimpleNamespace(stop=lambda: "interrupted" if started else None),
        left=lambda: 100.0,
        share=lambda most: most,
        start=start,
        add=findings.extend,
    )
    both = experiments.Experiment("both", (("one",), ("four",)), (judged("streams", "lstm", judges.streams),), 60)
    assert conduct.Proof.attempt(of_a_proof, both), "nothing failed"
    assert started == ["both-1"] and [finding.state for finding in findings] == [NOT_RUN]
    (experiment,) = of_a_proof.document["experiments"]
    assert (experiment["commands"], experiment["exit_codes"]) == ([["one"]], [143])


COMPARED = PrecisionResult("fp32", "passed", None, Deviation("loss", 1e-7, 1e-6), ())


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        ("completed", NOT_PROVABLE),
        ("unsupported", NOT_PROVABLE),
        ("time_limit", NOT_RUN),
        ("crashed", FAILED),
        ("out_of_memory", FAILED),
    ],
)
def test_a_correctness_check_shows_what_it_has_and_how_it_ended(monkeypatch, ended, state):
    """It is of two precisions, and ended after the first."""
    outcome = Outcome(ended, 0 if ended == "completed" else 4, "why")
    monkeypatch.setattr(correctness, "computed", lambda *_: (outcome, []))
    monkeypatch.setattr(correctness, "compared", lambda *_: Numerics("not_run", "why", (COMPARED,)))
    card = cards.load()["lstm"]
    resolved = resolve(parse(["lstm", "--precision", "bf16"]), card, None)
    orders: Any = None  # nothing is computed
    findings, measured = correctness.examine(card, resolved, orders)
    assert [(each.subject, each.state) for each in findings] == [("lstm fp32", HELD), ("lstm bf16", state)]
    assert not measured


def test_deviations_are_those_of_stored_quantities():
    stored = reference.load(cards.load()["lstm"])
    assert stored
    name, values = next(iter(stored.values.items()))
    doubled = Probed("bf16", name, [2 * value for value in values])
    assert correctness.deviations([doubled, doubled._replace(quantity="new")], stored) == {
        "bf16": {name: pytest.approx(1.0)}
    }


def page_of(*findings, text="text"):
    return page.render(
        {
            "device": {"name": text, "kind": text},
            "image": {"recipe": text, "build_key": text},
            "software": {text: text},
            "started": text,
            "finished": None,
            "findings": [finding.as_json() for finding in findings],
            "doctor": [{"name": text, "status": text, "detail": text, "remedy": text}],
            "experiments": [{"name": text, "seconds": 1.0, "commands": [[text]], "exit_codes": [0]}],
        }
    )


def test_a_page_begins_with_what_needs_attention():
    shown = page_of(*(Finding("time", f"the subject {state}", state, "text") for state in (HELD, NOT_RUN, FAILED)))
    subjects = re.findall("the subject [a-z_]+", shown)
    assert subjects == [f"the subject {state}" for state in (FAILED, NOT_RUN, HELD)]


def test_a_page_allows_its_own_style_and_nothing_else():
    shown = page_of()
    (style,) = re.findall("<style>(.*)</style>", shown, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = html.unescape(re.findall('Content-Security-Policy" content="([^"]+)"', shown)[0])
    assert policy.startswith("default-src 'none'; ") and f"style-src 'sha256-{digest}';" in policy


def test_a_page_escapes_what_a_device_says():
    text = "<script>alert(1)</script> & \"quoted\" 'too'"
    shown = page_of(Finding("time", text, HELD, text), text=text)
    assert "<script" not in shown and "has not ended" in shown
    assert not re.search(r"(src|href)=|url\(", shown), "nothing is loaded"


def test_schema_and_claims_agree():
    finding = SCHEMA["$defs"]["finding"]["properties"]
    assert finding["claim"]["enum"] == list(CLAIMS)
    assert set(finding["state"]["enum"]) == {HELD, FAILED, NOT_PROVABLE, NOT_RUN}
