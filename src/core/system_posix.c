/* The operating system on POSIX (Linux, macOS, the BSDs) and on WASI, which lacks some of it. */
#if !defined(_WIN32)

#undef _GNU_SOURCE            /* GNU's strerror_r differs from POSIX's */
#define _DEFAULT_SOURCE   1   /* MAP_NORESERVE, madvise, flock */
#define _DARWIN_C_SOURCE  1   /* the same on macOS */
#define _XOPEN_SOURCE     700 /* realpath, clock_gettime */
#define _FILE_OFFSET_BITS 64
#if defined(__wasi__) && !defined(_WASI_EMULATED_MMAN)
#define _WASI_EMULATED_MMAN /* mmap copies the file; needs -lwasi-emulated-mman */
#endif

#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#if !defined(__wasi__)
#include <sys/file.h>
#include <sys/statvfs.h>
#endif
#include <unistd.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/ioctl.h>
#endif

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#elif defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define MOST_PER_CALL ((size_t)1 << 30) /* bytes of one read or write */

/* ---- Processors ---- */

bool heed__system_allow_tiles(void) {
#if defined(__linux__) && defined(__x86_64__)
  enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM of asm/prctl.h */
  return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
  return false;
#endif
}

unsigned heed__system_arm_features(void) {
  unsigned features = 0;
#if defined(__linux__) && defined(__aarch64__)
  enum { DOTPROD = 1 << 20, I8MM = 1 << 13, BF16 = 1 << 14 }; /* HWCAP_ASIMDDP, HWCAP2_… of asm/hwcap.h */
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  if (first & DOTPROD) features |= HEED__ARM_DOTPROD;
  if (second & I8MM) features |= HEED__ARM_I8MM;
  if (second & BF16) features |= HEED__ARM_BF16;
#endif
  return features;
}

/* ---- What WASI lacks: processes, processors, links, permissions, locks, dup, the size of a disk ---- */

#if defined(__wasi__)

#undef MAP_NORESERVE /* its mmap rejects flags that it does not need */
#define MAP_NORESERVE 0
#undef MADV_HUGEPAGE /* declared, but there is no madvise */
#undef MADV_DONTNEED

long heed__system_process(void) {
  return 1;
}

long heed__system_processors(void) {
  return 1;
}

static bool resolve_path(const char *path, char out[HEED__PATH]) {
  memcpy(out, path, strlen(path) + 1);
  return true;
}

static int follow_links(char path[HEED__PATH]) {
  (void)path;
  return 0;
}

static int give_rights(int fd, uint32_t rights) {
  (void)fd, (void)rights;
  return 0;
}

static bool lock(int fd) {
  (void)fd;
  errno = ENOTSUP;
  return false;
}

static int check_linked(int fd) { /* some implementations always report 0 links */
  (void)fd;
  return 0;
}

static int close_copy(int fd) {
  (void)fd;
  return 0;
}

double heed__system_disk_space(const char *path) {
  (void)path;
  return INFINITY;
}

#else

long heed__system_process(void) {
  return (long)getpid();
}

long heed__system_processors(void) {
  return sysconf(_SC_NPROCESSORS_ONLN);
}

static bool resolve_path(const char *path, char out[HEED__PATH]) {
  return realpath(path, out) != NULL;
}

/* Replaces the path of a link to a missing file by that of the file, which open would create. */
static int follow_links(char path[HEED__PATH]) {
  enum { MOST_LINKS = 40 }; /* as in Linux; stat has already refused a loop, unless it was made since */
  char link[HEED__PATH];
  for (int i = 0; i < MOST_LINKS; i++) {
    const ssize_t length = readlink(path, link, sizeof link);
    if (length < 0) return errno == ENOENT || errno == EINVAL ? 0 : errno; /* EINVAL: it is no link */
    const size_t folder = link[0] == '/' ? 0 : heed__folder_length(path);
    if (folder + (size_t)length >= HEED__PATH) return ENAMETOOLONG;
    memcpy(path + folder, link, (size_t)length);
    path[folder + (size_t)length] = '\0';
  }
  return ELOOP;
}

static int give_rights(int fd, uint32_t rights) {
  return fchmod(fd, rights);
}

/* A writer holds this lock on its file; the system releases it however the process ends. flock and not fcntl:
 * fcntl's locks belong to the process, so another Lua state in it would take the file for abandoned. */
static bool lock(int fd) {
  return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* ENOENT: another save has removed the file, and its name may now belong to the other save's file. */
static int check_linked(int fd) {
  struct stat opened;
  if (fstat(fd, &opened) != 0) return errno;
  return opened.st_nlink == 0 ? ENOENT : 0;
}

/* Reports write errors as close does, while the file stays open and locked. */
static int close_copy(int fd) {
  int copy, failed;
  do {
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    failed = copy < 0 ? -1 : close(copy);
  } while (failed != 0 && errno == EINTR);
  return failed != 0 ? errno : 0;
}

double heed__system_disk_space(const char *path) {
  struct statvfs disk;
  return statvfs(path, &disk) == 0 ? (double)disk.f_bavail * (double)disk.f_frsize : INFINITY;
}

#endif

/* ---- Clock and pages ---- */

double heed_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The first touch of a 4 KiB page takes 0.25 µs, in a virtual machine up to 4 µs, and so does the next one
 * after the page was returned: for large results more than computing them. */
#if defined(MADV_HUGEPAGE)
#define SMALL_PAGE ((uintptr_t)4096)

void heed__system_advise_huge_pages(void *block, size_t bytes) {
  const uintptr_t first = ((uintptr_t)block + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1),
                  end = ((uintptr_t)block + bytes) & ~(SMALL_PAGE - 1);
  const int before = errno;
  if (first < end) (void)madvise((void *)first, end - first, MADV_HUGEPAGE); /* advice: failure is harmless */
  errno = before;
}

#else

void heed__system_advise_huge_pages(void *block, size_t bytes) {
  (void)block, (void)bytes;
}

#endif

/* ---- Paths ---- */

static heed__path_kind kind_of_mode(const struct stat *found) {
  return S_ISREG(found->st_mode) ? HEED__REGULAR : S_ISDIR(found->st_mode) ? HEED__DIRECTORY : HEED__SPECIAL;
}

heed__path_kind heed__path_kind_of(const char *path) {
  struct stat found;
  return stat(path, &found) == 0 ? kind_of_mode(&found) : HEED__NOTHING;
}

size_t heed__folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

static const char *folder_of(const char *path, char out[HEED__PATH]) {
  const size_t length = heed__folder_length(path);
  memcpy(out, path, length);
  out[length] = '\0';
  return length > 0 ? out : ".";
}

int heed__system_target(const char *path, char out[HEED__PATH], heed__path_kind *kind, uint32_t *rights) {
  struct stat found;
  const size_t length = strlen(path);
  if (length >= HEED__PATH) return ENAMETOOLONG;
  *kind = HEED__NOTHING;
  *rights = 0;
  if (stat(path, &found) != 0) {
    if (errno != ENOENT) return errno;
    memcpy(out, path, length + 1);
    return follow_links(out);
  }
  *kind = kind_of_mode(&found);
  *rights = found.st_mode & 0777;
  return *kind != HEED__REGULAR || (access(path, W_OK) == 0 && resolve_path(path, out)) ? 0 : errno;
}

/* ---- Reading ---- */

int heed__system_open(const char *path, heed__file *out, heed__path_kind *kind, int64_t *size) {
  struct stat found;
  int fd;
  do fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* does not wait for a pipe's writer */
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno;
  if (fstat(fd, &found) != 0) {
    const int error = errno;
    close(fd);
    return error;
  }
  *out = fd;
  *kind = kind_of_mode(&found);
  *size = (int64_t)found.st_size;
  return 0;
}

int heed__system_read(heed__file file, int64_t offset, void *out, size_t bytes, size_t *got) {
  ssize_t n;
  do n = pread((int)file, out, bytes < MOST_PER_CALL ? bytes : MOST_PER_CALL, (off_t)offset);
  while (n < 0 && errno == EINTR);
  *got = n < 0 ? 0 : (size_t)n;
  return n < 0 ? errno : 0;
}

/* Private, so that changes stay in memory; without reserved swap, since few pages are ever changed. */
int heed__system_map(heed__file file, size_t size, char **out) {
  void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, (int)file, 0);
  if (data == MAP_FAILED) return errno;
  *out = data;
  return 0;
}

void heed__system_unmap(char *data, size_t size) {
  munmap(data, size);
}

void heed__system_forget(char *data, size_t size) {
#if defined(MADV_DONTNEED)
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t first = ((uintptr_t)data + page - 1) & ~(page - 1),
                  end = ((uintptr_t)data + size) & ~(page - 1);
  const int before = errno;
  if (first < end) (void)madvise((void *)first, end - first, MADV_DONTNEED); /* advice: failure is harmless */
  errno = before;
#else
  (void)data;
  (void)size;
#endif
}

/* ---- Writing ---- */

int heed__system_create(const char *path, uint32_t rights, heed__file *out) {
  int fd, error = 0;
  do fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno;
  /* Before this lock, another save may have taken the file for abandoned and removed it; the name is then no
   * longer ours. Without locks that cannot happen. */
  if (lock(fd)) {
    error = check_linked(fd);
  } else if (errno == EWOULDBLOCK) {
    error = ENOENT;
  }
  if (error != 0) {
    close(fd);
    return error == ENOENT ? EEXIST : error;
  }
  if (rights != 0 && give_rights(fd, rights) != 0) {
    error = errno;
    heed__system_discard(fd, path);
    return error;
  }
  *out = fd;
  return 0;
}

/* Before the lock succeeded, the file's writer may have renamed it and another save may have taken the name.
 * A locked file is neither removed nor renamed by others. */
static bool is_named(int fd, const char *path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

bool heed__system_remove_abandoned(const char *path) {
  int fd;
  do fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno != ENOENT;
  if (lock(fd) && is_named(fd, path)) unlink(path);
  close(fd);
  return true;
}

int heed__system_write(heed__file file, uint64_t offset, const void *data, size_t bytes, size_t *put) {
  ssize_t n;
  do n = pwrite((int)file, data, bytes < MOST_PER_CALL ? bytes : MOST_PER_CALL, (off_t)offset);
  while (n < 0 && errno == EINTR);
  *put = n < 0 ? 0 : (size_t)n;
  return n < 0 ? errno : n == 0 ? ENOSPC : 0;
}

/* Some file systems have no fsync. Network file systems and quotas then report write errors at close. */
int heed__system_sync(heed__file file) {
  int failed;
  do failed = fsync((int)file);
  while (failed != 0 && errno == EINTR);
  if (failed == 0) return 0;
  return errno == EINVAL || errno == ENOSYS || errno == ENOTSUP ? close_copy((int)file) : errno;
}

void heed__system_close(heed__file file) {
  close((int)file);
}

void heed__system_remove(const char *path) {
  unlink(path);
}

/* Removed before it is closed: once it is unlocked, another save may take the name. */
void heed__system_discard(heed__file file, const char *path) {
  if (check_linked((int)file) == 0) heed__system_remove(path);
  close((int)file);
}

/* Where other machines do not see the lock (NFS mounted with nolock), one of their saves may have taken the
 * name; this save then fails rather than renaming the other's half-written file. The folder is synced as
 * well; errors there are ignored, since the file is complete and has its name. */
int heed__system_replace(heed__file file, const char *from, const char *to, const heed__pace *pace) {
  char folder[HEED__PATH];
  (void)pace; /* rename does not wait */
  const int error = check_linked((int)file);
  if (error != 0) return error;
  if (rename(from, to) != 0) return errno;
  const int fd = open(folder_of(to, folder), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (fd < 0) return 0;
  (void)fsync(fd);
  close(fd);
  return 0;
}

/* ---- Messages ---- */

void heed__system_error(int error, char *text, size_t size) {
  if (strerror_r(error, text, size) != 0) snprintf(text, size, "error %d", error);
}

int heed__system_terminal(void) {
#if defined(TIOCGWINSZ)
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) return size.ws_col > 0 ? size.ws_col : 80;
#endif
  return 0;
}

#else
typedef int heed__no_posix; /* a file must not be empty */
#endif
