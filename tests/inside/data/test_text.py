"""Prepared text: what of it becomes a sample, and what is said of a file that cannot be."""

from __future__ import annotations

import resource
import struct

import packed_text
import pytest
from packed_text import header, passages, row, small, tokens

np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.statuses import UsageError  # noqa: E402
from entrypoints.data import formats  # noqa: E402
from entrypoints.data.sequences import text_batches  # noqa: E402
from entrypoints.data.sequences.prepared import PreparedText  # noqa: E402
from entrypoints.planning.arguments import parse  # noqa: E402
from entrypoints.planning.resolve import resolve  # noqa: E402

GPT, BERT = small("gpt2", 4), small("bert_base", 16)
TEXT = [(7 * number) % 50 for number in range(30)]


def reader(card, folder, task="training", seed=0):
    _, source = formats.open_for(card, folder, task, "pytorch")
    assert isinstance(source, PreparedText)
    return text_batches.reader(source, task, seed)


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("cuts", [[30], [1, 4, 9, 16], [10] * 3])
def test_a_text_in_several_files_is_one(tmp_path, cuts, width):
    ends = np.cumsum(cuts)
    folder = tokens(tmp_path, *(TEXT[end - size : end] for end, size in zip(ends, cuts)), width=width)
    made = reader(GPT, folder, "inference").batch(range(7), 0, 0, 7).batch
    assert made.inputs.tolist() == [TEXT[at : at + 4] for at in range(0, 28, 4)]
    assert made.targets.tolist() == [TEXT[at + 1 : at + 5] for at in range(0, 28, 4)]
    assert (made.tokens, made.padding, made.inputs.dtype) == (28, 0, np.int64)


def test_blocks_of_training_begin_anywhere_by_seed_and_epoch(tmp_path):
    read = reader(GPT, tokens(tmp_path, range(30)))

    def firsts(reader, epoch=0, start=0):
        return reader.batch(reader.order(epoch), epoch, start, 400).batch.inputs[:, 0].tolist()

    assert set(firsts(read)) == set(range(26))  # the last one ends where the text does
    assert firsts(read) == firsts(reader(GPT, tmp_path))
    others = [firsts(read, epoch=1), firsts(read, start=400), firsts(reader(GPT, tmp_path, seed=1))]
    assert all(other != firsts(read) for other in others)


def test_an_epoch_has_as_many_blocks_as_lie_side_by_side(tmp_path):
    for count, blocks in ((5, 1), (8, 1), (9, 2), (30, 7)):
        source = formats.open_for(GPT, tokens(tmp_path, [1] * count), "training", "pytorch")[1]
        assert source.samples == blocks


def test_a_text_may_be_larger_than_memory(tmp_path):
    """Sixteen gigabytes, of which the disk has next to nothing; the last token is not 0."""
    count, place = 1 << 33, tmp_path / "data.tokens"
    with place.open("wb") as file:
        file.write(header(b"SIFTOKEN", count))
        file.seek(64 + 2 * (count - 1))
        file.write(struct.pack("<H", 49))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = reader(GPT, tmp_path)
    assert read.batch(read.order(0), 0, 0, 64).batch.inputs.max() == 0
    samples = read.source.samples
    side_by_side = reader(GPT, tmp_path, "inference")
    assert side_by_side.batch(range(samples), 0, samples - 1, 1).batch.targets[0, -1] == 0
    assert read.mapped.stretch(count - 2, 2).tolist() == [0, 49]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


# Passages

CONTEXT = "abcdefghij"
ROWS = [
    row([3, 4], [5, 6, 7], first=5, last=6, question=0),
    row([3, 4], [8, 9, 10, 11], question=0),
    row([12], [13], first=3, last=3, question=1),
]
ANSWERED = [(CONTEXT, [["bc", "b"], ["A"]])]


def test_rows_become_tokens_segments_and_ends(tmp_path):
    read = reader(BERT, passages(tmp_path, ROWS, ANSWERED), "inference")
    made = read.batch(read.order(0), 0, 0, 3)
    words, segments = made.batch.inputs
    assert words[0].tolist() == [1, 3, 4, 2, 5, 6, 7, 2] + [0] * 8
    assert segments[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1] + [0] * 8
    assert made.batch.targets.tolist() == [[5, 6], [0, 0], [3, 3]]
    assert (made.batch.tokens, made.batch.padding) == (8 + 9 + 5, 3 * 16 - 22)
    assert made.numbers.tolist() == [0, 1, 2] and made.seconds > 0


def test_an_epoch_of_training_has_every_row_in_an_order_of_its_own(tmp_path):
    read = reader(BERT, passages(tmp_path, [row([3], [at + 4]) for at in range(20)], [(CONTEXT, [["a"]])]))
    orders = [list(read.order(epoch)) for epoch in (0, 1)]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == list(range(20))
    made = read.batch(orders[0], 0, 5, 10)
    assert made.batch.inputs[0][:, 3].tolist() == [number + 4 for number in orders[0][5:15]]


# What cannot be read


@pytest.mark.parametrize(
    ("make", "card", "said"),
    [
        (lambda path: tokens(path, TEXT, vocabulary=51), GPT, "vocabulary has 51 tokens, small_gpt2 knows 50.* Give"),
        (lambda path: tokens(path, TEXT[:4]), GPT, "takes 4 tokens and the one that follows, and there are 4. Give a"),
        (lambda path: tokens(path, TEXT, count=31), GPT, "124 bytes, and by its header it has 126. Prepare the data"),
        (lambda path: tokens(path, TEXT, count=29), GPT, "124 bytes, and by its header it has 122. Prepare the data"),
        (lambda path: tokens(path, TEXT, count=0), GPT, "header is damaged: 0 samples"),
        (lambda path: tokens(path, TEXT, count=2**63), GPT, "124 bytes, and by its header"),
        (lambda path: tokens(path, TEXT, vocabulary=0), GPT, "a vocabulary of 0"),
        (lambda path: tokens(path, TEXT, header={"version": 2}), GPT, "of version 2, this image reads 1"),
        (lambda path: tokens(path, TEXT, name="{}.passages"), BERT, "begins with b'SIFTOKEN' and not with b'SIFSQUAD'"),
        (
            lambda path: (tokens(path, TEXT) / "data-0.tokens").write_bytes(b"SIFTOKEN"),
            GPT,
            "within its header, after 8",
        ),
        (lambda path: passages(path, ROWS, ANSWERED), GPT, "it holds passages. Give a folder of tokens"),
        (lambda path: tokens(path, TEXT), BERT, "it holds tokens. Give a folder of passages"),
        (lambda path: (path / "x.txt").write_text("x"), GPT, r"nothing that is prepared.*data.prepare --format tokens"),
        (lambda path: passages(path, ROWS, ANSWERED), small("bert_base", 24), "takes 24 tokens, and rows have 16.*--l"),
        (
            lambda path: passages(path, ROWS, ANSWERED),
            small("bert_base", 16, positions={"kind": "learnt", "most": 8}),
            "has positions for 8 tokens, and rows have 16",
        ),
        (lambda path: passages(path, [], [], places=0, name="data-0.passages"), BERT, "header is damaged: 0 samples"),
        (
            lambda path: (path / "a.passages").write_bytes(header(b"SIFSQUAD", 2, width=2) + bytes(4)),
            BERT,
            "rows have no places",
        ),
        (lambda path: tokens(path, TEXT), cards.load()["resnet50"], "it holds tokens. Give a folder with one folder"),
        (lambda path: tokens(path, TEXT), cards.load()["lstm"], "no files are read of series, which lstm takes"),
        (
            lambda path: tokens(path, TEXT),
            cards.load()["bert_large_pretraining_128"],
            "no files are read of masked_text",
        ),
    ],
)
def test_data_that_do_not_fit(tmp_path, make, card, said):
    make(tmp_path)
    with pytest.raises(UsageError, match=said):
        formats.open_for(card, tmp_path, "training", "pytorch")


def test_files_that_do_not_belong_together(tmp_path):
    tokens(tmp_path, TEXT)
    tokens(tmp_path, TEXT, name="more-{}.tokens", header={"tokenizer": b"\1" * 32})
    with pytest.raises(UsageError, match=r"more-0.tokens: not of the tokenizer.* of data-0.tokens"):
        reader(GPT, tmp_path)


def test_text_is_not_read_by_every_framework(tmp_path):
    with pytest.raises(UsageError, match="tokens, which pytorch reads and tensorflow does not. Leave it out"):
        formats.open_for(GPT, tokens(tmp_path, TEXT), "training", "tensorflow")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (row([3], [60]), "token 60 in a vocabulary of 50"),
        (row([3], [4], first=3, last=2), "places beyond its end"),
        (row([3], [4], first=3, last=9), "places beyond its end"),
        (row([3], []), "places beyond its end"),
        (bytes(len(ROWS[0])), "places beyond its end"),
        (ROWS[0][:98] + struct.pack("<H", 17) + ROWS[0][100:], "places beyond its end"),
    ],
)
def test_a_damaged_row(tmp_path, damage, said):
    read = reader(BERT, passages(tmp_path, [ROWS[0], damage], ANSWERED))
    with pytest.raises(text_batches.DamagedSequenceError, match=f"{said}.*prepare the data again"):
        read.batch(range(2), 0, 0, 2)


def test_a_damaged_token(tmp_path):
    read = reader(GPT, tokens(tmp_path, [*TEXT[:6], 50, *TEXT[6:]]), "inference")
    assert read.batch(range(7), 0, 2, 5)
    with pytest.raises(text_batches.DamagedSequenceError, match="token 50 in a vocabulary of 50: it is damaged"):
        read.batch(range(7), 0, 0, 7)


def configured(card, *words):
    return resolve(parse(list(map(str, words))), card, None)


def test_the_configuration_counts_blocks_and_compares_tokenizers(tmp_path):
    words = ("--data", tokens(tmp_path / "a", TEXT), "--batch-size", 2, "--epochs", 2, "--target-loss", 1)
    same = tokens(tmp_path / "b", TEXT)
    resolved = configured(GPT, *words, "--evaluation-data", same)
    assert (resolved.data, resolved.samples_per_epoch, resolved.steps, resolved.goal["evaluation_steps"]) == (
        *("tokens", 7, 6),
        3,
    )
    tokens(same, TEXT, header={"tokenizer": b"\1" * 32})
    with pytest.raises(UsageError, match=r"--evaluation-data .*b: made by another tokenizer than .*a: the same number"):
        configured(GPT, *words, "--evaluation-data", same)
    with pytest.raises(UsageError, match="7 samples do not fill one step"):
        configured(GPT, "--data", tmp_path / "a", "--batch-size", 8)
    with pytest.raises(UsageError, match=r"no such file or folder. Give a folder of tokens \(sifmark data.prepare"):
        configured(GPT, "--data", tmp_path / "nowhere")


def test_the_form_is_the_documented_one():
    """So that nobody changes both sides at once unseen."""
    assert (
        packed_text.header(b"SIFTOKEN", 1) == b"SIFTOKEN\1\0\2\0\x32\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\7" * 32
    )
    assert len(ROWS[0]) == text_batches.row_of(16, 2).itemsize == 3 * 16 * 2 + 12
