# For scripts that run several tests; included with `.`. Adds up the results that they print as "N passed, N failed" and
# prints the sum the same way. Several such scripts may run in one build folder. Uses $build.
passed=0 failed=0 tally_log=$build/tally.$$.log

# tally TITLE COMMAND...: counts the command's results, or one for the command itself if it prints none; shows its
# output if it fails
tally() {
  tally_title=$1
  shift
  "$@" >"$tally_log" 2>&1
  code=$?
  line=$(grep -a -E '^[0-9]+ passed, [0-9]+ failed$' "$tally_log" | tail -n 1)
  ok=${line%% *} bad=${line#*, }
  bad=${bad%% *}
  if [ $code = 0 ]; then
    ok=${ok:-1}
  else
    cat "$tally_log"
    [ "${bad:-0}" -gt 0 ] || bad=1
  fi
  passed=$((passed + ${ok:-0})) failed=$((failed + ${bad:-0}))
  echo "$tally_title: ${ok:-0} passed, ${bad:-0} failed"
}

# tallied: the last command of the script
tallied() {
  rm -f "$tally_log"
  echo "$passed passed, $failed failed"
  [ $failed = 0 ] && [ $passed -gt 0 ]
}
