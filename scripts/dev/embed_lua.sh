#!/bin/sh
# Writes Lua files (lua/heed/nn/init.lua …) as C arrays, which the binding and the command include. Needs no interpreter.
#   embed_lua.sh ARRAY FILE... [-- FILE...] > lua_sources.h
# The files after -- are left out where HEED_MINIMAL is 1.
set -eu
array=$1
shift

module_name() { # lua/heed/nn/init.lua -> heed.nn
  echo "$1" | sed -e 's,^lua/,,' -e 's,\.lua$,,' -e 's,/init$,,' -e 's,/,.,g'
}

echo '/* The Lua side of heed. Made by scripts/dev/embed_lua.sh. */'
echo '#include <stddef.h>'
number=0
for file in "$@"; do
  if [ "$file" = -- ]; then echo '#if !HEED_MINIMAL'; continue; fi
  number=$((number + 1))
  printf '\n/* %s */\nstatic const unsigned char source_%d[] = {\n' "$file" "$number"
  od -An -v -tu1 "$file" | sed -e 's/  */,/g' -e 's/^,//' -e 's/$/,/'
  echo '0};' # not part of the size; an empty array would be invalid
done
endif=$(case " $* " in *' -- '*) echo '#endif' ;; esac)
echo "$endif"

printf '\nstatic const struct {\n  const char *name;\n  const unsigned char *code;\n  size_t size;\n} %s[] = {\n' "$array"
number=0
for file in "$@"; do
  if [ "$file" = -- ]; then echo '#if !HEED_MINIMAL'; continue; fi
  number=$((number + 1))
  printf '  {"%s", source_%d, sizeof source_%d - 1},\n' "$(module_name "$file")" "$number" "$number"
done
echo "$endif"
printf '  {NULL, NULL, 0},\n};\n'
