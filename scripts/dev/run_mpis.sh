#!/bin/sh
# Runs the specs for several machines with each MPI of this machine. Ends with "N passed, N failed"; fails if one fails.
#   run_mpis.sh BUILD
# The MPI of MPICC and MPIRUN is built in BUILD, others in BUILD/openmpi or BUILD/mpich: their modules differ. They are
# found as Debian (mpicc.mpich) or Fedora (/usr/lib64/mpich/bin/mpicc) names them.
set -u
build=$1
. scripts/dev/tally.sh
mkdir -p "$build"

kind_of() { # LAUNCHER
  case $("$1" --version 2>/dev/null) in
    *'Open MPI'* | *OpenRTE* | *PRTE*) echo openmpi ;;
    *HYDRA* | *MPICH*) echo mpich ;;
    *) echo other ;;
  esac
}

run() { # KIND BUILD MPICC MPIRUN
  tally "$1" "${MAKE:-make}" --no-print-directory MPI=1 BUILD="$2" MPICC="$3" MPIRUN="$4" run-mpi
}

chosen=$(kind_of "${MPIRUN:-mpirun}")
run "$chosen" "$build" "${MPICC:-mpicc}" "${MPIRUN:-mpirun}"
for kind in openmpi mpich; do
  [ $kind != "$chosen" ] || continue
  for form in "NAME.$kind" "/usr/lib64/$kind/bin/NAME"; do
    compiler=$(echo "$form" | sed s/NAME/mpicc/) launcher=$(echo "$form" | sed s/NAME/mpirun/)
    if command -v "$compiler" >/dev/null && command -v "$launcher" >/dev/null; then
      run $kind "$build/$kind" "$compiler" "$launcher"
      break
    fi
  done
done
tallied
