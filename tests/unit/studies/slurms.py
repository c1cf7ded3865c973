"""Slurm's programs with given answers, in the place of the real ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sifmark.core.shell import word
from sifmark.studies.slurm.queue import _COLUMNS
from sifmark.studies.states import TaskStatus

CLUSTER = "alpha"


def program(path: Path, text: str) -> None:
    """Write a script that can be started."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@dataclass(frozen=True)
class FakeSlurm:
    """A folder of programs that print what they were told to."""

    folder: Path

    def answer(
        self,
        *tasks: TaskStatus,
        job: str = "12",
        refused: str = "",
        accounts: Iterable[TaskStatus] | None = None,
        private: str = "none",
    ) -> None:
        """Let squeue list these tasks, sbatch give this ID or refuse, and sacct, if there is one, list accounts."""
        self._print("squeue", "".join(f"{_line(task)}\n" for task in tasks))
        self._print("scontrol", f"ClusterName             = {CLUSTER}\nPrivateData             = {private}\n")
        self._print("sbatch", "" if refused else f"{job}\n", refused)
        if accounts is not None:
            rows = (f"{t.task}|{t.state}|{t.exit_code or 0}:0|{t.nodes}|{t.cluster}|{t.name}\n" for t in accounts)
            self._print("sacct", "".join(rows))

    def silent(self) -> None:
        """Let the controller not answer."""
        for name in ("squeue", "scontrol"):
            self._print(name, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")

    def _print(self, name: str, output: str, error: str = "") -> None:
        self.folder.mkdir(exist_ok=True)
        answers = {suffix: self.folder / f"{name}.{suffix}" for suffix in ("txt", "err")}
        answers["txt"].write_text(output)
        answers["err"].write_text(error)
        txt, err = (word(str(file)) for file in answers.values())
        lines = f"cat {txt}; cat {err} >&2; exit {int(bool(error))}"
        program(self.folder / name, f"#!/bin/sh\n{lines}\n")


def _line(task: TaskStatus) -> str:
    code = 0 if task.exit_code is None else task.exit_code << 8
    cells = dict(zip(_COLUMNS, (task.task, task.state, task.reason or "None", task.nodes, str(code)), strict=False))
    cells |= {"Cluster": task.cluster, "Name": task.name}
    return "".join(cells[name].ljust(width) for name, width in _COLUMNS.items())
