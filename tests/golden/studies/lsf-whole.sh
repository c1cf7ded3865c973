#!/bin/bash
# Study turing on beta: 4 runs on 2 x 4 (nodes x devices).
# Written by sifmark for LSF. Element N does the run in line N of 20261127-091500-2-beta-2x4-1440min.runs.
#BSUB -J "sifmark-turing[1-4]%2"
#BSUB -q gpu
#BSUB -P project1
#BSUB -n 2
#BSUB -R "span[ptile=1]"
#BSUB -R "select[a100&nvme]"
#BSUB -x
#BSUB -gpu "num=4"
#BSUB -W 24:00
#BSUB -wt 1 -wa TERM
#BSUB -r
#BSUB -cwd "/home/user/my studies"
#BSUB -o /scratch/results/turing/jobs/20261127-091500-2-beta-2x4-1440min.logs/%I.log
#BSUB --reservation=bench
type module >/dev/null 2>&1 || . /etc/profile
module load Apptainer
export NCCL_DEBUG=WARN
set -uo pipefail
shopt -s nullglob
name=20261127-091500-2-beta-2x4-1440min
jobs=/scratch/results/turing/jobs
image='/scratch/my dist/cuda.sif'
index=${LSB_JOBINDEX:-1}
job="${LSB_JOBID}[$LSB_JOBINDEX]"
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
  grep -Eqs '^    "state": "(completed|out_of_memory)"' "$result" && grep -Fqs "/${words[0]}.json\"" "$result"
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
export APPTAINER_BIND="${APPTAINER_BIND:+$APPTAINER_BIND,}"/scratch/imagenet,/scratch/text
flags=()
for file in /dev/nvidia? /dev/nvidia1?; do [ ! -e "$file" ] || { flags+=(--nv) && break; }; done
export SIFMARK_IMAGE='{"identity": "sha256:0123"}'
# A signal ends the image, which writes what it has measured; this script then ends by itself.
trap 'echo "SIGTERM" >&2' TERM
code=0
mpirun -np 2 --npernode 1 \
  apptainer --quiet run "${flags[@]}" "$image" "${arguments[@]}" 9>&- || code=$?
rm -f "$lock"
record end "$code"
exit "$code"
