/* Files of every format: read and written again with each allocation failing in turn and cancelled at each
 * check; and with each byte changed, and cut at each byte. Nothing leaks, and what is refused has a message.
 */
#define _DEFAULT_SOURCE /* mkdtemp, pwrite, ftruncate */

#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "../../src/io/io.h"

static const char *const files[] = {
    "everything.safetensors",
    "converted.safetensors",
    "stored.npz",
    "deflated.npz",
    "small.gguf",
    "checkpoint.pt",
    "legacy.pt",
    "legacy_views.pt",
    "dtypes.pt",
    "views.pt",
    "list.pt",
    "sharded.safetensors.index.json",
    "alone.pt",
    "big_f8.npy",
    "fortran.npy",
    "version_2.npy",
    "i1.npy",
    "u2.npy",
    "without_endings.npz",
};
#define FILES (sizeof files / sizeof *files)

static char folder[] = "/tmp/heed_files_failing_XXXXXX";
static const char *in_folder(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

#define MOST 32

/* Loads a file, reads all tensors and pairs of metadata. */
static heed_status read_all(heed_context *ctx, const char *path, heed_archive **archive,
                            heed_tensor *tensors[MOST], const char *names[MOST], int *count) {
  heed_tensor *alone = NULL;
  heed_status status = heed__load_file(ctx, path, archive, &alone);
  *count = 0;
  if (alone != NULL) {
    names[0] = "alone";
    tensors[(*count)++] = alone;
  }
  for (int64_t i = 1; *archive != NULL && i <= heed_archive_count(*archive) && i <= MOST && status == HEED_OK;
       i++) {
    names[*count] = heed_archive_name(*archive, i);
    status = heed_archive_tensor(*archive, i, &tensors[*count]);
    if (status == HEED_OK) ++*count;
    if (status == HEED_DTYPE || status == HEED_FILE) status = HEED_OK; /* heed lacks its dtype */
  }
  return status;
}

static heed_status read_and_write(heed_context *ctx, const char *path) {
  static const char *const endings[] = {"x.safetensors", "x.npz", "x.gguf"};
  heed_archive *archive = NULL;
  heed_tensor *tensors[MOST] = {NULL};
  const char *names[MOST];
  int count;
  heed_status status = read_all(ctx, path, &archive, tensors, names, &count);
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    status = heed_save_archive(ctx, in_folder(endings[i]), count, names, (const heed_tensor *const *)tensors,
                               0, NULL);
    if (status == HEED_DTYPE || status == HEED_ARGUMENT || status == HEED_SHAPE)
      status = HEED_OK; /* not in GGUF */
  }
  for (int i = 0; i < count; i++) heed_tensor_free(tensors[i]);
  heed_archive_free(archive);
  return status;
}

/* Cancels at check number `cancel_at`, counted from 1. */
typedef struct check_counter {
  heed_context *ctx;
  int64_t checks, cancel_at;
} check_counter;

static void count_check(void *user) {
  check_counter *counter = user;
  if (++counter->checks == counter->cancel_at) heed_cancel(counter->ctx);
}

static void files_survive_every_failure(void **state) {
  test_context *t = *state;
  for (size_t i = 0; i < FILES; i++) {
    char path[128];
    snprintf(path, sizeof path, "tests/golden/files/%s", files[i]);
    for (int cancelled = 0; cancelled <= 1; cancelled++) {
      const test_memory start = t->memory;
      heed_status status = HEED_MEMORY;
      for (int64_t n = 1; status != HEED_OK; n++) {
        check_counter counter = {.ctx = t->ctx, .cancel_at = cancelled ? n : 0};
        t->memory.calls = 0;
        t->memory.fail_at = cancelled ? 0 : n;
        if (cancelled) assert_ok(heed_set_poll(t->ctx, 0, count_check, &counter));
        status = read_and_write(t->ctx, path);
        t->memory.fail_at = 0;
        assert_ok(heed_set_poll(t->ctx, 0, NULL, NULL));
        heed_clear_cancel(t->ctx);
        if (status != HEED_OK && status != (cancelled ? HEED_CANCELLED : HEED_MEMORY))
          fail_msg("%s: %s", files[i], heed_message(t->ctx));
        if (t->memory.blocks != start.blocks) fail_msg("%s leaks at %lld", files[i], (long long)n);
      }
    }
  }
}

/* Loads the file in the folder; a failure must be about the file. */
static void try_file(test_context *t, const char *path, const char *name, long at) {
  const test_memory start = t->memory;
  heed_archive *archive = NULL;
  heed_tensor *tensors[MOST] = {NULL};
  const char *names[MOST];
  int count;
  const heed_status status = read_all(t->ctx, path, &archive, tensors, names, &count);
  if (status != HEED_OK && (status != HEED_FILE || strncmp(heed_message(t->ctx), "load: '", 7) != 0))
    fail_msg("%s with byte %ld changed: %s", name, at, heed_message(t->ctx));
  for (int i = 0; i < count; i++) heed_tensor_free(tensors[i]);
  heed_archive_free(archive);
  if (t->memory.blocks != start.blocks) fail_msg("%s leaks with byte %ld changed", name, at);
}

/* Those without checksums. Among the values are the operations of pickles and the characters of JSON. */
static void files_with_changed_bytes_are_read_or_refused(void **state) {
  static const unsigned char values[] = {0,    1,    2,    0x7f, 0x80, 0xff, ' ', '"',  ',', '}',
                                         ']',  '[',  '{',  '0',  '9',  '-',  '.', 'e',  '(', ')',
                                         '\\', '\'', 'U',  'T',  'C',  'B',  'j', 'q',  'h', 'R',
                                         'Q',  'N',  0x8a, 0x85, 0x86, 0x87, 't', '\n', 'K'};
  static const char *const changed[] = {
      "everything.safetensors", "small.gguf", "legacy.pt",      "legacy_views.pt", "fortran.npy",
      "version_2.npy",          "big_f8.npy", "everything.json"};
  test_context *t = *state;
  for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
    char from[128], path[128], text[8192];
    snprintf(from, sizeof from, "tests/golden/files/%s",
             strcmp(changed[i], "everything.json") == 0 ? "sharded.safetensors.index.json" : changed[i]);
    snprintf(path, sizeof path, "%s/%s", folder, changed[i]);
    const int source = open(from, O_RDONLY), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    const long size = (long)read(source, text, sizeof text);
    assert_true(source >= 0 && file >= 0 && size > 0);
    assert_int_equal(write(file, text, (size_t)size), size);
    for (long at = 0; at < size; at++) {
      for (size_t v = 0; v <= sizeof values; v++) {
        const unsigned char byte = v < sizeof values ? values[v] : (unsigned char)(text[at] ^ 1);
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
        try_file(t, path, changed[i], at);
      }
      assert_int_equal(pwrite(file, text + at, 1, at), 1);
    }
    for (long cut = size - 1; cut >= 0; cut--) {
      assert_int_equal(ftruncate(file, cut), 0);
      try_file(t, path, changed[i], cut);
    }
    close(source);
    close(file);
    assert_int_equal(remove(path), 0);
  }
}

static int make_folder(void **state) {
  (void)state;
  if (access("/dev/shm", W_OK) == 0) strcpy(folder, "/dev/shm/heed.XXXXXX"); /* thousands of files */
  return mkdtemp(folder) == NULL ? -1 : 0;
}
static int remove_folder(void **state) {
  static const char *const names[] = {"x.safetensors", "x.npz", "x.gguf"};
  (void)state;
  for (int i = 0; i < 3; i++) remove(in_folder(names[i]));
  return rmdir(folder); /* no partial file is left */
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(files_survive_every_failure),
                                     TEST(files_with_changed_bytes_are_read_or_refused)};
  return cmocka_run_group_tests_name("files that fail", tests, make_folder, remove_folder);
}
