/* Files from C: loading and saving, failing writes, and every allocation failing in turn. */
#define _DEFAULT_SOURCE /* mincore */

#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../src/io/files.h"

/* ---- A folder for a test ---- */

typedef struct files {
  test_context *t;
  heed_context *ctx;
  char folder[64];
} files;

static char path_text[128];
static const char *in_folder(const files *f, const char *name) {
  snprintf(path_text, sizeof(path_text), "%s/%s", f->folder, name);
  return path_text;
}

static int open_files(void **state) {
  files *f = calloc(1, sizeof(*f));
  assert_non_null(f);
  open_context((void **)&f->t);
  f->ctx = f->t->ctx;
  strcpy(f->folder, "/tmp/heed_files_XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  *state = f;
  return 0;
}

/* Fails if the folder has files besides these: no temporary file may be left. */
static int close_files(void **state) {
  static const char *const names[] = {"x.safetensors", "x.npz", "x.npy", "y.safetensors", "y.npz", "y.npy"};
  files *f = *state;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) unlink(in_folder(f, names[i]));
  assert_int_equal(rmdir(f->folder), 0);
  void *context = f->t;
  free(f);
  return close_context(&context);
}

#define FILES_TEST(function) cmocka_unit_test_setup_teardown(function, open_files, close_files)

static void write_text(const char *path, const char *text, size_t length) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, length, file), length);
  assert_int_equal(fclose(file), 0);
}

static int64_t size_of(const char *path) {
  struct stat found;
  return stat(path, &found) == 0 ? (int64_t)found.st_size : -1;
}

/* The numbers 1 to 12, of shape [3, 4] and that dtype. */
static heed_tensor *numbers(heed_context *ctx, heed_dtype dtype) {
  heed_tensor *whole = NULL, *flat = NULL, *x = NULL;
  assert_ok(heed_range(ctx, HEED_FLOAT32, heed_integer(1), heed_integer(12), heed_integer(1), &whole));
  assert_ok(heed_to(ctx, whole, dtype, &flat));
  assert_ok(heed_view(ctx, flat, 2, SHAPE(3, 4), &x));
  heed_tensor_free(whole);
  heed_tensor_free(flat);
  return x;
}

/* ---- Archives ---- */

static void an_archive_gives_names_tensors_and_metadata(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  heed_tensor *x = numbers(ctx, HEED_FLOAT32), *y = numbers(ctx, HEED_BFLOAT16), *got = NULL;
  const heed_tensor *const tensors[] = {y, x};
  const char *key, *value;
  heed_archive *archive = NULL;
  assert_ok(heed_save_archive(ctx, in_folder(f, "x.safetensors"), 2, (const char *const[]){"y", "x"}, tensors,
                              1, (const char *const[]){"format", "pt"}));
  assert_ok(heed_load_archive(ctx, in_folder(f, "x.safetensors"), &archive));
  assert_int_equal(heed_archive_count(archive), 2);
  assert_string_equal(heed_archive_name(archive, 1), "y");
  assert_string_equal(heed_archive_name(archive, 2), "x");
  assert_null(heed_archive_name(archive, 0));
  assert_null(heed_archive_name(archive, 3));
  assert_true(heed_archive_metadata(archive, 1, &key, &value));
  assert_string_equal(key, "format");
  assert_string_equal(value, "pt");
  assert_false(heed_archive_metadata(archive, 0, &key, &value));
  assert_false(heed_archive_metadata(archive, 2, &key, &value));
  assert_fails(ctx, heed_archive_tensor(archive, 3, &got), HEED_INDEX,
               "archive_tensor: i is 3; it must be from 1 to 2, the number of tensors");
  assert_ok(heed_archive_tensor(archive, 2, &got));
  assert_fails(ctx, heed_archive_tensor(archive, 2, &got), HEED_ARGUMENT,
               "archive_tensor: *out is already a tensor; it must be NULL");
  heed_archive_free(archive);
  heed_archive_free(NULL);
  assert_memory_equal(heed_tensor_data(got), heed_tensor_data(x),
                      12 * sizeof(float)); /* keeps the file mapped */
  heed_tensor_free(got);
  heed_tensor_free(x);
  heed_tensor_free(y);
}

static void writing_to_a_loaded_tensor_leaves_the_file_alone(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  const char *const name = "x";
  heed_tensor *x = numbers(ctx, HEED_INT8), *first = NULL, *second = NULL, *again = NULL;
  /* int8, which big-endian machines map, too */
  heed_archive *archive = NULL;
  assert_ok(heed_save_archive(ctx, in_folder(f, "x.safetensors"), 1, &name, (const heed_tensor *const[]){x},
                              0, NULL));
  assert_ok(heed_load_archive(ctx, in_folder(f, "x.safetensors"), &archive));
  assert_ok(heed_archive_tensor(archive, 1, &first));
  assert_ok(heed_archive_tensor(archive, 1, &second));
  assert_ok(heed_fill(ctx, first, heed_number(7)));
  assert_memory_equal(heed_tensor_data(second), heed_tensor_data(first), 12); /* they share memory */
  heed_archive_free(archive);
  archive = NULL;
  assert_ok(heed_load_archive(ctx, in_folder(f, "x.safetensors"), &archive));
  assert_ok(heed_archive_tensor(archive, 1, &again));
  assert_memory_equal(heed_tensor_data(again), heed_tensor_data(x), 12);
  heed_archive_free(archive);
  heed_tensor_free(first);
  heed_tensor_free(second);
  heed_tensor_free(again);
  heed_tensor_free(x);
}

static void loaded_tensors_outlive_the_context_s_owner(void **state) {
  files *f = *state;
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  const char *const name = "x";
  heed_tensor *x = numbers(f->ctx, HEED_FLOAT32), *got = NULL;
  heed_archive *archive = NULL;
  heed_context *ctx = NULL;
  assert_ok(heed_save_archive(f->ctx, in_folder(f, "x.safetensors"), 1, &name,
                              (const heed_tensor *const[]){x}, 0, NULL));
  assert_ok(heed_context_new(&allocator, &ctx));
  assert_ok(heed_load_archive(ctx, in_folder(f, "x.safetensors"), &archive));
  assert_ok(heed_archive_tensor(archive, 1, &got));
  heed_archive_free(archive);
  heed_context_free(ctx);
  assert_memory_equal(heed_tensor_data(got), heed_tensor_data(x), 12 * sizeof(float));
  heed_tensor_free(got);
  heed_tensor_free(x);
  assert_int_equal(memory.blocks, 0);
}

static void a_destroyed_context_unmaps_its_files(void **state) {
  files *f = *state;
  const char *const name = "x";
  heed_tensor *x = numbers(f->ctx, HEED_INT8), *got = NULL; /* mapped on big-endian machines, too */
  heed_archive *archive = NULL;
  heed_context *ctx = NULL;
  assert_ok(heed_save_archive(f->ctx, in_folder(f, "x.safetensors"), 1, &name,
                              (const heed_tensor *const[]){x}, 0, NULL));
  heed_tensor_free(x);
  assert_ok(heed_context_new(NULL, &ctx));
  assert_ok(heed_load_archive(ctx, in_folder(f, "x.safetensors"), &archive));
  assert_ok(heed_archive_tensor(archive, 1, &got));
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  void *start = (void *)((uintptr_t)heed_tensor_data(got) / page * page);
  unsigned char resident;
  assert_int_equal(mincore(start, 1, &resident), 0);
  heed__context_destroy(ctx);
  assert_int_equal(mincore(start, 1, &resident), -1); /* nothing is mapped there */
}

/* ---- Misuse ---- */

static void missing_arguments_are_refused(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  heed_tensor *x = numbers(ctx, HEED_FLOAT32), *y = NULL;
  heed_archive *archive = NULL, *there = (heed_archive *)(void *)x;
  const heed_tensor *const tensors[] = {x, x}, *const none[] = {x, NULL};
  const char *const names[] = {"a", "b"}, *const twice[] = {"a", "a"};
  assert_fails(ctx, heed_load_archive(ctx, NULL, &archive), HEED_ARGUMENT, "load: path is missing (NULL)");
  assert_fails(ctx, heed_load_archive(ctx, "x.npz", NULL), HEED_ARGUMENT, "load: out is missing (NULL)");
  assert_fails(ctx, heed_load_archive(ctx, "x.npz", &there), HEED_ARGUMENT,
               "load: *out already holds a result; it must be NULL");
  assert_fails(ctx, heed_load_npy(ctx, NULL, &y), HEED_ARGUMENT, "load: path is missing (NULL)");
  assert_fails(ctx, heed_load_npy(ctx, "x.npy", &x), HEED_ARGUMENT,
               "load: *out already holds a result; it must be NULL");
  assert_fails(ctx, heed_save_npy(ctx, NULL, x), HEED_ARGUMENT, "save: path is missing (NULL)");
  assert_fails(ctx, heed_save_npy(ctx, "x.npy", NULL), HEED_ARGUMENT, "save: x is missing (NULL)");
  assert_fails(ctx, heed_save_archive(ctx, "x.npz", -1, names, tensors, 0, NULL), HEED_ARGUMENT,
               "save: count is -1; it must be 0 or more");
  assert_fails(ctx, heed_save_archive(ctx, "x.npz", 2, NULL, tensors, 0, NULL), HEED_ARGUMENT,
               "save: names is missing (NULL)");
  assert_fails(ctx, heed_save_archive(ctx, "x.npz", 2, names, none, 0, NULL), HEED_ARGUMENT,
               "save: number 2 of tensors is missing (NULL)");
  assert_fails(ctx, heed_save_archive(ctx, "x.npz", 2, twice, tensors, 0, NULL), HEED_ARGUMENT,
               "save: duplicate name 'a'");
  assert_fails(ctx,
               heed_save_archive(ctx, "x.safetensors", 2, names, tensors, 2,
                                 (const char *const[]){"k", "1", "k", "2"}),
               HEED_ARGUMENT, "save: duplicate metadata key 'k'");
  assert_fails(ctx, heed_save_archive(ctx, "x.npy", 2, names, tensors, 0, NULL), HEED_ARGUMENT,
               "save: path is 'x.npy'; it must end in .safetensors, .npz or .gguf to hold tensors by name");
  assert_fails(ctx, heed_load_archive(ctx, "none.npy", &archive), HEED_FILE,
               "load: 'none.npy': its format is .npy, which holds one tensor without a name; it must hold "
               "tensors by name");
  assert_null(archive);
  assert_null(y);
  heed_tensor_free(x);
}

/* ---- Elements as bytes: test_pieces.c, too ---- */

/* Bools in a host's memory may be any byte. */
static void bools_are_written_as_0_and_1(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  unsigned char bytes[4] = {0, 1, 2, 255}, text[256];
  heed_tensor *x = NULL, *y = NULL;
  assert_ok(heed_tensor_from_memory(ctx, HEED_BOOL, 1, SHAPE(4), bytes, NULL, NULL, &x));
  assert_ok(heed_save_npy(ctx, in_folder(f, "x.npy"), x));
  FILE *file = fopen(in_folder(f, "x.npy"), "rb");
  assert_non_null(file);
  const size_t length = fread(text, 1, sizeof(text), file);
  fclose(file);
  assert_int_equal(length, 132);
  assert_memory_equal(text + 128, "\0\1\1\1", 4);
  assert_ok(heed_load_npy(ctx, in_folder(f, "x.npy"), &y));
  assert_memory_equal(heed_tensor_data(y), "\0\1\1\1", 4);
  heed_tensor_free(x);
  heed_tensor_free(y);
}

/* In the buffer, in the file, and across the boundary of both. */
static void a_writer_patches_what_was_put(void **state) {
  files *f = *state;
  heed__writer w;
  static char chunk[HEED__WRITER_BUFFER - 2], got[HEED__WRITER_BUFFER + 8];
  memset(chunk, 'x', sizeof(chunk));
  assert_ok(heed__writer_begin(&w, f->ctx, in_folder(f, "x.npy")));
  assert_ok(heed__writer_put(&w, "abcd", 4));
  assert_ok(heed__writer_patch(&w, 1, "Z", 1));
  assert_int_equal(heed__writer_position(&w), 4);
  assert_ok(heed__writer_put(&w, chunk, sizeof(chunk))); /* now the first four are in the file */
  assert_ok(heed__writer_patch(&w, 0, "Y", 1));
  assert_ok(heed__writer_put(&w, "end", 3));
  assert_ok(heed__writer_put(&w, chunk, 3));
  assert_ok(heed__writer_patch(&w, 3, "WV", 2));
  assert_int_equal(heed__writer_position(&w), 4 + sizeof(chunk) + 6);
  assert_int_equal(size_of(in_folder(f, "x.npy")), -1); /* only when it is complete */
  assert_ok(heed__writer_end(&w, HEED_OK));
  FILE *file = fopen(in_folder(f, "x.npy"), "rb");
  assert_non_null(file);
  assert_int_equal(fread(got, 1, sizeof(got), file), 4 + sizeof(chunk) + 6);
  assert_int_equal(fgetc(file), EOF);
  fclose(file);
  assert_memory_equal(got, "YZcWVxx", 7);
  assert_memory_equal(got + 4 + sizeof(chunk), "endxxx", 6);
}

/* ---- Failures ---- */

/* If files may have at most `bytes` bytes, nothing is saved and the old file is kept. */
static void a_full_disk_leaves_the_old_file(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  static const char *const names[] = {"x.safetensors", "x.npz", "x.npy"};
  heed_tensor *x = NULL, *turned = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(300, 400), heed_number(1), &x));
  assert_ok(heed_transpose(ctx, x, 1, 2, &turned));
  const heed_tensor *const tensors[] = {x, turned};
  const char *const keys[] = {"a", "b"};
  struct rlimit before, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN); /* as in a host that wants the error */
  for (int i = 0; i < 3; i++) {
    write_text(in_folder(f, names[i]), "old", 3);
    for (rlim_t bytes = 0; bytes < 900000; bytes += 90001) {
      limit = before;
      limit.rlim_cur = bytes;
      assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
      const bool npy = i == 2;
      const char *path = in_folder(f, names[i]);
      const heed_status status =
          npy ? heed_save_npy(ctx, path, turned) : heed_save_archive(ctx, path, 2, keys, tensors, 0, NULL);
      assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
      if (npy && bytes > 480128) {
        assert_ok(status);
        assert_int_equal(size_of(path), 480128);
        write_text(path, "old", 3);
        continue;
      }
      assert_int_equal(status, HEED_FILE);
      assert_non_null(strstr(heed_message(ctx), "cannot be written: File too large"));
      assert_int_equal(size_of(path), 3);
    }
  }
  signal(SIGXFSZ, handler);
  heed_tensor_free(x);
  heed_tensor_free(turned);
}

/* After a cancellation, a deadline or a memory limit has ended it, the next load succeeds. */
static void loading_reports_cancellations_and_limits(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  static const char *const paths[] = {"x.safetensors", "x.npz", "x.npy", "tests/golden/files/deflated.npz",
                                      "tests/golden/files/sharded.safetensors.index.json"};
  static const heed_status expected[] = {HEED_CANCELLED, HEED_OK, HEED_LIMIT,
                                         HEED_LIMIT,     HEED_OK, HEED_MEMORY};
  heed_tensor *x = numbers(ctx, HEED_FLOAT32);
  const heed_tensor *const tensors[] = {x};
  const char *const name = "x";
  assert_ok(heed_save_npy(ctx, in_folder(f, "x.npy"), x));
  for (int i = 0; i < 2; i++)
    assert_ok(heed_save_archive(ctx, in_folder(f, paths[i]), 1, &name, tensors, 0, NULL));
  heed_tensor_free(x);
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
    const char *path = strchr(paths[i], '/') != NULL ? paths[i] : in_folder(f, paths[i]);
    for (int step = 0; step < 6; step++) {
      heed_tensor *got = NULL;
      heed_archive *archive = NULL;
      heed_limits limits = {.size = sizeof limits, .memory = step == 5 ? 1 : 0};
      if (step == 0) heed_cancel(ctx);
      if (step == 2) assert_ok(heed_set_deadline(ctx, 1e-9));
      if (step == 4) assert_ok(heed_set_deadline(ctx, 0));
      assert_ok(heed_set_limits(ctx, &limits));
      assert_int_equal(heed__load_file(ctx, path, &archive, &got), expected[step]);
      if (step == 0) assert_string_equal(heed_message(ctx), "load: cancelled by heed_cancel");
      assert_int_equal(archive != NULL || got != NULL, expected[step] == HEED_OK);
      heed_archive_free(archive);
      heed_tensor_free(got);
      limits.memory = 0;
      assert_ok(heed_set_limits(ctx, &limits));
    }
  }
}

/* The old file is kept. */
static void saving_reports_cancellations_and_limits(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  static const char *const paths[] = {"x.safetensors", "x.npz"};
  heed_tensor *x = numbers(ctx, HEED_FLOAT32);
  const heed_tensor *const tensors[] = {x};
  const char *const name = "x";
  for (int i = 0; i < 2; i++) {
    const char *path = in_folder(f, paths[i]);
    write_text(path, "old", 3);
    heed_cancel(ctx);
    assert_int_equal(heed_save_archive(ctx, path, 1, &name, tensors, 0, NULL), HEED_CANCELLED);
    assert_int_equal(size_of(path), 3);
    assert_ok(heed_set_deadline(ctx, 1e-9));
    assert_int_equal(heed_save_archive(ctx, path, 1, &name, tensors, 0, NULL), HEED_LIMIT);
    assert_ok(heed_set_deadline(ctx, 0));
    assert_int_equal(size_of(path), 3);
  }
  heed_tensor_free(x);
}

#if HEED_ZIP
/* ---- zip64 ---- */

static size_t read_text(const char *path, char *out, size_t capacity) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  const size_t length = fread(out, 1, capacity, file);
  fclose(file);
  return length;
}

static bool contains(const char *text, size_t length, const char *part, size_t part_length) {
  for (size_t i = 0; i + part_length <= length; i++) {
    if (memcmp(text + i, part, part_length) == 0) return true;
  }
  return false;
}

/* With lower limits, sizes, offsets and counts are stored as in an archive of many GiB; it loads the same. */
static void large_archives_are_read_as_written(void **state) {
  files *f = *state;
  heed_context *ctx = f->ctx;
  static const struct {
    heed__zip_limits limits;
    bool end, sizes; /* expected: an end record of zip64, an extra field with two sizes */
  } cases[] = {{{UINT32_MAX, UINT16_MAX}, false, false},
               {{UINT32_MAX, 2}, true, false},   /* the count */
               {{300, UINT16_MAX}, true, false}, /* offsets of the third entry and the directory */
               {{0, UINT16_MAX}, true, true},
               {{0, 0}, true, true}};
  static const char size[] = {1, 0, 16, 0, (char)(128 + 12 * sizeof(float)), 0, 0, 0, 0, 0, 0, 0};
  heed_tensor *x = numbers(ctx, HEED_FLOAT32);
  const heed_tensor *const tensors[] = {x, x, x};
  const heed__contents contents = {
      .count = 3, .names = (const char *const[]){"a", "\xc3\xa9", ""}, .tensors = tensors};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    const char *path = in_folder(f, "x.npz");
    char text[2048];
    heed__writer w;
    heed_archive *archive = NULL;
    assert_ok(heed__writer_begin(&w, ctx, path));
    assert_ok(heed__writer_end(&w, heed__npz_save(&w, &contents, cases[i].limits)));
    const size_t length = read_text(path, text, sizeof(text));
    assert_in_range(length, 3 * 176, sizeof(text) - 1);
    assert_int_equal(contains(text, length, "PK\6\6", 4), cases[i].end);
    assert_int_equal(contains(text, length, "PK\6\7", 4), cases[i].end);
    assert_int_equal(contains(text, length, size, sizeof(size)), cases[i].sizes);
    assert_ok(heed_load_archive(ctx, path, &archive));
    assert_int_equal(heed_archive_count(archive), 3);
    for (int64_t k = 1; k <= 3; k++) {
      heed_tensor *got = NULL;
      assert_string_equal(heed_archive_name(archive, k), contents.names[k - 1]);
      assert_ok(heed_archive_tensor(archive, k, &got));
      assert_memory_equal(heed_tensor_data(got), heed_tensor_data(x), 12 * sizeof(float));
      heed_tensor_free(got);
    }
    heed_archive_free(archive);
  }
  heed_tensor_free(x);
}
#endif

static char scenario_folder[64];
static const char *scenario_path(char text[96], const char *name) {
  snprintf(text, 96, "%s/%s", scenario_folder, name);
  return text;
}

/* Saves and loads again. */
static heed_status save_and_load(heed_context *ctx, const char *name) {
  char path[96];
  heed_tensor *x = NULL, *turned = NULL, *got = NULL;
  heed_archive *archive = NULL;
  scenario_path(path, name);
  const bool metadata = strstr(name, ".safetensors") != NULL;
  heed_status status = heed_full(ctx, HEED_BOOL, 2, SHAPE(3, 4), heed_boolean(true), &x);
  if (status == HEED_OK) status = heed_transpose(ctx, x, 1, 2, &turned);
  if (status == HEED_OK)
    status = heed_save_archive(ctx, path, 2, (const char *const[]){"x", "y"},
                               (const heed_tensor *const[]){x, turned}, metadata,
                               metadata ? (const char *const[]){"key", "value"} : NULL);
  if (status == HEED_OK) status = heed_load_archive(ctx, path, &archive);
  if (status == HEED_OK) status = heed_archive_tensor(archive, 2, &got);
  heed_tensor_free(x);
  heed_tensor_free(turned);
  heed_tensor_free(got);
  heed_archive_free(archive);
  return status;
}

static heed_status safetensors_scenario(heed_context *ctx) {
  return save_and_load(ctx, "x.safetensors");
}
static heed_status npz_scenario(heed_context *ctx) {
  return save_and_load(ctx, "x.npz");
}
static heed_status npy_scenario(heed_context *ctx) {
  char path[96];
  heed_tensor *x = NULL, *got = NULL;
  scenario_path(path, "x.npy");
  heed_status status = heed_full(ctx, HEED_INT64, 2, SHAPE(3, 4), heed_integer(3), &x);
  if (status == HEED_OK) status = heed_save_npy(ctx, path, x);
  if (status == HEED_OK) status = heed_load_npy(ctx, path, &got);
  heed_tensor_free(x);
  heed_tensor_free(got);
  return status;
}

static heed_status load_golden(heed_context *ctx, const char *path) {
  heed_archive *archive = NULL;
  heed_status status = heed_load_archive(ctx, path, &archive);
  for (int64_t i = 1; status == HEED_OK && i <= heed_archive_count(archive); i++) {
    heed_tensor *x = NULL;
    status = heed_archive_tensor(archive, i, &x);
    heed_tensor_free(x);
  }
  heed_archive_free(archive);
  return status;
}
static heed_status golden_scenario(heed_context *ctx) {
  return load_golden(ctx, "tests/golden/files/everything.safetensors");
}
static heed_status deflated_scenario(heed_context *ctx) {
  return load_golden(ctx, "tests/golden/files/deflated.npz");
}
static heed_status sharded_scenario(heed_context *ctx) {
  return load_golden(ctx, "tests/golden/files/sharded.safetensors.index.json");
}
static heed_status fortran_scenario(heed_context *ctx) {
  heed_tensor *x = NULL;
  const heed_status status = heed_load_npy(ctx, "tests/golden/files/fortran.npy", &x);
  heed_tensor_free(x);
  return status;
}
static heed_status json_scenario(heed_context *ctx) {
  heed__json_tree *tree = NULL;
  const heed_status status = heed__json_load(ctx, "tests/golden/files/sharded.safetensors.index.json", &tree);
  heed__json_free(tree);
  return status;
}

static void every_allocation_may_fail(void **state) {
  const files *f = *state;
  strcpy(scenario_folder, f->folder);
  survives_every_failing_allocation(safetensors_scenario);
  survives_every_failing_allocation(npz_scenario);
  survives_every_failing_allocation(deflated_scenario);
  survives_every_failing_allocation(npy_scenario);
  survives_every_failing_allocation(golden_scenario);
  survives_every_failing_allocation(sharded_scenario);
  survives_every_failing_allocation(fortran_scenario);
  survives_every_failing_allocation(json_scenario);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    FILES_TEST(an_archive_gives_names_tensors_and_metadata),
    FILES_TEST(writing_to_a_loaded_tensor_leaves_the_file_alone),
    FILES_TEST(loaded_tensors_outlive_the_context_s_owner),
    FILES_TEST(a_destroyed_context_unmaps_its_files),
    FILES_TEST(missing_arguments_are_refused),
    FILES_TEST(bools_are_written_as_0_and_1),
    FILES_TEST(a_writer_patches_what_was_put),
    FILES_TEST(a_full_disk_leaves_the_old_file),
    FILES_TEST(loading_reports_cancellations_and_limits),
    FILES_TEST(saving_reports_cancellations_and_limits),
#if HEED_ZIP
    FILES_TEST(large_archives_are_read_as_written),
#endif
    FILES_TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
