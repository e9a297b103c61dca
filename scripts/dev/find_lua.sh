#!/bin/sh
# Prints the name of a Lua version on this system; fails if it is not installed.
#   find_lua.sh 5.1|5.2|5.3|5.4|luajit library|interpreter
# library: its name for pkg-config, which differs between systems; interpreter: the command. A plain name such as lua is
# accepted only if it is that version.
set -u
version=$1 what=$2
if [ "$version" = luajit ]; then names=luajit
else names="lua$version lua-$version lua$(echo "$version" | tr -d .)"
fi

if [ "$what" = library ]; then
  for name in $names; do
    pkg-config --exists "$name" 2>/dev/null && echo "$name" && exit
  done
  next=${version%.*}.$((${version#*.} + 1)) || exit 1
  [ "$version" != luajit ] && pkg-config --exists "lua >= $version" "lua < $next" 2>/dev/null && echo lua && exit
else
  for name in $names lua; do
    case $version:$("$name" -v 2>&1) in
      luajit:LuaJIT* | "${version#luajit}:Lua ${version#luajit}".*) echo "$name" && exit ;;
    esac
  done
fi
exit 1
