"""CITATION.cff and codemeta.json: valid by their own schema and context, and as pyproject.toml has it."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from rdflib import RDF, Graph, Namespace, URIRef

from sifmark.core import paths

CFF, CODEMETA = paths.CHECKOUT / "CITATION.cff", paths.CHECKOUT / "codemeta.json"
PROJECT = tomllib.loads((paths.CHECKOUT / "pyproject.toml").read_text())["project"]
CONTEXT_NAME = "https://w3id.org/codemeta/3.0"
CONTEXT = json.loads((paths.CHECKOUT / "tests" / "fixtures" / "codemeta-3.0.jsonld").read_text())["@context"]
SCHEMA_ORG = Namespace("http://schema.org/")


def check_cff(file: Path) -> "subprocess.CompletedProcess[str]":
    """What the schema of Citation File Format 1.2.0 says, as check-jsonschema has it."""
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format", str(file)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_citation_follows_its_schema(tmp_path: Path) -> None:
    done = check_cff(CFF)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "CITATION.cff"
    wrong.write_text(CFF.read_text().replace("license: Apache-2.0", "license: ours"))
    assert check_cff(wrong).returncode == 1


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def test_codemeta_has_terms_of_its_context_alone() -> None:
    document = json.loads(CODEMETA.read_text())
    assert document.pop("@context") == CONTEXT_NAME
    assert keys(document) <= set(CONTEXT)
    graph = Graph().parse(data=json.dumps({**document, "@context": CONTEXT}), format="json-ld")
    (software,) = graph.subjects(RDF.type, SCHEMA_ORG.SoftwareSourceCode)
    assert str(graph.value(software, SCHEMA_ORG.version)) == PROJECT["version"]
    authors = graph.value(software, SCHEMA_ORG.author)
    assert authors is not None
    (author,) = graph.items(authors)
    assert graph.value(author, RDF.type) == SCHEMA_ORG.Organization
    assert graph.value(software, SCHEMA_ORG.license) == URIRef("https://spdx.org/licenses/Apache-2.0")
    assert all(name.startswith("http") for name in graph.objects() if isinstance(name, URIRef))


@pytest.mark.parametrize("name", ["version", "license", "keywords", "author"])
def test_both_say_what_the_project_says(name: str) -> None:
    cff, codemeta = yaml.safe_load(CFF.read_text()), json.loads(CODEMETA.read_text())
    found = {
        "version": (cff["version"], codemeta["version"], PROJECT["version"]),
        "license": (cff["license"], re.sub(".*/", "", codemeta["license"]), PROJECT["license"]),
        "keywords": (cff["keywords"], codemeta["keywords"]),
        "author": (cff["authors"][0]["name"], codemeta["author"]["name"]),
    }
    first, *others = found[name]
    assert others == [first] * len(others)
