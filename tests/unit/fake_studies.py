"""Plans of studies by hand, and an image that is a real process: it writes what its arguments say, at once or later."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from unit.fakes import FakeEngine, sha256

from entrypoints.rules.rule import RULES
from sifmark.core import paths
from sifmark.core.settings import Settings, load_settings
from sifmark.core.signals import unwind_on_signals
from sifmark.results.rules import violations_of
from sifmark.studies.estimate import Estimates
from sifmark.studies.running.local import prepare_systems
from sifmark.studies.running.runner import Progress, StudyRunner
from sifmark.studies.running.shares import Shares
from sifmark.studies.study import Group, PlannedRun, Run, RunState, Scalar, Study, StudyPlan, System

EXAMPLES = paths.SCHEMAS / "examples" / "result-1.2"
COMMANDS = "command-is-what-was-configured"  # a rule of results
# Word by word: --seconds, --state, --without (a result), --broken, --code, and those that every run has. A batch of 98
# does not fit into memory, and one of 99 crashes.
IMAGE = """
import json, os, signal, sys, time
words = sys.argv[2:]
options = {name[2:]: value for name, value in zip(words, words[1:]) if name.startswith("--")}
output = options["output"]
orders = []
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, lambda number, _: orders.append(number))
with open(os.path.join(os.path.dirname(output), "started"), "a") as ledger:
    ledger.write(os.path.basename(output) + " " + str(os.getpid()) + "\\n")
until = time.monotonic() + float(options.get("seconds", 0))
while time.monotonic() < until and not orders:
    time.sleep(0.01)
by_size = {"98": "out_of_memory", "99": "crashed"}.get(options.get("batch-size"), "completed")
state = "interrupted" if orders else options.get("state", by_size)
code = 128 + orders[0] if orders else int(options.get("code", {"completed": 0, "no_device": 3}.get(state, 4)))
with open(os.path.join(sys.argv[1], ("training" if state == "completed" else "out_of_memory") + ".json")) as stream:
    document = json.load(stream)
if state not in ("completed", "out_of_memory"):
    document["status"]["message"] = "stopped by " + signal.Signals(orders[0]).name if orders else "no more"
document["status"].update(state=state, exit_code=code)
document["provenance"]["command"], document["site"] = words, options["site"]
if "broken" in options:
    del document["status"]
if "without" not in options:
    draft = output + ".draft"
    with open(draft, "w") as stream:
        json.dump(document, stream)
    os.rename(draft, output)
    if state == "completed":
        with open(os.path.join(os.path.dirname(output), "completed"), "a") as ledger:
            ledger.write(os.path.basename(output) + "\\n")
print("devices", os.environ.get("CUDA_VISIBLE_DEVICES"), "processors", sorted(os.sched_getaffinity(0)))
if code:
    print("the last word", file=sys.stderr)
sys.exit(code)
"""


class ScriptEngine(FakeEngine):
    """An engine whose images run a Python script."""

    name = "apptainer"

    def command(self, address: str, verb: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
        self.commands.append((address, verb, arguments, options))
        return [sys.executable, "-S", "-c", IMAGE, str(EXAMPLES), *arguments]


def take_any_command() -> None:
    """Take results whose command is not what was configured: the images here write copies of examples."""
    violations_of()  # registers the rules
    RULES.pop(COMMANDS, None)


def example(name: str) -> dict[str, Any]:
    """Return an example of a result."""
    return dict(json.loads((EXAMPLES / f"{name}.json").read_text()))


def put(name: str, planned: PlannedRun, **status: object) -> None:
    """Write an example as the result of a run; whoever reads it takes any command."""
    document = example(name)
    document["provenance"]["command"], document["site"] = planned.arguments, planned.run.system
    document["status"] |= status
    planned.result.parent.mkdir(parents=True, exist_ok=True)
    planned.result.write_text(json.dumps(document))


def run_of(name: str = "here", *arguments: str, repeat: int = 1, devices: int = 1, **cell: Scalar) -> Run:
    """Return a run; what its image does is in the arguments."""
    words = ["resnet50", *(word for key, value in cell.items() for word in (f"--{key.replace('_', '-')}", str(value)))]
    return Run(name, "a group", {"workload": "resnet50", **cell}, (*words, *arguments), devices, 1, repeat, 1)


def study_of(folder: Path, *systems: System, title: str = "A study") -> Study:
    """Return a study of these systems; its file exists."""
    file = folder / "mine.toml"
    file.write_text(title)
    group = Group("a group", 1, {}, None, 1, ())
    return Study("mine", title, file, (), None, systems or (System("here", "cpu"),), (group,), (), (), "")


def plan_of(folder: Path, *runs: Run, systems: Sequence[System] = (), **fields: Any) -> StudyPlan:
    """Return a plan of runs that are all to do."""
    study, results = study_of(folder, *systems), folder / "results" / "mine"
    image = sha256("what runs")
    return StudyPlan(
        study,
        results,
        {system.name: image for system in study.systems},
        tuple(_planned(run, results, image, **fields) for run in runs),
    )


def _planned(run: Run, results: Path, image: str, **fields: Any) -> PlannedRun:
    key = run.key(image)
    defaults: dict[str, Any] = {"state": RunState.TO_DO, "image": image}
    return PlannedRun(run, key, results / run.system / f"{key}.json", **(defaults | fields))


def started(plan: StudyPlan, what: str = "started") -> list[str]:
    """Return the keys of runs in the order in which their images began (or completed), as often as they did."""
    files = sorted({planned.result.parent / what for planned in plan.runs})
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return [line.partition(".")[0] for line in lines]


def do_all(folder: Path, seconds: str, count: int, settings: Settings) -> Progress:
    """Do the runs of a plan of `count` runs that each last some seconds, in an engine of this process alone."""
    engine = ScriptEngine(settings)
    engine.add("cpu")
    engine.tag_workloads("cpu")
    module = ModuleType("sifmark.engines.apptainer.engine")
    vars(module)["make"] = lambda _: engine
    sys.modules[module.__name__] = module
    plan = long_plan(folder, seconds, count)
    systems = prepare_systems(plan, plan.runs, settings, 0)
    runner = StudyRunner(systems, Shares(folder / "shares"), lambda *_: None, lambda *_: None, Estimates())
    return runner.do(plan.runs)


def long_plan(folder: Path, seconds: str, count: int) -> StudyPlan:
    """Return the plan of `do_all`."""
    return plan_of(folder, *(run_of("here", "--seconds", seconds, batch_size=size) for size in range(count)))


def wait_for_opened(file: Path) -> None:
    """Wait until another process, a shell that opens it as descriptor 9, has a file open."""
    state, own = file.stat(), str(os.getpid())
    while True:  # a test that waits for ever is stopped by whoever runs the tests
        for link in Path("/proc").glob("[0-9]*/fd/9"):
            with suppress(OSError):
                if link.parts[2] != own and os.path.samestat(link.stat(), state):
                    return


def state_in(result: Path) -> str:
    """Return the state that a result says."""
    return str(json.loads(result.read_text())["status"]["state"])


if __name__ == "__main__":
    unwind_on_signals()
    take_any_command()
    do_all(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), load_settings())
