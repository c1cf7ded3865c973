"""What a published study reports: its tables as printed, and each figure in terms of a result."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sifmark.studies.study import Scalar

Conditions = Mapping[str, tuple[Scalar, ...]]  # by name of the schema; of several values any may be meant
OUT_OF_MEMORY = "out_of_memory"
UNNAMED = "a device that is not named"


class Bound(StrEnum):
    """What a printed number says of the value."""

    EXACT = "exact"
    ABOUT = "about"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    RANGE = "range"


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """A number as printed; of a range both ends, else the same twice."""

    low: float
    high: float
    bound: Bound = Bound.EXACT


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a study, and how a result shows that it is from such a device."""

    name: str
    title: str
    pattern: str  # a regular expression that occurs in accelerator.name
    granularity: str


@dataclass(frozen=True, slots=True)
class Reference:
    """What a ratio is to: other conditions, or another metric of the same results."""

    conditions: Conditions
    batch_times: float | None = None  # the batch per replica of the denominator, over that of the numerator
    metric: str | None = None
    best: str | None = None  # as of a figure, among what could be the denominator


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, or a state, of a published table. `low` and `high` are in `unit`: equal, but for a range."""

    study: str
    table: str
    row: int  # from 1
    column: str
    printed: str
    printed_unit: str
    number: PrintedNumber | None  # as printed; None of a state
    metric: str | None  # of a result; None if no field of a result is the same
    unit: str
    low: float | None
    high: float | None
    bound: Bound
    state: str | None
    conditions: Conditions
    reference: Reference | None
    best: str | None  # a metric: of results that differ in their batch alone, the best in it is meant
    within: str | None  # a metric of a ratio, in which the numerator must not be worse than the denominator
    traps: tuple[str, ...]
    not_comparable: str | None  # why no result should be compared with it

    @property
    def is_comparable(self) -> bool:
        """Whether a result may be compared with it."""
        return self.metric is not None and self.not_comparable is None

    @property
    def place(self) -> str:
        """Where it is: `pearc22/1, row 2`."""
        return f"{self.study}/{self.table}, row {self.row}"


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table, chart or sentence of a study: cells as printed, and the figures in them."""

    name: str
    title: str
    place: str
    page: int | None
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    traps: tuple[str, ...]
    no_numbers: str | None
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class PublishedStudy:
    """A published study."""

    name: str
    title: str
    authors: str
    venue: str
    year: int
    url: str
    devices: Mapping[str, Device]
    traps: tuple[str, ...]
    tables: tuple[PublishedTable, ...]
    context: str | None = None  # why nothing is compared with any of its figures

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of all tables."""
        return tuple(figure for table in self.tables for figure in table.figures)

    def device_titles(self, figure: Figure) -> str:
        """Return the titles of the devices that one of its figures is of."""
        titles = [self.devices[str(name)].title for name in figure.conditions.get("device", ())]
        return " or ".join(titles) or UNNAMED
