"""The memory format of images and of the weights of convolutions: one for a process, chosen before its model is placed.

Everywhere but on GPUs of AMD it is channels_last: cuDNN, oneDNN and their like have their fastest kernels for it.
"""

from __future__ import annotations

import torch

NAMES = {torch.channels_last: "channels_last", torch.contiguous_format: "contiguous"}


class Layout:
    """The format of a process, and the reason for it, if there was a choice."""

    def __init__(self) -> None:
        self.format, self.reason = torch.channels_last, ""

    def choose(self, memory_format: torch.memory_format, reason: str) -> None:
        """Take a format for everything from now on."""
        self.format, self.reason = memory_format, reason

    def __str__(self) -> str:
        """Return what a result says of it."""
        return f"{NAMES[self.format]} ({self.reason})" if self.reason else NAMES[self.format]


LAYOUT = Layout()
