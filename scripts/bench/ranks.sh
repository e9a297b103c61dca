#!/bin/sh
# Measures on this machine what two ranks gain, what agreeing costs with two and four, and how soon a job ends when a
# rank dies (ranks.lua).
#   ranks.sh BUILD
# In the environment: MPIRUN, the launcher. Without one it prints "skipped: REASON" and succeeds. It prints the load of
# the machine, since other programs disturb two ranks more than one.
set -eu
build=$1 launcher=${MPIRUN:-mpirun}
skip() { echo "skipped: $1"; exit 0; }
command -v "${launcher%% *}" >/dev/null || skip "there is no $launcher; install Open MPI or MPICH"
[ -e "$build/heed_mpi.so" ] || skip "there is no $build/heed_mpi.so; build it with make MPI=1"
cores=$(getconf _NPROCESSORS_ONLN)
[ "$cores" -ge 2 ] || skip 'two ranks need two cores'
unset OPENBLAS_CORETYPE # it would choose the kernels of older processors
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ ! -r /proc/loadavg ] || echo "load before: $(cut -d' ' -f1-3 /proc/loadavg), $cores cores"
bind='--bind-to core'
[ "$(uname -s)" = Linux ] || bind=''

# shellcheck disable=SC2086 # words of a command
run() {
  ranks=$1
  shift
  $launcher $bind -n "$ranks" "$build/heed" scripts/bench/ranks.lua "$@"
}

run 2
HEED_CHECK=0 run 2 agree
if [ "$cores" -lt 4 ]; then # ranks take turns on the cores
  bind='--bind-to none'
  export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
fi
run 4 agree
HEED_CHECK=0 run 4 agree

# Seconds from the death of one of four ranks to the end of the job.
for how in kill error exit; do
  died=$(run 4 die $how 2>/dev/null || true)
  "$build/heed" -e "local heed = require 'heed'
    print(('a rank dies by %s: its job ends after %.2f s'):format('$how', heed.clock() - $(echo "$died" | tail -n 1)))"
done
