#!/bin/sh
# Quantizes a model with 4 processes that mpirun starts on the machines of a host file (Open MPI;
# with MPICH leave out --map-by and give -ppn 1):
#   octavo plan /shared/model -o /shared/plan.json --recipe nvfp4
#   sh mpirun.sh hosts /shared/plan.json /shared/out
# MPI starts the processes and nothing else: octavo sends no messages.
set -eu
exec mpirun --hostfile "$1" -n 4 --map-by node octavo quantize --plan "$2" -o "$3" --max-memory 4G
