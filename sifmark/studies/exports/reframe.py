"""A study as a module of ReFrame, which runs with a site's own configuration and without sifmark on its hosts."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sifmark.core import paths
from sifmark.core.console import printable
from sifmark.core.shell import words
from sifmark.studies.exports.earlier import ReferenceValue, references
from sifmark.studies.exports.exported import ExportedFile, by_system, heading, labels_of
from sifmark.studies.slurm.jobs import StartedImage
from sifmark.studies.slurm.script import facts_line, secret_lines, start_lines, start_options
from sifmark.studies.study import PlannedRun, StudyPlan

_SCHEMA = "result-1.2.json"
_HEAD = '''\
"""{heading}

Run it with the configuration of your site, which names Apptainer among the container_platforms of a partition:

    reframe -C SETTINGS.py -c {name} --run

There is a test for each system of the study: {tests}.
ReFrame's options choose what runs, and change what this module says:

    -S TEST.valid_systems=SYSTEM:PARTITION    where a test may run; otherwise everywhere
    -S TEST.image=FILE.sif                    the image
    -S tolerance=0.1                          how far a value may be from its reference, as a fraction
    -n batch_size=16                          the runs whose names have this

A test passes if the image wrote a valid result of a run that completed, or that did not fit into memory, and if its
correctness check did not fail. Its values are the metrics of the result. References are medians of earlier results.
"""

import json
import os
import shlex

import jsonschema
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable

STUDY = {study}
# By name of a run: its arguments, nodes, devices of each node, time limit in seconds, and references: value, unit,
# and whether more is better.
RUNS = {runs}
# By system how its image was started where this module was written.
IMAGES = {images}


'''
_BODY = '''\
class SifmarkRun(rfm.RunOnlyRegressionTest):
    """A run of a study."""

    image = variable(str)
    study_system = variable(str)
    states = variable(list, value=["completed", "out_of_memory"])
    correct = variable(list, value=["passed", "not_provable", "not_run"])
    tolerance = variable(float, value=0.05)
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    num_tasks_per_node = 1  # it starts all ranks of its node
    exclusive_access = True
    container_platform = "Apptainer"
    keep_files = ["result.json"]
    tags = {"sifmark", STUDY}

    @run_after("init")
    def describe(self):
        run = RUNS[self.study_run]
        self.descr = f"{STUDY}: {self.study_run}"
        self.num_tasks = run["nodes"]
        self.time_limit = f'{run["seconds"]}s'
        if run["devices"]:
            self.num_gpus_per_node = run["devices"]

    @run_before("run")
    def start(self):
        if self.num_cpus_per_task is None:  # a task without a number may be given one processor
            self.num_cpus_per_task = self.current_partition.processor.num_cpus
        here = IMAGES[self.study_system]
        self.prerun_cmds = [*here["before"], *([here["facts"]] if self.is_same_image(here) else [])]
        self.container_platform.image = shlex.quote(self.image)
        self.container_platform.options = here["options"]
        self.container_platform.command = (
            f'/sifmark/run {RUNS[self.study_run]["arguments"]} --site {self.study_system} --output result.json'
        )

    def is_same_image(self, here):
        """Return whether the image is the one that was looked at: results say of it what was seen then."""
        try:
            now = os.stat(self.image)
        except OSError:
            return False
        return self.image == here["image"] and f"{now.st_size} {int(now.st_mtime)}" == here["state"]

    def result(self):
        with open(os.path.join(self.stagedir, "result.json"), encoding="utf-8") as file:
            return json.load(file)

    @sanity_function
    def is_valid(self):
        result = self.result()
        errors = [error.message for error in VALIDATOR.iter_errors(result)]
        if errors:
            return sn.assert_true(False, msg=f"the result is not valid: {errors[0]:.200}")
        status, numerics = result["status"], result["numerics"]
        return sn.all(
            [
                sn.assert_in(status["state"], self.states, msg=f'{status["state"]}: {status["message"]}'),
                sn.assert_in(numerics["state"], self.correct, msg=f'correctness: {numerics["state"]}'),
            ]
        )

    @run_before("performance")
    def read_metrics(self):
        result = self.result()
        completed = result["status"]["state"] == "completed"
        metrics = {name: metric for name, metric in result["metrics"].items() if metric["value"] is not None}
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(metric["value"]), metric["unit"])
            for name, metric in metrics.items()
            if completed
        }
        self.reference = {
            "*": {
                name: (value, -self.tolerance, None, unit) if more else (value, None, self.tolerance, unit)
                for name, (value, unit, more) in RUNS[self.study_run]["references"].items()
                if completed and name in metrics
            }
        }


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "result-1.2.json"), encoding="utf-8") as schema:
    VALIDATOR = jsonschema.Draft202012Validator(json.load(schema))
'''
_CLASS = """

@rfm.simple_test
class {name}(SifmarkRun):
    study_system = {system}
    image = IMAGES[{system}]["image"]
    study_run = parameter(name for name, run in RUNS.items() if run["system"] == {system})
"""


def reframe_files(
    plan: StudyPlan, images: Mapping[str, StartedImage], seconds: Mapping[str, int]
) -> tuple[ExportedFile, ...]:
    """Return the module, and the schema of results that it reads.

    `images` say by system how plain Apptainer starts them, `seconds` by key how long a run may take.
    """
    name = f"{_identifier(plan.study.name)}.py"
    earlier, labels = references(plan.runs), labels_of(plan)
    systems = {system: max(planned.run.nodes for planned in runs) for system, runs in by_system(plan)}
    classes = _class_names(plan, systems)
    head = _HEAD.format(
        heading="\n".join(map(printable, heading(plan, "ReFrame"))).replace('"""', "'''").replace("\\", "/"),
        name=name,
        tests=", ".join(classes.values()),
        study=repr(plan.study.name),
        runs=_table(
            {
                labels[planned.key]: _run(
                    planned, images[planned.run.system], seconds[planned.key], earlier.get(planned.key, {})
                )
                for planned in plan.runs
            }
        ),
        images=_table({system: _image(images[system], nodes) for system, nodes in systems.items()}),
    )
    tests = "".join(_CLASS.format(name=name, system=repr(system)) for system, name in classes.items())
    schema = (paths.SCHEMAS / _SCHEMA).read_text(encoding="utf-8")
    return ExportedFile(name, head + _BODY + tests), ExportedFile(_SCHEMA, schema)


def _run(
    planned: PlannedRun, image: StartedImage, seconds: int, earlier: Mapping[str, ReferenceValue]
) -> dict[str, Any]:
    run = planned.run
    return {
        "system": run.system,
        "arguments": words(run.arguments),
        "nodes": run.nodes,
        "devices": math.ceil(run.devices / run.nodes) if image.device_files else 0,
        "seconds": seconds,
        "references": {name: [value.value, value.unit, value.more_is_better] for name, value in earlier.items()},
    }


def _image(image: StartedImage, nodes: int) -> dict[str, Any]:
    return {
        "image": str(image.path),
        "state": image.state,
        "options": start_options(image),
        "before": [*start_lines(image), *secret_lines(nodes)],
        "facts": facts_line(image),
    }


def _class_names(plan: StudyPlan, systems: Iterable[str]) -> dict[str, str]:
    """Return the name of a class for each system. Two systems may differ in characters that no class has."""
    names: dict[str, str] = {}
    for system in systems:
        name = f"{_identifier(plan.study.name)}_{_identifier(system)}"
        while name in names.values():
            name += "_"
        names[system] = name
    return names


def _identifier(name: str) -> str:
    """Return a name as an identifier of Python."""
    return re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)


def _table(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a dictionary of dictionaries in Python, with an entry on each line."""
    lines = (f"    {key!r}: {value!r},\n" for key, value in entries.items())
    return "{\n" + "".join(lines) + "}"
