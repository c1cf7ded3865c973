"""SBOMs and provenance: the same image gives the same documents."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sifmark.attestations import provenance, sbom
from sifmark.attestations.packages import Package
from sifmark.core import git
from sifmark.core.settings import Settings
from sifmark.recipes.plan import Plan, make_plan

PACKAGES = [
    Package(*("deb", "bash", "5.2"), supplier="Ann", architecture="amd64", distribution="debian-12", source="bash@5.1"),
    Package("pypi", "jinja2", "3.1", licence="BSD-3-Clause", supplier="Pallets", place="/sifmark-site"),
    Package("pypi", "jinja2", "2.0", supplier="Somebody", place="/usr/lib/python3"),  # the base's own
]


@pytest.fixture
def plan() -> Plan:
    return make_plan("cpu", Settings(cache=Path("/nowhere"), dist=Path("/nowhere")))


def test_both_sboms_name_the_packages_and_the_base(plan: Plan) -> None:
    documents = sbom.finish_documents(plan, sbom.draft_documents(plan, PACKAGES), 86400)
    spdx, cyclonedx = (json.loads(documents[name]) for name in (sbom.SPDX, sbom.CYCLONEDX))
    urls = [url for entry in spdx["packages"] for url in map(_locator, entry.get("externalRefs", []))]
    assert sorted(urls) == sorted(entry["purl"] for entry in cyclonedx["components"])
    assert "pkg:pypi/jinja2@3.1" in urls and sbom.base_package_url(plan) in urls
    assert "pkg:deb/debian/bash@5.2?arch=amd64&distro=debian-12&upstream=bash%405.1" in urls
    places = {entry["purl"]: entry.get("properties") for entry in cyclonedx["components"]}
    assert places["pkg:pypi/jinja2@2.0"] == [{"name": "sifmark:place", "value": "/usr/lib/python3"}]
    assert places["pkg:deb/debian/bash@5.2?arch=amd64&distro=debian-12&upstream=bash%405.1"] is None
    assert spdx["creationInfo"]["created"] == "1970-01-02T00:00:00Z"
    assert cyclonedx["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"


def test_every_component_has_what_ntia_asks_for(plan: Plan) -> None:
    """Supplier, name, version, identifier, relationship, author and time: "The Minimum Elements for an SBOM", 2021."""
    documents = sbom.finish_documents(plan, sbom.draft_documents(plan, PACKAGES), 86400)
    spdx, cyclonedx = (json.loads(documents[name]) for name in (sbom.SPDX, sbom.CYCLONEDX))
    assert all(entry["supplier"].startswith("Organization: ") and entry["versionInfo"] for entry in spdx["packages"])
    assert {relation["relatedSpdxElement"] for relation in spdx["relationships"]} == {
        entry["SPDXID"] for entry in spdx["packages"]
    }
    assert all(entry["supplier"]["name"] and entry["version"] and entry["purl"] for entry in cyclonedx["components"])
    assert cyclonedx["metadata"]["component"]["supplier"]["name"] == "sifmark"


def _locator(reference: dict[str, str]) -> str:
    return reference["referenceLocator"]


def test_sboms_of_one_draft_differ_only_by_build_key_and_date(plan: Plan) -> None:
    drafts = sbom.draft_documents(plan, PACKAGES)
    before = json.dumps(drafts)
    assert sbom.finish_documents(plan, drafts, 0) == sbom.finish_documents(plan, drafts, 0)
    assert json.dumps(drafts) == before
    other = replace(plan, recipe=replace(plan.recipe, title="another"))
    first, second = (sbom.finish_documents(each, drafts, 0)[sbom.CYCLONEDX] for each in (plan, other))
    assert json.loads(first)["serialNumber"] != json.loads(second)["serialNumber"]


@pytest.mark.parametrize("commit", [None, "a" * 40, f"{'a' * 40}-dirty"])
def test_provenance_names_builder_sources_and_parts(
    plan: Plan, commit: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "revision", lambda: commit)
    document = json.loads(provenance.statement(plan, {"part": "0" * 64}, "https://builder.example/"))
    assert document["subject"] == [{"name": "part", "digest": {"sha256": "0" * 64}}]
    assert document["predicate"]["runDetails"]["builder"]["id"] == "https://builder.example/"
    definition = document["predicate"]["buildDefinition"]
    assert definition["internalParameters"] == {"buildKey": plan.build_key}
    sources = [entry for entry in definition["resolvedDependencies"] if entry.get("name") == "source"]
    expected = {"name": "source", "digest": {"gitCommit": "a" * 40}}
    dirty = {"annotations": {"changedSince": True}} if commit and commit.endswith("dirty") else {}
    assert sources == ([] if commit is None else [expected | dirty])
