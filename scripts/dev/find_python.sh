#!/bin/sh
# Prints a Python 3 that has some modules, or fails: find_python.sh MODULE...
# Debian's packages are for Debian's Python, which need not be the first one in PATH.
modules=$(echo "$*" | sed 's/ /, /g')
for python in python3 /usr/bin/python3; do
  if "$python" -c "import $modules" 2>/dev/null; then
    echo "$python"
    exit 0
  fi
done
echo "find_python.sh: no Python 3 has $modules; see the group docs in install_packages.sh" >&2
exit 1
