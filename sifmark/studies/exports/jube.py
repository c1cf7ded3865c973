"""A study as a file of JUBE: a benchmark for each system, in which each run is a value of one parameter."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.studies.exports.exported import ExportedFile, by_system, heading
from sifmark.studies.slurm.options import JobOptions, clock_of, devices_requested
from sifmark.studies.study import PlannedRun, StudyPlan

_HEAD = """\
{heading}
#
#   jube run {name}                    all runs, on this host
#   jube run {name} --tag slurm        each run in an allocation of Slurm
#   jube run {name} --only-bench {first}
#
# In the folder of this file, then:
#
#   jube result {outpath}-{first} --analyse     the table
#   sifmark compare '{outpath}-*/**/result.json'

"""
# JUBE looks for patterns in the whole file; results have their fields in this form. What is null is not there.
_PATTERNS = r"""patternset:
  name: result
  pattern:
    - {name: state, type: string, _: '"status": \{[^}]*?"state": "(\w+)"'}
    - {name: correctness, type: string, _: '"numerics": \{\s*"state": "(\w+)"'}
    - {name: throughput, type: float, unit: 1/s, _: '"throughput": \{\s*"value": $jube_pat_fp'}
    - {name: step_time, type: float, unit: s, _: '"step_time_p50": \{\s*"value": $jube_pat_fp'}
    - {name: energy, type: float, unit: J, _: '"energy": \{\s*"value": $jube_pat_fp'}

benchmark:
"""
_OWN = ("[$number]", "$nodes", "$time", "$devices_of_node", "$launch $sifmark run $image -- $arguments")
_FIGURES = ("state", "correctness", "throughput", "step_time", "energy")
_BENCHMARK = """\
  - name: {name}
    outpath: {outpath}
    comment: {comment}
    parameterset:
      - name: runs
        parameter:
{parameters}
      - name: start
        parameter:
          - {{name: sifmark, _: sifmark}}
          - {{name: image, _: {image}}}
          - {{name: launch, tag: "!slurm", _: ""}}
          - {{name: launch, tag: slurm, _: {launch}}}
    step:
      name: measure
      use: [runs, start]
      do:
        - {command}
        - $sifmark results.validate --quiet result.json
    analyser:
      name: read
      use: result
      analyse:
        step: measure
        file: result.json
    result:
      use: read
      table:
        name: runs
        style: csv
        separator: ";"
        sort: number
        column: [{columns}]
"""


def jube_files(
    plan: StudyPlan, options: Mapping[str, JobOptions], seconds: Mapping[str, int]
) -> tuple[ExportedFile, ...]:
    """Return the file. `options` are those of jobs by system, `seconds` has by key how long a run may take.

    Raises UsageError for a text in which JUBE would replace something.
    """
    study, name = plan.study, f"{plan.study.name}.yaml"
    systems = dict(by_system(plan))
    lines = "\n".join(f"# {line}" for line in heading(plan, "JUBE"))
    head = _HEAD.format(heading=lines, name=name, outpath=f"jube-{study.name}", first=next(iter(systems), "SYSTEM"))
    benchmarks = (_benchmark(plan, system, runs, options[system], seconds) for system, runs in systems.items())
    return (ExportedFile(name, head + _PATTERNS + "\n".join(benchmarks)),)


def _benchmark(
    plan: StudyPlan, name: str, runs: Sequence[PlannedRun], options: JobOptions, seconds: Mapping[str, int]
) -> str:
    system = next(each for each in plan.study.systems if each.name == name)
    columns = _columns(runs, options, seconds)
    image = str(Path(system.image).absolute()) if Path(system.image).is_file() else system.image
    shown = [column for column, values in columns.items() if column not in ("arguments", "time", "devices_of_node")]
    binds = f"APPTAINER_BIND={shlex.quote(','.join(system.bind))} " if system.bind else ""
    words = f"$launch $sifmark run $image -- $arguments --site {shlex.quote(name)} --output result.json"
    return _BENCHMARK.format(
        name=_text(name),
        outpath=_text(f"jube-{plan.study.name}-{name}"),
        comment=_text(" ".join(plan.study.title.split())),
        parameters="\n".join(_parameters(columns, len(runs))),
        image=_text(shlex.quote(image)),
        launch=_text(" ".join(_launch(options))),
        command=_text(f"{binds}{words} || test -e result.json"),  # also of a run that did not complete
        columns=", ".join(["number", *shown, *_FIGURES]),
    )


def _columns(runs: Sequence[PlannedRun], options: JobOptions, seconds: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the parameters of runs with a value for each run; of cells those that some run has."""
    keys = dict.fromkeys(key for planned in runs for key in planned.run.cell)
    cells = {key: [str(planned.run.cell.get(key, "")) for planned in runs] for key in keys}
    return {
        **cells,
        "group": [planned.run.group for planned in runs],
        "repeat": [str(planned.run.repeat) for planned in runs],
        "devices": [str(planned.run.devices) for planned in runs],
        "nodes": [str(planned.run.nodes) for planned in runs],
        "devices_of_node": [devices_requested(options, _share(planned)) or "0" for planned in runs],
        "time": [clock_of(seconds[planned.key]) for planned in runs],
        "arguments": [shlex.join(planned.run.arguments) for planned in runs],
    }


def _share(planned: PlannedRun) -> int:
    return math.ceil(planned.run.devices / planned.run.nodes)


def _parameters(columns: Mapping[str, Sequence[str]], count: int) -> Iterator[str]:
    numbers = ",".join(map(str, range(count)))
    yield f"          - {{name: number, type: int, _: {_text(numbers)}}}"
    for name, values in columns.items():
        # JUBE takes what a separator divides for several values: this one is in no text.
        table = _text(f"{list(values)!r}[$number]")
        yield f'          - {{name: {name}, mode: python, separator: "\\u241f", _: {table}}}'


def _launch(options: JobOptions) -> Iterator[str]:
    """Yield the words that start the tasks of a run on nodes of their own."""
    yield from ("srun", "--nodes=$nodes", "--ntasks=$nodes", "--ntasks-per-node=1", "--time=$time", "--cpu-bind=none")
    values = {"partition": options.partition, "account": options.account, "qos": options.qos}
    values |= {"constraint": options.constraint, "gres": options.gres, "mem": options.mem}
    yield from (f"--{name}={value}" for name, value in values.items() if value)
    if options.gpus_per_node and not options.gres:
        yield "--gpus-per-node=$devices_of_node"
    if options.exclusive:
        yield "--exclusive"


def _text(text: str) -> str:
    """Return a text of YAML. Raises UsageError for a dollar sign that is not ours: JUBE replaces what follows it."""
    rest = text
    for part in _OWN:
        rest = rest.replace(part, "")
    if "$" in rest:
        cause = f"JUBE would replace what follows the dollar sign in {rest[max(0, rest.index('$') - 20) :]!r:.100}"
        raise UsageError(cause, "use other names, or another --format", code="invalid-option")
    return json.dumps(text, ensure_ascii=False)
