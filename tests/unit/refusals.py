"""Errors that tests expect: by their class, their stable code, and the names and numbers that their texts have."""

from types import TracebackType
from typing import Generic, TypeVar

import pytest

from sifmark.core.errors import SifmarkError

E = TypeVar("E", bound=SifmarkError)


class refused(Generic[E]):  # noqa: N801 - as pytest.raises, of which it is a kind
    """Expect a block to end in an error of this class and code, whose cause or remedy has each of these words."""

    def __init__(self, kind: type[E], code: str, *words: object) -> None:
        self.raises, self.code, self.words = pytest.raises(kind), code, words

    def __enter__(self) -> pytest.ExceptionInfo[E]:
        self.caught = self.raises.__enter__()
        return self.caught

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        was_raised = self.raises.__exit__(kind, error, trace)
        if was_raised:
            refusal = self.caught.value
            assert refusal.code == self.code, f"{refusal.code} in place of {self.code}: {refusal}"
            missing = [word for word in map(str, self.words) if word not in str(refusal)]
            assert not missing, f"{missing} not in: {refusal}"
        return was_raised
