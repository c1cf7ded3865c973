#!/bin/bash
# Study turing on alpha: 1 run on 1 x 1 (nodes x devices).
# Written by sifmark for Flux. Element N does the run in line N of 20261127-091500-1-alpha-1x1-10min.runs.
# Submit it with: flux batch --cc=1-1 20261127-091500-1-alpha-1x1-10min.sh
#flux: --job-name=sifmark-turing
#flux: --nodes=1
#flux: --exclusive
#flux: --time-limit=600s
#flux: --signal=TERM@60s
#flux: --cwd="/home/user/my studies"
#flux: --output="/scratch/results/turing/jobs/20261127-091500-1-alpha-1x1-10min.logs/{cc}.log"
set -uo pipefail
shopt -s nullglob
name=20261127-091500-1-alpha-1x1-10min
jobs=/scratch/results/turing/jobs
image=/scratch/dist/cuda.sif
index=${FLUX_JOB_CC:-1}
job="${FLUX_ENCLOSING_ID:-$FLUX_JOB_ID}"
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
flux run --nodes=1 --tasks-per-node=1 --exclusive \
  /opt/sifmark/bin/sifmark run "$image" -- "${arguments[@]}" 9>&- || code=$?
rm -f "$lock"
record end "$code"
exit "$code"
