"""What a strategy does for a session."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, Protocol

from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.workloads.pytorch.build import Objective


class Strategy(Protocol):
    """How the ranks of a run train one model."""

    def wrap(self, model: Objective) -> Any:
        """Return what is called in training in place of the model."""

    def accumulating(self, last: bool) -> ContextManager[None]:
        """Return a context for the forward and backward pass of a micro-batch, the `last` one of an update or not."""


class Single:
    """One rank, or ranks that do not train."""

    def wrap(self, model: Objective) -> Any:
        """Return the model itself."""
        return model

    def accumulating(self, last: bool) -> ContextManager[None]:  # noqa: ARG002 - as other strategies
        """Return a context that does nothing."""
        return contextlib.nullcontext()


def strategy_of(group: Group | None, trained: bool) -> Strategy:
    """Return the strategy of the ranks of a group that train."""
    if group is None or not trained:
        return Single()
    from entrypoints.devices.pytorch.strategies.ddp import DataParallel

    return DataParallel()
