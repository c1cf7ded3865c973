"""Long short-term memory (Hochreiter and Schmidhuber, 1997) over a series, with one output vector at its end."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn


class LastState(nn.Module):
    """LSTM layers, and a linear layer over the last layer's state after the last step."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.memory = nn.LSTM(model["features"], model["hidden"], model["layers"], batch_first=True)
        self.output = nn.Linear(model["hidden"], model["outputs"])

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """(N, T, features) -> (N, outputs)."""
        states, _ = self.memory(series)  # (N, T, hidden)
        return self.output(states[:, -1])


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`."""
    return LastState(model)
