"""Forged results: every command that relies on what a result says refuses one that contradicts itself."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import documents
import pytest
from unit.fakes import FakeEngine, settings_for
from unit.keys import make_key

from sifmark.commands.answers import TABLE
from sifmark.commands.compare import compare
from sifmark.commands.results import show_results, sign_files, trace_results, validate_results
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings

# What is changed in a genuine result, by which factor, and the rule that finds it.
FORGERIES: list[tuple[Sequence[str], float, str]] = [
    (("metrics", "throughput", "value"), 10, "throughput-follows-from-the-steps"),
    (("metrics", "training_time", "value"), 0.5, "times-follow-from-phases-and-steps"),
    (("phases", "steady", "seconds"), 0.1, "phases-last-as-long-as-their-steps"),
]
COMMANDS: dict[str, Callable[[str, Settings], None]] = {
    "results.validate": lambda file, _: validate_results([file], TABLE),
    "results.show": lambda file, _: show_results([file], TABLE),
    "results.trace": lambda file, settings: trace_results([file], settings, "", TABLE),
    "results.sign": lambda file, settings: sign_files([file], settings, "", TABLE),
    "compare": lambda file, settings: compare(settings, (file,)),
}


@pytest.fixture
def settings(site: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a site that signs results."""
    key, _ = make_key(tmp_path, "site")
    monkeypatch.delenv("CI", raising=False)
    return replace(settings_for(FakeEngine(site), monkeypatch), results_key=key)


def write(folder: Path, document: dict[str, Any]) -> str:
    file = folder / "result.json"
    file.write_text(json.dumps(document))
    return str(file)


def forged(path: Sequence[str], factor: float) -> dict[str, Any]:
    document = documents.valid()
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] *= factor
    return document


@pytest.mark.parametrize("command", COMMANDS)
def test_a_genuine_result_is_taken(command: str, settings: Settings, tmp_path: Path) -> None:
    COMMANDS[command](write(tmp_path, documents.valid()), settings)


@pytest.mark.parametrize(("path", "factor", "rule"), FORGERIES, ids=[rule for _, _, rule in FORGERIES])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_forged_result_is_refused_by_its_rule(
    command: str,
    path: Sequence[str],
    factor: float,
    rule: str,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SifmarkError) as error:
        COMMANDS[command](write(tmp_path, forged(path, factor)), settings)
    assert error.value.code in ("result-invalid", "trace-broken") and error.value.exit_code == 1
    printed = capsys.readouterr()
    assert f"[{rule}]" in f"{printed.out}{printed.err}{error.value.cause}"
    assert printed.out == "" or command in ("results.validate", "results.trace"), "none of its numbers is shown"
    assert not list(tmp_path.glob("*.dsse")), "nobody vouches for it"
