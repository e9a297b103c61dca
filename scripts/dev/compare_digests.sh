#!/bin/sh
# Compares what scalar kernels compute on two systems, as tests/portable/digests.c prints it. Fails if a digest differs,
# unless its part begins with "libm", which is named: there the C library rounds differently.
#   compare_digests.sh WANTED FOUND
tr -d '\r' <"$2" | awk '
  { digest = $NF; part = $0; sub(/ +[^ ]+$/, "", part) }
  NR == FNR { wanted[part] = digest; next }
  !(part in wanted) { print "not known: " $0; bad++; next }
  digest == wanted[part] { same++; next }
  part ~ /^libm / { library = library (library ? ", " : "") substr(part, 6); next }
  { print part ": " digest " instead of " wanted[part]; bad++ }
  END {
    print same + 0 " digests are equal" (library ? "; the C library differs in: " library : "")
    exit bad > 0 || same < 30
  }' "$1" -
