#!/bin/sh
# Runs the specs for several machines, all ranks on this one. Ends with "N passed, N failed"; fails if one fails.
#   run_mpi_tests.sh BUILD SPEC...
# Each spec of tests/mpi runs once for each number of ranks, and once as the only process; those of tests/mpi/jobs start their jobs themselves, under
# busted. In the environment: RANKS, the numbers of ranks; MPIRUN, the launcher.
set -u
build=$1
shift
. scripts/dev/tally.sh
# Open MPI 4 and 5: more ranks than processors, also for root, in a container without CMA. MPICH ignores this.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_btl_vader_single_copy_mechanism=none
export MPIRUN="${MPIRUN:-mpirun}" HEED_BUILD="$build"

for spec in "$@"; do
  case $spec in
    */jobs/*) tally "$spec" env TESTS=none EMULATOR=true scripts/dev/run_tests.sh "$build" "$spec" ;;
    *) tally "$spec, without a launcher" timeout 300 "$build/heed" "$spec"
      for ranks in ${RANKS:-1 2 3 4}; do
      tally "$spec, $ranks" timeout 300 "$MPIRUN" -n "$ranks" "$build/heed" "$spec"
    done ;;
  esac
done
tallied
