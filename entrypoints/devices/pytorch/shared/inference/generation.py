"""Text generation by programs whose shapes do not change with the text: one call, or one replay, for each token."""

from __future__ import annotations

import warnings
from typing import Any, Callable, NamedTuple, Sequence

import torch

from entrypoints.devices.pytorch.shared.recorded import RecordingError, record
from entrypoints.workloads.pytorch.transformer import Transformer

Step = Callable[[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]], "tuple[torch.Tensor, torch.Tensor]"]


class StaticState(NamedTuple):
    """The newest token (N, 1), its position (1,), and the keys and values of each block, with room for all tokens."""

    token: torch.Tensor
    position: torch.Tensor
    kept: Sequence[torch.Tensor]


class StaticGeneration:
    """Generation by two compiled programs: one for a prompt, one for each token after it."""

    def __init__(self, network: Transformer, compiled: Callable[[Any], Any]) -> None:
        self.network = network
        self.compiled_prefill: Any = compiled(network.prefill_static)
        self.compiled_step: Step = compiled(network.decode_step_static)

    def prefill(self, tokens: torch.Tensor, new: int) -> StaticState:
        """Return the state after a text (N, T) and its likeliest next token, with room for `new` tokens."""
        return StaticState(*self.compiled_prefill(tokens, new))

    def decode_step(self, text: StaticState) -> StaticState:
        """Return the state after the likeliest next token. The given one is no longer valid."""
        token, position = self.compiled_step(*text)
        return StaticState(token, position, text.kept)


class ReplayedGeneration(StaticGeneration):
    """The same on a GPU that records the program of a token once, and replays it.

    `runtime` is `torch.cuda`. A graph reads and writes memory at fixed addresses: each text is copied there. Where the
    program cannot be recorded it is called, token by token.
    """

    def __init__(self, network: Transformer, compiled: Callable[[Any], Any], runtime: Any) -> None:
        super().__init__(network, compiled)
        self.runtime = runtime
        self.own: Any = None  # the state that the graph reads and writes
        self.graph: Any = None
        self.recordable = True

    def prefill(self, tokens: torch.Tensor, new: int) -> StaticState:
        """Return the state after a text (N, T) and its likeliest next token, with room for `new` tokens."""
        first = super().prefill(tokens, new)
        if not self.recordable:
            return first
        if self.own is None or self.own.kept[0].shape != first.kept[0].shape:
            self.own = StaticState(first.token.clone(), first.position.clone(), first.kept)
            try:
                self.graph = self.recorded(self.own, first)
            except RecordingError as error:
                warnings.warn(f"texts are generated without CUDA graphs: {error}", stacklevel=2)
                self.recordable, self.own, self.graph = False, None, None  # and the caches that they hold
                return first
        else:
            for memory, kept in zip(self.own.kept, first.kept):
                memory.copy_(kept)
        self.place(self.own, first)
        own: StaticState = self.own
        return own._replace(token=first.token)

    def decode_step(self, text: StaticState) -> StaticState:
        """Return the state after the likeliest next token, by one replay and a copy of its token."""
        if not self.recordable:
            return super().decode_step(text)
        self.graph.replay()
        return text._replace(token=self.own.token.clone())

    def recorded(self, own: StaticState, first: StaticState) -> Any:
        """Return the graph of a token. What it writes while it warms up is written again from the first token on."""

        def warm_up() -> None:
            self.place(own, first)
            self.advance(own)

        graph, _ = record(lambda: self.advance(own), warm_up, self.runtime)
        return graph

    @staticmethod
    def place(own: StaticState, first: StaticState) -> None:
        """Write the newest token and its position where the graph reads them."""
        own.token.copy_(first.token)
        own.position.copy_(first.position)

    def advance(self, own: StaticState) -> None:
        """Write the next token and its position in place of the newest ones."""
        token, position = self.compiled_step(*own)
        own.token.copy_(token)
        own.position.copy_(position)
