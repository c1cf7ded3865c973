"""Prepared speech: counted by its headers, fitting or not, and every way in which it may be damaged. No framework."""

from __future__ import annotations

import pytest
import rows

from entrypoints.contract import cards
from entrypoints.contract.statuses import UsageError
from entrypoints.data import formats
from entrypoints.data.sequences.speech import Speech
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve

CARDS = cards.load()
CARD = CARDS["deep_voice_3"]


def opened(path, card=CARD, framework="pytorch"):
    return formats.open_for(card, path, "training", framework)


def test_rows_are_counted_by_their_headers(tmp_path):
    name, source = opened(rows.write(tmp_path))
    assert (name, source.samples, source.classes) == ("speech", 5, None)
    assert [(file.name, file.samples) for file in source.files] == [
        ("data-000000.speech", 3),
        ("data-000001.speech", 2),
    ]
    assert opened(tmp_path / "data-000001.speech")[1].samples == 2
    resolved = resolve(parse(["--data", str(tmp_path), "--epochs", "3", "--batch-size", "2"]), CARD, None)
    assert (resolved.data, resolved.steps, resolved.samples_per_epoch) == ("speech", 6, 5)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cut short within its header, after 0 bytes"),
        (rows.header(1)[:20], "cut short within its header, after 20 bytes"),
        (rows.header(1, magic=b"SIFOTHER") + rows.row(0), "it begins with b'SIFOTHER' and not with b'SIFVOICE'"),
        (rows.header(1, version=2) + rows.row(0), "of version 2, this image reads 1"),
        (rows.header(0), "its header is damaged: 0 rows"),
        (rows.header(1, frames=0), "its header is damaged: 1 rows"),
        (rows.header(1) + rows.row(0)[:-1], "and by its header it has 125914"),
        (rows.header(1) + rows.row(0) + b"1", "125915 bytes, and by its header it has 125914"),
    ],
    ids=["empty", "begun", "other", "newer", "no_rows", "no_frames", "cut", "longer"],
)
def test_a_damaged_file_is_refused_before_the_run(tmp_path, content, said):
    (tmp_path / "data-000000.speech").write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        opened(tmp_path)
    assert "Prepare the data again (sifmark data.prepare)" in str(caught.value)


def test_files_of_different_forms_do_not_go_together(tmp_path):
    rows.write(tmp_path, (2,))
    (tmp_path / "other.speech").write_bytes(rows.header(1, speakers=3) + rows.row(0))
    with pytest.raises(UsageError, match="other.speech: its rows are not as those of data-000000.speech"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"speakers": 109}, "speakers of 109, deep_voice_3 knows 108. Give fewer"),
        ({"vocabulary": 121}, "vocabulary of 121, deep_voice_3 knows 120"),
        ({"characters": 160, "frames": 106, "mel_bands": 81, "linear_bins": 512}, "160 characters a row, .* takes 80"),
        ({"mel_bands": 81, "linear_bins": 512}, "81 mel bands a row, deep_voice_3 takes 80"),
        ({"frames": 53, "linear_bins": 1106}, "53 frames a row, deep_voice_3 takes 106"),
    ],
)
def test_rows_that_the_card_does_not_take(tmp_path, sizes, said):
    form = {**rows.SIZES, **sizes}
    row = 2 * (3 + form["characters"] + form["frames"] * (form["mel_bands"] + form["linear_bins"]))
    (tmp_path / "data.speech").write_bytes(rows.header(1, **sizes) + bytes(row))
    with pytest.raises(UsageError, match=said):
        opened(tmp_path)


def test_each_card_takes_its_own_kind(tmp_path):
    rows.write(tmp_path / ".", (1,))
    with pytest.raises(UsageError, match="it holds speech. Give a folder with one folder of images per class"):
        opened(tmp_path, CARDS["resnet50"])
    with pytest.raises(UsageError, match="no files are read of series, which lstm takes. Leave it out"):
        opened(tmp_path, CARDS["lstm"])
    with pytest.raises(UsageError, match="which pytorch reads and tensorflow does not"):
        opened(tmp_path, framework="tensorflow")
    (tmp_path / "cat").mkdir()
    (tmp_path / "data-000000.speech").rename(tmp_path / "cat" / "else")
    remedy = r"Give a folder of speech \(sifmark data.prepare --format speech\)"
    with pytest.raises(UsageError, match=f"it holds nothing that is prepared. {remedy}"):
        opened(tmp_path)
    with pytest.raises(UsageError, match=f"no such file or folder. {remedy}"):
        opened(tmp_path / "nowhere")


def reader(path, task="training"):
    pytest.importorskip("numpy")
    from entrypoints.data.sequences.utterances import Utterances

    _, source = formats.open_for(CARD, path, task, "pytorch")
    assert isinstance(source, Speech)
    return Utterances(source, task, seed=1)


def test_a_row_is_read_as_it_was_written(tmp_path):
    utterances = reader(rows.write(tmp_path), "inference")
    drawn, seconds, _ = utterances.batch([4, 0], 0, 0, 2)
    (text, speakers, mel), (same, linear, done) = drawn.inputs, drawn.targets
    assert same is mel and seconds > 0 and speakers.tolist() == [0, 0]
    assert (text.dtype, mel.dtype, linear.dtype, done.dtype) == ("int64", "float32", "float32", "float32")
    assert text[0, :31].tolist() == [2 + (4 + at) % 26 for at in range(30)] + [0]
    assert [int(frames) for frames in (1 - done).sum(axis=(1, 2))] == [66, 30]
    assert (drawn.tokens, drawn.padding) == (30 + 10, 2 * 80 - 40)
    assert mel[1, 7, 7] == pytest.approx(0.9, abs=1e-3) and mel[1, 7, 8] == pytest.approx(0.2, abs=1e-3)
    assert linear[0, 10, 6] == pytest.approx(0.9, abs=1e-3) and not mel[1, :, 30:].any()


def test_an_epoch_has_an_order_of_its_own_in_training_alone(tmp_path):
    rows.write(tmp_path, (20,))
    trained = [list(reader(tmp_path).order(epoch)) for epoch in (0, 1, 0)]
    assert trained[0] == trained[2] != trained[1] and sorted(trained[0]) == list(range(20))
    assert list(reader(tmp_path, "inference").order(3)) == list(range(20))


@pytest.mark.parametrize(
    "row",
    [
        rows.row(1, speaker=2),
        rows.row(1, symbol=120),
        rows.row(1, characters=0),
        rows.row(1, frames=0),
        rows.row(1, frames=107),
        rows.row(1, level=1.5),
        rows.row(1, level=float("nan")),
        rows.row(1)[:2] + rows.row(2)[2:4] + rows.row(1)[4:],  # another number of characters than there are
        rows.row(1)[:4] + rows.row(0)[4:6] + rows.row(1)[6:],  # sound beyond the end
    ],
)
def test_a_damaged_row_is_named(tmp_path, row):
    (tmp_path / "data.speech").write_bytes(rows.header(2) + rows.row(0) + row)
    utterances = reader(tmp_path)
    assert utterances.batch([0], 0, 0, 1)
    from entrypoints.data.sequences.text_batches import DamagedSequenceError

    with pytest.raises(DamagedSequenceError, match="data.speech, row 1: it is damaged; prepare the data again"):
        utterances.batch([0, 1], 0, 0, 2)
    (tmp_path / "data.speech").unlink()
    with pytest.raises(DamagedSequenceError, match="data.speech: No such file"):
        utterances.batch([0], 0, 0, 1)
