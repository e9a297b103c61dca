#!/bin/sh
# Tests heed in real hosts, one function for each. Ends with "N passed, N failed"; fails if a test fails.
#   run_host_tests.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
unset HEED_CPU

in_lighttpd() { python3 scripts/dev/check_lighttpd.py "$build"; }

# lupa contains Lua 5.4, so heed.so must be built for that version.
in_lupa() {
  python=$build/hosts-venv/bin/python
  [ -x "$python" ] || python3 -m venv "$build/hosts-venv" || return 1
  "$python" -c 'import lupa' 2>/dev/null || "$build/hosts-venv/bin/pip" install --quiet --disable-pip-version-check lupa &&
    "$python" scripts/dev/check_lupa.py "$build"
}

tally 'Python with lupa' in_lupa
tally 'lighttpd with mod_magnet' in_lighttpd
tallied
