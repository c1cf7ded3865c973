"""A study as a file of JUBE: a benchmark for each system, in which each run is a value of one parameter."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from sifmark.core.console import printable
from sifmark.core.shell import comment, word
from sifmark.core.spreadsheets import spreadsheet_text
from sifmark.engines.binds import bind_options
from sifmark.studies.exports.exported import ExportedFile, by_system, heading, image_of
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
_SEPARATOR = ";"  # of the columns of tables, which JUBE does not quote
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
          - {{name: binds, {binds}}}
          - {{name: image, {image}}}
          - {{name: site, {site}}}
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
        separator: "{separator}"
        sort: number
        column: [{columns}]
"""


def jube_files(
    plan: StudyPlan, options: Mapping[str, JobOptions], seconds: Mapping[str, int]
) -> tuple[ExportedFile, ...]:
    """Return the file. `options` are those of jobs by system, `seconds` has by key how long a run may take."""
    study, name = plan.study, f"{plan.study.name}.yaml"
    systems = dict(by_system(plan))
    lines = "\n".join(map(comment, heading(plan, "JUBE")))
    head = _HEAD.format(heading=lines, name=name, outpath=f"jube-{study.name}", first=next(iter(systems), "SYSTEM"))
    benchmarks = (_benchmark(plan, system, runs, options[system], seconds) for system, runs in systems.items())
    return (ExportedFile(name, head + _PATTERNS + "\n".join(benchmarks)),)


def _benchmark(
    plan: StudyPlan, name: str, runs: Sequence[PlannedRun], options: JobOptions, seconds: Mapping[str, int]
) -> str:
    system = next(each for each in plan.study.systems if each.name == name)
    columns = _columns(runs, options, seconds)
    shown = [column for column in columns if column not in ("arguments", "time", "devices_of_node")]
    command = f"$launch $sifmark run $binds $image -- $arguments --site {name} --output result.json"
    return _BENCHMARK.format(
        name=_text(name),
        outpath=_text(f"jube-{plan.study.name}-{name}"),
        comment=_text(plan.study.title),
        parameters="\n".join(_parameters(columns, len(runs))),
        binds=_python(ascii(" ".join(map(_word, bind_options(system.bind))))),
        image=_python(ascii(_word(image_of(system)))),
        site=_python(ascii(" ".join(_site(options)))),
        launch=_text(" ".join(_launch(options))),
        command=_text(f"{command} || test -e result.json"),  # also of a run that did not complete
        separator=_SEPARATOR,
        columns=", ".join(["number", *shown, *_FIGURES]),
    )


def _columns(runs: Sequence[PlannedRun], options: JobOptions, seconds: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the parameters of runs with a value for each run; of cells those that some run has."""
    keys = dict.fromkeys(key for planned in runs for key in planned.run.cell)
    cells = {key: [_table_cell(str(planned.run.cell.get(key, ""))) for planned in runs] for key in keys}
    return {
        **cells,
        "group": [planned.run.group for planned in runs],
        "repeat": [str(planned.run.repeat) for planned in runs],
        "devices": [str(planned.run.devices) for planned in runs],
        "nodes": [str(planned.run.nodes) for planned in runs],
        "devices_of_node": [devices_requested(options, _share(planned)) or "0" for planned in runs],
        "time": [clock_of(seconds[planned.key]) for planned in runs],
        "arguments": [" ".join(map(_word, planned.run.arguments)) for planned in runs],
    }


def _share(planned: PlannedRun) -> int:
    return math.ceil(planned.run.devices / planned.run.nodes)


def _parameters(columns: Mapping[str, Sequence[str]], count: int) -> Iterator[str]:
    numbers = ",".join(map(str, range(count)))
    yield f"          - {{name: number, type: int, _: {_text(numbers)}}}"
    for name, values in columns.items():
        yield f"          - {{name: {name}, {_python(ascii(list(values)), '[$number]')}}}"


def _launch(options: JobOptions) -> Iterator[str]:
    """Yield the words that start the tasks of a run on nodes of their own. JUBE replaces parameters in them."""
    yield from ("srun", "--nodes=$nodes", "--ntasks=$nodes", "--ntasks-per-node=1", "--time=$time", "--cpu-bind=none")
    if options.gpus_per_node and not options.gres:
        yield "--gpus-per-node=$devices_of_node"
    if options.exclusive:
        yield "--exclusive"
    yield "$site"


def _site(options: JobOptions) -> Iterator[str]:
    """Yield the words in which the site's own texts are."""
    values = {"partition": options.partition, "account": options.account, "qos": options.qos}
    values |= {"constraint": options.constraint, "gres": options.gres, "mem": options.mem}
    yield from (_word(f"--{name}={value}") for name, value in values.items() if value)


def _word(text: str) -> str:
    """Return a word of a shell. JUBE doubles a dollar sign before a blank, and so quotes end between the two."""
    return word(text).replace("$", "$''")


def _table_cell(text: str) -> str:
    return spreadsheet_text(text).replace(_SEPARATOR, ",")


def _python(literal: str, index: str = "") -> str:
    """Return the fields of a parameter whose value is an expression of Python.

    JUBE replaces what follows a dollar sign in an expression, but not in its value; and what a separator divides are
    several values: this one is in no text.
    """
    return f'mode: python, separator: "\\u241f", _: {_text(literal.replace("$", chr(92) + "x24") + index)}'


def _text(text: str) -> str:
    """Return a text of YAML."""
    return json.dumps(printable(text), ensure_ascii=False)
