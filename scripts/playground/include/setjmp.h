/* For ldo.cpp: wasi-libc has no setjmp.h, which ldo.c includes and then does not use. */
