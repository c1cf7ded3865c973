"""Speech made into rows: spectrograms as the study has them, and readable by what goes into images."""

import json
import math
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.refusals import refused

from entrypoints.contract import cards
from entrypoints.data import formats
from entrypoints.data.sequences.speech import Speech
from entrypoints.data.sequences.utterances import Utterances
from sifmark.commands.data import prepare as prepare_data
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.schemas import validator
from sifmark.datasets import spectrogram, speech

CARD = cards.load()["deep_voice_3"]


def record(place: Path, seconds: float = 0.5, hertz: float = 440.0, rate: int = 22050, channels: int = 1) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(place), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        count = round(seconds * rate) * channels
        tone = (round(8000 * math.sin(2 * math.pi * hertz * at / rate)) for at in range(count))
        file.writeframes(struct.pack(f"<{count}h", *tone))


def speaker(folder: Path, texts: list[str], **how: Any) -> Path:
    lines = [f"U{number}|as written {number}|{text}" for number, text in enumerate(texts)]
    for number in range(len(texts)):
        record(folder / "wavs" / f"U{number}.wav", 0.3 + 0.2 * number, **how)
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return speaker(tmp_path / "LJ", ["Ask, and it is said.", "So be it: 3 “times”!", "A" * 200])


def prepare(source: Path, target: Path, per_file: int = 2, strict: bool = False):
    prepare_data(str(source), str(target), "speech", per_file, strict=strict)
    return json.loads((target / "manifest.json").read_text())


def rows(target: Path):
    name, opened = formats.open_for(CARD, target, "inference", "pytorch")
    assert name == "speech" and isinstance(opened, Speech)
    return Utterances(opened, "inference", 0).batch(range(opened.samples), 0, 0, opened.samples).batch


def test_rows_are_what_the_card_takes(source: Path, tmp_path: Path) -> None:
    manifest = prepare(source, tmp_path / "t")
    validator("manifest-1.0").validate(manifest)
    assert (manifest["samples"], manifest["classes"], manifest["skipped"]) == (3, ["LJ"], [])
    assert manifest["speech"]["sample_rate"] == 22050 and manifest["speech"]["hop"] == 827
    (text, speakers, mel), (same, linear, done), tokens, padding = rows(tmp_path / "t")
    shapes = {"text": (3, 80), "mel": (3, 80, 106), "linear": (3, 513, 106), "done": (3, 1, 106)}
    assert {"text": text.shape, "mel": mel.shape, "linear": linear.shape, "done": done.shape} == shapes
    assert same is mel and speakers.tolist() == [0, 0, 0]
    assert sorted((text > 0).sum(axis=1)) == [21, 21, 80] and tokens == 21 + 21 + 80
    assert tokens + padding == text.size


def test_texts_are_numbered_as_the_study_numbers_them() -> None:
    assert speech.VOCABULARY == 120
    assert speech.encode_characters("Az! _~é") == [2, 27, 28, 35, 35, 35, 35, 1]
    assert len(speech.encode_characters("a" * 200)) == 80 and set(speech.encode_characters("a" * 200)) == {2}


def test_mel_filters_are_those_of_librosa() -> None:
    """Some of librosa 0.11, filters.mel(sr=22050, n_fft=1024, fmin=125, fmax=7600, n_mels=80, htk=False)."""
    filters = spectrogram.mel_filters()
    assert filters.shape == (80, 513)
    assert filters[[0, 0, 79], [6, 7, 340]] == pytest.approx([0.00341194, 0.02090803, 0.00364463], abs=1e-8)
    assert [int(filters[band].argmax()) for band in (0, 40, 79)] == [7, 83, 340]
    assert filters.max() == pytest.approx(0.028235684575803333, rel=1e-12)


def test_a_tone_lies_where_its_frequency_is() -> None:
    turn = 2 * math.pi * 46 / 1024  # of a sample: the frequency of bin 46
    mel, linear = spectrogram.spectrograms(0.05 * np.sin(turn * np.arange(22050)))
    assert mel.shape == (80, 27) and linear.shape == (513, 27)  # one around each of the samples 0, 827, ..., 21502
    assert set(linear[:, 2:-2].argmax(0)) == {46} and len(set(mel[:, 2:-2].argmax(0))) == 1
    emphasised = abs(1 - 0.97 * np.exp(-1j * turn))
    peak = 0.05 * emphasised * 1024 / 4  # a sine of this amplitude, through Hann's window
    assert linear[46, 10] == pytest.approx(1 + 20 * math.log10(peak / 20) / 100, abs=1e-3)
    silence, _ = spectrogram.spectrograms(np.zeros(5000))
    assert not silence.any()


def test_the_recording_is_in_the_row(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "t")
    (_, _, mel), (_, linear, done), _, _ = rows(tmp_path / "t")
    lengths = (1 - done).sum(axis=(1, 2))
    assert sorted(lengths) == [1 + round(seconds * 22050) // 827 for seconds in (0.3, 0.5, 0.7)]
    shortest = int(lengths.argmin())
    with wave.open(str(source / "wavs" / "U0.wav")) as file:
        signal = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 2**15
    for prepared, expected in zip((mel, linear), spectrogram.spectrograms(signal), strict=True):
        np.testing.assert_allclose(prepared[shortest, :, : expected.shape[1]], expected, atol=5e-4)  # half precision
        assert not prepared[shortest, :, expected.shape[1] :].any()


def test_speakers_are_told_apart(tmp_path: Path) -> None:
    for name in ("p225", "p226"):
        speaker(tmp_path / "many" / name, ["One.", "Two."])
    manifest = prepare(tmp_path / "many", tmp_path / "t")
    assert manifest["classes"] == ["p225", "p226"]
    (_, speakers, _), *_ = rows(tmp_path / "t")
    assert sorted(speakers.tolist()) == [0, 0, 1, 1]


def test_the_same_source_gives_the_same_bytes_and_an_earlier_run_is_kept(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = prepare(source, tmp_path / "a"), prepare(source, tmp_path / "b")
    assert first == second and len(first["files"]) == 2
    prepare(source, tmp_path / "a")
    output = capsys.readouterr()
    assert "2 of them were there already" in output.out + output.err
    metadata = source / "metadata.csv"
    metadata.write_text(metadata.read_text().replace("Ask", "Not"))
    with refused(UsageError, "folder-not-empty"):
        prepare(source, tmp_path / "a")


def test_a_damaged_recording_is_skipped_and_named_or_refused(source: Path, tmp_path: Path) -> None:
    whole = (source / "wavs" / "U1.wav").read_bytes()
    for content, why in ((whole[:300], "128 of 11025 samples are there"), (b"", "cut short"), (b"no wave at all", "")):
        (source / "wavs" / "U1.wav").write_bytes(content)
        with pytest.raises(SifmarkError, match=f"LJ/U1.wav: .*{why}"):
            prepare(source, tmp_path / f"strict {why}", strict=True)
    manifest = prepare(source, tmp_path / "t")
    assert (manifest["samples"], manifest["skipped"]) == (2, ["LJ/U1.wav"])
    for number in (0, 2):
        (source / "wavs" / f"U{number}.wav").write_bytes(b"")
    with refused(SifmarkError, "data-damaged", " 3 utterances", "LJ/U1.wav"):
        prepare(source, tmp_path / "none")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rate": 16000}, "U0.wav: 16000 samples a second, .* read at 22050"),
        ({"channels": 2}, "U0.wav: 22050 samples a second, channels: 2"),
    ],
)
def test_a_recording_of_another_form_is_refused_with_what_converts_it(tmp_path: Path, how, said: str) -> None:
    with pytest.raises(SifmarkError, match=said) as caught:
        prepare(speaker(tmp_path / "LJ", ["One."], **how), tmp_path / "t")
    assert "sox IN.wav -r 22050" in str(caught.value) and not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("U9|Where is it?|Where is it?", "U9.wav: no such file, and .*metadata.csv names it"),
        ("../U0|It is elsewhere.|", "no such file"),
        ("U0||", "line 4: no text in letters"),
        ("U0|123|123", "line 4: no text in letters"),
        ("U0", "line 4: no text in letters"),
        ("|No name.|No name.", "line 4: no name"),
    ],
)
def test_a_wrong_line_is_named(source: Path, tmp_path: Path, line: str, said: str) -> None:
    with (source / "metadata.csv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(SifmarkError, match=said):
        prepare(source, tmp_path / "t")


def test_what_holds_no_speech_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere"):
        with pytest.raises(UsageError, match=place) as caught:
            prepare(tmp_path / place, tmp_path / "t")
        assert "metadata.csv" in str(caught.value)
    (source / "metadata.csv").write_bytes("U0|Süß|Süß".encode("latin-1"))
    with refused(SifmarkError, "file-unreadable", "metadata.csv"):
        prepare(source, tmp_path / "t")
    (source / "metadata.csv").write_text("\n\n")
    with refused(UsageError, "data-missing"):
        prepare(source, tmp_path / "t")


def test_a_text_without_a_normalised_one_is_taken_as_written(tmp_path: Path) -> None:
    folder = speaker(tmp_path / "LJ", [""])
    prepare(folder, tmp_path / "t")
    (text, *_), *_ = rows(tmp_path / "t")
    assert text[0, :14].tolist() == speech.encode_characters("as written 0")[:13] + [0]


def test_a_recording_in_floats_is_refused_with_what_converts_it(source: Path, tmp_path: Path) -> None:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, 22050, 88200, 4, 32)
    data = struct.pack("<4sI", b"data", 4000) + bytes(4000)
    whole = b"WAVE" + form + data
    (source / "wavs" / "U1.wav").write_bytes(struct.pack("<4sI", b"RIFF", len(whole)) + whole)
    with refused(SifmarkError, "recording-unsupported", "U1.wav") as caught:
        prepare(source, tmp_path / "t")
    assert "sox IN.wav" in caught.value.remedy


def test_only_what_is_kept_is_transformed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record(tmp_path / "LJ" / "wavs" / "U0.wav", 6.0)
    (tmp_path / "LJ" / "metadata.csv").write_text("U0|Long.|Long.\n")
    lengths: list[int] = []
    spectrograms = spectrogram.spectrograms

    def measured(signal: np.ndarray) -> Any:
        lengths.append(len(signal))
        return spectrograms(signal)

    monkeypatch.setattr(spectrogram, "spectrograms", measured)
    prepare(tmp_path / "LJ", tmp_path / "t")
    (_, _, mel), *_ = rows(tmp_path / "t")
    with wave.open(str(tmp_path / "LJ" / "wavs" / "U0.wav")) as recording:
        samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2") / 2**15
    assert lengths[0] < len(samples)
    assert np.array_equal(mel[0], spectrograms(samples)[0][:, :106].astype("<f2"))


def test_a_speaker_whose_folder_is_no_unicode(tmp_path: Path) -> None:
    speaker(tmp_path / "all" / "sp\udce9aker", ["One."])
    assert prepare(tmp_path / "all", tmp_path / "t")["samples"] == 1
