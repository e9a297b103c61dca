#!/bin/sh
# Runs the specs for several machines, all ranks on this one. Ends with "N passed, N failed"; fails if one fails.
#   run_mpi_tests.sh BUILD SPEC...
# Each spec of tests/mpi runs once for each number of ranks; those of tests/mpi/jobs start their jobs themselves, under
# busted. In the environment: RANKS, the numbers of ranks (0: as the only process, without a launcher); MPIRUN, the
# launcher.
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
    *) for ranks in ${RANKS:-0 1 2 3 4}; do
      if [ "$ranks" = 0 ]; then launch=''; else launch="$MPIRUN -n $ranks"; fi
      # shellcheck disable=SC2086 # words of a command
      tally "$spec, $ranks" timeout 300 $launch "$build/heed" "$spec"
    done ;;
  esac
done
tallied
