"""Small prepared text, as its form is documented, without code of ours; and small cards that take it."""

from __future__ import annotations

import copy
import json
import struct

from entrypoints.contract import cards

MODEL = {"layers": 2, "width": 64, "heads": 4, "feed_forward": 128, "dropout": 0.0}


def header(magic, count, vocabulary=50, places=0, lines=0, version=1, width=2, tokenizer=b"\7" * 32):
    return struct.pack("<8sHHIIIQ32s", magic, version, width, vocabulary, places, lines, count, tokenizer)


def tokens(folder, *files, name="data-{}.tokens", vocabulary=50, width=2, **said):
    """Files of so many tokens each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, numbers in enumerate(files):
        content = struct.pack(f"<{len(numbers)}{'H' if width == 2 else 'I'}", *numbers)
        begun = header(b"SIFTOKEN", said.get("count", len(numbers)), vocabulary, width=width, **said.get("header", {}))
        (folder / name.format(number)).write_bytes(begun + content)
    return folder


def row(asked, stretch, first=0, last=0, question=0, places=16, offsets=None):
    """A row: 1, question, 2, stretch, 2. A token of the stretch is as many characters long as `offsets` say."""
    filled = [1, *asked, 2, *stretch, 2]
    before = len(asked) + 2
    spans = offsets or [(at, at + 1) for at in range(len(stretch))]
    columns = (filled, [0] * before + [at for at, _ in spans], [0] * before + [to for _, to in spans])
    padded = [number for column in columns for number in [*column, *[0] * (places - len(column))]]
    return struct.pack(f"<{3 * places}H4HI", *padded, before, len(filled), first, last, question)


def passages(folder, rows, answered, places=16, vocabulary=50, name="data-0.passages", **said):
    """Rows, and of each passage its text and the answers to each question."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = b"".join(json.dumps({"context": text, "answers": each}).encode() + b"\n" for text, each in answered)
    begun = header(b"SIFSQUAD", len(rows), vocabulary, places, len(lines), **said)
    (folder / name).write_bytes(begun + b"".join(rows) + lines)
    return folder


def small(workload, length, vocabulary=50, **model):
    """A card like that of a workload, with a small network over so many tokens."""
    card = cards.load()[workload]
    problem = copy.deepcopy(dict(card.problem))
    problem["model"] = {**problem["model"], **MODEL, "vocabulary": vocabulary, **model}
    problem["input"] = {**problem["input"], "length": length}
    if "generation" in problem:
        problem["generation"] = {"prompt": length // 2, "new": length // 2}
    problem["optimizer"]["learning_rate"]["value"] = 0.003
    return card._replace(name=f"small_{workload}", title=f"a small {workload}", problem=problem)
