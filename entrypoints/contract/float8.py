"""What the correctness check knows of linear layers in FP8, and how far each may be off.

Bounds are signal-to-noise ratios in dB, 20 log10 of the expected values over the deviation in the L2 norm. Rounding to
E4M3 alone leaves 28.5 dB of a product, whatever its length, and E5M2 with E4M3 24.6 dB.
"""

from __future__ import annotations

from typing import Mapping

# Of each layer alone, from FP8 that is emulated with the same input: what differs is the order of sums, and bf16.
OUTPUTS, INPUT_GRADIENTS = "float8.outputs", "float8.input_gradients"
WEIGHT_GRADIENTS = "float8.weight_gradients"
OTHERS = "float8.others"  # of each layer that is not in FP8, from its product in bf16
OF_LAYERS = (OUTPUTS, INPUT_GRADIENTS, WEIGHT_GRADIENTS, OTHERS)
OUTPUT, GRADIENTS = "float8.output", "float8.gradients"  # of the whole network, from those in fp32
EMULATED, FROM_SINGLE, GRADIENTS_FROM_SINGLE = 45.0, 20.0, 17.0  # dB, at least


def relative(decibels: float) -> float:
    """Return the deviation, relative in the L2 norm, that is a signal-to-noise ratio in dB, to three digits."""
    return float(f"{10 ** (-decibels / 20):.3g}")


TOLERANCES: Mapping[str, float] = {
    **dict.fromkeys(OF_LAYERS, relative(EMULATED)),
    OUTPUT: relative(FROM_SINGLE),
    GRADIENTS: relative(GRADIENTS_FROM_SINGLE),
}
