/* Shared by the tests of disturbed saves: a folder for each test, and saves that stop half-way. Included
 * once, after the feature macros. */
#ifndef HEED_TEST_SAVES_H
#define HEED_TEST_SAVES_H

/* On 32-bit systems readdir would refuse the inodes of large file systems. */
#undef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64

#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#if !defined(_WIN32)
#include <unistd.h>
#endif

#include "../../src/io/files.h"

/* A folder that no other process uses, since several of these tests may run at once, and a file in it. */
static char folder[64], file[80];

/* False if the folder exists already, or cannot be created. */
static inline bool make_folder(const char *path) {
#if defined(_WIN32)
  return mkdir(path) == 0;
#else
  return mkdir(path, 0777) == 0;
#endif
}

/* Counts the files in the folder, including hidden ones; removes them if `deleting`. */
static inline int count_files(bool deleting) {
  DIR *listing = opendir(folder);
  assert_non_null(listing);
  int count = 0;
  for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
    char path[600];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    count++;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (deleting) heed__system_remove(path);
  }
  closedir(listing);
  return count;
}

static inline int open_folder(void **state) {
#if defined(_WIN32) || defined(__wasi__) /* where there may be no /tmp */
  static const char base[] = "";
#else
  static const char base[] = "/tmp/";
#endif
  int number = 0;
  bool made;
  do {
    snprintf(folder, sizeof folder, "%sheed_save_%d", base, number++);
    made = make_folder(folder);
  } while (!made && errno == EEXIST);
  assert_true(made);
  snprintf(file, sizeof file, "%s/x.npy", folder);
  return open_context(state);
}

/* Deleting while the folder is listed may skip files. */
static inline int close_folder(void **state) {
  for (int left, before = INT_MAX; (left = count_files(true)) > 0 && left < before;) before = left;
  return rmdir(folder) != 0 || close_context(state) != 0;
}

static inline heed_tensor *full_of(heed_context *ctx, double number) {
  heed_tensor *x = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 1, SHAPE(1000), heed_number(number), &x));
  return x;
}

static inline void save(heed_context *ctx, const char *path, double number) {
  heed_tensor *x = full_of(ctx, number);
  assert_ok(heed_save_npy(ctx, path, x));
  heed_tensor_free(x);
}

static inline void expect(heed_context *ctx, const char *path, double number) {
  heed_tensor *x = full_of(ctx, number), *loaded = NULL;
  assert_ok(heed_load_npy(ctx, path, &loaded));
  assert_int_equal(heed_tensor_numel(loaded), heed_tensor_numel(x));
  assert_memory_equal(heed_tensor_data(loaded), heed_tensor_data(x), 1000 * sizeof(float));
  heed_tensor_free(x);
  heed_tensor_free(loaded);
}

/* Begins to save a vector filled with `number`, and stops half-way. */
static inline void begin(heed_context *ctx, heed__writer *w, const char *path, double number) {
  char header[HEED__NPY_HEADER];
  size_t bytes;
  heed_tensor *x = full_of(ctx, number);
  assert_ok(heed__writer_begin(w, ctx, path));
  assert_ok(heed__npy_header(ctx, x, header, &bytes));
  assert_ok(heed__writer_put(w, header, bytes));
  heed_tensor_free(x);
}

static inline heed_status end(heed_context *ctx, heed__writer *w, double number) {
  heed_tensor *x = full_of(ctx, number);
  const heed_status status = heed__writer_end(w, heed__writer_put_tensor(w, x));
  heed_tensor_free(x);
  return status;
}

/* Does what the system does when a process is killed: closes the file. */
static inline void abandon(heed__writer *w) {
  heed__system_close(w->file);
  heed__release(w->where.ctx, w->buffer);
}

#define SAVE_TEST(function) cmocka_unit_test_setup_teardown(function, open_folder, close_folder)

#endif
