"""Which run a result is of."""

from dataclasses import fields, replace

import pytest
from unit.fake_studies import example

from sifmark.results.identity import RunIdentity, identity_of

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"
WORDS = ("resnet50", "--batch-size", "2", "--site", "here", "--output", f"/results/here/{KEY}.json")


def test_where_a_result_goes_is_no_part_of_what_was_asked_for() -> None:
    identity = RunIdentity.of(WORDS, "sha256:0")
    assert identity == RunIdentity("resnet50 --batch-size 2", "here", "sha256:0", KEY)
    moved = ("resnet50", "--batch-size", "2", f"--output=../{KEY}.json", "--site=here")
    assert RunIdentity.of(moved, "sha256:0") == identity


@pytest.mark.parametrize("output", ["result.json", "training.json", "results/", ""])
def test_files_of_other_names_say_nothing_of_the_run(output: str) -> None:
    """As suites have them, which start each run in a folder of its own."""
    suite = RunIdentity.of((*WORDS[:-1], output), "sha256:0")
    assert suite.key == "" and suite.difference(RunIdentity.of(WORDS, "sha256:0")) == ""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"arguments": "lstm"}, "its arguments are resnet50 --batch-size 2"),
        ({"site": "there"}, "its system is here"),
        ({"image": "sha256:1"}, "its image is sha256:0"),
        ({"key": OTHER}, f"it was kept as {KEY}"),
    ],
)
def test_what_differs_is_named(change: dict[str, str], text: str) -> None:
    identity = RunIdentity.of(WORDS, "sha256:0")
    assert identity.difference(replace(identity, **change)) == text


def test_what_is_not_known_does_not_differ() -> None:
    identity = RunIdentity.of(WORDS, "sha256:0")
    for field in fields(RunIdentity):
        assert identity.difference(replace(identity, **{field.name: ""})) == ""
        assert replace(identity, **{field.name: ""}).difference(identity) == ""


def test_a_result_tells_its_command_and_image() -> None:
    document = example("training")
    assert identity_of(document).arguments.startswith("resnet50 --threads 1 --batch-size 2")
    assert (identity_of(document).image, identity_of(document).key) == ("", "")
    document["provenance"]["image"] = {"file": {"identity": "sha256:0"}}
    assert identity_of(document).image == "sha256:0"
    document["provenance"]["image"]["file"]["identity"] = None
    assert identity_of(document).image == ""
