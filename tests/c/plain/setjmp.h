/* Of the headers that cmocka wants before it; WebAssembly has none, and cmocka.h here needs none. */
