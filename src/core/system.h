/* The operating system: clock, processes, pages and files. system_posix.c and system_windows.c implement it;
 * threads are parallel.c's. Part of core's door. */
#ifndef HEED_SYSTEM_H
#define HEED_SYSTEM_H

/* heed_clock, of heed.h, is implemented there as well. */

/** Identifies the process: differs in a child made by fork. */
long heed__system_process(void);
/** Processors that are online, at least 1. */
long heed__system_processors(void);

/** Asks the system to save AMX's tiles for the threads of this process; whether it does. */
bool heed__system_allow_tiles(void);
/** What the system says that an ARM processor has: a sum of these bits. */
enum { HEED__ARM_DOTPROD = 1, HEED__ARM_I8MM = 2, HEED__ARM_BF16 = 4 };
unsigned heed__system_arm_features(void);

/** Asks for huge pages within a block that has not been touched yet; does nothing where there are none. */
void heed__system_advise_huge_pages(void *block, size_t bytes);

/* ---- Paths, which are UTF-8 on every system ---- */

#define HEED__PATH 4096 /* bytes of the longest path that can be written to, with its closing zero */

typedef enum heed__path_kind { HEED__NOTHING, HEED__REGULAR, HEED__DIRECTORY, HEED__SPECIAL } heed__path_kind;
heed__path_kind heed__path_kind_of(const char *path);

/** Bytes of a path up to and including its last separator; 0 if there is none. */
size_t heed__folder_length(const char *path);

/* ---- Files ---- */

/* An open file: a descriptor or a handle, never -1. */
typedef intptr_t heed__file;
#define HEED__NO_FILE ((heed__file)-1)

/* Functions that return an int return an errno value, 0 on success. */

/** Opens an existing path for reading; `size` is set for files. Does not block on pipes. */
int heed__system_open(const char *path, heed__file *out, heed__path_kind *kind, int64_t *size);
/** Reads up to `bytes` bytes; *got is 0 at the end of the file. */
int heed__system_read(heed__file file, int64_t offset, void *out, size_t bytes, size_t *got);
/** Maps the first `size` bytes of a file, copy on write: changes stay in memory. */
int heed__system_map(heed__file file, size_t size, char **out);
void heed__system_unmap(char *data, size_t size);
/** Frees the memory of the whole pages within a part of a mapped file that nobody has written to. They are
 * read again when they are next used. Does nothing where the system cannot. */
void heed__system_forget(char *data, size_t size);

/** The file that writing to `path` replaces, with all links resolved. Succeeds for a path that does not exist
 * yet, and for a file only if it is writable. *rights is for heed__system_create. */
int heed__system_target(const char *path, char out[HEED__PATH], heed__path_kind *kind, uint32_t *rights);
/** Creates a file with these rights (0: the default), locked until it is closed or its process ends. EEXIST:
 * the name is taken. */
int heed__system_create(const char *path, uint32_t rights, heed__file *out);
/** Removes a file of heed__system_create whose process was killed, which its missing lock shows. Returns
 * whether there was a file of that name. Where the file system has no locks, files are kept. */
bool heed__system_remove_abandoned(const char *path);
/** Writes some of the bytes, at least one. */
int heed__system_write(heed__file file, uint64_t offset, const void *data, size_t bytes, size_t *put);
/** Waits until everything is on the disk. Reports every write error, so that heed__system_close has none to
 * report. */
int heed__system_sync(heed__file file);
void heed__system_close(heed__file file);
void heed__system_remove(const char *path);
/** Closes a file of heed__system_create and removes it. */
void heed__system_discard(heed__file file, const char *path);
/** Renames an open file of heed__system_create atomically to `to`, replacing a file of that name. May wait
 * for that file to become replaceable, but not once `pace` is due. */
int heed__system_replace(heed__file file, const char *from, const char *to, const heed__pace *pace);
/** Free bytes of the disk that holds the path, as a double; infinity if unknown. */
double heed__system_disk_space(const char *path);
/** The columns of the terminal that standard output writes to; 0 if it is none. */
int heed__system_terminal(void);

/** The text of an errno value. */
void heed__system_error(int error, char *text, size_t size);

#endif
