"""Causal attention with sinks and within a window, as gpt-oss has it (arXiv:2508.10925).

A sink is a learnt score of a head that joins the softmax and has no value: heads may attend to nothing (Xiao et al.,
arXiv:2309.17453). In a window, a place sees itself and as many places before as make up the window.

PyTorch's attention in one operation has neither. A sink becomes the key of a place before all others, which no query
turns away from: in numbers that queries and keys have beside their own, the query has its head's score and this key
has 1. A window becomes attention of blocks of places to themselves and the block before, so that its cost does not grow
with the square of the length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

AVAILABLE = torch.__version__ >= (2, 5)  # attention in one operation takes a scale, and fewer keys than queries
SPARE = 8  # numbers beside those of a head, of which one is used: kernels want a multiple of 8


class Rule(NamedTuple):
    """Places that one sees, itself included (None: all before), and the sinks (heads,) or None."""

    window: int | None
    sinks: torch.Tensor | None


def attend_plainly(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: Rule, visible: torch.Tensor | None
) -> torch.Tensor:
    """The query (N, heads, K, size), key and value (N, kv_heads, T, size) -> (N, heads, K, size), written out.

    Queries are of all places, or of one: of the last place, or of that after which `visible` (1, 1, 1, T) is false.
    """
    samples, heads, places, size = query.shape
    if places == 1 and visible is None and rule.window is not None:
        key, value = key[:, :, -rule.window :], value[:, :, -rule.window :]
    rows = query.reshape(samples, key.shape[1], -1, size)  # the queries of a group one after another
    scores = (rows @ key.transpose(-2, -1)).view(samples, heads, places, -1) / math.sqrt(size)
    seen = seen_places(places, rule.window, query.device) if places > 1 else in_window(visible, rule.window)
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    if rule.sinks is not None:
        sinks = rule.sinks.to(scores.dtype)[:, None, None].expand(samples, -1, places, 1)
        scores = torch.cat([scores, sinks], -1)
    weights = scores.softmax(-1)[..., : key.shape[2]]
    return (weights.reshape(samples, key.shape[1], -1, key.shape[2]).to(value.dtype) @ value).view(query.shape)


def seen_places(places: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Return which places (T, T) each of so many places sees."""
    numbers = torch.arange(places, device=device)
    back = numbers[:, None] - numbers
    return (back >= 0) & (back < (window or places))


def in_window(visible: torch.Tensor | None, window: int | None) -> torch.Tensor | None:
    """Return what the newest of the visible places (1, 1, 1, T) sees within a window."""
    if visible is None or window is None:
        return visible
    return visible & ~functional.pad(visible[..., window:], (0, min(window, visible.shape[-1])))


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: Rule, visible: torch.Tensor | None
) -> torch.Tensor:
    """Return the same as `attend_plainly`, by attention in one operation."""
    places, size = query.shape[2:]
    if places == 1:
        return attend_plainly(query, key, value, rule, visible)
    if rule.sinks is not None:
        scores = functional.pad(rule.sinks[:, None, None] * math.sqrt(size), (0, SPARE - 1))  # (heads, 1, SPARE)
        query = torch.cat([query, scores.to(query.dtype).expand(*query.shape[:3], SPARE)], -1)
        key, value = functional.pad(key, (0, SPARE)), functional.pad(value, (0, SPARE))
    if rule.window is not None and rule.window < places:
        return attend_in_blocks(query, key, value, rule, size)
    if rule.sinks is None:
        return scaled(query, key, value, size, is_causal=True)
    first = sink_key(key, size).expand(*key.shape[:2], 1, -1)
    before = (0, 0, 1, 0)  # the sink has a query, too, which nobody reads, so that all is causal
    query, key, value = functional.pad(query, before), torch.cat([first, key], 2), functional.pad(value, before)
    return scaled(query, key, value, size, is_causal=True)[:, :, 1:, :size]


def scaled(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    size: int,
    is_causal: bool = False,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the attention of heads of a size."""
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        mask,
        is_causal=is_causal,
        scale=1 / math.sqrt(size),
        enable_gqa=query.shape[1] > key.shape[1],
    )


def sink_key(like: torch.Tensor, size: int) -> torch.Tensor:
    """Return the key of a sink (size + SPARE,), which has the score that a query has in its first spare number."""
    return functional.one_hot(torch.tensor(size, device=like.device), like.shape[-1]).to(like.dtype)


def attend_in_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: Rule, size: int
) -> torch.Tensor:
    """The query (N, heads, T, ...), key and value (N, kv_heads, T, ...) of a causal window -> (N, heads, T, size)."""
    samples, heads, places, _ = query.shape
    window, groups = rule.window or places, key.shape[1]
    blocks = -(-places // window)
    missing = blocks * window - places
    query = functional.pad(query, (0, 0, 0, missing)).unflatten(1, (groups, -1)).unflatten(3, (blocks, window))
    rows = query.permute(0, 3, 1, 2, 4, 5).flatten(3, 4).flatten(0, 1)  # (N * blocks, kv_heads, group * window, ...)
    keys, values = (of_two_blocks(x, blocks, window, missing) for x in (key, value))
    back = torch.arange(window, device=query.device)[:, None] + window - torch.arange(2 * window, device=query.device)
    seen = ((back >= 0) & (back < window)).expand(blocks, -1, -1).clone()
    seen[0, :, :window] = False  # there is no block before the first
    if rule.sinks is not None:
        sink = sink_key(key, size).expand(*keys.shape[:2], 1, -1)
        keys, values, seen = (
            torch.cat([keys, sink], 2),
            functional.pad(values, (0, 0, 0, 1)),
            functional.pad(seen, (0, 1), value=True),
        )
    mask = seen.repeat(samples, heads // groups, 1)[:, None]
    made = scaled(rows, keys, values, size, mask=mask)[..., :size]
    made = made.unflatten(2, (-1, window)).unflatten(0, (samples, blocks))  # (N, blocks, kv_heads, group, window, size)
    return made.permute(0, 2, 3, 1, 4, 5).flatten(3, 4).flatten(1, 2)[:, :, :places]


def of_two_blocks(x: torch.Tensor, blocks: int, window: int, missing: int) -> torch.Tensor:
    """(N, heads, T, ...) -> (N * blocks, heads, 2 * window, ...): of each block with the one before it."""
    x = functional.pad(x, (0, 0, window, missing)).unflatten(2, (blocks + 1, window)).transpose(1, 2)
    return torch.cat([x[:, :-1], x[:, 1:]], 3).flatten(0, 1)
