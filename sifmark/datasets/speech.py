"""Speech in the layout of LJSpeech, as rows of characters and spectrograms.

A file has a header of 32 bytes, all numbers little-endian: `SIFVOICE`, then in two bytes each the version, the size of
the vocabulary, the number of speakers, the characters and frames of a row, the bands of a mel frame, the bins of a
linear frame and 0, and in eight bytes the number of rows. A row has in two bytes each its speaker, how many characters
and frames are filled, and all characters; then all mel and all linear frames, band by band, as half-precision numbers
of 0..1.
"""

import random
import re
import struct
import wave
from collections.abc import Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import sha256_json
from sifmark.datasets.image_files import SourceImage, SourceImages
from sifmark.datasets.source import DamagedError, OutputFile, ReportItem, read_document, read_item

METADATA, WAVES = "metadata.csv", "wavs"
# Symbols of graphcore/examples v2.6, speech/deepvoice3/popart, which has 84 phonemes after them. The phonemes are not
# used: they would need a dictionary of pronunciations.
PADDING, END, LETTERS, MARKS = "_", "~", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "!,-.:;? "
NUMBERS = {symbol: number for number, symbol in enumerate(PADDING + END + LETTERS + MARKS)}
VOCABULARY = len(NUMBERS) + 84
CHARACTERS, FRAMES = 80, 106  # of a row; longer texts and recordings are truncated
HEADER = struct.Struct("<8s8HQ")
MAGIC, VERSION = b"SIFVOICE", 1
MOST_SPEAKERS = (1 << 16) - 1  # that the header can tell
_BEGINNING = 1 << 16  # bytes of a recording, in which its format is
LAYOUT = f"a folder with {METADATA} (name|text|normalised text) and {WAVES}/, or with such a folder for each speaker"


class SpeechSource:
    """Utterances of all speakers, shuffled by a seed. Names, speakers, sizes and texts are in the plan.

    Raises UsageError if there are none, and SifmarkError if a text is empty, or a recording is missing or has another
    format.
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
            raise UsageError(f"{source}: no utterances", f"name {LAYOUT}", code="data-missing")
        if len(speakers) > MOST_SPEAKERS:
            cause = f"{source}: {len(speakers)} speakers, and a file numbers {MOST_SPEAKERS}"
            raise UsageError(cause, "divide them into several sources", code="data-missing")

    @property
    def plan(self) -> str:
        """As `DatasetSource.plan`."""
        recordings = [[ascii(recording.name), recording.label, recording.size] for recording in self.source.images]
        classes = [ascii(name) for name in self.source.classes]
        return sha256_json([{**self.manifest_fields(), "classes": classes}, recordings])

    def manifest_fields(self) -> dict[str, Any]:
        """As `DatasetSource.manifest_fields`."""
        from sifmark.datasets.spectrogram import PARAMETERS  # late, because it imports NumPy

        sizes = {"vocabulary": VOCABULARY, "characters": CHARACTERS, "frames": FRAMES}
        return {
            "format": "speech",
            "seed": self.seed,
            "samples_per_file": self.samples_per_file,
            "classes": self.source.classes,
            "speech": {"texts": sha256_json(self.texts), **sizes, **PARAMETERS},
        }

    def sidecar_files(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def output_files(self) -> Iterator[OutputFile]:
        """As `DatasetSource.output_files`."""
        shuffled = random.Random(self.seed).sample(self.source.images, self.total)  # noqa: S311 - not for secrets
        for number, start in enumerate(range(0, self.total, self.samples_per_file)):
            utterances = shuffled[start : start + self.samples_per_file]
            yield OutputFile(f"data-{number:06d}.speech", len(utterances), partial(self.write, utterances))

    def write(self, utterances: Sequence[SourceImage], stream: BinaryIO, report: ReportItem) -> int:
        """Write a header, and the rows of the undamaged utterances. Return the number of rows."""
        from sifmark.datasets.spectrogram import BANDS, BINS

        sizes = (VOCABULARY, len(self.source.classes), CHARACTERS, FRAMES, BANDS, BINS)
        stream.write(bytes(HEADER.size))
        rows = 0
        for utterance in utterances:
            try:
                stream.write(utterance.read())
            except DamagedError as error:
                report(utterance.name, str(error))
            else:
                rows += 1
                report()
        stream.seek(0)
        stream.write(HEADER.pack(MAGIC, VERSION, *sizes, 0, rows))
        return rows


def encode_characters(text: str) -> list[int]:
    """Return a text as numbers: in capitals, with spaces for other symbols, its end marked, truncated to a row."""
    return [NUMBERS.get(symbol, NUMBERS[" "]) for symbol in [*re.sub("[_~]", " ", text.upper()), END]][:CHARACTERS]


def _speakers(source: Path) -> list[Path]:
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder", f"name {LAYOUT}", code="file-missing")
    return sorted(path.parent for path in source.glob(f"[!.]*/{METADATA}"))


def _texts(folder: Path) -> list[tuple[str, str]]:
    """Return name and text of each utterance of a speaker: the normalised text if there is one."""
    path = folder / METADATA
    try:
        lines = read_document(path).decode("utf-8-sig").split("\n")  # a text may contain other line breaks
    except UnicodeDecodeError as error:
        cause = f"{path}: not UTF-8: {error}"
        raise SifmarkError(cause, "write it as UTF-8", code="file-unreadable") from None
    texts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, *versions = line.split("|")
        text = next((version for version in reversed(versions) if version.strip()), "")
        if not name or not any(symbol in LETTERS for symbol in text.upper()):
            raise SifmarkError(
                f"{path}, line {number}: {'no text in letters from A to Z' if name else 'no name'}: {line[:80]!r}",
                "write name|text|normalised text, or remove the line",
                code="document-invalid",
            )
        texts.append((name, text))
    return texts


def _utterance(folder: Path, label: int, name: str, text: str) -> SourceImage:
    """Return an utterance. Raises SifmarkError if its recording is missing or has another format."""
    path = folder / WAVES / f"{name}.wav"
    if not name.isprintable() or Path(name).name != name or not path.is_file():
        cause = f"{path}: no such file, and {folder / METADATA} names it"
        raise SifmarkError(cause, "put it there, or remove its line", code="file-missing")
    try:
        with path.open("rb") as stream, wave.open(BytesIO(stream.read(_BEGINNING))) as recording:
            _require_format(path, recording)
    except (wave.Error, EOFError) as error:  # a damaged recording is reported when it is read
        if str(error).startswith("unknown"):
            raise _other_format(path, str(error)) from None
    shown = f"{folder.resolve().name}/{path.name}"
    return SourceImage(shown, label, path.stat().st_size, partial(_row, path, label, text))


def _require_format(path: Path, recording: wave.Wave_read) -> None:
    from sifmark.datasets.spectrogram import RATE

    rate, channels, bits = recording.getframerate(), recording.getnchannels(), 8 * recording.getsampwidth()
    if (rate, channels, bits) != (RATE, 1, 16):
        raise _other_format(path, f"{rate} samples a second, channels: {channels}, bits: {bits}")


def _other_format(path: Path, actual: str) -> SifmarkError:
    from sifmark.datasets.spectrogram import RATE

    return SifmarkError(
        f"{path}: {actual}. Speech is read at {RATE} samples a second, with one channel of 16 bits",
        f"convert it, for example: sox IN.wav -r {RATE} -c 1 -b 16 -e signed-integer OUT.wav",
        code="recording-unsupported",
    )


def _row(path: Path, label: int, text: str) -> bytes:
    """Return the row of an utterance. Raises DamagedError if its recording is truncated or empty."""
    import numpy as np

    from sifmark.datasets.spectrogram import HOP, WINDOW, spectrograms

    end = (FRAMES - 1) * HOP + WINDOW // 2  # samples, up to the end of the last frame that is kept
    samples = np.frombuffer(_samples(path), "<i2")[:end] / 2**15
    mel_and_linear, characters = spectrograms(samples), encode_characters(text)
    filled = min(FRAMES, mel_and_linear[0].shape[1])
    numbers = (label, len(characters), filled, *characters, *[0] * (CHARACTERS - len(characters)))
    padded = [np.pad(frames[:, :filled], ((0, 0), (0, FRAMES - filled))).astype("<f2") for frames in mel_and_linear]
    return b"".join([np.array(numbers, "<u2").tobytes(), *(frames.tobytes() for frames in padded)])


def _samples(path: Path) -> bytes:
    try:
        with wave.open(BytesIO(read_item(path))) as recording:
            _require_format(path, recording)
            announced = recording.getnframes()
            samples: bytes = recording.readframes(announced)
    except (wave.Error, EOFError) as error:
        raise DamagedError(str(error) or "cut short") from None
    if not announced or len(samples) < 2 * announced:
        raise DamagedError(f"{len(samples) // 2} of {announced} samples are there" if announced else "no samples")
    return samples
