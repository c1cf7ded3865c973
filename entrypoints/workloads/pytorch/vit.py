"""Vision transformers (Dosovitskiy et al., arXiv:2010.11929): an image is a row of patches, read as a text is.

A token for the class stands before the patches; what it has become after the last block is classified.
"""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn

from entrypoints.workloads.pytorch.layers import ACTIVATIONS
from entrypoints.workloads.pytorch.transformer import SelfAttention, initialise, normalisation


class Patches(nn.Module):
    """The embeddings of the patches of an image, and of the class before them."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width, patch = model["width"], model["patch"]
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.project = nn.Conv2d(3, width, patch, stride=patch)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) -> (N, 1 + patches, width)."""
        patches = self.project(images).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(images), -1, -1), patches], 1)


class Places(nn.Module):
    """A learnt vector for each place, which is added."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.length = 1 + (model["image"] // model["patch"]) ** 2
        self.vectors = nn.Parameter(torch.empty(1, self.length, model["width"]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> the same shape."""
        return x + self.vectors


class Block(nn.Module):
    """Attention and a feed-forward network, each of a normalised input and added to it."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.attention_normalisation = normalisation(model)
        self.attention = SelfAttention(model)
        self.feed_forward_normalisation = normalisation(model)
        self.widen = nn.Linear(model["width"], model["feed_forward"])
        self.activation = ACTIVATIONS[model["activation"]]()
        self.narrow = nn.Linear(model["feed_forward"], model["width"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> the same shape."""
        x = x + self.attention(self.attention_normalisation(x), None)
        return x + self.narrow(self.activation(self.widen(self.feed_forward_normalisation(x))))


class VisionTransformer(nn.Module):
    """Patches, blocks and a classifier."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.embedding = Patches(model)
        self.places = Places(model)
        self.length = self.places.length
        self.blocks = nn.ModuleList(Block(model) for _ in range(model["layers"]))
        self.normalisation = normalisation(model)
        self.head = nn.Linear(model["width"], model["classes"])
        for vectors in (self.embedding.class_token, self.places.vectors):
            nn.init.normal_(vectors, std=model["initialisation"]["deviation"])
        initialise(self, model)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) normalised pixels -> (N, classes) logits."""
        x = self.places(self.embedding(images))
        for block in self.blocks:
            x = block(x)
        return self.head(self.normalisation(x[:, 0]))


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`."""
    return VisionTransformer(model)
