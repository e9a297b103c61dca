#!/bin/sh
# heed in real hosts, one function for each. Ends with "N passed, N failed" and fails if anything did.
#   run_host_tests.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
unset HEED_CPU

in_lighttpd() { python3 scripts/dev/check_lighttpd.py "$build"; }

tally 'lighttpd with mod_magnet' in_lighttpd
tallied
