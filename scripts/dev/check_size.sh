#!/bin/sh
# Compares the size of code with the table of a page, so that the page stays right.
#   check_size.sh 'LABEL' FILE...
# LABEL: the first cell of a row of docs/two-files.md, whose last cell is the size in KB (1000 bytes) of code and data of
# all the files. Fails if they are 5 % larger or 15 % smaller. The table is for x86-64 and gcc; elsewhere it only prints.
set -eu
label=$1
shift
stated=$(awk -F ' *[|] *' -v label="$label" '$2 == label { print $(NF - 1) }' docs/two-files.md)
measured=$(size "$@" | awk 'NR > 1 { sum += $1 + $2 } END { printf "%d", sum / 1000 + 0.5 }')
echo "$label: $measured KB (docs/two-files.md: ${stated:-no such row})"
[ -n "$stated" ] || exit 1
[ "$(uname -m)" = x86_64 ] || exit 0
[ $((measured * 100)) -le $((stated * 105)) ] && [ $((measured * 100)) -ge $((stated * 85)) ]
