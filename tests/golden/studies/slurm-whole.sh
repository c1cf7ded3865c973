#!/bin/bash
# Study turing on beta: 4 runs on 2 x 4 (nodes x devices).
# Written by sifmark. Array task N does the run in line N of 20261127-091500-2-beta-2x4-1440min.runs.
#SBATCH --job-name=sifmark-20261127-091500-2-beta-2x4-1440min
#SBATCH --array=1-4
#SBATCH --partition=gpu
#SBATCH --account=project1
#SBATCH --qos=bench
#SBATCH --constraint="a100&nvme"
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --gpus-per-node=a100:4
#SBATCH --exclusive
#SBATCH --mem=480G
#SBATCH --time=1-00:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --chdir="/home/user/my studies"
#SBATCH --output=/scratch/results/turing/jobs/20261127-091500-2-beta-2x4-1440min.logs/%a.log
#SBATCH --reservation=bench
type module >/dev/null 2>&1 || . /etc/profile
module load Apptainer
export NCCL_DEBUG=WARN
set -uo pipefail
shopt -s nullglob
name=20261127-091500-2-beta-2x4-1440min
jobs=/scratch/results/turing/jobs
image='/scratch/my dist/cuda.sif'
index=${SLURM_ARRAY_TASK_ID:-1}
job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
node="${SLURMD_NODENAME:-$HOSTNAME}"
log=/dev/null # of the events of this run

note() { # started | ended, FIELDS: a line from which study.status derives the state of this run
  printf '{"what":"%s","time":%(%s)T,"host":"%s","job":"%s","array":"%s","cluster":"%s",%s}\n' \
    "$1" -1 "$node" "$job" "$name" "${SLURM_CLUSTER_NAME:-}" "$2" >>"$log"
}
fail() { # CODE TEXT: it goes to the log of this task
  printf 'error: %s\n' "$2" >&2
  note ended '"code":'"$1"
  exit "$1"
}
finished() { # whether the run has a valid result of its own, completed or of one that did not fit into memory
  grep -Eqs '^    "state": "(completed|out_of_memory)"' "$result" && grep -Fqs "/$key.json\"" "$result"
}
put_away() { # FOLDER KEY: keep what an earlier attempt left
  local number=1
  mkdir -p "$1/.earlier"
  while [ -e "$1/.earlier/$2-$number.json" ]; do number=$((number + 1)); done
  mv "$result" "$1/.earlier/$2-$number.json"
}
leave_out() { # PROGRAM: the tasks that still wait do not come to this node
  local others
  others=$(scontrol --oneliner show job "$SLURM_ARRAY_JOB_ID" 2>/dev/null |
    sed -n 's/.* ExcNodeList=\([^ (]*\).*/\1/p' | head -n 1)
  scontrol update jobid="$SLURM_ARRAY_JOB_ID" excnodelist="${others:+$others,}$node" >/dev/null 2>&1
  fail 127 "$node has no $1: no further task of this job comes here"
}

# The line of this task: key, result and the arguments of the image, with a tab between them.
mapfile -t -d $'\t' words < <(sed -n "${index}p" "$jobs/$name.runs" | tr -d '\n')
((${#words[@]} > 2)) || fail 66 "$jobs/$name.runs has no line $index: do nodes see that folder?"
key=${words[0]} result=${words[1]} arguments=("${words[@]:2}")
folder=${result%/*}
lock=$folder/.$key.lock
mkdir -p "$folder/.events" && log=$folder/.events/$key.jsonl
[ ! -e "$log" ] || [ -f "$log" ] || log=/dev/null

# Requeued after a preemption or the failure of a node, or done by another process: nothing is done twice.
while command -v flock >/dev/null && { exec 9>>"$lock" || exec 9<"$lock"; } 2>/dev/null; do
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
((room == 0)) || fail 6 "results cannot be written to $folder: ${problem##*: }"
for program in apptainer; do
  command -v "$program" >/dev/null || leave_out "$program"
done
[ "$(stat --dereference --format='%s %Y' "$image" 2>/dev/null)" = '1234 1764234900' ] ||
  [ "$(sha256sum <"$image" 2>/dev/null)" = '0000000000000000000000000000000000000000000000000000000000000000  -' ] ||
  fail 65 "$image is not the file that it was when this job was submitted: submit again"
note started '"restarts":'"${SLURM_RESTART_COUNT:-0}" ||
  fail 6 "the log of this run cannot be written: $log"
flags=()
for file in /dev/nvidia? /dev/nvidia1?; do [ ! -e "$file" ] || { flags+=(--nv) && break; }; done
export SIFMARK_IMAGE='{"identity": "sha256:0123"}'
SIFMARK_LAUNCH_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export SIFMARK_LAUNCH_SECRET
# A signal ends the image, which writes what it has measured; this script then ends by itself. The warning before the
# end of the job's time goes to the image alone, an order to end to this script too.
cancelled=false
trap 'cancelled=true; echo "SIGTERM" >&2' TERM
code=0
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 \
  --cpus-per-task="${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}" \
  apptainer --quiet run --bind /scratch/imagenet:/scratch/imagenet:ro "${flags[@]}" "$image" "${arguments[@]}" 9>&- || code=$?
rm -f "$lock"
note ended '"code":'"$code"',"cancelled":'"$cancelled"
exit "$code"
