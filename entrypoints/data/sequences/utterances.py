"""Batches of prepared speech as arrays. NumPy, no framework."""

from __future__ import annotations

import bisect
import time
from typing import Sequence

import numpy as np

from entrypoints.data.generated.synthetic import SyntheticBatch
from entrypoints.data.sequences.prepared import REMEDY
from entrypoints.data.sequences.speech import HEADER, Speech
from entrypoints.data.sequences.text_batches import DamagedSequenceError, TimedBatch, order_of_rows


class Utterances:
    """Reads a source for a task, in a different order in every epoch of training."""

    def __init__(self, source: Speech, task: str, seed: int) -> None:
        self.source, self.task, self.seed, form = source, task, seed, source.form
        self.row = np.dtype(
            [
                *[(name, "<u2") for name in ("speaker", "characters", "frames")],
                ("text", "<u2", (form.characters,)),
                ("mel", "<f2", (form.mel_bands, form.frames)),
                ("linear", "<f2", (form.linear_bins, form.frames)),
            ]
        )

    def order(self, epoch: int) -> Sequence[int]:
        """Return the order of the rows."""
        return order_of_rows(self.source.samples, self.task, self.seed, epoch)

    def batch(self, order: Sequence[int], _: int, start: int, count: int) -> TimedBatch:
        """Return `count` rows of an epoch, in the form of `synthetic.speech`. Raises DamagedSequenceError."""
        began = time.perf_counter()
        rows = np.stack([self.read(int(number)) for number in order[start : start + count]])
        beyond = np.arange(self.source.form.frames) >= rows["frames"][:, None, None]
        mel, linear = rows["mel"].astype(np.float32), rows["linear"].astype(np.float32)
        text, tokens = rows["text"].astype(np.int64), int(rows["characters"].sum())
        batch = SyntheticBatch(
            (text, rows["speaker"].astype(np.int64), mel),
            (mel, linear, beyond.astype(np.float32)),
            tokens,
            text.size - tokens,
        )
        return TimedBatch(batch, time.perf_counter() - began)

    def read(self, number: int) -> np.ndarray:
        """Return a row by its number. Raises DamagedSequenceError if it cannot be what was written."""
        at = bisect.bisect_right(self.source.firsts, number) - 1
        name, inside = self.source.files[at].name, number - self.source.firsts[at]
        try:
            with self.source.place(name).open("rb") as stream:
                stream.seek(HEADER.size + inside * self.row.itemsize)
                content = stream.read(self.row.itemsize)
        except OSError as error:
            raise DamagedSequenceError(f"{name}: {error.strerror}. Make it readable for this user") from None
        if len(content) < self.row.itemsize or not self.possible(row := np.frombuffer(content, self.row)[0]):
            raise DamagedSequenceError(f"{name}, row {inside}: it is damaged; {REMEDY}")
        return row

    def possible(self, row: np.ndarray) -> bool:
        """Return whether a row can be what was written: numbers within what the header says, padding empty."""
        form = self.source.form
        filled, ends = np.arange(form.characters) < row["characters"], np.arange(form.frames) >= row["frames"]
        return bool(
            row["speaker"] < form.speakers
            and 0 < row["characters"] <= form.characters
            and 0 < row["frames"] <= form.frames
            and (row["text"] < form.vocabulary).all()
            and ((row["text"] > 0) == filled).all()
            and all(((frames >= 0) & (frames <= 1)).all() for frames in (row["mel"], row["linear"]))
            and not (row["mel"][:, ends].any() or row["linear"][:, ends].any())
        )
