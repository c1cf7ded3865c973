#!/bin/bash
# Slurm: measure an image on nodes that nobody else uses. In a clone, after `sifmark registry.pull` or `sifmark build`:
#
#   sbatch ci/pipelines/slurm.sh resnet50-cuda --repeat 3 --duration 60
#   sbatch --nodes=2 ci/pipelines/slurm.sh resnet50-cuda --strategy ddp --replicas 8
#   ci/pipelines/slurm.sh resnet50-cuda --nodes 2 --strategy ddp --replicas 8   (it submits itself)
#
# --nodes N and --tasks-per-node K are the script's, all other words after the image go to the image. One task on each
# node starts the ranks of that node; with --tasks-per-node, several tasks share them.
# Results are added to $SIFMARK_RESULTS, by default results/.
# To run only signed images, write keys and require_signature = true to the clone's sifmark.toml.
#SBATCH --job-name=sifmark
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=00:30:00
#SBATCH --signal=TERM@60
#SBATCH --output=sifmark-%j.log
# --mem=0: all memory of the nodes; --exclusive covers cores and devices.
# --signal: a minute before the end, the run is stopped and writes what it has measured as a valid result.
# If devices must be requested, add: #SBATCH --gpus-per-node=1
set -euo pipefail

fail() { # CAUSE REMEDY
  printf 'error: %s\nremedy: %s\n' "$@" >&2
  exit 2
}

given=("$@") nodes='' tasks=1 words=()
while (($#)); do
  case $1 in
    --nodes=* | --tasks-per-node=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --nodes | --tasks-per-node)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$1 ${2:-} is not a number above 0" "for example: $1 2"
      if [ "$1" = --nodes ]; then nodes=$2; else tasks=$2; fi
      shift 2
      ;;
    *) words+=("$1") && shift ;;
  esac
done
image=${words[0]:?"which image? sbatch ci/pipelines/slurm.sh NAME [OPTIONS OF THE IMAGE]"}

# sbatch reads its options before the script's name alone: those after it come too late for the job that runs this.
if [ -z "${SLURM_JOB_ID:-}" ]; then
  exec sbatch --nodes="${nodes:-1}" --ntasks-per-node="$tasks" "$0" "${given[@]}"
fi
allocated=${SLURM_JOB_NUM_NODES:-1} nodes=${nodes:-${SLURM_JOB_NUM_NODES:-1}}
if ((nodes > allocated)); then
  fail "--nodes $nodes: this job has $allocated" \
    "sbatch takes it before the script: sbatch --nodes=$nodes ci/pipelines/slurm.sh$(printf ' %q' "${given[@]}")"
fi

results=${SIFMARK_RESULTS:-results}/
# --cpus-per-task: a step does not inherit the job's cores, and would run on one.
step=(--nodes="$nodes" --ntasks="$((nodes * tasks))" --ntasks-per-node="$tasks")
step+=(--cpus-per-task="$((SLURM_CPUS_ON_NODE > tasks ? SLURM_CPUS_ON_NODE / tasks : 1))")
code=0
srun "${step[@]}" .venv/bin/sifmark run "$image" -- "${words[@]:1}" --site "${SLURM_CLUSTER_NAME:-slurm}" --output "$results" || code=$?
bad=0
.venv/bin/sifmark results.validate "$results" || bad=$?
.venv/bin/sifmark results.trace "$results" || bad=$?
exit "$((code ? code : bad))"
