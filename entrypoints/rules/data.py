"""Rules about data: their format is one that the workload and the framework read, and has what such files have."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from entrypoints.contract.cards import tabular
from entrypoints.data import formats, table
from entrypoints.data.images import idx
from entrypoints.rules.facts import Facts
from entrypoints.rules.identity import card_of
from entrypoints.rules.rule import differ, rule

SYNTHETIC, IDX = "synthetic", "idx"
CLASSIFIED = (formats.FOLDER, IDX, "shards")  # images in them always have a class; those in others may
UNCLASSIFIED = (SYNTHETIC, table.NAME, *formats.KINDS)
# Of these each sample has one name, beside at most two of files that are cut short.
NAMED_ONCE, CUT_SHORT = (formats.FOLDER, IDX), 2


@rule(
    "`data.source` is a format of the card's kind of input that `configuration.framework` reads; it has "
    "`data_workers` if files are read, but not for requests",
    "A workload takes one kind of input.",
)
def data_are_of_a_format_for_the_workload(facts: Facts) -> Iterator[str]:
    """Compare the format with card and framework."""
    source, given, card = facts.document["data"]["source"], facts.configuration, card_of(facts)
    if card is not None and source not in _formats(card.problem):
        yield f"data.source: {source} has no {card.problem['input']['kind']}, which {card.name} takes"
    if formats.READERS.get(source, given["framework"]) != given["framework"]:
        yield f"data.source: {given['framework']} does not read {source}"
    files = source not in (SYNTHETIC, table.NAME) and given["concurrency"] is None
    if (given["data_workers"] is not None) != files:
        yield f"configuration.data_workers: {given['data_workers']!r} for {source}"
    if facts.metric("decode_rate") is not None and not files:
        yield f"metrics.decode_rate: nothing is decoded of {source}"
    if given.get("evaluation_path") is not None and given["goal"] is None:
        yield "configuration.evaluation_path: nothing is evaluated without configuration.goal"


def _formats(problem: Mapping[str, Any]) -> Sequence[str]:
    """Return what a workload may read."""
    return (SYNTHETIC, table.NAME) if tabular(problem) else (SYNTHETIC, *formats.formats_of(problem))


@rule(
    "with a step, `data` has `samples`; `part` is a file of images if the format is idx; `classes` are there for "
    "images in folders, shards and idx files, at most as many as the card has, and not for text or synthetic data; a "
    "table has the card's observations",
    "Each format has its own facts.",
)
def data_have_what_their_format_has(facts: Facts) -> Iterator[str]:
    """Look for what the format has, and for what it cannot have."""
    data, card = facts.document["data"], card_of(facts)
    source, part, classes, samples = data["source"], data["part"], data["classes"], data["samples"]
    if samples is None:
        if facts.count or part is not None or classes is not None:
            yield f"data.samples: there are none after {facts.count} steps"
        return
    if (part is not None) != (source == IDX) or (part is not None and not idx.IMAGES.fullmatch(part)):
        yield f"data.part: {part!r} of {source}"
    if (classes is None and source in CLASSIFIED) or (classes is not None and source in UNCLASSIFIED):
        yield f"data.classes: {classes!r} of {source}"
    if card is None:
        return
    most = card.problem["model"].get("classes")
    if classes is not None and most is not None and classes > most:
        yield differ("data.classes", classes, most, f"at most those of {card.name}")
    if tabular(card.problem) and samples != card.problem["input"]["observations"]:
        yield differ("data.samples", samples, card.problem["input"]["observations"], f"the table of {card.name}")


@rule(
    "images in folders and idx files that were skipped have different names, are no more than there are images, and, "
    "of idx files, name the file; not with `configuration.evaluation_path`, which has its own",
    "A sample is damaged once.",
    "two files of idx may be cut short",
)
def samples_are_skipped_once(facts: Facts) -> Iterator[str]:
    """Compare skipped samples with those that there are."""
    data, skipped = facts.document["data"], facts.document["data"]["skipped"]
    if data["source"] not in NAMED_ONCE or facts.configuration.get("evaluation_path") is not None:
        return
    examples = skipped["examples"]
    if len(set(examples)) < len(examples):
        yield f"data.skipped.examples: the same sample twice in {examples}"
    if data["samples"] is not None and skipped["count"] > data["samples"] + CUT_SHORT:
        yield differ("data.skipped.count", skipped["count"], data["samples"], "data.samples")
    if data["source"] == IDX and not all("idx" in example for example in examples):
        yield f"data.skipped.examples: {examples} are no samples of idx files"
