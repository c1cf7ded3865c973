"""Prepared speech as another tool would write it: a small utterance a row."""

from __future__ import annotations

import struct

SIZES = {"vocabulary": 120, "speakers": 2, "characters": 80, "frames": 106, "mel_bands": 80, "linear_bins": 513}


def header(count, magic=b"SIFVOICE", version=1, **changes):
    return struct.pack("<8s8HQ", magic, version, *{**SIZES, **changes}.values(), 0, count)


def row(number, speaker=0, characters=None, frames=None, symbol=None, level=None):
    """Some characters and frames; each frame has one loud band and a quiet rest."""
    characters = 10 + 5 * number if characters is None else characters
    frames = 30 + 9 * number if frames is None else frames
    text = [(symbol or 2 + (number + at) % 26) if at < characters else 0 for at in range(SIZES["characters"])]
    levels = []
    for bands in (SIZES["mel_bands"], SIZES["linear_bins"]):
        for band in range(bands):
            loud = [0.9 if (at + number) % bands == band else 0.2 for at in range(min(frames, SIZES["frames"]))]
            levels += [value if level is None else level for value in loud] + [0.0] * (SIZES["frames"] - len(loud))
    return struct.pack("<3H", speaker, characters, frames) + struct.pack(f"<{len(text)}H{len(levels)}e", *text, *levels)


def write(folder, counts=(3, 2), **changes):
    """Files of so many rows each: all numbers from 0 on."""
    number = 0
    for index, count in enumerate(counts):
        content = b"".join(row(at, speaker=at % 2) for at in range(number, number + count))
        (folder / f"data-{index:06d}.speech").write_bytes(header(count, **changes) + content)
        number += count
    return folder
