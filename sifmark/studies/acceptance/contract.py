"""Contracts: what a system has to reach, as a TOML file; and the study that measures it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import tomlkit

from sifmark.core.errors import UsageError, nearest_names
from sifmark.core.files import read_bounded, sha256_bytes, write_text
from sifmark.core.schemas import check_document
from sifmark.results.catalogue import Direction, direction_of
from sifmark.results.comparison.gate import Gate
from sifmark.results.comparison.sessions import BETWEEN
from sifmark.studies.analysis.every_node import NodeSystem, study_on_nodes
from sifmark.studies.load import metric_names
from sifmark.studies.study import Scalar
from sifmark.studies.study_file import SUFFIX, require_name

HERE = "here"  # the system of a contract that is measured on this machine
TOGETHER = "together"  # the system whose runs are on several nodes at once
_LARGEST = 1 << 20  # bytes of a file
# By the letter before a unit: 300 TFLOP/s are 3e14 FLOP/s, and 5 ms are 0.005 s. Units of results have none.
_PREFIXES = {"p": 1e-12, "n": 1e-9, "µ": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SYNONYMS = {"B/s": "bytes/s"}  # as tables write units, and as results do


@dataclass(frozen=True)
class Clause:
    """A requirement: a value in a unit, or a ratio to a baseline, that a metric of a run has to reach."""

    name: str
    run: Mapping[str, Scalar]  # keys of a run as in study files
    metric: str
    value: float | None = None
    unit: str = ""
    ratio: float | None = None
    tolerance: float = 0.0
    baseline: str = ""
    spread: float | None = None

    @property
    def is_maximum(self) -> bool:
        """Whether less is better."""
        return direction_of(self.metric) is Direction.LOWER

    @property
    def required(self) -> float:
        """The value or ratio without the tolerance."""
        return float(self.value if self.value is not None else self.ratio or 0)

    @property
    def nodes(self) -> int:
        """On how many nodes at once it runs."""
        return int(self.run.get("nodes", 1))

    def gate(self, confidence: float) -> Gate:
        """Return the limit of the quotient of what is measured and what is required, or of the ratio to a baseline."""
        worst = 1 + self.tolerance if self.is_maximum else 1 - self.tolerance
        return Gate(worst * (self.ratio or 1.0), self.is_maximum, confidence)

    def value_in(self, unit: str) -> float:
        """Return the required value in the unit of results. Raises UsageError if it is of another kind."""
        given = _SYNONYMS.get(self.unit[1:], self.unit[1:])
        if unit == _SYNONYMS.get(self.unit, self.unit):
            return self.required
        if given == unit and self.unit[0] in _PREFIXES:
            return self.required * _PREFIXES[self.unit[0]]
        cause = f"clause {self.name}: {self.metric} is measured in {unit}, and the contract says {self.unit}"
        raise UsageError(cause, f"state the value in {unit}", code="contract-invalid")

    def text(self) -> str:
        """Return the requirement in words."""
        bound = "at most" if self.is_maximum else "at least"
        amount = f"{self.required:g} {self.unit}" if self.ratio is None else f"{self.ratio:g} times {self.baseline}"
        within = f", within {100 * self.tolerance:.3g} %" if self.tolerance else ""
        return f"{self.metric} {bound} {amount}{within}"


@dataclass(frozen=True)
class Contract:
    """A checked contract."""

    name: str
    file: Path
    sha256: str
    title: str
    clauses: tuple[Clause, ...]
    nodes: int = 1
    repeats: int = 5
    confidence: float = 0.95
    power: float = 0.9
    shortfall: float = 0.1
    between: float = BETWEEN
    allow: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many decisions it takes: a clause on each node, or on several nodes at once."""
        return sum(self.nodes_of(clause) for clause in self.clauses)

    def nodes_of(self, clause: Clause) -> int:
        """Return on how many nodes, one by one, a clause has to hold."""
        return self.nodes if clause.nodes == 1 else 1

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a contract. Raises UsageError that names the file, the key and the remedy."""
        require_name(path)
        try:
            content = read_bounded(path, _LARGEST)
            document: dict[str, Any] = tomllib.loads(content.decode())
        except FileNotFoundError as error:
            remedy = f"write one to begin with: sifmark study.accept {path} --init"
            raise UsageError(f"there is no contract {path}", remedy, code="file-missing") from error
        except (OSError, ValueError) as error:  # of TOML or of its characters
            raise UsageError(f"{path}: {error}", "correct the file", code="contract-invalid") from error
        check_document("contract-1.0", document, str(path), "contract-invalid")
        common = {key: document[key] for key in ("baseline", "spread") if key in document}
        clauses = tuple(Clause(**{**common, **table}) for table in document["clause"])
        for number, clause in enumerate(clauses):
            _check_clause(path, clause, [each.name for each in clauses[:number]])
        own = {field.name for field in fields(cls)} & document.keys() - {"allow"}
        return cls(
            name=path.stem,
            file=path,
            sha256=sha256_bytes(content),
            clauses=clauses,
            allow=tuple(document.get("allow", ())),
            **{key: document[key] for key in own},
        )


def _check_clause(path: Path, clause: Clause, earlier: Sequence[str]) -> None:
    where = f"{path}: clause {clause.name}"
    if clause.name in earlier:
        raise UsageError(f"{where}: there is another", "give it a name of its own", code="contract-invalid")
    if clause.metric not in metric_names():
        remedy = nearest_names(clause.metric, metric_names())
        raise UsageError(f"{where}: no metric {clause.metric!r}", remedy, code="contract-invalid")
    if direction_of(clause.metric) is Direction.NONE:
        cause = f"{where}: neither more nor less of {clause.metric} is better"
        raise UsageError(cause, "require another metric", code="contract-invalid")
    if clause.ratio is not None and not clause.baseline:
        remedy = 'name it in the contract or the clause: baseline = "baseline:NAME", or results'
        raise UsageError(f"{where}: a ratio needs a baseline", remedy, code="contract-invalid")


@dataclass(frozen=True)
class Place:
    """Where a contract is measured: on nodes of Slurm by name, or without any on this machine."""

    nodes: tuple[str, ...] = ()
    image: str = ""
    devices: int = 0  # of a node; 0: unknown
    partition: str = ""
    extra: tuple[str, ...] = ()  # options of sbatch that the site has in sifmark.toml

    @classmethod
    def of_study(cls, file: Path) -> Self:
        """Return the place of a study that `write_study` wrote."""
        systems = tomllib.loads(file.read_text(encoding="utf-8"))["system"]
        first, slurm = systems[0], systems[0].get("slurm", {})
        nodes = tuple(each["name"] for each in systems if each["name"] not in (HERE, TOGETHER))
        extra = tuple(each for each in slurm.get("extra", ()) if not each.startswith("--nodelist="))
        return cls(nodes, first["image"], first.get("devices", 0), slurm.get("partition", ""), extra)


def write_study(contract: Contract, place: Place, folder: Path) -> Path:
    """Write the study that measures a contract into a folder, and return its file.

    Each clause is a run of it by the same name; each node is a system, or this machine is the only one.
    """
    file = folder / f"{contract.name}{SUFFIX}"
    here: dict[str, Any] = {"name": HERE, "image": place.image}
    here |= {"devices": place.devices} if place.devices else {}
    runs = [{"name": clause.name, **clause.run} for clause in contract.clauses]
    study = {"title": contract.title, "repeats": contract.repeats, "system": [here], "run": runs}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(file, tomlkit.dumps(study))
    if place.nodes:
        system = NodeSystem(place.image, place.devices, place.partition, place.extra)
        text = study_on_nodes(str(file), place.nodes, system)
        write_text(file, _with_runs_together(text, contract, place))
    return file


def _with_runs_together(text: str, contract: Contract, place: Place) -> str:
    """Return a study of single nodes in which the runs on several nodes have a system of their own."""
    several = {clause.name for clause in contract.clauses if clause.nodes > 1}
    if not several:
        return text
    document = tomlkit.parse(text).unwrap()
    slurm = {"extra": list(place.extra), **({"partition": place.partition} if place.partition else {})}
    together = {"name": TOGETHER, "image": place.image, "nodes": len(place.nodes), "slurm": slurm}
    document["system"].append(together | ({"devices": place.devices} if place.devices else {}))
    for run in document["run"]:
        run["systems"] = [TOGETHER] if run["name"] in several else list(place.nodes)
    return tomlkit.dumps(document)
