"""The part of a job's script that all schedulers share, and what each of them adds as a dialect."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sifmark.studies.schedulers.jobs import JobArray, StartedImage
from sifmark.studies.schedulers.plain import facts_line, start_lines, start_options

WARNING_SECONDS = 60  # between the signal and the end of a job's time: enough to write what was measured
# Exit codes of a script that did not start the image; those of images are others.
CODE_IMAGE_CHANGED = 65
CODE_LIST_MISSING = 66


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a scheduler writes options, and what it tells and starts in a job. `{}` stands for the number of nodes."""

    name: str  # of the scheduler
    index: str  # variable: the element's number, from 1
    job: str  # expression of the shell: the element's ID, as the scheduler prints it
    restarts: str  # expression: how often the element was started again before
    node: str  # expression: the name of the node that the script runs on
    launch: tuple[str, ...]  # words that start one task on each node


# Comments in it are for those who read a script in their folder of results.
_BODY = """\
set -uo pipefail
shopt -s nullglob
name={name}
jobs={folder}
image={image}
index=${{{index}:-1}}
job={job}
node={node}

fail() {{ # CODE TEXT: it goes to the log of this element
  printf 'error: %s\\n' "$2" >&2
  record end "$1"
  exit "$1"
}}
record() {{ # begin | end CODE: a line by which study.status knows what became of this run
  printf '%s %(%s)T %s %s %s %s\\n' "$1" -1 "$node" "$job" "{restarts}" "${{2:-}}" >>"$jobs/$name.records/$index"
}}
finished() {{ # whether the run has a valid result of its own, completed or of one that did not fit into memory
  {finished}
}}

# The line of this element: key, result and the arguments of the image, with a tab between them.
mapfile -t -d $'\\t' words < <(sed -n "${{index}}p" "$jobs/$name.runs" | tr -d '\\n')
((${{#words[@]}} > 2)) || fail {list_missing} "$jobs/$name.runs has no line $index: do nodes see that folder?"
result=${{words[1]}} arguments=("${{words[@]:2}}")
lock=${{result%/*}}/.${{words[0]}}.lock

# Started again after a preemption or the failure of a node, or done by somebody else: nothing is done twice.
while command -v flock >/dev/null && {{ exec 9>>"$lock"; }} 2>/dev/null; do
  # Whoever asks whether a run is in progress holds its lock for an instant.
  flock --wait 5 --conflict-exit-code 75 9 2>/dev/null
  if (($? == 75)); then
    echo "run ${{words[0]}} is in progress elsewhere" && exit 0
  fi
  # Whoever ends a run removes its lock file: the lock of a file that is gone excludes nobody.
  [ "$lock" -ef /dev/fd/9 ] && break
done
if finished; then
  rm -f "$lock"
  echo "run ${{words[0]}} is done: $result" && exit 0
fi
record begin
[ "$(stat --dereference --format='%s %Y' "$image" 2>/dev/null)" = '{image_state}' ] ||
  fail {image_changed} "$image is not the file that it was when this job was submitted: submit again"
{start}
# A signal ends the image, which writes what it has measured; this script then ends by itself.
trap 'echo "SIGTERM" >&2' TERM
code=0
{launch} \\
  {command} 9>&- || code=$?
rm -f "$lock"
record end "$code"
exit "$code"
"""


def render(array: JobArray, dialect: Dialect, options: Iterable[str]) -> str:
    """Return the script of an array: the options in the scheduler's own form, then what each element does."""
    launch = [word.replace("{}", str(array.shape.nodes)) for word in dialect.launch]
    values = {
        "name": shlex.quote(array.name),
        "folder": shlex.quote(str(array.folder)),
        "image": shlex.quote(str(array.image.path)),
        "image_state": array.image.state,
        "index": dialect.index,
        "job": dialect.job,
        "node": dialect.node,
        "restarts": dialect.restarts,
        "finished": _finished(array.image),
        "list_missing": CODE_LIST_MISSING,
        "image_changed": CODE_IMAGE_CHANGED,
        "start": "\n".join(_start(array.image)),
        "launch": " ".join(launch),
        "command": _command(array.image),
    }
    return "\n".join([*_head(array, dialect, options), *_setup(array), _BODY.format_map(values)])


def quoted(value: object) -> str:
    """Return a value of an option in double quotes if it has a character that needs them."""
    text = str(value)
    return text if shlex.quote(text) == text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def option_lines(prefix: str, options: Mapping[str, object]) -> Iterator[str]:
    """Yield long options as a script has them, but those without a value; True is an option that takes none."""
    for name, value in options.items():
        if value is True:
            yield f"{prefix} --{name}"
        elif value not in ("", None, False):
            yield f"{prefix} --{name}={quoted(value)}"


def _head(array: JobArray, dialect: Dialect, options: Iterable[str]) -> Iterator[str]:
    shape, count = array.shape, len(array.elements)
    runs = f"{count} run{'s' * (count > 1)}"
    yield "#!/bin/bash"
    yield f"# Study {array.study} on {shape.system}: {runs} on {shape.nodes} x {shape.devices} (nodes x devices)."
    yield f"# Written by sifmark for {dialect.name}. Element N does the run in line N of {array.list.name}."
    yield from options


def _setup(array: JobArray) -> Iterator[str]:
    if array.options.modules:  # a shell that is not a login shell need not know them
        yield "type module >/dev/null 2>&1 || . /etc/profile"
    yield from (f"module load {module}" for module in array.options.modules)
    yield from array.options.setup


def _finished(image: StartedImage) -> str:
    if image.sifmark:
        words = shlex.join([*image.sifmark, "results.validate", "--quiet", "--finished"])
        return f'[ -e "$result" ] && {words} --run "${{words[0]}}" "$result" >/dev/null 2>&1'
    # A result is written whole or not at all, by the image, in this form; its command has the name that it got.
    state = """grep -Eqs '^    "state": "(completed|out_of_memory)"' "$result\""""
    return f'{state} && grep -Fqs "/${{words[0]}}.json\\"" "$result"'


def _start(image: StartedImage) -> Iterator[str]:
    """Yield what comes before the image is started."""
    yield from start_lines(image)
    if not image.sifmark:
        yield facts_line(image)


def _command(image: StartedImage) -> str:
    if image.sifmark:
        return f'{shlex.join([*image.sifmark, "run"])} "$image" -- "${{arguments[@]}}"'
    return " ".join(["apptainer --quiet run", *start_options(image), '"$image" "${arguments[@]}"'])
