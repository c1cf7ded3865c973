"""Speech in the layout of LJSpeech, made into rows of characters and spectrograms.

A file of rows has a header of 32 bytes, all numbers little-endian: `SIFVOICE`, then in two bytes each version, size of
the vocabulary, speakers, characters and frames of a row, bands of a mel frame, bins of a linear one and 0, and in eight
bytes the number of rows. A row is, in two bytes each, its speaker, how many characters and frames are filled, and all
characters; then all mel and all linear frames, band by band, as half-precision numbers of 0..1.
"""

import random
import re
import struct
import wave
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import sha256_json
from sifmark.datasets.image_files import SourceImage, SourceImages
from sifmark.datasets.source import DamagedError, OutputFile, SkipSample

METADATA, WAVES = "metadata.csv", "wavs"
# Symbols of graphcore/examples v2.6, speech/deepvoice3/popart, which has 84 phonemes after them. They are left unused:
# what a word sounds like takes a dictionary.
PADDING, END, LETTERS, MARKS = "_", "~", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "!,-.:;? "
NUMBERS = {symbol: number for number, symbol in enumerate(PADDING + END + LETTERS + MARKS)}
VOCABULARY = len(NUMBERS) + 84
CHARACTERS, FRAMES = 80, 106  # of a row; what is longer is cut
HEADER = struct.Struct("<8s8HQ")
MAGIC, VERSION = b"SIFVOICE", 1
LAYOUT = f"a folder with {METADATA} (name|text|normalised text) and {WAVES}/, or with such a folder for each speaker"


class SpeechSource:
    """Utterances of all speakers, mixed by a seed. They count by name, speaker and size, and by their texts.

    Raises UsageError where there are none, and SifmarkError where a text is empty, or a recording is missing or of
    another form.
    """

    noun = "utterances"

    def __init__(self, source: Path, seed: int, samples_per_file: int) -> None:
        speakers = [source] if (source / METADATA).is_file() else _speakers(source)
        self.seed, self.samples_per_file, self.texts = seed, samples_per_file, [_texts(folder) for folder in speakers]
        self.source = SourceImages(
            [folder.resolve().name for folder in speakers],
            [
                _utterance(folder, label, name, text)
                for label, (folder, texts) in enumerate(zip(speakers, self.texts, strict=True))
                for name, text in texts
            ],
        )
        self.total = len(self.source.images)
        if not self.total:
            raise UsageError(f"{source}: no utterances", f"name {LAYOUT}")

    @property
    def plan(self) -> str:
        """As `Order.plan`."""
        recordings = [[ascii(one.name), one.label, one.size] for one in self.source.images]
        classes = [ascii(name) for name in self.source.classes]
        return sha256_json([{**self.described(), "classes": classes}, recordings])

    def described(self) -> dict[str, Any]:
        """As `Order.described`."""
        from sifmark.datasets.spectrogram import DESCRIBED  # late: it brings NumPy

        sizes = {"vocabulary": VOCABULARY, "characters": CHARACTERS, "frames": FRAMES}
        return {
            "format": "speech",
            "seed": self.seed,
            "samples_per_file": self.samples_per_file,
            "classes": self.source.classes,
            "speech": {"texts": sha256_json(self.texts), **sizes, **DESCRIBED},
        }

    def beside(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def chunks(self) -> Iterator[OutputFile]:
        """As `Order.chunks`."""
        mixed = random.Random(self.seed).sample(self.source.images, self.total)  # noqa: S311 - it mixes, and hides nothing
        for number, at in enumerate(range(0, self.total, self.samples_per_file)):
            some = mixed[at : at + self.samples_per_file]
            yield OutputFile(f"data-{number:06d}.speech", len(some), partial(self.write, some))

    def write(self, utterances: Sequence[SourceImage], stream: BinaryIO, skip: SkipSample) -> int:
        """A header, and the rows of those that are whole."""
        from sifmark.datasets.spectrogram import BANDS, BINS

        sizes = (VOCABULARY, len(self.source.classes), CHARACTERS, FRAMES, BANDS, BINS)
        stream.write(bytes(HEADER.size))
        rows = 0
        for utterance in utterances:
            try:
                stream.write(utterance.read())
            except DamagedError as error:
                skip(utterance.name, str(error))
            else:
                rows += 1
                skip()
        stream.seek(0)
        stream.write(HEADER.pack(MAGIC, VERSION, *sizes, 0, rows))
        return rows


def encode_characters(text: str) -> list[int]:
    """A text by the numbers of its symbols, in capitals, with spaces for what has none, its end, cut to a row."""
    return [NUMBERS.get(symbol, NUMBERS[" "]) for symbol in [*re.sub("[_~]", " ", text.upper()), END]][:CHARACTERS]


def _speakers(source: Path) -> list[Path]:
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder", f"name {LAYOUT}")
    return sorted(path.parent for path in source.glob(f"[!.]*/{METADATA}"))


def _texts(folder: Path) -> list[tuple[str, str]]:
    """Name and text of each utterance of a speaker; the normalised text where there is one."""
    place = folder / METADATA
    try:
        lines = place.read_text("utf-8-sig").split("\n")  # within a text other breaks may stand
    except UnicodeDecodeError as error:
        raise SifmarkError(f"{place}: not UTF-8: {error}", "write it as UTF-8") from None
    texts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, *told = line.split("|")
        text = next((one for one in reversed(told) if one.strip()), "")
        if not name or not any(symbol in LETTERS for symbol in text.upper()):
            raise SifmarkError(
                f"{place}, line {number}: {'no text in letters from A to Z' if name else 'no name'}: {line[:80]!r}",
                "write name|text|normalised text, or remove the line",
            )
        texts.append((name, text))
    return texts


def _utterance(folder: Path, label: int, name: str, text: str) -> SourceImage:
    """Raises SifmarkError where its recording is missing or of another form."""
    place = folder / WAVES / f"{name}.wav"
    if not name.isprintable() or Path(name).name != name or not place.is_file():
        raise SifmarkError(
            f"{place}: no such file, and {folder / METADATA} names it", "put it there, or remove its line"
        )
    try:
        with wave.open(str(place)) as recording:
            _require_form(place, recording)
    except (wave.Error, EOFError) as error:  # what is damaged is found when it is read
        if str(error).startswith("unknown"):
            raise _other_form(place, str(error)) from None
    shown = f"{folder.resolve().name}/{place.name}"
    return SourceImage(shown, label, place.stat().st_size, partial(_row, place, label, text))


def _require_form(place: Path, recording: wave.Wave_read) -> None:
    from sifmark.datasets.spectrogram import RATE

    rate, channels, bits = recording.getframerate(), recording.getnchannels(), 8 * recording.getsampwidth()
    if (rate, channels, bits) != (RATE, 1, 16):
        raise _other_form(place, f"{rate} samples a second, channels: {channels}, bits: {bits}")


def _other_form(place: Path, seen: str) -> SifmarkError:
    from sifmark.datasets.spectrogram import RATE

    return SifmarkError(
        f"{place}: {seen}. Speech is read at {RATE} samples a second, with one channel of 16 bits",
        f"convert it, for example: sox IN.wav -r {RATE} -c 1 -b 16 -e signed-integer OUT.wav",
    )


def _row(place: Path, label: int, text: str) -> bytes:
    """An utterance as a row. Raises DamagedError where its recording is not whole."""
    import numpy as np

    from sifmark.datasets.spectrogram import HOP, WINDOW, spectrograms

    heard = (FRAMES - 1) * HOP + WINDOW // 2  # samples up to the end of the last frame that is kept
    samples = np.frombuffer(_samples(place), "<i2")[:heard] / 2**15
    told, characters = spectrograms(samples), encode_characters(text)
    filled = min(FRAMES, told[0].shape[1])
    whole = (label, len(characters), filled, *characters, *[0] * (CHARACTERS - len(characters)))
    frames = [np.pad(one[:, :filled], ((0, 0), (0, FRAMES - filled))).astype("<f2") for one in told]
    return b"".join([np.array(whole, "<u2").tobytes(), *(one.tobytes() for one in frames)])


def _samples(place: Path) -> bytes:
    try:
        with wave.open(str(place)) as recording:
            _require_form(place, recording)
            said = recording.getnframes()
            samples: bytes = recording.readframes(said)
    except (wave.Error, EOFError) as error:
        raise DamagedError(str(error) or "cut short") from None
    if not said or len(samples) < 2 * said:
        raise DamagedError(f"{len(samples) // 2} of {said} samples are there" if said else "no samples")
    return samples
