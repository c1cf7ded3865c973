#!/usr/bin/env bash
# Study trial: A "trial" of exports: 100 % # {odd}
# 8 runs for bash, written by sifmark study.export.
# Runs with a valid result are left out, so that it can be started again. SYSTEMs choose runs; without any, all run.
# usage: trial.sh [SYSTEM]...
# variables: SIFMARK, the program; SIFMARK_RESULTS, the folder of results; LAUNCH, what starts tasks on several nodes

set -euo pipefail
sifmark=${SIFMARK:-sifmark}
results=$(realpath --canonicalize-missing -- "${SIFMARK_RESULTS:-/home/somebody/results/trial}")
read -ra launch <<<"${LAUNCH:-srun --ntasks-per-node=1 --nodes}" # the number of nodes follows
binds=${APPTAINER_BIND:-}
systems=("$@")
count=0 failed=0
cd -- /home/somebody # from which the study names images and data

wanted() { # SYSTEM
  local name
  ((${#systems[@]})) || return 0
  for name in "${systems[@]}"; do
    if [ "$name" = "$1" ]; then return 0; fi
  done
  return 1
}

valid() { # KEY RESULT
  [ -e "$2" ] && "$sifmark" results.validate --quiet --run "$1" "$2" >/dev/null 2>&1
}

lock() { # FILE, by descriptor 9; 75 if another process holds it
  command -v flock >/dev/null || return 0
  # A process that ends a run removes the file: a lock of a removed file does not count.
  until [ "$1" -ef /dev/fd/9 ]; do
    exec 9>>"$1" || return 1
    flock --wait 5 9 || return 75
  done
}

run() { # SYSTEM NODES KEY IMAGE ARGUMENTS...
  local system=$1 nodes=$2 key=$3 image=$4 start=() code=0
  local folder=$results/$system
  local result=$folder/$key.json log=$folder/logs/$key.log
  shift 4
  wanted "$system" || return 0
  count=$((count + 1))
  if valid "$key" "$result"; then return 0; fi
  if ((nodes > 1)); then start=("${launch[@]}" "$nodes"); fi
  mkdir -p "$folder/logs"
  printf '%s %s: %s\n' "$system" "$key" "$*" >&2
  (
    # Another process may be at this run; study.run holds the same lock.
    lock "$folder/.$key.lock" || exit
    if valid "$key" "$result"; then exit 0; fi
    "${start[@]}" "$sifmark" run "$image" -- "$@" --site "$system" --output "$result" >"$log" 2>&1 9>&-
  ) || code=$?
  if ((code == 75)); then
    printf '%s %s: in progress elsewhere\n' "$system" "$key" >&2
    return 0
  fi
  if valid "$key" "$result"; then return 0; fi # also of a run that did not complete, such as one out of memory
  failed=$((failed + 1))
  printf '%s %s: failed; see %s\n' "$system" "$key" "$log" >&2
}

# here: This machine
export APPTAINER_BIND="$binds"
run here 1 df0beb69943c85b5 cpu resnet50 --batch-size 16 # sizes batch_size=16 repeat=1 system=here
run here 1 516eb40c379ac91d cpu resnet50 --batch-size 32 # sizes batch_size=32 repeat=1 system=here
run here 1 41cdb978318ee56d cpu resnet50 --batch-size 16 # sizes batch_size=16 repeat=2 system=here
run here 1 e96482e8943de35a cpu resnet50 --batch-size 32 # sizes batch_size=32 repeat=2 system=here

# cluster-a: images/it's a cuda.sif
export APPTAINER_BIND="${binds:+$binds,}"'/scratch/image net,/data'
run cluster-a 1 39d2a8f5580c1be3 'images/it'"'"'s a cuda.sif' resnet50 --batch-size 16 --data '/scratch/image net' --meter nvml # sizes batch_size=16 repeat=1 system=cluster-a
run cluster-a 2 dd93fb30d93f0469 'images/it'"'"'s a cuda.sif' resnet50 --batch-size 32 --data '/scratch/image net' --meter nvml # sizes batch_size=32 repeat=1 system=cluster-a
run cluster-a 1 de1cbd94dce0fbdc 'images/it'"'"'s a cuda.sif' resnet50 --batch-size 16 --data '/scratch/image net' --meter nvml # sizes batch_size=16 repeat=2 system=cluster-a
run cluster-a 2 224982f3333b3997 'images/it'"'"'s a cuda.sif' resnet50 --batch-size 32 --data '/scratch/image net' --meter nvml # sizes batch_size=32 repeat=2 system=cluster-a

printf '%s runs, %s failed\n' "$count" "$failed" >&2
((failed == 0))
