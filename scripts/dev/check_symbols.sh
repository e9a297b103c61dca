#!/bin/sh
# Checks the symbols and sections of the built libraries. Ends with "N passed, N failed"; fails if a check fails.
#   check_symbols.sh BUILD
# Sanitizers add symbols and globals of their own, so a build with one is not checked.
set -u
build=$1
passed=0 failed=0

if nm -D --undefined-only "$build/libheed.so" | grep -qE ' __(asan|ubsan|tsan)_'; then
  echo 'not checked: this build has a sanitizer'
  exit 0
fi

# expect_none TITLE LIST: passes if the list is empty
expect_none() {
  if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
  failed=$((failed + 1))
  printf '%s:\n%s\n' "$1" "$2" >&2
}

undefined() { nm -D --undefined-only "$build/$1" | awk '{ sub(/@.*/, "", $2); print $2 }'; }

# An embedded library must not use: functions that end the process, printing and standard streams, signals, the locale,
# the host's floating-point environment (heed's own threads may call fesetenv), handlers that remain after unloading,
# other processes, and state of the whole process.
ends='exit|_exit|_Exit|quick_exit|abort|raise|kill|pthread_kill|pthread_exit|pthread_cancel|__assert_fail|__assert_perror_fail|longjmp|siglongjmp|__longjmp_chk|err|errx|error'
prints='(__)?v?f?printf(_chk)?|v?dprintf|f?puts|f?putc|putchar|putw|fwrite|write|perror|psignal|stdout|stderr|stdin|__stdoutp|__stderrp|v?syslog|v?warnx?|fopen(64)?|freopen(64)?|gets|getchar|scanf'
signals='signal|bsd_signal|sysv_signal|__sysv_signal|sigaction|sigprocmask|sigaltstack|siginterrupt|alarm|setitimer|timer_create'
locale='setlocale|uselocale|newlocale|freelocale'
numbers='fesetround|fedisableexcept|feenableexcept|feholdexcept|feupdateenv|_MM_SET_.*'
lasts='atexit|at_quick_exit|on_exit|pthread_atfork|__register_atfork|pthread_key_create'
processes='fork|vfork|clone|exec[vl]p?e?|posix_spawnp?|system|popen|dlmopen'
process='setenv|putenv|unsetenv|clearenv|chdir|fchdir|umask|s?rand(om)?|s?rand48|strtok|localtime|gmtime|asctime|ctime|setrlimit|mallopt|mlockall'

for library in libheed.so heed.so; do
  expect_none "$library exports symbols other than the functions heed_… and luaopen_heed…" \
    "$(nm -D --defined-only "$build/$library" | awk '$2 != "T" || $3 !~ /^(heed_[a-z]|luaopen_heed)/ { print "  " $3 }')"
  for list in "$ends" "$prints" "$signals" "$locale" "$numbers" "$lasts" "$processes" "$process"; do
    expect_none "$library uses functions that an embedded library must not use" "$(undefined $library | grep -xE "$list")"
  done
  expect_none "$library is linked with Lua" "$(readelf -d "$build/$library" | grep -E 'NEEDED.*lua')"
  # gemm.o loads BLAS; a static BLAS is linked.
  [ ! -e "$build/obj/loading/gemm.o" ] || expect_none "$library is linked with BLAS, which it should load when needed" \
    "$(readelf -d "$build/$library" | grep -E 'NEEDED.*blas')"
  expect_none "$library has text relocations or an executable stack" \
    "$(readelf -dlW "$build/$library" | grep -E 'TEXTREL|GNU_STACK.*RWE')"
done
expect_none 'libheed.so uses Lua' "$(undefined libheed.so | grep -E '^luaL?_')"
expect_none 'libheed.a loads libraries' "$(nm --undefined-only "$build/libheed.a" 2>/dev/null | grep -E ' U dl(open|sym)$')"
expect_none 'libheed.a has writable globals' "$(size -A "$build/libheed.a" |
  awk '$2 == "(ex" { file = $1 } $1 ~ /^\.(data|bss|tdata|tbss|ldata|lbss)(\.|$)/ && $1 !~ /^\.data\.rel\.ro/ && $2 > 0 {
    print "  " file ": " $2 " bytes in " $1 }')"
expect_none 'libheed.a has constructors or destructors' "$(size -A "$build/libheed.a" |
  awk '$2 == "(ex" { file = $1 } $1 ~ /^\.(init_array|fini_array|ctors|dtors|preinit_array)/ && $2 > 0 { print "  " file ": " $1 }')"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
