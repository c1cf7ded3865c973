"""The benchmark of forgeries: every genuine result is valid, and no result that is impossible."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples
from unit.keys import make_key

from sifmark.commands.command_line import main
from sifmark.core.paths import CHECKOUT, import_shared
from sifmark.results.load import SeenRuns, document_problems

sys.path.append(str(CHECKOUT / "benchmarks"))
import forgeries


@pytest.fixture(scope="module")
def genuine() -> list[tuple[str, forgeries.Document]]:
    return list(forgeries.genuine())


def test_genuine_results_are_valid(genuine: list[tuple[str, forgeries.Document]]) -> None:
    assert len(genuine) >= 25
    assert [file for file, document in genuine if document_problems(document)] == []


def test_every_kind_of_forgery_applies_and_is_refused(genuine: list[tuple[str, forgeries.Document]]) -> None:
    """Of a workload whose card is gone, or was never here, nobody knows the title."""
    cards = import_shared("rules.identity").cards_by_identity()
    without_card = {file for file, document in genuine if document["workload"]["identity"] not in cards}
    for kind, forged, accepted in forgeries.refusals():
        assert forged >= 2, f"{kind} applies to no result"
        assert set(accepted) == (without_card if "title" in kind else set()), kind


def test_genuine_results_are_far_from_the_limits() -> None:
    """A device that is new in the table may change that."""
    for what, value, limit, name in forgeries.margins():
        at_least, number = limit.startswith("at least"), float(limit.split()[-1])
        assert value >= 1.2 * number if at_least else value <= number / 1.2, f"{what} of {name}"


GENUINE = [document for _, document in forgeries.genuine()]
EDITS = [list(forgeries.single_edits(document)) for document in GENUINE]


def verdict_on(number: int, *edits: forgeries.Edit) -> str:
    document = GENUINE[number]
    return forgeries.verdict(forgeries.edited(document, *edits), document, *edits)


def test_a_verdict_tells_what_becomes_of_a_result() -> None:
    assert verdict_on(0, (("metrics", "throughput", "value"), 1.0)) == forgeries.REFUSED
    assert verdict_on(0, (("metrics", "throughput", "value"), forgeries.DELETED)) == forgeries.REFUSED
    assert verdict_on(0, (("workload", "flops", "source"), "elsewhere")) == forgeries.HARMLESS
    assert forgeries.verdict(GENUINE[0], GENUINE[1], (("metrics", "throughput", "value"), 0)).startswith(
        forgeries.WRONG
    )


@pytest.mark.parametrize(
    "number",
    [*(pytest.param(number, marks=pytest.mark.full) for number in (0, 6, 7)), 24],
    ids=["gpu", "first schema", "second schema", "training"],
)
def test_no_change_of_any_field_is_wrongly_accepted_or_raises(number: int) -> None:
    """Some of the changes that the benchmark makes."""
    edits = EDITS[number][number % 53 :: 53]
    assert {verdict_on(number, edit) for edit in edits} == {forgeries.REFUSED, forgeries.HARMLESS}


BOTH = st.integers(0, len(GENUINE) - 1).flatmap(
    lambda number: st.tuples(st.just(number), st.sampled_from(EDITS[number]), st.sampled_from(EDITS[number]))
)


@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck))
@given(BOTH)
def test_no_change_of_two_fields_raises(drawn: tuple[int, forgeries.Edit, forgeries.Edit]) -> None:
    """One that hides the other may be accepted."""
    number, *edits = drawn
    assert verdict_on(number, *edits).partition(":")[0] in (forgeries.REFUSED, forgeries.HARMLESS, forgeries.WRONG)


COMMANDS = [
    "results.show FILES",
    "results.show FILES --all-metrics",
    "results.show FILES --json",
    "results.validate FILES --finished --run 0000000000000000",
    "results.verify FILES --key site.pub",
    "results.trace FILES --key site.pub",
    *(f"results.export FILES --table {table} --format json" for table in ("runs", "points", "steps")),
    "results.export FILES --format csv",
    "compare FILES",
    *(f"compare FILES --metrics all --format {form}" for form in ("json", "csv", "markdown")),
    "compare FILES --baseline precision=fp32 --fail-below 0.9",
    "compare FILES --against published:qwant",
    "report FILES --output report --anonymous-sites",
    "study.baseline kept FILES",
    "compare FILES --against baseline:kept",
    "study.history FILES",
    "study.scaling FILES",
    "study.screen FILES",
    "study.energy FILES",
    "report.site FILES --output site",
    "results.sign FILES --key site.pem",
]


def harmless(seed: int, count: int) -> list[dict[str, Any]]:
    """Some valid results with a field that has another value than any run would give it."""
    kept, taken = [], 0
    for number, edits in enumerate(EDITS):
        for edit in edits[seed + number :: 211]:
            changed = forgeries.edited(GENUINE[number], edit)
            if not document_problems(changed, json.dumps(changed)):
                kept.append({**changed, "id": f"00000000-0000-4000-8000-{taken:012}"})
                taken += 1
    return kept[:: max(1, len(kept) // count)]


def hostile() -> dict[str, bytes]:
    """Files that are no results."""
    whole = json.dumps(GENUINE[0])
    return {
        "empty": b"",
        "nul": b"\x00" * 100,
        "bom": b"\xef\xbb\xbf" + whole.encode(),
        "latin": whole.replace("resnet50", "r\u00e9snet50").encode("latin-1"),
        "utf16": whole.encode("utf-16"),
        "deep": b'{"a":' * 5000,
        "deeper": b"[" * 10**6,
        "nan": whole.replace('"value": null', '"value": NaN').encode(),
        "twice": b'{"schema_version": "1.2", "schema_version": "1.2"}',
        "digits": whole.replace('"count": ', '"count": 1' + "0" * 5000).encode(),
        "half": whole[: len(whole) // 2].encode(),
        "steps": json.dumps(forgeries.edited(GENUINE[0], (("steps", "seconds"), [0.1] * 10**5))).encode(),
        "surrogate": whole.replace('"here"', '"\\ud800"').encode() + b"\n{}",
    }


@pytest.mark.parametrize("files", ["genuine", pytest.param("harmless", marks=pytest.mark.full), "hostile"])
def test_no_command_ends_in_a_traceback_whatever_a_file_holds(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(SeenRuns, "has_copy_of", lambda *_: False)  # copies of one run are read too
    make_key(tmp_path, "site")
    folder = tmp_path / "FILES"
    folder.mkdir()
    if files == "hostile":
        for name, content in hostile().items():
            (folder / f"{name}.json").write_bytes(content)
    else:
        documents = GENUINE if files == "genuine" else harmless(3, 20)
        assert len(documents) >= 14
        (folder / "all.jsonl").write_text("\n".join(map(json.dumps, documents)))
    for command in COMMANDS:
        with contextlib.chdir(tmp_path):
            code = main(command.split())
        printed = capsys.readouterr()
        assert code in range(10), f"{command}: {printed.err}"
        assert "Traceback" not in printed.out + printed.err, command
