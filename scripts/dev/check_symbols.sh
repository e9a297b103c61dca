#!/bin/sh
# Checks what the built libraries show, need and hold. Ends with "N passed, N failed" and fails if anything did.
#   check_symbols.sh BUILD
# A sanitizer brings symbols and globals of its own: with one, nothing is checked.
set -u
build=$1
passed=0 failed=0

if nm -D --undefined-only "$build/libheed.so" | grep -qE ' __(asan|ubsan|tsan)_'; then
  echo 'this build has a sanitizer; not checked'
  exit 0
fi

# expect_none WHAT LIST: the list should be empty
expect_none() {
  if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
  failed=$((failed + 1))
  printf '%s:\n%s\n' "$1" "$2" >&2
}

undefined() { nm -D --undefined-only "$build/$1" | awk '{ sub(/@.*/, "", $2); print $2 }'; }

# What a guest must not call, or take from the C library: the end of the process, printing and the streams, signals,
# the locale, the floating-point environment of the host (what workers do with fesetenv is their own), what lasts
# beyond unloading, other processes, and state that is the process's.
ends='exit|_exit|_Exit|quick_exit|abort|raise|kill|pthread_kill|pthread_exit|pthread_cancel|__assert_fail|__assert_perror_fail|longjmp|siglongjmp|__longjmp_chk|err|errx|error'
prints='(__)?v?f?printf(_chk)?|v?dprintf|f?puts|f?putc|putchar|putw|fwrite|write|perror|psignal|stdout|stderr|stdin|__stdoutp|__stderrp|v?syslog|v?warnx?|fopen(64)?|freopen(64)?|gets|getchar|scanf'
signals='signal|bsd_signal|sysv_signal|__sysv_signal|sigaction|sigprocmask|sigaltstack|siginterrupt|alarm|setitimer|timer_create'
locale='setlocale|uselocale|newlocale|freelocale'
numbers='fesetround|fedisableexcept|feenableexcept|feholdexcept|feupdateenv|_MM_SET_.*'
lasts='atexit|at_quick_exit|on_exit|pthread_atfork|__register_atfork|pthread_key_create'
processes='fork|vfork|clone|exec[vl]p?e?|posix_spawnp?|system|popen|dlmopen'
process='setenv|putenv|unsetenv|clearenv|chdir|fchdir|umask|s?rand(om)?|s?rand48|strtok|localtime|gmtime|asctime|ctime|setrlimit|mallopt|mlockall'

for library in libheed.so heed.so; do
  expect_none "$library exports more than the functions heed_… and luaopen_heed…" \
    "$(nm -D --defined-only "$build/$library" | awk '$2 != "T" || $3 !~ /^(heed_[a-z]|luaopen_heed)/ { print "  " $3 }')"
  for list in "$ends" "$prints" "$signals" "$locale" "$numbers" "$lasts" "$processes" "$process"; do
    expect_none "$library needs what a guest must not" "$(undefined $library | grep -xE "$list")"
  done
  expect_none "$library is linked with Lua" "$(readelf -d "$build/$library" | grep -E 'NEEDED.*lua')"
  # Of these, gemm.o loads BLAS; where that is a static library it is linked.
  [ ! -e "$build/obj/loading/gemm.o" ] || expect_none "$library is linked with what is loaded when it is needed" \
    "$(readelf -d "$build/$library" | grep -E 'NEEDED.*blas')"
  expect_none "$library has text that the loader must change, or a stack that can be run" \
    "$(readelf -dlW "$build/$library" | grep -E 'TEXTREL|GNU_STACK.*RWE')"
done
expect_none 'libheed.so needs Lua' "$(undefined libheed.so | grep -E '^luaL?_')"
expect_none 'libheed.a loads libraries' "$(nm --undefined-only "$build/libheed.a" 2>/dev/null | grep -E ' U dl(open|sym)$')"
expect_none 'libheed.a has globals that can be written to' "$(size -A "$build/libheed.a" |
  awk '$2 == "(ex" { file = $1 } $1 ~ /^\.(data|bss|tdata|tbss|ldata|lbss)(\.|$)/ && $1 !~ /^\.data\.rel\.ro/ && $2 > 0 {
    print "  " file ": " $2 " bytes in " $1 }')"
expect_none 'libheed.a has code that runs when it is loaded or unloaded' "$(size -A "$build/libheed.a" |
  awk '$2 == "(ex" { file = $1 } $1 ~ /^\.(init_array|fini_array|ctors|dtors|preinit_array)/ && $2 > 0 { print "  " file ": " $1 }')"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
