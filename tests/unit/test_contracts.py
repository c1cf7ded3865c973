"""What the contracts say in several places is the same: schema, pages, examples, table of failures."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from documents import problems_of
from generate import stale_pages
from hypothesis import given
from hypothesis import strategies as st
from schema_pages import fields, page, pages, prose

from entrypoints.contract.statuses import STATUSES
from sifmark.core import paths
from sifmark.core.schemas import check_document, validator
from sifmark.recipes.golden import REFRESH

RESULT: Any = validator("result-1.2").schema
STUDIES = (paths.CHECKOUT / "docs" / "results" / "published-studies.md").read_text()
EXAMPLES = sorted(paths.SCHEMAS.glob("examples/result-1.2/*.json"))
INTERRUPTIONS = (130, 143)  # 128 plus SIGINT, SIGTERM


def rows(text: str, width: int) -> list[list[str]]:
    """Rows of a page's tables of so many columns, without their heads."""
    lines = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in text.splitlines() if re.fullmatch(r"\| .* \|", line)]
    return [cells for cells in lines if len(cells) == width]


def test_generated_pages_and_the_reviewed_job_script_are_todays() -> None:
    assert not stale_pages(), REFRESH


@pytest.mark.parametrize("name", [name.removesuffix(".md") for name in pages()])
def test_a_page_names_every_field_and_all_its_links_arrive(name: str) -> None:
    text = page(name)
    schema: Any = validator(name).schema
    headings = [re.sub(r"[^a-z0-9_-]", "", line.lstrip("# ").lower()) for line in re.findall(r"^#+ .*", text, re.M)[1:]]
    assert len(headings) == len(set(headings))
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= set(headings)
    assert all((paths.SCHEMAS / link).is_file() for link in re.findall(r"\]\(([^#)]+)\)", text))
    named = {cells[0].strip("`") for cells in rows(text, 3)}
    own = fields({**schema, "$defs": {key: {} for key in schema["$defs"]}})
    assert {path for path in own if not path.endswith("[]")} <= named


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_breaks_out_of_its_cell(text: str) -> None:
    shown = prose(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(\\\\)*\|", shown)
    assert "<" not in re.sub(r"`[^`]+`", "", shown)


def test_every_field_that_a_study_needs_is_in_the_schema() -> None:
    names_in_schema = fields(RESULT)
    table = [cells for cells in rows(STUDIES, 3) if cells[0] not in ("figure", "symptom", "study")]
    named = [name for _, where, _ in table for name in re.findall(r"`([a-z_]+(?:\.[a-z0-9_\[\]]+)+)`", where)]
    assert len(table) > 20
    assert set(named) - {"epochs.2"} <= names_in_schema


def test_the_studies_all_have_their_tables() -> None:
    parts = dict(re.findall(r"^## (.+)\n\n(\|.*)", STUDIES, re.M))
    assert {"PEARC22", "Qwant", "Turing", "Graphcore", "CARAML"} <= set(parts)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_valid_and_small(file: Path) -> None:
    document = json.loads(file.read_text())
    validator("result-1.2").validate(document)
    assert problems_of(file) == [], "make them anew: ci/examples"
    assert document["status"]["state"] == (file.stem if file.stem in STATUSES else "completed")
    assert file.stat().st_size < 18_000


def test_there_are_examples_of_success_and_of_failure() -> None:
    assert {"training", "out_of_memory"} <= {file.stem for file in EXAMPLES}


def test_the_schema_has_exactly_the_states_and_their_codes() -> None:
    status = RESULT["properties"]["status"]["properties"]
    assert RESULT["$defs"]["state"]["enum"] == list(STATUSES)
    assert set(status["exit_code"]["enum"]) == {status.exit_code for status in STATUSES.values()} | set(INTERRUPTIONS)


@pytest.mark.parametrize("path", sorted((paths.ENTRYPOINTS / "references").glob("*.json")), ids=lambda path: path.stem)
def test_a_reference_keeps_its_contract(path: Path) -> None:
    reference = json.loads(path.read_text())
    check_document("reference-1.0", reference, str(path))
    assert path.stem == reference["workload"]
    assert all(set(tolerances) <= set(reference["values"]) for tolerances in reference["tolerances"].values())
