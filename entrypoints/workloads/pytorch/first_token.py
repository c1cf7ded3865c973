"""What our own network says of the first token after a prompt: what engines are held against."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import torch

from entrypoints.contract.cards import Card
from entrypoints.workloads.pytorch import build


def log_probabilities(
    card: Card, weight_of: Callable[[str], np.ndarray], prompts: Sequence[Sequence[int]]
) -> list[np.ndarray]:
    """Return the log-probabilities of every token (vocabulary) after each prompt, in fp32 on the host.

    `weight_of` returns the weight of a name in our network.
    """
    network: Any = build.model(card, 0).network.eval()
    weights = {name: torch.from_numpy(np.ascontiguousarray(weight_of(name))) for name in network.state_dict()}
    network.load_state_dict(weights)
    with torch.no_grad():
        logits = [network(torch.tensor([list(each)]))[0][-1].double() for each in prompts]
    return [torch.log_softmax(each, 0).numpy() for each in logits]
