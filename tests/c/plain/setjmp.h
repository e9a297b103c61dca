/* Required by cmocka; WebAssembly has no setjmp.h, and this cmocka.h does not need it. */
