"""Reading results: verdicts as jsonschema's, and no file, whatever it holds, that stops the others from being read."""

import json
import math
import os
import random
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import documents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import ValidationError
from properties import examples
from unit.refusals import refused

from sifmark.commands.answers import TABLE
from sifmark.commands.results import show_results, validate_results
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.schemas import errors_of, fast_validator, validator
from sifmark.core.terminal import configure
from sifmark.results import load
from sifmark.results.identity import key_of
from sifmark.results.load import load_file, load_results, parse
from sifmark.results.marks import marks_of_result
from sifmark.results.summary import summary
from sifmark.results.warnings import (
    is_at_power_limit,
    is_disturbed,
    is_stalled,
    is_throttled,
    throttling,
    warnings_of,
)

NAME = "result-1.2"
WHOLE = json.dumps(documents.valid()).encode()


def write(folder: Path, name: str, *texts: bytes) -> Path:
    file = folder / name
    file.write_bytes(b"\n".join(texts))
    return file


def verdicts(path: Path) -> dict[str, bool]:
    return {Path(judged.file).name: not judged.problems for judged in load_results(str(path))}


def hits(errors: Iterable[ValidationError]) -> Iterator[tuple[int, object]]:
    for error in errors:
        yield id(error.schema), error.validator
        yield from hits(error.context or ())


@pytest.mark.full  # a minute, for what changes with the schema or the validator
def test_verdicts_are_those_of_jsonschema_for_every_rule_of_the_schema() -> None:
    count, valid = 0, 0
    broken: set[tuple[int, object]] = set()
    bases: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
        (documents.whole(), ()),
        (documents.bare(), ()),
        (documents.unseen(), ("provenance", "image", "file")),
        (documents.unproved(), ("numerics",)),
        (documents.unconnected(), ("transport",)),
    )
    for base, within in bases:
        judge = documents.judge_of_changes(base, validator(NAME).schema)
        for path, document in documents.mutations(base, within):
            errors = list(judge.iter_errors(document))
            assert fast_validator(NAME).is_valid(document) == (not errors), path
            broken.update(hits(errors))
            count, valid = count + 1, valid + (not errors)
            if count % 100 == 0:  # that the judge leaves out what did not change makes no difference
                assert sorted(map(str, errors_of(NAME, document))) == sorted(map(str, errors)), path
                assert documents.VALIDATOR.is_valid(document) == (not errors), path
    assert count > 5000
    assert count / 20 < valid < count / 2  # neither all refused nor all let through
    assert set(documents.rules_of(validator(NAME).schema)) <= broken, "a rule that no mutation breaks"


@pytest.mark.parametrize("file", sorted(paths.SCHEMAS.glob("*.json")), ids=lambda file: file.stem)
def test_patterns_mean_the_same_in_python_and_in_ecma(file: Path) -> None:
    """Python's `$` stands before a last newline too, and its classes hold other scripts' characters."""
    patterns = set(patterns_of(json.loads(file.read_text())))
    assert not {pattern for pattern in patterns if re.search(r"\\[dwsDWS]", pattern)}
    assert not {pattern for pattern in patterns if "$" in pattern and not pattern.endswith(r"$(?!\n)")}


def patterns_of(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
        yield from schema.get("patternProperties", {})
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []:
        yield from patterns_of(inner)


def reference(text: bytes) -> Any:
    """JSON by the standard library, strictly."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError
        return dict(pairs)

    def number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise ValueError
        return value

    def constant(name: str) -> None:
        raise ValueError(name)

    return json.loads(text.decode(), object_pairs_hook=once, parse_float=number, parse_constant=constant)


KEYS = st.sampled_from(["a", "b", "", ":", '"', '":', "\\", "é", "a:b", '\\":'])
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | KEYS
PAIRS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(KEYS, inner), max_size=4).map(tuple),
    max_leaves=12,
)


def dump(value: Any, ascii_only: bool, blank: str) -> str:
    """JSON text in which tuples of pairs are objects, so that keys may stand twice."""
    if isinstance(value, tuple):
        inner = ",".join(
            f"{json.dumps(key, ensure_ascii=ascii_only)}{blank}:{dump(item, ascii_only, blank)}" for key, item in value
        )
        return f"{{{blank}{inner}}}"
    if isinstance(value, list):
        return f"[{','.join(dump(item, ascii_only, blank) for item in value)}]"
    return json.dumps(value, ensure_ascii=ascii_only)


@settings(max_examples=examples(1500))
@given(PAIRS, st.booleans(), st.sampled_from(["", " ", "\n "]))
def test_parsing_refuses_what_the_standard_library_refuses_when_it_is_strict(
    value: Any, ascii_only: bool, blank: str
) -> None:
    text = dump(value, ascii_only, blank).encode()
    try:
        wanted = reference(text)
    except ValueError:
        with pytest.raises(ValueError):
            parse(text)
    else:
        assert parse(text) == wanted


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"NaN", b'{"a":1e999}', b'{"a":-Infinity}', b'{"a":1,"a":1}', b'{"a":1,"\\u0061":1}',
     b'{"a:":1,"a:":1}', b'["\\ud800"]', b"\xff", b"\xef\xbb\xbf{}", b"[" * 10**6, b"[" * 500 + b"]" * 500,
     b"{}{}", b"[1,]", b"\x00", b'{"a":' * 300 + b"1" + b"}" * 300],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_text_that_is_not_json_is_told(tmp_path: Path, text: bytes) -> None:
    file = write(tmp_path, "a.json", text)
    (judged,) = load_file(str(file))
    assert judged.problems
    assert "is not JSON" in judged.problems[0]


@pytest.mark.parametrize("text", [b"[]", b"null", b'"a"', b"1", b"true"])
def test_json_that_is_no_object_is_told(tmp_path: Path, text: bytes) -> None:
    (judged,) = load_file(str(write(tmp_path, "a.json", text)))
    assert judged.problems == ("is not an object",)


@pytest.mark.parametrize("version", ["9.0", "1.3"])
def test_newer_versions_ask_for_an_upgrade(tmp_path: Path, version: str) -> None:
    (judged,) = load_file(str(write(tmp_path, "a.json", json.dumps({"schema_version": version}).encode())))
    remedy = "upgrade this one, which reads 1.0, 1.1, 1.2"
    assert judged.problems == (f"schema_version: '{version}' is of a newer sifmark; {remedy}",)


def test_another_document_is_no_result(tmp_path: Path) -> None:
    (judged,) = load_file(str(write(tmp_path, "a.json", b'{"name": "package"}')))
    assert judged.problems == ("is not a sifmark result: it has no schema_version",)


def test_a_record_of_an_experiment_is_no_result_and_says_what_it_is() -> None:
    (judged,) = load_file(str(paths.CHECKOUT / "measured" / "nvidia-h200" / "peak-matmul.json"))
    (problem,) = judged.problems
    assert problem.startswith("is what benchmarks/device.py keeps of an experiment, and not a sifmark result")


@pytest.mark.parametrize("version", ["0.9", None, 1.0, [], {"a": 1}, "x" * 10**6])
def test_unknown_versions_are_refused_by_name(tmp_path: Path, version: Any) -> None:
    (judged,) = load_file(str(write(tmp_path, "a.json", json.dumps({"schema_version": version}).encode())))
    assert "is not one that this sifmark reads (1.0, 1.1, 1.2)" in judged.problems[0]
    assert len(judged.problems[0]) < 200


def test_lines_are_judged_one_by_one(tmp_path: Path) -> None:
    file = write(tmp_path, "a.jsonl", WHOLE, b"", b"{", WHOLE, b"[]", WHOLE)
    loaded = list(load_file(str(file)))
    assert [bool(judged.problems) for judged in loaded] == [False, True, False, True, False]
    assert loaded[1].problems[0].startswith("document 2: is not JSON")


def test_documents_that_are_too_large_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LARGEST_DOCUMENT", len(WHOLE))
    huge = b'"' + b"x" * (3 * len(WHOLE)) + b'"'
    write(tmp_path, "a.json", huge)
    write(tmp_path, "b.json", WHOLE)
    loaded = list(load_file(str(write(tmp_path, "c.jsonl", WHOLE, huge, WHOLE))))
    assert [bool(judged.problems) for judged in loaded] == [False, True, False]
    assert verdicts(tmp_path)["a.json"] is False
    assert verdicts(tmp_path)["b.json"] is True


# By path what is put there, and what is said of it.
LARGE: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "steps": (("steps", "seconds"), [0.5] * 10**5, "steps.seconds: 100000 entries"),
    "ranks": (("ranks",), [{}] * 2**15, "ranks: 32768 entries"),
    "variables": (
        ("environment", "variables"),
        dict.fromkeys(map(str, range(2000)), ""),
        "environment.variables: 2000 ",
    ),
    "key": (("environment", "variables"), {"x" * 10**5: ""}, "environment.variables: a key of 100000 characters"),
    "text": (("id",), "x" * 10**5, "id: what is there, of 100"),
    "number": (("steps", "units"), 10**400, "is not JSON"),
    "values": (("status",), [[0] * 1000] * 1100, "the document: more than 1048576 values"),
    "broken": (("ranks",), [{}] * 2**14, "is not as result-1.2 says, and too large to say where"),
    "quoted": (
        ("status", "message"),
        ["user:secret@host"] * 1000,
        "status.message: what is there, of 20024 characters, ",
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_larger_than_any_result_is_told_before_anything_looks_into_it(name: str) -> None:
    """A program that describes each error of such a document, or looks for logins in each text, takes minutes."""
    path, value, text = LARGE[name]
    document = documents.valid()
    documents.put(document, path, value)
    _, problems = load.load_text(json.dumps(document).encode())
    assert len(problems) == 1 and problems[0].startswith(text) and "secret" not in problems[0], problems


def test_numbers_of_any_length_are_read(tmp_path: Path) -> None:
    """Python reads no more than 4300 digits, and reads them slowly."""
    for digits in (b"1" + b"0" * 5000, b"-" + b"9" * 10**6, b"1." + b"3" * 10**5, b"0." + b"0" * 10**5 + b"1"):
        _, problems = load.load_text(WHOLE.replace(b'"schema_version"', b'"x": ' + digits + b', "schema_version"', 1))
        assert len(problems) == 1


def test_nothing_in_a_folder_keeps_the_others_from_being_read(tmp_path: Path) -> None:
    write(tmp_path, "good.json", WHOLE)
    write(tmp_path, "empty.jsonl", b"")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    (tmp_path / "dangling.json").symlink_to("nowhere")
    (tmp_path / "itself.json").symlink_to("itself.json")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "folder.json").mkdir()
    write(tmp_path / "folder.json", "inside.json", WHOLE)
    write(tmp_path, ".draft.json", b"{")
    write(tmp_path, "notes.txt", b"{")
    (tmp_path / os.fsdecode(b"\xff\n.json")).write_bytes(WHOLE)
    assert verdicts(tmp_path) == {
        "good.json": True,
        "empty.jsonl": False,
        "pipe.json": False,
        "device.json": False,
        "dangling.json": False,
        "itself.json": False,
        "inside.json": True,
        os.fsdecode(b"\xff\n.json"): True,
    }


def test_links_to_results_elsewhere_are_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "here").mkdir()
    write(tmp_path / "store", "a.json", WHOLE)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "store")
    assert verdicts(tmp_path / "here") == {"a.json": True}


def test_what_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.json", WHOLE)
    write(tmp_path, "b.json", WHOLE)
    (tmp_path / "closed").mkdir()
    really_open, really_scan = os.open, os.scandir  # root may read everything, so that rights alone show nothing

    def refuse(path: Any, really: Any, *arguments: Any) -> Any:
        if Path(path).name in ("a.json", "closed"):
            raise PermissionError(13, "Permission denied")
        return really(path, *arguments)

    monkeypatch.setattr(os, "open", lambda path, flags: refuse(path, really_open, flags))
    monkeypatch.setattr(os, "scandir", lambda path: refuse(path, really_scan))
    assert verdicts(tmp_path) == {"a.json": False, "b.json": True, "closed": False}


def test_a_path_without_results_is_wrong_usage(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json", tmp_path / "*.json"):
        with refused(UsageError, "result-missing", path):
            list(load_results(str(path)))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
def test_garbled_files_are_judged_and_never_crash(seed: int) -> None:
    """Bytes of real documents cut, doubled, swapped and overwritten."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        for number in range(250):
            text = bytearray(WHOLE if number % 2 else json.dumps(documents.bare(), indent=1).encode())
            for _ in range(chance.randint(1, 4)):
                garble(text, chance)
            Path(name, f"{number}.json{'l' * (number % 3 == 0)}").write_bytes(text)
        Path(name, "good.json").write_bytes(WHOLE)
        assert verdicts(Path(name))["good.json"]
        assert len(verdicts(Path(name))) == 251
        with refused(SifmarkError, "result-invalid", " of 251 files"):
            validate_results([name], TABLE)
        with pytest.raises(SifmarkError):
            show_results([name], TABLE)


def garble(text: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(text) + 1)
    piece = text[start : start + chance.randint(1, 60)]
    instead = chance.choice(
        [b"", piece * 2, b"NaN", b"null", b'"', b"{" * 300, b"\xff\x00", b"\x1b[2J", b"1e999", b"-1"]
    )
    text[start : start + len(piece)] = instead


def test_what_others_wrote_is_shown_without_its_escape_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = documents.valid()
    document["status"] |= {"state": "crashed", "message": "\x1b[2Jgone\nvalid  forged.json"}
    write(tmp_path, "a.json", json.dumps(document).encode())
    write(tmp_path, "b\n\x1b.json", b'{"schema_version": "\x1b"}')
    with pytest.raises(SifmarkError):
        show_results([str(tmp_path / "a.json")], TABLE)
    with pytest.raises(SifmarkError):
        validate_results([str(tmp_path)], TABLE)
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "\nvalid  forged" not in output
    assert "\\x1b[2Jgone" in output


def test_a_summary_says_each_reason_once() -> None:
    document = documents.whole()
    document["configuration"]["concurrency"] = 4
    document["points"] = None  # of a micro-benchmark
    document["metrics"] = {
        "throughput": {"value": 12.5, "unit": "images/s"},
        **{f"latency_{name}": {"value": None, "unit": "s", "reason": "nobody asked"} for name in ("p50", "p99")},
        "energy": {"value": None, "unit": "J", "reason": "no meter"},
    }
    lines = summary(document, every_metric=True)
    assert ", 4 clients" in lines[0]
    assert [line.split()[:2] for line in lines if "throughput" in line] == [["throughput", "12.5"]]
    assert lines[-2:] == ["  no value: latency_p50, latency_p99: nobody asked", "  no value: energy: no meter"]
    assert summary(document)[-1] == "  3 metrics have no value: --all-metrics says why"
    document["configuration"]["concurrency"] = None
    assert "clients" not in summary(document)[0]


def test_results_of_a_gpu_keep_every_rule() -> None:
    """They were written on an NVIDIA H200: no stand-in has its meter, memory, clocks and conditions."""
    read = list(load_results(str(paths.CHECKOUT / "tests" / "fixtures" / "h200")))
    assert len(read) == 6 and not [problem for judged in read for problem in judged.problems]


def test_several_results_are_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = {
        "host__threads": {"value": 8192, "unit": "threads"},
        "host__threads_usable": {"value": 8192, "unit": "threads"},
        "conditions_after__cpu_stolen": {"value": 0, "unit": "s"},
    }
    for name, example, delay in (("a", "training", 0.1), ("b", "inference", 50.0), ("copy", "training", 0.1)):
        changes = quiet | {"conditions_after__run_delay": {"value": delay, "unit": "%"}}
        write(tmp_path, f"{name}.json", json.dumps(documents.from_image(example, **changes)).encode())
    show_results([str(tmp_path)], "table")
    printed = capsys.readouterr()
    system, head, *rows = printed.out.splitlines()
    assert system.endswith(": 2 results")
    assert head.split()[:3] == ["workload", "precision", "devices"] and len(rows) == 2
    assert ["busy host" in row for row in rows] == [False, True]
    assert f"2 results; one in full:\n  sifmark results.show {tmp_path / 'a.json'}" in printed.err
    assert "1 result is a copy" in printed.err


def test_a_summary_says_whether_the_numbers_are_proved() -> None:
    passed, failed = documents.result(), documents.result(numerics__state="failed", numerics__reason="loss is off")
    lines = [line for document in (passed, failed) for line in summary(document)]
    assert [line for line in lines if line.startswith("  correctness")] == [
        "  correctness                   passed",
        "  correctness                   failed: loss is off",
    ]


def warning_in_summary(document: dict[str, Any]) -> str:
    """The only warning about a result, which its summary has too."""
    (warning,) = warnings_of(document)
    assert any(line.startswith("  warning ") and line.endswith(warning) for line in summary(document))
    return warning


def test_a_summary_warns_of_a_window_that_was_not_steady() -> None:
    drifted = documents.result(steadiness__steady=False, steadiness__drift={"value": -0.0321, "unit": "1"})
    assert "-3.2%" in warning_in_summary(drifted) and not list(warnings_of(documents.result()))
    unknown = documents.bare()["steadiness"] | {"steady": False}
    bare = documents.bare() | {"steadiness": unknown}
    assert any(line.startswith("  warning ") for line in summary(bare))


@pytest.mark.parametrize(
    ("delay", "threads", "stolen", "shares", "disturbed"),
    [
        (2.0, 4, 0.0, [], False),
        (2.5, 4, 0.0, ["2.500 %"], True),
        (2.5, 5, 0.0, ["2.500 %"], False),  # more threads than processors wait for each other
        (None, 4, 0.8, [], False),
        (2.5, 4, 2.5, ["2.500 %", "6.250 %"], True),
    ],
)
def test_warnings_of_other_work_on_the_host(
    delay: Any, threads: int, stolen: Any, shares: list[str], disturbed: bool
) -> None:
    """Four processors for ten seconds."""
    document = documents.result(
        conditions_after__run_delay={"value": delay, "unit": "%", **({} if delay is not None else {"reason": "none"})},
        conditions_after__cpu_stolen={"value": stolen, "unit": "s"},
        configuration__threads=threads,
        configuration__concurrency=None,
        host__threads={"value": 4, "unit": "threads"},
        host__threads_usable={"value": 4, "unit": "threads"},
        started="2024-02-29T12:00:00.000Z",
        finished="2024-02-29T12:00:10.000Z",
    )
    assert fast_validator(NAME).is_valid(document)
    assert all(share in text for share, text in zip(shares, warnings_of(document), strict=True))
    assert is_disturbed(document) is disturbed


@pytest.mark.parametrize(
    ("threads", "wait", "named"),
    [
        (2, "libgomp: 300000 spins (default)", True),
        (1, "libgomp: 300000 spins (default)", False),
        (2, "libgomp: 0 spins (OMP_WAIT_POLICY)", False),
        (2, None, False),
    ],
)
def test_the_warning_of_a_busy_host_names_threads_that_spin(threads: int, wait: str | None, named: bool) -> None:
    document = documents.result(
        conditions_after__run_delay={"value": 40.0, "unit": "%"},
        conditions_after__cpu_stolen={"value": 0.0, "unit": "s"},
        conditions_after__openmp_wait={"value": wait, **({} if wait else {"reason": "none was loaded"})},
        configuration__threads=threads,
        configuration__concurrency=None,
        host__threads_usable={"value": 4, "unit": "threads"},
    )
    (text,) = (text for text in warnings_of(document) if "busy" in text)
    assert ("OMP_WAIT_POLICY=PASSIVE" in text) == named
    assert is_disturbed(document)
    del document["conditions_after"]["openmp_wait"]  # as in schema 1.1
    assert is_disturbed(document) and not any("OMP_WAIT_POLICY" in text for text in warnings_of(document))


@pytest.mark.parametrize(
    ("name", "kind", "share", "shown"),
    [
        ("hardware thermal slowdown", "heat", 0.05, ["5%"]),
        ("hardware thermal slowdown", "heat", 0.005, []),
        ("PPT", "power", 0.8, ["80%"]),
        ("PPT", "power", 0.09, []),
        ("sync boost", "other", 1.0, []),
        ("throttled", "unknown", 1.0, ["100%"]),
    ],
)
def test_warnings_of_clocks_that_were_held_down(name: str, kind: str, share: float, shown: list[str]) -> None:
    document = documents.under_load(name, kind, share)
    assert fast_validator(NAME).is_valid(document)
    texts = list(throttling(document))
    assert all(name in text and part in text for part, text in zip(shown, texts, strict=True))
    assert set(texts) <= set(warnings_of(document))
    assert is_throttled(document) is (bool(shown) and kind != "power")
    assert is_at_power_limit(document) is (bool(shown) and kind == "power")
    marks = {mark.symbol for mark in marks_of_result(document)}
    assert (("H" in marks), ("W" in marks)) == (is_throttled(document), is_at_power_limit(document))


def test_a_summary_warns_of_a_run_that_was_stopped() -> None:
    few, many = (
        documents.result(steadiness__outliers={"count": 3, "share_of_steps": 0.01, "share_of_time": share})
        for share in (0.1, 0.59)
    )
    assert list(warnings_of(few)) == [] and "59%" in warning_in_summary(many)
    assert (is_stalled(few), is_stalled(many), is_disturbed(many)) == (False, True, False), "not by a busy host"


@pytest.mark.parametrize(
    ("preloaded", "auditors", "names"),
    [
        (["/tmp/slowclock.so"], {}, "/tmp/slowclock.so"),
        ([], {"LD_AUDIT": "/tmp/a.so:/tmp/b.so"}, "/tmp/a.so, /tmp/b.so"),
        (["/tmp/slowclock.so"], {"LD_AUDIT": "/tmp/a.so"}, "/tmp/slowclock.so, /tmp/a.so"),
    ],
)
def test_libraries_that_are_loaded_first_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], preloaded: list[str], auditors: dict[str, str], names: str
) -> None:
    document = documents.valid(environment={"variables": auditors, "preloaded": preloaded})
    write(tmp_path, "a.json", json.dumps(document).encode())
    show_results([str(tmp_path)], TABLE)
    assert re.search(f"^  warning .*: {names}$", capsys.readouterr().out, re.MULTILINE)


def test_quiet_names_only_what_is_not_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a.json", WHOLE)
    write(tmp_path, "b.json", b"{}")
    with refused(SifmarkError, "result-invalid", "1 of 2 file"):
        configure(quiet=True)
        validate_results([str(tmp_path)], TABLE)
    configure()
    output = capsys.readouterr().out
    assert "b.json" in output
    assert "a.json" not in output


IMAGE, RECIPE, PLACE = "sha256:" + "0f" * 32, "a", "/images/own.sif"
WORDS = ("resnet50", "--threads", "1", "--batch-size", "2", "--samples-per-epoch", "4", "--epochs", "3",
         "--warmup-steps", "2")  # fmt: skip


def kept(folder: Path, key: str, words: Sequence[str] = WORDS, site: str = "here", image: str | None = IMAGE) -> str:
    """The file of a genuine result of a run of a study, which was kept under a key, and may say something else."""
    document = documents.from_image(site=site)
    document["provenance"]["command"] = [*words, "--site", site, "--output", f"/results/{site}/{key}.json"]
    document["configuration"]["seed"] = int(words[words.index("--seed") + 1]) if "--seed" in words else 0
    file = document["provenance"]["image"]["file"]
    file |= {"identity": image} if image else {**dict.fromkeys(file), "reason": "nobody saw it"}
    return str(write(folder, f"{key}.json", json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("image", "nodes", "repeat"), [(IMAGE, 1, 1), (IMAGE, 1, 30), (IMAGE, 2, 1), (RECIPE, 1, 3), (PLACE, 1, 1)]
)
def test_a_result_is_of_the_run_whose_key_its_image_system_and_arguments_have(
    tmp_path: Path, image: str, nodes: int, repeat: int
) -> None:
    key = key_of(image, "here", nodes, repeat, WORDS)
    validate_results([kept(tmp_path, key)], TABLE, key=key, image=PLACE)


@pytest.mark.parametrize(
    "says",
    [
        {"words": (*WORDS, "--seed", "7")},
        {"words": (*WORDS, "--seed", "0")},
        {"words": (WORDS[0], *WORDS[3:], *WORDS[1:3])},
        {"site": "there"},
        {"image": "sha256:" + "1f" * 32},
        {"image": None},
    ],
)
def test_a_result_of_another_run_is_refused_whatever_it_was_kept_as(
    tmp_path: Path, says: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    key = key_of(IMAGE, "here", 1, 1, WORDS)
    with refused(SifmarkError, "result-invalid", "1 of 1 file"):
        validate_results([kept(tmp_path, key, **says)], TABLE, key=key)
    assert "its image, system and arguments have other keys" in capsys.readouterr().out


def test_a_result_of_the_same_study_under_another_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of another repeat: a copy of a result would be a repeat that nobody measured."""
    own, *others = [key_of(IMAGE, "here", 1, 1, WORDS), key_of(IMAGE, "here", 1, 2, WORDS), "0" * 16]
    for key in others:
        with refused(SifmarkError, "result-invalid", "1 of 1 file"):
            validate_results([kept(tmp_path, own)], TABLE, key=key)
        assert f"it was kept as {own}" in capsys.readouterr().out
    for name in ("result.json", f"{own}.json.json", ""):
        text = Path(kept(tmp_path, own)).read_text().replace(f"/results/here/{own}.json", name)
        with refused(SifmarkError, "result-invalid", "1 of 1 file"):
            validate_results([str(write(tmp_path, "a.json", text.encode()))], TABLE, key=own)


@pytest.mark.parametrize("key", ["", "0", "x" * 16, "0" * 17, "A" * 16, "0" * 16 + "\n", "../" + "0" * 13])
def test_what_is_no_key_is_refused(tmp_path: Path, key: str) -> None:
    with refused(UsageError, "invalid-option", "no key of a run"):
        validate_results([kept(tmp_path, key_of(IMAGE, "here", 1, 1, WORDS))], TABLE, key=key)
