"""Job scripts: an sbatch script per array, and the shell lines that run an image with `apptainer run`."""

from collections.abc import Iterator

from sifmark.core.errors import UsageError
from sifmark.core.shell import comment, pattern, word, words
from sifmark.engines.binds import bind_options
from sifmark.studies.events import EVENTS, SUFFIX
from sifmark.studies.slurm.jobs import JobArray, StartedImage, require_line
from sifmark.studies.slurm.options import clock_of, devices_requested
from sifmark.studies.states import (
    CODE_IMAGE_REPLACED,
    CODE_LIST_MISSING,
    CODE_NOT_WRITABLE,
    CODE_PROGRAM_MISSING,
    WARNING_SECONDS,
)

# Comments in it are for those who read a script in their folder of results.
# --cpus-per-task: a step does not inherit the job's processors, and would run on one.
_BODY = """\
set -uo pipefail
shopt -s nullglob
name={name}
jobs={folder}
image={image}
index=${{SLURM_ARRAY_TASK_ID:-1}}
job="${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
node="${{SLURMD_NODENAME:-$HOSTNAME}}"
log=/dev/null # of the events of this run

note() {{ # started | ended, FIELDS: a line from which study.status derives the state of this run
  printf '{{"what":"%s","time":%(%s)T,"host":"%s","job":"%s","array":"%s","cluster":"%s",%s}}\\n' \\
    "$1" -1 "$node" "$job" "$name" "${{SLURM_CLUSTER_NAME:-}}" "$2" >>"$log"
}}
fail() {{ # CODE TEXT: it goes to the log of this task
  printf 'error: %s\\n' "$2" >&2
  note ended '"code":'"$1"
  exit "$1"
}}
finished() {{ # whether the run has a valid result of its own, completed or of one that did not fit into memory
  {finished}
}}
put_away() {{ # FOLDER KEY: keep what an earlier attempt left
  local number=1
  mkdir -p "$1/.earlier"
  while [ -e "$1/.earlier/$2-$number.json" ]; do number=$((number + 1)); done
  mv "$result" "$1/.earlier/$2-$number.json"
}}
leave_out() {{ # PROGRAM: the tasks that still wait do not come to this node
  local others
  others=$(scontrol --oneliner show job "$SLURM_ARRAY_JOB_ID" 2>/dev/null |
    sed -n 's/.* ExcNodeList=\\([^ (]*\\).*/\\1/p' | head -n 1)
  scontrol update jobid="$SLURM_ARRAY_JOB_ID" excnodelist="${{others:+$others,}}$node" >/dev/null 2>&1
  fail {program_missing} "$node has no $1: no further task of this job comes here"
}}

# The line of this task: key, result and the arguments of the image, with a tab between them.
mapfile -t -d $'\\t' words < <(sed -n "${{index}}p" "$jobs/$name.runs" | tr -d '\\n')
((${{#words[@]}} > 2)) || fail {list_missing} "$jobs/$name.runs has no line $index: do nodes see that folder?"
key=${{words[0]}} result=${{words[1]}} arguments=("${{words[@]:2}}")
folder=${{result%/*}}
lock=$folder/.$key.lock
mkdir -p "$folder/{events}" && log=$folder/{events}/$key{suffix}
[ ! -e "$log" ] || [ -f "$log" ] || log=/dev/null

# Requeued after a preemption or the failure of a node, or done by another process: nothing is done twice.
while command -v flock >/dev/null && {{ exec 9>>"$lock" || exec 9<"$lock"; }} 2>/dev/null; do
  # A process that asks whether a run is in progress holds its lock for an instant.
  flock --wait 5 --conflict-exit-code 75 9 2>/dev/null
  if (($? == 75)); then
    echo "run $key is in progress elsewhere" && exit 0
  fi
  # A process that ends a run removes its lock file: a lock of a removed file does not count.
  [ "$lock" -ef /dev/fd/9 ] && break
done
if finished; then
  rm -f "$lock"
  echo "run $key is done: $result" && exit 0
fi
[ ! -e "$result" ] || put_away "$folder" "$key"
# Some results are written for a try: only this shows a quota.
problem=$(dd if=/dev/zero of="$folder/.room-$key" bs=64K count=4 conv=fsync status=none 2>&1)
room=$?
rm -f "$folder/.room-$key"
((room == 0)) || fail {not_writable} "results cannot be written to $folder: ${{problem##*: }}"
for program in {programs}; do
  command -v "$program" >/dev/null || leave_out "$program"
done
[ "$(stat --dereference --format='%s %Y' "$image" 2>/dev/null)" = {image_state} ] ||
  [ "$(sha256sum <"$image" 2>/dev/null)" = {image_digest} ] ||
  fail {image_changed} "$image is not the file that it was when this job was submitted: submit again"
note started '"restarts":'"${{SLURM_RESTART_COUNT:-0}}" ||
  fail {not_writable} "the log of this run cannot be written: $log"
{start}
# A signal ends the image, which writes what it has measured; this script then ends by itself. The warning before the
# end of the job's time goes to the image alone, an order to end to this script too.
cancelled=false
trap 'cancelled=true; echo "SIGTERM" >&2' TERM
code=0
srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 \\
  --cpus-per-task="${{SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}}" \\
  {command} 9>&- || code=$?
rm -f "$lock"
note ended '"code":'"$code"',"cancelled":'"$cancelled"
exit "$code"
"""


def script_of(array: JobArray) -> str:
    """Return the sbatch script of a job array."""
    values = {
        "name": word(array.name),
        "folder": word(str(array.folder)),
        "image": word(str(array.image.path)),
        "image_state": word(array.image.state),
        "image_digest": word(f"{array.image.digest.removeprefix('sha256:')}  -"),
        "finished": _finished(array.image),
        "programs": words(dict.fromkeys([*array.image.sifmark[:1], "apptainer"])),
        "events": EVENTS,
        "suffix": SUFFIX,
        "list_missing": CODE_LIST_MISSING,
        "image_changed": CODE_IMAGE_REPLACED,
        "program_missing": CODE_PROGRAM_MISSING,
        "not_writable": CODE_NOT_WRITABLE,
        "start": "\n".join([*_start(array.image), *secret_lines(array.shape.nodes)]),
        "nodes": array.shape.nodes,
        "command": _command(array.image),
    }
    return "\n".join([*_head(array), *_options(array), *_setup(array), _BODY.format_map(values)])


def job_name(array: str) -> str:
    """Return the job name of an array in Slurm's lists."""
    return f"sifmark-{array}"


def start_lines(image: StartedImage) -> Iterator[str]:
    """Yield the shell lines that have to come before an image is started with `start_options`."""
    if image.device_files:
        flags = words(image.device_flags) if image.device_flags else '--bind "$file"'
        first = " && break" if image.device_flags else ""
        yield "flags=()"
        files = " ".join(map(pattern, image.device_files))
        yield f'for file in {files}; do [ ! -e "$file" ] || {{ flags+=({flags}){first}; }}; done'
        for name in image.selection_paths:  # as device_selection_files says it
            known = f'((${{#flags[@]}} == 0)) || [[ ${{{name}:-}} != /* ]] || [ ! -e "${name}" ]'
            yield f'{known} || flags+=(--bind "${name}:${name}:ro")'


def secret_lines(nodes: int) -> Iterator[str]:
    """Yield what lets the tasks of a run on several nodes know each other. No command line has the secret."""
    if nodes > 1:
        yield "SIFMARK_LAUNCH_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')"
        yield "export SIFMARK_LAUNCH_SECRET"


def facts_line(image: StartedImage) -> str:
    """Return the line by which plain Apptainer's results say of the image what was seen of it."""
    return f"export SIFMARK_IMAGE={word(image.facts)}"


def start_options(image: StartedImage) -> list[str]:
    """Return the options of plain Apptainer as a shell takes them: those of the device as `start_lines` found it."""
    options = [words(image.flags)] if image.flags else []
    return [*options, '"${flags[@]}"'] if image.device_files else options


def _head(array: JobArray) -> Iterator[str]:
    shape, count = array.shape, len(array.tasks)
    runs = f"{count} run{'s' * (count > 1)}"
    yield "#!/bin/bash"
    yield comment(
        f"Study {array.study} on {shape.system}: {runs} on {shape.nodes} x {shape.devices} (nodes x devices)."
    )
    yield comment(f"Written by sifmark. Array task N does the run in line N of {array.list.name}.")


def _options(array: JobArray) -> Iterator[str]:
    """Yield the #SBATCH lines: the options that have a value, then the site's own."""
    shape, options, count = array.shape, array.options, len(array.tasks)
    values = {
        "job-name": job_name(array.name),
        "array": f"1-{count}%{limit}" if (limit := array.limit) and limit < count else f"1-{count}",
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "nodes": shape.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": options.cpus_per_task,
        "gpus-per-node": "" if options.gres else devices_requested(options, shape.devices),
        "gres": options.gres,
        "exclude": ",".join(array.excluded),
        "exclusive": options.exclusive,
        "mem": options.mem or ("0" if options.exclusive else ""),
        "time": clock_of(shape.seconds),
        "signal": f"TERM@{min(WARNING_SECONDS, shape.seconds // 4)}",
        "requeue": True,
        "open-mode": "append",
        "chdir": array.work,
        "output": _log_pattern(str(array.logs)),
    }
    for name, value in values.items():
        if value is True:
            yield f"#SBATCH --{name}"
        elif value not in ("", None, False):
            yield f"#SBATCH --{name}={_quoted(value)}"
    yield from (f"#SBATCH {line}" for line in options.extra)


def _log_pattern(folder: str) -> str:
    """Return where the output of a task goes. Raises UsageError for a folder that Slurm cannot write it to.

    In this path Slurm replaces what follows a percent sign, but nothing if there is a backslash.
    """
    if "\\" in folder:
        remedy = "choose another folder with --results or -o, or rename it"
        raise UsageError(f"Slurm writes no log to a path with a backslash: {folder}", remedy, code="invalid-option")
    return f"{folder.replace('%', '%%')}/%a.log"


def _quoted(value: object) -> str:
    """Return the value of an option as sbatch reads it: in double quotes if it has a character that needs them.

    Raises UsageError for a control character, since an option ends with its line.
    """
    text = require_line(str(value))
    return text if word(text) == text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _setup(array: JobArray) -> Iterator[str]:
    if array.options.modules:  # a shell that is not a login shell need not know them
        yield "type module >/dev/null 2>&1 || . /etc/profile"
    yield from (f"module load {word(module)}" for module in array.options.modules)
    yield from array.options.setup


def _finished(image: StartedImage) -> str:
    if image.sifmark:
        validate = words([*image.sifmark, "results.validate", "--quiet", "--finished"])
        return f'[ -e "$result" ] && {validate} --run "$key" "$result" >/dev/null 2>&1'
    # A result is written whole or not at all, by the image, in this form; its command has the name that it got.
    state = """grep -Eqs '^    "state": "(completed|out_of_memory)"' "$result\""""
    return f'{state} && grep -Fqs "/$key.json\\"" "$result"'


def _start(image: StartedImage) -> Iterator[str]:
    """Yield what comes before the image is started."""
    yield from start_lines(image)
    if not image.sifmark:
        yield facts_line(image)


def _command(image: StartedImage) -> str:
    if image.sifmark:
        return f'{words([*image.sifmark, "run", *bind_options(image.binds)])} "$image" -- "${{arguments[@]}}"'
    return " ".join(["apptainer --quiet run", *start_options(image), '"$image" "${arguments[@]}"'])
