# For scripts that run several tests; read with `.`. Sums what they print as "N passed, N failed", ends the same way.
passed=0 failed=0

# tally NAME COMMAND...: shows the command's last line, or all that it wrote if it failed. Uses $build.
tally() {
  tally_title=$1
  shift
  "$@" >"$build/tally.log" 2>&1
  code=$?
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$build/tally.log" | tail -n 1)
  ok=${line%% *} bad=${line#*, }
  bad=${bad%% *}
  if [ $code = 0 ]; then
    ok=${ok:-1}
  else
    cat "$build/tally.log"
    [ "${bad:-0}" -gt 0 ] || bad=1
  fi
  passed=$((passed + ${ok:-0})) failed=$((failed + ${bad:-0}))
  echo "$tally_title: ${ok:-0} passed, ${bad:-0} failed"
}

# The end of the script.
tallied() {
  echo "$passed passed, $failed failed"
  [ $failed = 0 ] && [ $passed -gt 0 ]
}
