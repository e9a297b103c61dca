/* The target of libFuzzer: loads the contents of a file; if that succeeds, saves the tensors, loads them
 * again and compares. The environment variable FUZZ_FOLDER names the folder to work in, which contains the
 * files that an index may refer to; a folder in memory is fastest. Built and run by `make fuzz`. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/io/gguf.h"

static char path_text[512];
static const char *path_of(const char *name) {
  const char *folder = getenv("FUZZ_FOLDER");
  snprintf(path_text, sizeof(path_text), "%s/%ld.%s", folder != NULL ? folder : "/tmp", (long)getpid(), name);
  return path_text;
}

static void need(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "fuzz_files: %s\n", what);
  abort();
}

static void write_text(const char *name, const uint8_t *text, size_t size) {
  FILE *file = fopen(path_of(name), "wb");
  need(file != NULL && fwrite(text, 1, size, file) == size && fclose(file) == 0, "cannot write files");
}

/* Compares all elements. */
static bool same_elements(heed_context *ctx, const heed_tensor *a, const heed_tensor *b) {
  heed_tensor *x = NULL, *y = NULL;
  need(heed_clone(ctx, a, &x) == HEED_OK && heed_clone(ctx, b, &y) == HEED_OK, "cannot copy");
  const size_t bytes = (size_t)heed__row_bytes(heed_tensor_dtype(x), heed_tensor_numel(x));
  const bool same = heed_tensor_dtype(x) == heed_tensor_dtype(y) &&
                    heed__same_shape(x->ndim, x->shape, y->ndim, y->shape) &&
                    memcmp(heed_tensor_data(x), heed_tensor_data(y), bytes) == 0;
  heed_tensor_free(x);
  heed_tensor_free(y);
  return same;
}

#define MOST 64 /* archives with more tensors are not compared */

/* The pairs of GGUF metadata, up to MOST. */
static int64_t list_pairs(const heed_archive *archive, const char *keys[MOST], heed_gguf_value values[MOST]) {
  int64_t pairs = 0;
  while (pairs < MOST && heed_gguf_pair(archive, pairs + 1, &keys[pairs], &values[pairs])) pairs++;
  return pairs;
}

static void need_same_pairs(const heed_archive *a, const heed_archive *b) {
  const char *keys[MOST], *others[MOST];
  heed_gguf_value values[MOST], found[MOST];
  const int64_t pairs = list_pairs(a, keys, values);
  need(list_pairs(b, others, found) == pairs, "the number of pairs changed");
  for (int64_t i = 0; i < pairs; i++) {
    const ptrdiff_t bytes = heed__gguf_end(&values[i]) - (const char *)values[i].data;
    need(strcmp(keys[i], others[i]) == 0 && values[i].type == found[i].type &&
             values[i].item == found[i].item && values[i].count == found[i].count &&
             heed__gguf_end(&found[i]) - (const char *)found[i].data == bytes &&
             memcmp(values[i].data, found[i].data, (size_t)bytes) == 0,
         "a pair changed");
  }
}

static void save_again(heed_context *ctx, const heed_archive *archive, const char *name) {
  const bool is_gguf = strstr(name, ".gguf") != NULL;
  const char *keys[MOST];
  heed_gguf_value values[MOST];
  const int64_t pairs = is_gguf ? list_pairs(archive, keys, values) : 0;
  int64_t count = heed_archive_count(archive);
  const char *names[MOST];
  heed_tensor *tensors[MOST] = {NULL};
  heed_archive *again = NULL;
  int64_t used = 0;
  if (count > MOST) return;
  for (int64_t i = 0; i < count; i++) {
    names[used] = heed_archive_name(archive, i + 1);
    const heed_status status = heed_archive_tensor(archive, i + 1, &tensors[used]);
    need(status == HEED_OK || status == HEED_DTYPE || status == HEED_FILE || status == HEED_MEMORY,
         "a tensor cannot be loaded"); /* heed lacks its dtype, a number is too large, or it is expanded */
    if (status == HEED_OK && !is_gguf && heed__is_blocked(heed_tensor_dtype(tensors[used]))) {
      heed_tensor_free(tensors[used]); /* for .gguf alone */
      tensors[used] = NULL;
    } else if (status == HEED_OK) {
      used++;
    }
  }
  count = used;
  const heed_tensor *const *list = (const heed_tensor *const *)tensors;
  const heed_status status = is_gguf
                                 ? heed_save_gguf(ctx, path_of(name), count, names, list, pairs, keys, values)
                                 : heed_save_archive(ctx, path_of(name), count, names, list, 0, NULL);
  need(status == HEED_OK || status == HEED_ARGUMENT || status == HEED_DTYPE ||
           (is_gguf && status == HEED_SHAPE),
       heed_message(ctx)); /* unsupported names, dtypes or numbers of dimensions */
  if (status == HEED_OK) {
    need(heed_load_archive(ctx, path_of(name), &again) == HEED_OK, heed_message(ctx));
    need(heed_archive_count(again) == count, "the number of tensors changed");
    if (is_gguf && pairs < MOST) need_same_pairs(archive, again);
    for (int64_t i = 0; i < count; i++) {
      heed_tensor *x = NULL;
      need(strcmp(heed_archive_name(again, i + 1), names[i]) == 0, "the names changed");
      need(heed_archive_tensor(again, i + 1, &x) == HEED_OK, "a tensor cannot be loaded");
      need(same_elements(ctx, x, tensors[i]), "the elements changed");
      heed_tensor_free(x);
    }
  }
  heed_archive_free(again);
  for (int64_t i = 0; i < count; i++) heed_tensor_free(tensors[i]);
}

static void read_archive(heed_context *ctx, const char *name) {
  heed_archive *archive = NULL;
  if (heed_load_archive(ctx, path_of(name), &archive) != HEED_OK) {
    need(strncmp(heed_message(ctx), "load: ", 6) == 0, "the message lacks its prefix");
    return;
  }
  save_again(ctx, archive, "again.safetensors");
  save_again(ctx, archive, "again.npz");
  save_again(ctx, archive, "again.gguf");
  heed_archive_free(archive);
}

static void read_npy(heed_context *ctx) {
  heed_tensor *x = NULL, *again = NULL;
  if (heed_load_npy(ctx, path_of("x.npy"), &x) != HEED_OK) return;
  need(heed_save_npy(ctx, path_of("again.npy"), x) == HEED_OK, heed_message(ctx));
  need(heed_load_npy(ctx, path_of("again.npy"), &again) == HEED_OK, heed_message(ctx));
  need(same_elements(ctx, x, again), "the elements changed");
  heed_tensor_free(x);
  heed_tensor_free(again);
}

static int64_t count_values(const heed__json *value) {
  int64_t count = 1;
  const heed__json_kind kind = heed__json_kind_of(value);
  if (kind == HEED__JSON_STRING) return count + (strlen(heed__json_text(value)) > 0);
  if (kind != HEED__JSON_LIST && kind != HEED__JSON_OBJECT) return count;
  for (const heed__json *v = heed__json_first(value); v != NULL; v = heed__json_next(v)) {
    if (kind == HEED__JSON_OBJECT) count += strlen(heed__json_key(v)) > 0;
    count += count_values(v);
  }
  return count;
}

static void read_json(heed_context *ctx, const char *name) {
  heed__json_tree *tree = NULL;
  if (heed__json_load(ctx, path_of(name), &tree) == HEED_OK) {
    need(count_values(heed__json_root(tree)) > 0, "no values");
  } else {
    need(strstr(heed_message(ctx), "memory") == NULL,
         heed_message(ctx)); /* cJSON rejected a file that passed the checks */
  }
  heed__json_free(tree);
}

/* Chooses the format by the first bytes, so that each seed is mutated within its format. */
static void read_text(heed_context *ctx, const uint8_t *text, size_t size) {
  if (size >= 2 && memcmp(text, "\x93N", 2) == 0) {
    write_text("x.npy", text, size);
    read_npy(ctx);
  } else if (size >= 2 && memcmp(text, "PK", 2) == 0) {
    write_text("x.npz", text, size);
    read_archive(ctx, "x.npz");
  } else if (size >= 2 && memcmp(text, "GG", 2) == 0) {
    write_text("x.gguf", text, size);
    read_archive(ctx, "x.gguf");
  } else if (size >= 1 && text[0] == 0x80) {
    write_text("x.pt", text, size);
    read_archive(ctx, "x.pt");
  } else if (size >= 1 && (text[0] == '{' || text[0] == '[' || text[0] == ' ' || text[0] == '"')) {
    write_text("x.safetensors.index.json", text, size);
    read_json(ctx, "x.safetensors.index.json");
    read_archive(ctx, "x.safetensors.index.json");
  } else {
    write_text("x.safetensors", text, size);
    read_archive(ctx, "x.safetensors");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *text, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *text, size_t size) {
  heed_context *ctx = NULL;
  need(heed_context_new(NULL, &ctx) == HEED_OK, "no context");
  read_text(ctx, text, size);
  need(heed_memory_in_use(ctx) == 0 && ctx->externals == NULL, "memory leaked");
  heed_context_free(ctx);
  return 0;
}
