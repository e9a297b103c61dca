#!/bin/sh
# Writes Lua files (lua/heed/nn/init.lua …) as C arrays, which the binding and the command include. Needs no interpreter.
#   embed_lua.sh ARRAY FILE... [-- FILE...] > lua_sources.h
# Where HEED_MINIMAL is 1, the files after -- have a name, but no code.
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
case " $* " in *' -- '*) echo '#endif' ;; esac

cat <<'END'
#if HEED_MINIMAL
#define HEED_MORE(name, code) {name, NULL, 0},
#else
#define HEED_MORE(name, code) {name, code, sizeof code - 1},
#endif
END
printf '\nstatic const struct {\n  const char *name;\n  const unsigned char *code;\n  size_t size;\n} %s[] = {\n' "$array"
number=0 kept=yes
for file in "$@"; do
  if [ "$file" = -- ]; then kept=no; continue; fi
  number=$((number + 1)) name=$(module_name "$file")
  if [ $kept = yes ]; then
    printf '  {"%s", source_%d, sizeof source_%d - 1},\n' "$name" "$number" "$number"
  else
    printf '  HEED_MORE("%s", source_%d)\n' "$name" "$number"
  fi
done
printf '  {NULL, NULL, 0},\n};\n'
echo '#undef HEED_MORE'
