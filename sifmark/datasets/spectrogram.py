"""Mel and linear spectrograms of speech, as for Graphcore's Deep Voice 3 (graphcore/examples v2.6,
speech/deepvoice3/popart), at the sampling rate of LJSpeech."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 22050  # samples a second
WINDOW = 1024  # samples of a frame, and of its Fourier transform
HOP = 827  # samples from frame to frame: 37.5 ms, like the source's 600 at 16,000 samples a second
BANDS, LOWEST, HIGHEST = 80, 125.0, 7600.0  # of the mel spectrogram; Hz
BINS = WINDOW // 2 + 1  # of the linear spectrogram
EMPHASIS = 0.97  # fraction of the previous sample that is subtracted from each
REFERENCE, FAINTEST, RANGE = 20.0, 1e-5, 100.0  # amplitude of 0 dB and the least amplitude; dB below 0 that are kept

PARAMETERS = {
    "sample_rate": RATE,
    "window": WINDOW,
    "hop": HOP,
    "mel_bands": BANDS,
    "linear_bins": BINS,
    "lowest_hertz": LOWEST,
    "highest_hertz": HIGHEST,
    "pre_emphasis": EMPHASIS,
    "reference_amplitude": REFERENCE,
    "range_decibels": RANGE,
}

Array = NDArray[Any]


def spectrograms(signal: Array) -> tuple[Array, Array]:
    """Return mel (BANDS, T) and linear (BINS, T) frames of samples of -1..1, as numbers of 0..1; 0 is -100 dB.

    Each HOP-th sample, beginning with the first, is the centre of a frame; both ends are padded with silence.
    """
    emphasised = np.append(signal[:1], signal[1:] - EMPHASIS * signal[:-1])
    padded = np.pad(emphasised, WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]  # (T, WINDOW)
    amplitudes = np.abs(np.fft.rfft(frames * hann_window())).T
    return scale_decibels(mel_filters() @ amplitudes), scale_decibels(amplitudes)


def hann_window() -> Array:
    """Return the periodic Hann window."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)


def scale_decibels(amplitudes: Array) -> Array:
    """Return amplitudes on a scale of decibels: 0 is RANGE below the reference, 1 is the reference."""
    decibels = 20 * np.log10(np.maximum(amplitudes, FAINTEST) / REFERENCE)
    return np.clip(decibels / RANGE + 1, 0, 1)


def mel_filters() -> Array:
    """Return triangles over the bins (BANDS, BINS), each of area 1, even on Slaney's scale (Auditory Toolbox, 1998)."""
    edges = hertz(np.linspace(mel(LOWEST), mel(HIGHEST), BANDS + 2))
    bins = np.linspace(0, RATE / 2, BINS)
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    areas = (edges[2:] - edges[:-2]) / 2
    return np.maximum(0, np.minimum(rising, falling)) / areas[:, None]


# Slaney's scale is linear up to 1000 Hz, 15 mel, and then logarithmic, 27 mel for a factor of 6.4.
_LINEAR, _BEND, _STEP = 200 / 3, 1000.0, math.log(6.4) / 27


def mel(frequency: float) -> float:
    """Return the mel of a frequency in Hz."""
    if frequency < _BEND:
        return frequency / _LINEAR
    return _BEND / _LINEAR + math.log(frequency / _BEND) / _STEP


def hertz(mels: Array) -> Array:
    """Return the frequencies of mels, in Hz."""
    bend = _BEND / _LINEAR
    return np.where(mels < bend, mels * _LINEAR, _BEND * np.exp(_STEP * (mels - bend)))
