#!/bin/bash
# Slurm: measure an image on one node that nobody else uses. In a clone, after `sifmark registry.pull` or `sifmark build`:
#
#   sbatch ci/pipelines/slurm.sh resnet50-cuda --repeat 3 --duration 60
#
# The words after the image go to it. Results are added to $SIFMARK_RESULTS, by default results/.
# To run only signed images, write keys and require_signature = true to the clone's sifmark.toml.
#SBATCH --job-name=sifmark
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=00:30:00
#SBATCH --signal=TERM@60
#SBATCH --output=sifmark-%j.log
# --mem=0: all memory of the node; --exclusive covers cores and devices.
# --signal: a minute before the end, the run is stopped and writes what it has measured as a valid result.
# If devices must be requested, add: #SBATCH --gpus-per-node=1
set -euo pipefail
image=${1:?"which image? sbatch ci/pipelines/slurm.sh NAME [OPTIONS OF THE IMAGE]"}
results=${SIFMARK_RESULTS:-results}/

# --cpus-per-task: a step does not inherit the job's cores, and would run on one.
code=0
srun --cpus-per-task="$SLURM_CPUS_ON_NODE" .venv/bin/sifmark run "$image" -- "${@:2}" --site "${SLURM_CLUSTER_NAME:-slurm}" --output "$results" || code=$?
bad=0
.venv/bin/sifmark results.validate "$results" || bad=$?
.venv/bin/sifmark results.trace "$results" || bad=$?
exit "$((code ? code : bad))"
