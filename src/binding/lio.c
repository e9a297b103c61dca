/* Files, for lua/heed/files.lua: archives of tensors, single tensors, JSON. Problems with a file are returned
 * as nil and a message; problems with an argument are raised. */
#include <string.h>

#include "../core/core.h"
#include "../io/io.h"
#include "lheed.h"

static void release_archive(void *object) {
  heed_archive_free(object);
}
static void release_json(void *object) {
  heed__json_free(object);
}

/* No script gets a box of these types. */
const lheed_type lheed_archive_type = {"Archive", "archive", release_archive, NULL};
static const lheed_type json_type = {"Json", "tree of JSON", release_json, NULL};

const char *lheed_path(lua_State *L, int idx, const char *function) {
  size_t length;
  if (lua_type(L, idx) != LUA_TSTRING) lheed_bad_argument(L, idx, function, "path", "a string");
  const char *path = lua_tolstring(L, idx, &length);
  if (strlen(path) != length) lheed_error(L, "%s: path has a zero byte; it must have none", function);
  return path;
}

int lheed_file_failed(lua_State *L, heed_status status) {
  if (status != HEED_FILE) lheed_raise(L, status);
  lua_pushnil(L);
  lheed_push_message(L, status);
  return 2;
}

/* ---- Loading ---- */

/* Whether `metadata` makes the table of the metadata when it is used, as vocabularies are long. */
static bool has_values(const heed_archive *archive) {
  const char *key;
  heed_gguf_value value;
  return heed_gguf_pair(archive, 1, &key, &value);
}

/* Pushes the names in order, the tensors by name, the metadata (false: made when it is used), and by name the
 * numbers of the entries that `open` makes a tensor of when they are used. Returns the number of these. */
static int64_t push_contents(lua_State *L, heed_context *ctx, const heed_archive *archive) {
  const int64_t count = heed_archive_count(archive);
  const char *key, *value;
  int64_t later = 0;
  const int names = lua_gettop(L) + 1, tensors = names + 1, numbers = names + 3;
  lua_createtable(L, (int)count, 0);
  lua_createtable(L, 0, (int)count);
  lua_createtable(L, 0, 4);
  lua_newtable(L);
  for (int64_t i = 1; i <= count; i++) {
    if ((i & 0x3ff) == 0) lheed_check_cancel_of(L, ctx, "load");
    lua_pushstring(L, heed_archive_name(archive, i));
    lua_pushvalue(L, -1);
    lua_rawseti(L, names, i);
    if (heed__archive_is_ready(archive, i)) {
      heed_tensor **out = lheed_push_tensor(L);
      LHEED_TRY(L, heed_archive_tensor(archive, i, out));
      lua_rawset(L, tensors);
    } else {
      lua_pushinteger(L, (lua_Integer)i);
      lua_rawset(L, numbers);
      later++;
    }
  }
  for (int64_t i = 1; heed_archive_metadata(archive, i, &key, &value); i++) {
    lheed_check_cancel_of(L, ctx, "load"); /* a value may have megabytes */
    lua_pushstring(L, value);
    lua_setfield(L, tensors + 1, key);
  }
  if (has_values(archive)) {
    lua_pushboolean(L, false);
    lua_replace(L, tensors + 1);
  }
  return later;
}

/* load(path): a tensor; or names, tensors by name, metadata, whether the names are nested, and, if entries or
 * the metadata are left for later, their numbers by name and the archive; or nil, message */
static int load(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  lheed_arguments(L, "load", 1);
  const char *path = lheed_path(L, 1, "load");
  heed_archive **archive = (heed_archive **)lheed_push_box(L, &lheed_archive_type);
  heed_tensor **tensor = lheed_push_tensor(L);
  LHEED_TRY_FILE(L, &status, heed__load_file(ctx, path, archive, tensor));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  if (*tensor != NULL) return lheed_return(L, 1);
  const bool later = push_contents(L, ctx, *archive) > 0 || has_values(*archive);
  lua_pushboolean(L, heed__archive_is_nested(*archive));
  lua_insert(L, -2);
  if (later) {
    lua_pushvalue(L, 2);
    return lheed_return(L, 6);
  }
  heed_archive_free(*archive);
  *archive = NULL;
  lua_pop(L, 1);
  return lheed_return(L, 4);
}

/* The archive at 1, where the number at 2 is that of an entry. */
static heed_archive *archive_argument(lua_State *L, int64_t *i) {
  lheed_arguments(L, "load", 2);
  const lheed_box *box = lheed_test(L, 1, &lheed_archive_type);
  *i = lheed_integer(L, 2, "load", "number");
  if (!box || !box->object || *i < 1 || *i > heed_archive_count(box->object))
    lheed_bad_argument(L, 1, "load", "archive", "an archive with that entry");
  return box->object;
}

/* open(archive, i): the tensor of entry i */
static int open_entry(lua_State *L) {
  int64_t i;
  lheed_begin(L);
  const heed_archive *archive = archive_argument(L, &i);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_archive_tensor(archive, i, out));
  return lheed_return(L, 1);
}

/* lacking(archive, i): nil; or, if heed lacks the dtype of entry i, {dtype =, fix = (or nil), message =, file
 * = (how the message begins)} */
static int lacking(lua_State *L) {
  int64_t i;
  const char *fix, *file;
  heed_tensor *none = NULL;
  lheed_begin(L);
  const heed_archive *archive = archive_argument(L, &i);
  const char *dtype = heed__archive_lacks(archive, i, &fix, &file);
  if (dtype == NULL) return lheed_return(L, 0);
  lua_createtable(L, 0, 4);
  lua_pushstring(L, dtype);
  lua_setfield(L, -2, "dtype");
  if (*fix != '\0') lua_pushstring(L, fix), lua_setfield(L, -2, "fix");
  lua_pushstring(L, file);
  lua_setfield(L, -2, "file");
  (void)!heed_archive_tensor(archive, i, &none); /* fails */
  lua_pushstring(L, heed_message(lheed_get(L)->context));
  lua_setfield(L, -2, "message");
  return lheed_return(L, 1);
}

/* describe(archive, i): what entry i is, for messages */
static int describe_entry(lua_State *L) {
  int64_t i;
  char text[HEED__ENTRY_TEXT];
  lheed_begin(L);
  const heed_archive *archive = archive_argument(L, &i);
  heed__archive_describe(archive, i, text);
  lua_pushstring(L, text);
  return 1;
}

/* ---- Saving ---- */

/* save_tensor(path, x): true; or nil, message */
static int save_tensor(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  const char *path = lheed_path(L, 1, "save");
  const heed_tensor *x = lheed_tensor(L, 2, "save", "what");
  LHEED_TRY_FILE(L, &status, heed__save_tensor(ctx, path, x));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  lua_pushboolean(L, true);
  return 1;
}

/* Stores the strings of a list (from lheed_own_list) in out. */
static void read_strings(lua_State *L, heed_context *ctx, int list, lua_Unsigned count, const char **out) {
  for (lua_Unsigned i = 0; i < count; i++) {
    size_t length;
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, "save");
    if (lheed_own_element(L, list, i) != LUA_TSTRING)
      lheed_error(L, "save: names and metadata must be strings");
    out[i] = lua_tolstring(L, -1, &length);
    if (strlen(out[i]) != length)
      lheed_error(L, "save: %s has a zero byte; names and metadata must have none",
                  lheed_push_what(L, lua_gettop(L)));
    lua_pop(L, 1);
  }
}

/* save(path, names, tensors, metadata, typed): three lists, metadata of alternating keys and texts, or, if
 * typed, keys and the bytes of GGUF values; true; or nil, message */
static int save(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  const char *path = lheed_path(L, 1, "save");
  static const char *const lists[] = {"names", "tensors", "metadata"};
  const bool typed = lua_toboolean(L, 5);
  lua_settop(L, 4);
  for (int i = 0; i < 3; i++) {
    if (!lua_istable(L, i + 2)) return lheed_bad_argument(L, i + 2, "save", lists[i], "a list");
  }
  const lua_Unsigned count = lheed_own_list(L, 2, "save"), texts = lheed_own_list(L, 4, "save");
  lheed_own_list(L, 3, "save");
  const char **names = lua_newuserdatauv(L, heed__array_bytes(count, sizeof *names) + 1, 0);
  const char **metadata = lua_newuserdatauv(L, heed__array_bytes(texts, sizeof *metadata) + 1, 0);
  const heed_tensor **tensors = lua_newuserdatauv(L, heed__array_bytes(count, sizeof *tensors) + 1, 0);
  heed_gguf_value *values =
      lua_newuserdatauv(L, heed__array_bytes(typed ? texts / 2 : 0, sizeof *values) + 1, 0);
  read_strings(L, ctx, 2, count, names);
#if !HEED_MINIMAL
  if (typed) lheed_read_gguf_pairs(L, ctx, 4, texts / 2, metadata, values);
#endif
  if (!typed) read_strings(L, ctx, 4, texts, metadata);
  for (lua_Unsigned i = 0; i < count; i++) { /* from here on nothing allocates (rule 2) */
    lheed_own_element(L, 3, i);
    lheed_box *box = lheed_test(L, lua_gettop(L), &lheed_tensor_type);
    if (box == NULL || box->object == NULL)
      return lheed_error(L, "save: '%s' is %s; it must be a tensor", names[i],
                         lheed_push_what(L, lua_gettop(L)));
    tensors[i] = box->object;
    lua_pop(L, 1);
  }
  const int64_t n = (int64_t)count, pairs = (int64_t)texts / 2;
  LHEED_TRY_FILE(L, &status,
                 typed ? heed_save_gguf(ctx, path, n, names, tensors, pairs, metadata, values)
                       : heed_save_archive(ctx, path, n, names, tensors, pairs, metadata));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  lua_pushboolean(L, true);
  return 1;
}

/* ---- JSON ---- */

/* Pushes a value: numbers as integers if they are below 2^53; null as nil, so that a list may end early and
 * an object lacks the key. */
static void push_json(lua_State *L, heed_context *ctx, const heed__json *value, unsigned *pushed) {
  int64_t integer;
  if ((++*pushed & 0xfff) == 0) lheed_check_cancel_of(L, ctx, "load");
  switch (heed__json_kind_of(value)) {
  case HEED__JSON_NULL: lua_pushnil(L); return;
  case HEED__JSON_BOOLEAN: lua_pushboolean(L, heed__json_boolean(value)); return;
  case HEED__JSON_STRING: lua_pushstring(L, heed__json_text(value)); return;
  case HEED__JSON_NUMBER:
    if (heed__json_integer(value, &integer))
      lua_pushinteger(L, (lua_Integer)integer);
    else
      lua_pushnumber(L, heed__json_number(value));
    return;
  case HEED__JSON_LIST:
  case HEED__JSON_OBJECT: break;
  }
  luaL_checkstack(L, 4, "json");
  lua_newtable(L);
  const bool object = heed__json_kind_of(value) == HEED__JSON_OBJECT;
  lua_Integer i = 0;
  for (const heed__json *v = heed__json_first(value); v != NULL; v = heed__json_next(v)) {
    if (object)
      lua_pushstring(L, heed__json_key(v));
    else
      lua_pushinteger(L, ++i);
    push_json(L, ctx, v, pushed);
    lua_rawset(L, -3);
  }
}

/* Gives the value of a tree that was read, which it frees; or nil, message. */
static int give_json(lua_State *L, heed_context *ctx, heed_status status, heed__json_tree **tree) {
  unsigned pushed = 0;
  if (status != HEED_OK) return lheed_file_failed(L, status);
  push_json(L, ctx, heed__json_root(*tree), &pushed);
  heed__json_free(*tree);
  *tree = NULL;
  return 1;
}

/* json(path): the value in the file, usually a table; or nil, message */
static int json(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  const char *path = lheed_path(L, 1, "load");
  heed__json_tree **tree = (heed__json_tree **)lheed_push_box(L, &json_type);
  LHEED_TRY_FILE(L, &status, heed__json_load(ctx, path, tree));
  return give_json(L, ctx, status, tree);
}

/* parse(path, text): the value of a JSON text in that file; or nil, message */
static int parse_json(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  size_t length;
  const char *path = lheed_path(L, 1, "load");
  if (lua_type(L, 2) != LUA_TSTRING) lheed_bad_argument(L, 2, "load", "text", "a string");
  const char *json_text = lua_tolstring(L, 2, &length);
  heed__json_tree **tree = (heed__json_tree **)lheed_push_box(L, &json_type);
  LHEED_TRY_FILE(L, &status, heed__json_read(ctx, path, json_text, length, tree));
  return give_json(L, ctx, status, tree);
}

/* format(path, by_ending): ".gguf" and so on, or nil: by the ending in any case, or, without by_ending, else
 * by the first bytes */
static int format_of(lua_State *L) {
  const char *path = lheed_path(L, 1, "load");
  const bool by_ending = lua_toboolean(L, 2);
  lua_pushstring(L, by_ending ? heed__path_ending(path) : heed__path_format(lheed_get(L)->context, path));
  return 1;
}

/* map(path): the bytes of a file as a mapped int8 tensor [size]; or nil, message */
static int map_bytes(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  const char *path = lheed_path(L, 1, "load");
  heed_tensor **bytes = lheed_push_tensor(L);
  LHEED_TRY_FILE(L, &status, heed__map_bytes(ctx, path, bytes));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  return lheed_return(L, 1);
}

/* text(path): the bytes of a file; or nil, message */
static int text(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  const char *path = lheed_path(L, 1, "load");
  heed_tensor **bytes = lheed_push_tensor(L);
  LHEED_TRY_FILE(L, &status, heed__load_bytes(ctx, path, bytes));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  lua_pushlstring(L, heed_tensor_data(*bytes), (size_t)heed_tensor_numel(*bytes));
  heed_tensor_free(*bytes);
  *bytes = NULL;
  return 1;
}

static const char *check_bytes(lua_State *L, int idx, const char *function, size_t *length) {
  if (lua_type(L, idx) != LUA_TSTRING) lheed_bad_argument(L, idx, function, "bytes", "a string");
  return lua_tolstring(L, idx, length);
}

/* write(path, bytes): true; or nil, message */
static int write_bytes(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  size_t length;
  const char *path = lheed_path(L, 1, "save");
  const char *bytes = check_bytes(L, 2, "save", &length);
  LHEED_TRY_FILE(L, &status, heed__save_bytes(ctx, path, bytes, length));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  lua_pushboolean(L, true);
  return 1;
}

/* forget(x): frees the memory of a mapped tensor that is not needed for now */
static int forget_tensor(lua_State *L) {
  lheed_begin(L);
  heed__tensor_forget(lheed_tensor(L, 1, "forget", "x"));
  return lheed_return(L, 0);
}

/* compress(bytes): a zlib stream */
static int compress_bytes(lua_State *L) {
  size_t length;
  const char *bytes = check_bytes(L, 1, "compress", &length);
  const size_t capacity = heed__zlib_bound(length);
  if (capacity == 0) return lheed_error(L, "compress: the bytes are too many for this system");
  char *out = lua_newuserdatauv(L, capacity, 0);
  lua_pushlstring(L, out, heed__zlib_compress(bytes, length, out, capacity));
  return 1;
}

/* crc32(bytes): an integer from 0 to 2^32 - 1 */
static int crc32_of_bytes(lua_State *L) {
  size_t length;
  const char *bytes = check_bytes(L, 1, "crc32", &length);
  lua_pushnumber(L, (lua_Number)heed__crc32(bytes, length));
  return 1;
}

/* terminal(): the columns of the terminal that standard output writes to; nil if it is none */
static int terminal(lua_State *L) {
  const int columns = heed__system_terminal();
  if (columns == 0) return 0;
  lua_pushinteger(L, columns);
  return 1;
}

/* kind(path): "file", "directory", "other" (a device or a pipe), or nil */
static int kind(lua_State *L) {
  static const char *const names[] = {[HEED__NOTHING] = NULL,
                                      [HEED__REGULAR] = "file",
                                      [HEED__DIRECTORY] = "directory",
                                      [HEED__SPECIAL] = "other"};
  const char *path = lheed_path(L, 1, "load");
  LHEED_TRY(L, heed__check_files(lheed_get(L)->context, "load"));
  lua_pushstring(L, names[heed__path_kind_of(path)]);
  return 1;
}

/* Adds `files`, the functions, to the library table. */
void lheed_open_io(lua_State *L) {
  static const luaL_Reg functions[] = {{"load", load},
                                       {"save_tensor", save_tensor},
                                       {"save", save},
                                       {"json", json},
                                       {"kind", kind},
                                       {"format", format_of},
                                       {"parse", parse_json},
                                       {"map", map_bytes},
                                       {"text", text},
                                       {"open", open_entry},
                                       {"describe", describe_entry},
                                       {"lacking", lacking},
                                       {"forget", forget_tensor},
                                       {"write", write_bytes},
                                       {"compress", compress_bytes},
                                       {"crc32", crc32_of_bytes},
                                       {"terminal", terminal},
                                       {NULL, NULL}};
  lheed_new_type(L, &lheed_archive_type, NULL);
  lheed_new_type(L, &json_type, NULL);
  lheed_add(L, "files", functions);
}
