/* The operating system on Windows. */
#if defined(_WIN32)

#include "core.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <windows.h>

#define MOST_PER_CALL ((size_t)1 << 30) /* bytes of one read or write */

/* ---- Clock, processes, pages ---- */

double heed_clock(void) {
  LARGE_INTEGER ticks, ticks_per_second;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&ticks_per_second);
  return (double)ticks.QuadPart / (double)ticks_per_second.QuadPart;
}

bool heed__system_allow_tiles(void) {
  return false;
}

unsigned heed__system_arm_features(void) {
  return 0;
}

long heed__system_process(void) {
  return 1; /* Windows has no fork */
}

long heed__system_processors(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return (long)info.dwNumberOfProcessors;
}

void heed__system_advise_huge_pages(void *block, size_t bytes) {
  (void)block, (void)bytes;
}

/* ---- Errors: from Windows to errno ---- */

static int last_error(void) {
  const DWORD error = GetLastError();
  switch (error) {
  case ERROR_SUCCESS: return EIO;
  case ERROR_FILE_NOT_FOUND:
  case ERROR_PATH_NOT_FOUND:
  case ERROR_INVALID_NAME:
  case ERROR_BAD_PATHNAME:
  case ERROR_BAD_NETPATH:
  case ERROR_INVALID_DRIVE: return ENOENT;
  case ERROR_ACCESS_DENIED:
  case ERROR_SHARING_VIOLATION:
  case ERROR_LOCK_VIOLATION:
  case ERROR_WRITE_PROTECT:
  case ERROR_USER_MAPPED_FILE: return EACCES;
  case ERROR_FILE_EXISTS:
  case ERROR_ALREADY_EXISTS: return EEXIST;
  case ERROR_DISK_FULL:
  case ERROR_HANDLE_DISK_FULL: return ENOSPC;
  case ERROR_NOT_ENOUGH_MEMORY:
  case ERROR_OUTOFMEMORY:
  case ERROR_COMMITMENT_LIMIT: return ENOMEM;
  case ERROR_TOO_MANY_OPEN_FILES: return EMFILE;
  case ERROR_INSUFFICIENT_BUFFER:
  case ERROR_FILENAME_EXCED_RANGE: return ENAMETOOLONG;
  default: return EIO;
  }
}

void heed__system_error(int error, char *text, size_t size) {
  snprintf(text, size, "%s", strerror(error)); /* in thread-local memory */
}

/* ---- Paths ---- */

static int make_wide(const char *path, WCHAR out[HEED__PATH]) {
  if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, HEED__PATH) > 0) return 0;
  return last_error() == ENAMETOOLONG ? ENAMETOOLONG : ENOENT;
}

static heed__file file_of(HANDLE handle) {
  return (heed__file)(intptr_t)handle;
}
static HANDLE handle_of(heed__file file) {
  return (HANDLE)(intptr_t)file;
}

/* Opens an existing path; device names such as NUL count as paths. */
static int open_path(const char *path, DWORD access, HANDLE *out, heed__path_kind *kind, int64_t *size) {
  WCHAR wide[HEED__PATH];
  BY_HANDLE_FILE_INFORMATION found;
  int error = make_wide(path, wide);
  if (error != 0) return error;
  const HANDLE handle =
      CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                  FILE_FLAG_BACKUP_SEMANTICS, NULL); /* opens folders, too */
  if (handle == INVALID_HANDLE_VALUE) return last_error();
  *kind = HEED__SPECIAL;
  *size = 0;
  if (GetFileType(handle) == FILE_TYPE_DISK) {
    if (!GetFileInformationByHandle(handle, &found)) {
      error = last_error();
      CloseHandle(handle);
      return error;
    }
    *kind = found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? HEED__DIRECTORY : HEED__REGULAR;
    *size = (int64_t)((uint64_t)found.nFileSizeHigh << 32 | found.nFileSizeLow);
  }
  *out = handle;
  return 0;
}

heed__path_kind heed__path_kind_of(const char *path) {
  HANDLE handle;
  heed__path_kind kind;
  int64_t size;
  if (open_path(path, FILE_READ_ATTRIBUTES, &handle, &kind, &size) != 0) return HEED__NOTHING;
  CloseHandle(handle);
  return kind;
}

size_t heed__folder_length(const char *path) {
  size_t length = 0;
  for (size_t i = 0; path[i] != '\0'; i++)
    if (path[i] == '/' || path[i] == '\\' || path[i] == ':') length = i + 1;
  return length;
}

int heed__system_target(const char *path, char out[HEED__PATH], heed__path_kind *kind, uint32_t *rights) {
  WCHAR wide[HEED__PATH];
  HANDLE handle;
  int64_t size;
  const size_t length = strlen(path);
  if (length >= HEED__PATH) return ENAMETOOLONG;
  memcpy(out, path, length + 1);
  *rights = 0;
  int error = open_path(path, GENERIC_WRITE, &handle, kind, &size);
  if (error == ENOENT) {
    *kind = HEED__NOTHING;
    return 0;
  }
  if (error != 0) { /* neither a folder nor a write-protected file opens for writing */
    *kind = heed__path_kind_of(path);
    return *kind == HEED__DIRECTORY ? 0 : error;
  }
  const DWORD used = GetFinalPathNameByHandleW(handle, wide, HEED__PATH, FILE_NAME_NORMALIZED);
  if (*kind == HEED__REGULAR && used > 0 && used < HEED__PATH &&
      WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, HEED__PATH, NULL, NULL) == 0)
    error = ENAMETOOLONG;
  CloseHandle(handle);
  return error;
}

/* ---- Reading ---- */

int heed__system_open(const char *path, heed__file *out, heed__path_kind *kind, int64_t *size) {
  HANDLE handle;
  const int error = open_path(path, GENERIC_READ, &handle, kind, size);
  if (error == 0) *out = file_of(handle);
  return error;
}

static OVERLAPPED at_offset(uint64_t offset) {
  return (OVERLAPPED){.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
}

int heed__system_read(heed__file file, int64_t offset, void *out, size_t bytes, size_t *got) {
  OVERLAPPED position = at_offset((uint64_t)offset);
  DWORD n = 0;
  const bool read =
      ReadFile(handle_of(file), out, (DWORD)(bytes < MOST_PER_CALL ? bytes : MOST_PER_CALL), &n, &position);
  *got = read ? n : 0;
  return read || GetLastError() == ERROR_HANDLE_EOF ? 0 : last_error();
}

/* Copy on write, so that changes stay in memory. */
int heed__system_map(heed__file file, size_t size, char **out) {
  (void)size; /* maps the whole file */
  const HANDLE mapping = CreateFileMappingW(handle_of(file), NULL, PAGE_WRITECOPY, 0, 0, NULL);
  if (mapping == NULL) return last_error();
  *out = MapViewOfFile(mapping, FILE_MAP_COPY, 0, 0, 0);
  const int error = *out == NULL ? last_error() : 0;
  CloseHandle(mapping); /* the view keeps the mapping */
  return error;
}

void heed__system_unmap(char *data, size_t size) {
  (void)size;
  UnmapViewOfFile(data);
}

void heed__system_forget(char *data, size_t size) {
  (void)data;
  (void)size;
}

/* ---- Writing ---- */

/* A file that is being deleted keeps its name until all its handles are closed, and creating it fails with
 * "access denied", as it does in a write-protected folder. There, however, the name itself is not found. */
static bool is_being_deleted(const WCHAR *path) {
  return GetFileAttributesW(path) == INVALID_FILE_ATTRIBUTES && GetLastError() == ERROR_ACCESS_DENIED;
}

int heed__system_create(const char *path, uint32_t rights, heed__file *out) {
  WCHAR wide[HEED__PATH];
  (void)rights; /* inherited from the folder */
  int error = make_wide(path, wide);
  if (error != 0) return error;
  const HANDLE handle = CreateFileW(wide, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL,
                                    CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
  if (handle == INVALID_HANDLE_VALUE) {
    error = last_error();
    return error == EACCES && is_being_deleted(wide) ? EEXIST : error;
  }
  *out = file_of(handle);
  return 0;
}

/* Opens the file without sharing it for writing, which fails while its writer has it open. Removes a link
 * itself, not its target. */
bool heed__system_remove_abandoned(const char *path) {
  WCHAR wide[HEED__PATH];
  if (make_wide(path, wide) != 0) return false;
  const HANDLE handle = CreateFileW(wide, DELETE, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                                    FILE_FLAG_DELETE_ON_CLOSE | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
  if (handle == INVALID_HANDLE_VALUE) return last_error() != ENOENT;
  CloseHandle(handle);
  return true;
}

int heed__system_write(heed__file file, uint64_t offset, const void *data, size_t bytes, size_t *put) {
  OVERLAPPED position = at_offset(offset);
  DWORD n = 0;
  const bool written =
      WriteFile(handle_of(file), data, (DWORD)(bytes < MOST_PER_CALL ? bytes : MOST_PER_CALL), &n, &position);
  *put = written ? n : 0;
  return !written ? last_error() : n == 0 ? ENOSPC : 0;
}

int heed__system_sync(heed__file file) {
  return FlushFileBuffers(handle_of(file)) ? 0 : last_error();
}

void heed__system_close(heed__file file) {
  CloseHandle(handle_of(file));
}

void heed__system_remove(const char *path) {
  WCHAR wide[HEED__PATH];
  if (make_wide(path, wide) == 0) DeleteFileW(wide);
}

/* Removed before it is closed: after that, another save may take the name. */
void heed__system_discard(heed__file file, const char *path) {
  heed__system_remove(path);
  CloseHandle(handle_of(file));
}

/* Windows does not replace an open file. The file of another save that has just ended is still open for a
 * moment, so this tries again. */
int heed__system_replace(heed__file file, const char *from, const char *to, const heed__pace *pace) {
  enum { ATTEMPTS = 20, WAIT = 5 /* milliseconds; up to 16 with the default timer */ };
  WCHAR wide_from[HEED__PATH], wide_to[HEED__PATH];
  (void)file;
  int error = make_wide(from, wide_from);
  if (error == 0) error = make_wide(to, wide_to);
  for (int attempt = 1; error == 0; attempt++) {
    if (MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) return 0;
    error = last_error();
    if (error != EACCES || attempt == ATTEMPTS || heed__is_due(pace)) break;
    error = 0;
    Sleep(WAIT);
  }
  return error;
}

double heed__system_disk_space(const char *path) {
  WCHAR wide[HEED__PATH];
  char folder[HEED__PATH];
  ULARGE_INTEGER bytes;
  const size_t length = heed__folder_length(path);
  memcpy(folder, path, length);
  memcpy(folder + length, ".", 2);
  return make_wide(folder, wide) == 0 && GetDiskFreeSpaceExW(wide, &bytes, NULL, NULL)
             ? (double)bytes.QuadPart
             : (double)INFINITY;
}

int heed__system_terminal(void) {
  CONSOLE_SCREEN_BUFFER_INFO info;
  if (!GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &info)) return 0;
  return info.srWindow.Right - info.srWindow.Left + 1;
}

#else
typedef int heed__no_windows; /* a file must not be empty */
#endif
