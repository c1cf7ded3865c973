"""The command data.prepare: images, text, questions or speech in large files."""

from __future__ import annotations

from typing import Any

from sifmark.commands import framework as cli
from sifmark.core.console import counted, printable
from sifmark.core.files import human_size
from sifmark.core.terminal import status

MOST_NAMED = 5  # of the files that were skipped


@cli.command("data.prepare", example="data.prepare photographs/ shards/")
@cli.argument(
    "source",
    "Class folders with JPEG and PNG files, idx files, *.txt or *.jsonl, a SQuAD v1.1 file, or speech in LJSpeech's "
    "layout.",
    completes="folder",
)
@cli.argument("target", "The folder to fill. An interrupted run continues there.", completes="folder")
@cli.option(
    "--format",
    "Images: shards (tar files, PyTorch) or records (TFRecord, TensorFlow); text: tokens; questions: passages; "
    "recordings: speech. [default: shards]",
    name="kind",
    choices=("shards", "records", "tokens", "passages", "speech"),
)
@cli.option(
    "--samples-per-file", "[default: 1000 images or recordings, 1000000 lines of text, 100000 questions]", "N", least=1
)
@cli.option("--seed", "Seed of the order of images and recordings. [default: 0]", "N", least=0)
@cli.flag("--strict", "Refuse damaged files instead of skipping them.")
@cli.option(
    "--tokenizer",
    "For text: vocab.txt, a folder with vocab.json and merges.txt, tokenizer.json, or characters.json. [default: a "
    "token per character]",
    "FILE",
)
@cli.option("--length", "Tokens in a row of passages. [default: 384]", "N", least=1)
def prepare(
    source: str,
    target: str,
    kind: str = "shards",
    samples_per_file: int = 0,
    seed: int = 0,
    strict: bool = False,
    tokenizer: str = "",
    length: int = 0,
) -> None:
    """Convert a data set to shards, TFRecord, tokens or passages."""
    from sifmark.datasets import formats

    packing = formats.prepare(
        source,
        target,
        kind,
        samples_per_file=samples_per_file,
        seed=seed,
        tokenizer=tokenizer,
        length=length,
        strict=strict,
    )
    document = packing.document()
    samples, files = counted(document["samples"], "sample"), counted(len(document["files"]), "file")
    kept = f"; {packing.kept} of them were there already" if packing.kept else ""
    status(f"{target}: {human_size(document['bytes'])} with {samples} {_kinds(document)} in {files}{kept}")
    if skipped := document["skipped"]:
        more = ", ..." if len(skipped) > MOST_NAMED else ""
        names = ", ".join(map(printable, skipped[:MOST_NAMED]))
        reason = f"; the first: {packing.why}" if packing.why else ""
        status(f"skipped {len(skipped)} damaged {packing.source.noun}: {names}{more}{reason}")


def _kinds(document: dict[str, Any]) -> str:
    if text := document.get("text"):
        return f"by {text['vocabulary']} different tokens"
    return f"of {len(document['classes'])} {'speakers' if 'speech' in document else 'classes'}"
