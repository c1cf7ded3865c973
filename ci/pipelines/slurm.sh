#!/bin/bash
# Slurm: measures an image on one node that nobody else uses. From a clone, after `inv registry.pull` or `inv build`:
#
#   sbatch ci/pipelines/slurm.sh resnet50-cuda --repeat 3 --duration 60
#
# To run signed images alone, write keys and require_signature = true into the clone's sifmark.toml.
# Words after the image go to it. Results are added to $SIFMARK_RESULTS, or to results/ where it is not set.
#SBATCH --job-name=sifmark
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=00:30:00
#SBATCH --signal=TERM@60
#SBATCH --output=sifmark-%j.log
# --mem=0: all of the node's memory; --exclusive is of its cores and devices.
# --signal: a minute before the time is up the run is told; it then writes what it has measured, which is a valid result.
# Where the node's devices are asked for, add it here: #SBATCH --gpus-per-node=1
set -euo pipefail
image=${1:?"which image? sbatch ci/pipelines/slurm.sh NAME [OPTIONS OF THE IMAGE]"}
results=${SIFMARK_RESULTS:-results}/

# --cpus-per-task: steps do not take over what the job has, and would run on one core.
code=0
srun --cpus-per-task="$SLURM_CPUS_ON_NODE" .venv/bin/inv run "$image" -- "${@:2}" --site "${SLURM_CLUSTER_NAME:-slurm}" --output "$results" || code=$?
bad=0
.venv/bin/inv results.validate "$results" --quiet || bad=$?
.venv/bin/inv results.trace "$results" || bad=$?
exit "$((code ? code : bad))"
