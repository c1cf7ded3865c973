#!/bin/bash
# Study turing on alpha: 1 run on 1 x 1 (nodes x devices).
# Written by sifmark for PBS. Element N does the run in line N of 20261127-091500-1-alpha-1x1-10min.runs.
#PBS -N sifmark-turing
#PBS -l select=1
#PBS -l place=scatter:exclhost
#PBS -l walltime=00:10:00
#PBS -r y
#PBS -j oe
#PBS -o /scratch/results/turing/jobs/20261127-091500-1-alpha-1x1-10min.logs/
cd "/home/user/my studies" || exit 1
set -uo pipefail
shopt -s nullglob
name=20261127-091500-1-alpha-1x1-10min
jobs=/scratch/results/turing/jobs
image=/scratch/dist/cuda.sif
index=${PBS_ARRAY_INDEX:-1}
job="$PBS_JOBID"
node="$HOSTNAME"

fail() { # CODE TEXT: it goes to the log of this element
  printf 'error: %s\n' "$2" >&2
  record end "$1"
  exit "$1"
}
record() { # begin | end CODE: a line by which study.status knows what became of this run
  printf '%s %(%s)T %s %s %s %s\n' "$1" -1 "$node" "$job" "0" "${2:-}" >>"$jobs/$name.records/$index"
}
finished() { # whether the run has a valid result of its own, completed or of one that did not fit into memory
  [ -e "$result" ] && /opt/sifmark/bin/sifmark results.validate --quiet --finished --run "${words[0]}" "$result" >/dev/null 2>&1
}

# The line of this element: key, result and the arguments of the image, with a tab between them.
mapfile -t -d $'\t' words < <(sed -n "${index}p" "$jobs/$name.runs" | tr -d '\n')
((${#words[@]} > 2)) || fail 66 "$jobs/$name.runs has no line $index: do nodes see that folder?"
result=${words[1]} arguments=("${words[@]:2}")
lock=${result%/*}/.${words[0]}.lock

# Started again after a preemption or the failure of a node, or done by somebody else: nothing is done twice.
while command -v flock >/dev/null && { exec 9>>"$lock"; } 2>/dev/null; do
  # Whoever asks whether a run is in progress holds its lock for an instant.
  flock --wait 5 --conflict-exit-code 75 9 2>/dev/null
  if (($? == 75)); then
    echo "run ${words[0]} is in progress elsewhere" && exit 0
  fi
  # Whoever ends a run removes its lock file: the lock of a file that is gone excludes nobody.
  [ "$lock" -ef /dev/fd/9 ] && break
done
if finished; then
  rm -f "$lock"
  echo "run ${words[0]} is done: $result" && exit 0
fi
record begin
[ "$(stat --dereference --format='%s %Y' "$image" 2>/dev/null)" = '1234 1764234900' ] ||
  fail 65 "$image is not the file that it was when this job was submitted: submit again"

# A signal ends the image, which writes what it has measured; this script then ends by itself.
trap 'echo "SIGTERM" >&2' TERM
code=0
mpiexec -n 1 --ppn 1 \
  /opt/sifmark/bin/sifmark run "$image" -- "${arguments[@]}" 9>&- || code=$?
rm -f "$lock"
record end "$code"
exit "$code"
