"""What PopTorch's errors mean for a run."""

from __future__ import annotations

import contextlib
from typing import Iterator

import poptorch

from entrypoints.contract.statuses import RunError

# Texts of PopTorch's errors, in lower case, and their states. Busy IPUs count as available until used.
REFUSALS = {"out of memory": "out_of_memory", "failed to acquire": "no_device"}


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """Translate errors of calls that may compile.

    Raises RunError: `out_of_memory` if the model is too large, `no_device` if others have the IPUs, or
    `compile_failure`. Hardware failures remain PopTorch's errors.
    """
    try:
        yield
    except poptorch.Error as error:
        text = str(error)
        state = next((state for words, state in REFUSALS.items() if words in text.lower()), None)
        if state is None and isinstance(error, (poptorch.RecoverableError, poptorch.UnrecoverableError)):
            raise
        raise RunError(state or "compile_failure", text[:1000]) from error
