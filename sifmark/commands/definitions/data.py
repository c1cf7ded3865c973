"""Commands for data sets."""

from typing import Annotated

from sifmark.commands.definition import Argument, Option, command


@command("data.prepare", example="data.prepare photographs/ shards/", former="prepare-data")
def prepare(
    source: Annotated[
        str,
        Argument(
            "Class folders with JPEG and PNG files, idx files, *.txt or *.jsonl, a SQuAD v1.1 file, or speech in "
            "LJSpeech's layout.",
            completes="folder",
        ),
    ],
    target: Annotated[str, Argument("The folder to fill. An interrupted run continues there.", completes="folder")],
    format_: Annotated[
        str,
        Option(
            "Images: shards (tar files, PyTorch) or records (TFRecord, TensorFlow); text: tokens; questions: "
            "passages; recordings: speech. [default: shards]",
            choices=("shards", "records", "tokens", "passages", "speech"),
        ),
    ] = "shards",
    samples_per_file: Annotated[
        int,
        Option("[default: 1000 images or recordings, 1000000 lines of text, 100000 questions]", "N", least=1),
    ] = 0,
    seed: Annotated[int, Option("Seed of the order of images and recordings. [default: 0]", "N", least=0)] = 0,
    strict: Annotated[bool, Option("Refuse damaged files instead of skipping them.")] = False,
    tokenizer: Annotated[
        str,
        Option(
            "For text: vocab.txt, a folder with vocab.json and merges.txt, tokenizer.json, or characters.json. "
            "[default: a token per character]",
            "FILE",
            completes="file",
        ),
    ] = "",
    length: Annotated[int, Option("Tokens in a row of passages. [default: 384]", "N", least=1)] = 0,
) -> None:
    """Convert a data set to shards, TFRecord, tokens or passages."""
    from sifmark.commands.data.prepare import PrepareOptions, prepare_data

    options = PrepareOptions(format_, samples_per_file, seed, tokenizer, length)
    prepare_data(source, target, options, strict=strict)
