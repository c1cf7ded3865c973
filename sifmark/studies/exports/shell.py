"""A study as a readable bash script that resumes where it was interrupted."""

from collections.abc import Iterator
from pathlib import Path

from sifmark.core.shell import comment, word, words
from sifmark.engines.binds import bind_options
from sifmark.studies.exports.exported import ExportedFile, by_system, heading, image_of, labels_of
from sifmark.studies.slurm.script import secret_lines
from sifmark.studies.study import PlannedRun, StudyPlan

_HEAD = """\
#!/usr/bin/env bash
{heading}
# Runs with a valid result are left out, so that it can be started again. SYSTEMs choose runs; without any, all run.
# usage: {name} [SYSTEM]...
# variables: SIFMARK, the program; SIFMARK_RESULTS, the folder of results; LAUNCH, what starts tasks on several nodes

set -euo pipefail
sifmark=${{SIFMARK:-sifmark}}
results={results}
[ -z "${{SIFMARK_RESULTS:-}}" ] || results=$SIFMARK_RESULTS
[[ $results == /* ]] || results=$PWD/$results
read -ra launch <<<"${{LAUNCH:-srun --ntasks-per-node=1 --nodes}}" # the number of nodes follows
binds=() # options that show images paths of this host
systems=("$@")
count=0 failed=0
cd -- {folder} # from which the study names images and data

wanted() {{ # SYSTEM
  local name
  ((${{#systems[@]}})) || return 0
  for name in "${{systems[@]}}"; do
    if [ "$name" = "$1" ]; then return 0; fi
  done
  return 1
}}

valid() {{ # KEY RESULT IMAGE
  [ -e "$2" ] && "$sifmark" results.validate --quiet --run "$1" --image "$3" "$2" >/dev/null 2>&1
}}

lock() {{ # FILE, by descriptor 9; 75 if another process holds it
  command -v flock >/dev/null || return 0
  # A process that ends a run removes the file: a lock of a removed file does not count.
  until [ "$1" -ef /dev/fd/9 ]; do
    exec 9>>"$1" || return 1
    flock --wait 5 9 || return 75
  done
}}

run() {{ # SYSTEM NODES KEY IMAGE ARGUMENTS...
  local system=$1 nodes=$2 key=$3 image=$4 start=() code=0
  local folder=$results/$system
  local result=$folder/$key.json log=$folder/logs/$key.log
  shift 4
  wanted "$system" || return 0
  count=$((count + 1))
  if valid "$key" "$result" "$image"; then return 0; fi
  if ((nodes > 1)); then start=("${{launch[@]}}" "$nodes"); fi
  mkdir -p "$folder/logs"
  printf '%s %s: %s\\n' "$system" "$key" "$*" >&2
  (
    # Another process may be at this run; study.run holds the same lock.
    lock "$folder/.$key.lock" || exit
    if valid "$key" "$result" "$image"; then exit 0; fi
    if ((nodes > 1)); then {secret}; fi
    "${{start[@]}}" "$sifmark" run "${{binds[@]}}" "$image" -- "$@" \\
      --site "$system" --output "$result" >"$log" 2>&1 9>&-
  ) || code=$?
  if ((code == 75)); then
    printf '%s %s: in progress elsewhere\\n' "$system" "$key" >&2
    return 0
  fi
  if valid "$key" "$result" "$image"; then return 0; fi # also of a run that did not complete, such as one out of memory
  failed=$((failed + 1))
  printf '%s %s: failed; see %s\\n' "$system" "$key" "$log" >&2
}}

"""
_END = """
printf '%s runs, %s failed\\n' "$count" "$failed" >&2
((failed == 0))
"""


def shell_files(plan: StudyPlan, folder: Path) -> tuple[ExportedFile, ...]:
    """Return the script, which can be started anywhere. Relative paths of the study are in `folder`."""
    name = f"{plan.study.name}.sh"
    head = _HEAD.format(
        heading="\n".join(map(comment, heading(plan, "bash"))),
        name=name,
        results=word(str(folder / plan.folder)),
        folder=word(str(folder)),
        secret="; ".join(secret_lines(nodes=2)),
    )
    return (ExportedFile(name, head + "\n".join(_body(plan)) + "\n" + _END, executable=True),)


def _body(plan: StudyPlan) -> Iterator[str]:
    systems = {system.name: system for system in plan.study.systems}
    labels = labels_of(plan)
    for number, (name, runs) in enumerate(by_system(plan)):
        system = systems[name]
        yield f"{'' if number == 0 else chr(10)}{comment(f'{name}: {system.title or system.image}')}"
        yield f"binds=({words(bind_options(system.bind))})"
        yield from (_line(planned, image_of(system), labels[planned.key]) for planned in runs)


def _line(planned: PlannedRun, image: str, label: str) -> str:
    run = planned.run
    return f"run {words([run.system, str(run.nodes), planned.key, image, *run.arguments])} {comment(label)}"
