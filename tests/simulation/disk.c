/* A disk that can fail, and a clock that is told the time. Loaded with LD_PRELOAD into a process that simulates runs,
 * it stands between the process (Python and SQLite alike) and the C library.
 *
 * Below one folder, `disk_begin(FOLDER)`, every change is numbered and logged: names and contents, and what was synced.
 * From the log, `disk.py` makes the contents that the disk could have after a power cut. A change with a given number
 * can fail with an error of the system, or be the last one (`disk_stop_at`): of a write only the first bytes are done,
 * and every later change fails, as nothing that a killed process does afterwards counts. `disk_fail` may count only the
 * changes of files whose path contains a part: among all changes of a run, one that counts is seldom hit.
 *
 * The process has one thread while it simulates, so nothing here is locked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
#define FILES 4096
#define MAPPED 256

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, REMOVE, FOLDER, LINK };

static char root[PATH_MAX];
static size_t root_length;
static uint64_t inodes[FILES]; /* of an open file below the folder, by its descriptor: its inode; else 0 */
static unsigned char named[FILES]; /* of an open file below the folder: whether its path contains `part` */
static uint64_t mapped[MAPPED]; /* inodes of files that were mapped to be written */
static int mapped_count;
static unsigned char *record;
static size_t used, room;
static int64_t changes, stop_at = -1, keep;
static int64_t of_part, fail_at = -1, fail_until = -1; /* changes whose path contains `part`, and which of them fail */
static char part[64];
static int fail_with, stopped;
int64_t disk_clocks[] = {-1, 0}; /* what the monotonic and the wall clock show, in ns; -1: the real time */

static void append(const void *bytes, size_t count) {
    if (used + count > room) {
        room = 2 * (used + count) + 65536;
        record = realloc(record, room);
        if (!record) abort();
    }
    memcpy(record + used, bytes, count);
    used += count;
}

/* One entry: what, the inode, the place in the file, the number of bytes that follow, and these bytes. */
static void note(int32_t what, uint64_t inode, int64_t place, const void *bytes, uint32_t count) {
    append(&what, 4), append(&count, 4), append(&inode, 8), append(&place, 8), append(bytes, count);
}

static void note_path(int32_t what, uint64_t inode, const char *path, const char *other) {
    char both[2 * PATH_MAX];
    const char *first = path + root_length + 1, *second = other ? other + root_length + 1 : "";
    int count = snprintf(both, sizeof both, "%s%c%s", first, 0, second);
    note(what, inode, 0, both, (uint32_t)count);
}

/* SQLite's shared memory (-shm) is no content: whoever opens the database first makes it again. */
static int below(const char *path) {
    if (!root_length || !path || strncmp(path, root, root_length) || path[root_length] != '/') return 0;
    size_t length = strlen(path);
    return length < 4 || strcmp(path + length - 4, "-shm");
}

static uint64_t inode_of(int file) { return file >= 0 && file < FILES ? inodes[file] : 0; }

static int is_named(const char *path) { return strstr(path + root_length, part) != NULL; }

/* Count a change. 0: it may happen. -1: it fails, and errno says why. 1: it is the last one. */
static int changing(int is_of_part) {
    if (stopped) return errno = EIO, -1;
    if (changes++ == stop_at) return stopped = 1;
    if (!is_of_part) return 0;
    int64_t number = of_part++;
    if (fail_at >= 0 && number >= fail_at && number < fail_until) return errno = fail_with, -1;
    return 0;
}

void disk_begin(const char *folder) {
    memset(inodes, 0, sizeof inodes);
    strncpy(root, folder, PATH_MAX - 1);
    root_length = strlen(root);
    mapped_count = 0, used = 0, changes = of_part = 0, stopped = 0, stop_at = fail_at = fail_until = -1, *part = 0;
}
void disk_end(void) { root_length = 0, stopped = 0; }
void disk_stop_at(int64_t change, int64_t bytes) { stop_at = change, keep = bytes; }
/* Call it before the files are opened. */
void disk_fail(int64_t from, int64_t until, int error, const char *of) {
    fail_at = from, fail_until = until, fail_with = error;
    snprintf(part, sizeof part, "%s", of);
}
int *disk_stopped(void) { return &stopped; }
int64_t disk_changes(void) { return changes; }
size_t disk_log(const unsigned char **bytes) { return *bytes = record, used; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    if (disk_clocks[0] < 0 || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)) return real(clock, now);
    int64_t ns = disk_clocks[clock == CLOCK_REALTIME];
    now->tv_sec = ns / 1000000000, now->tv_nsec = ns % 1000000000;
    return 0;
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    if (!below(path)) {
        int other = real(path, flags, mode);
        if (other >= 0 && other < FILES) inodes[other] = 0;
        return other;
    }
    struct stat found;
    int is_new = (flags & O_CREAT) && lstat(path, &found) != 0;
    int cuts = (flags & O_TRUNC) && !is_new;
    int last = 0;
    if ((is_new || cuts) && (last = changing(is_named(path))) < 0) return -1;
    if (last) return errno = EIO, -1; /* It was killed before. */
    int file = real(path, flags, mode);
    if (file < 0 || file >= FILES) return file;
    if (fstat(file, &found) == 0) {
        inodes[file] = found.st_ino, named[file] = (unsigned char)is_named(path);
        if (is_new) note_path(CREATE, found.st_ino, path, NULL);
        if (cuts) note(TRUNCATE, found.st_ino, 0, "", 0);
    }
    return file;
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = (mode_t)va_arg(more, int);
    va_end(more);
    REAL(int, "open", const char *, int, ...);
    return opened(real, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = (mode_t)va_arg(more, int);
    va_end(more);
    REAL(int, "open64", const char *, int, ...);
    return opened(real, path, flags, mode);
}

int close(int file) {
    REAL(int, "close", int);
    if (file >= 0 && file < FILES) inodes[file] = 0;
    return real(file);
}

/* How many bytes of a write are done: all, or the first ones of the last write, or -1. */
static ssize_t allowed(int file, size_t count) {
    int last = changing(named[file]);
    if (last < 0) return -1;
    return last ? (ssize_t)((uint64_t)keep % (count + 1)) : (ssize_t)count;
}

static ssize_t written(int file, const void *bytes, size_t count, int64_t place) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    ssize_t done = allowed(file, count);
    if (done > 0) done = real(file, bytes, (size_t)done, place);
    if (done > 0) note(WRITE, inode_of(file), place, bytes, (uint32_t)done);
    if (done >= 0 && stopped) return errno = EIO, -1;
    return done;
}

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!inode_of(file)) return real(file, bytes, count);
    off64_t place = lseek64(file, 0, fcntl(file, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    ssize_t done = written(file, bytes, count, place);
    if (done > 0) lseek64(file, place + done, SEEK_SET);
    return done;
}
ssize_t pwrite(int file, const void *bytes, size_t count, off_t place) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return inode_of(file) ? written(file, bytes, count, place) : real(file, bytes, count, place);
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t place) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return inode_of(file) ? written(file, bytes, count, place) : real(file, bytes, count, place);
}

/* Python copies a file in the kernel, unless that is impossible: then it reads and writes. */
ssize_t sendfile64(int to, int from, off64_t *place, size_t count) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    return inode_of(to) ? (errno = EINVAL, -1) : real(to, from, place, count);
}
ssize_t sendfile(int to, int from, off_t *place, size_t count) { return sendfile64(to, from, place, count); }

static int cut(int (*real)(int, off64_t), int file, int64_t length) {
    if (!inode_of(file)) return real(file, length);
    if (changing(named[file])) return errno = stopped ? EIO : errno, -1;
    int result = real(file, length);
    if (result == 0) note(TRUNCATE, inode_of(file), length, "", 0);
    return result;
}
int ftruncate(int file, off_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    return cut(real, file, length);
}
int ftruncate64(int file, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    return cut(real, file, length);
}

/* What is written through memory is seen when it is synced. */
static void map(int protection, int flags, int file) {
    if ((flags & MAP_SHARED) && (protection & PROT_WRITE) && inode_of(file) && mapped_count < MAPPED)
        mapped[mapped_count++] = inode_of(file);
}
void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    REAL(void *, "mmap", void *, size_t, int, int, int, off_t);
    map(protection, flags, file);
    return real(address, length, protection, flags, file, offset);
}
void *mmap64(void *address, size_t length, int protection, int flags, int file, off64_t offset) {
    REAL(void *, "mmap64", void *, size_t, int, int, int, off64_t);
    map(protection, flags, file);
    return real(address, length, protection, flags, file, offset);
}

static void note_mapped(int file, const struct stat *found) {
    int at = 0;
    while (at < mapped_count && mapped[at] != found->st_ino) at++;
    unsigned char *content = at < mapped_count ? malloc((size_t)found->st_size + 1) : NULL;
    if (!content) return;
    ssize_t count = pread(file, content, (size_t)found->st_size, 0);
    if (count > 0) note(WRITE, found->st_ino, 0, content, (uint32_t)count);
    free(content);
}

static int synced(int file) {
    struct stat found;
    if (!root_length || fstat(file, &found) != 0) return 0;
    if (!inode_of(file) && !S_ISDIR(found.st_mode)) return 0;
    if (changing(S_ISDIR(found.st_mode) ? !*part : named[file])) return errno = stopped ? EIO : errno, -1;
    note_mapped(file, &found);
    note(SYNC, found.st_ino, 0, "", 0);
    return 0;
}
int fsync(int file) { return synced(file); } /* The disk is memory, so there is nothing to wait for. */
int fdatasync(int file) { return synced(file); }

/* NumPy writes through a stream of its own, over a duplicate of the descriptor. */
size_t fwrite(const void *bytes, size_t size, size_t count, FILE *stream) {
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    struct stat found;
    int file = fileno(stream);
    if (!root_length || file < 0 || file >= FILES || fstat(file, &found) != 0) return real(bytes, size, count, stream);
    int at = 0;
    while (at < FILES && inodes[at] != found.st_ino) at++;
    if (at == FILES || !S_ISREG(found.st_mode)) return real(bytes, size, count, stream);
    uint64_t before = inodes[file];
    unsigned char was_named = named[file];
    fflush(stream);
    off64_t place = lseek64(file, 0, SEEK_CUR);
    inodes[file] = found.st_ino, named[file] = named[at];
    ssize_t done = written(file, bytes, size * count, place);
    inodes[file] = before, named[file] = was_named;
    if (done > 0) lseek64(file, place + done, SEEK_SET);
    return done < 0 ? 0 : (size_t)done / (size ? size : 1);
}

int rename(const char *path, const char *other) {
    REAL(int, "rename", const char *, const char *);
    if (!below(path) && !below(other)) return real(path, other);
    if (changing(is_named(path) || is_named(other))) return errno = stopped ? EIO : errno, -1;
    int result = real(path, other);
    if (result == 0) note_path(RENAME, 0, path, other);
    return result;
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    struct stat found;
    if (!below(path) || lstat(path, &found) != 0) return real(path);
    if (changing(is_named(path))) return errno = stopped ? EIO : errno, -1;
    int result = real(path);
    if (result == 0) note_path(REMOVE, 0, path, NULL);
    return result;
}
/* Removing a whole folder names what is in it beside the descriptor of the folder. */
int unlinkat(int folder, const char *name, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    char path[2 * PATH_MAX], link[64];
    ssize_t length = 0;
    if (folder != AT_FDCWD && *name != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        length = readlink(link, path, PATH_MAX);
        if (length <= 0) return real(folder, name, flags);
        path[length++] = '/';
    }
    snprintf(path + length, PATH_MAX, "%s", name);
    if (!below(path)) return real(folder, name, flags);
    if (changing(is_named(path))) return errno = stopped ? EIO : errno, -1;
    int result = real(folder, name, flags);
    if (result == 0) note_path(REMOVE, 0, path, NULL);
    return result;
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    struct stat found;
    if (!below(path) || lstat(path, &found) == 0) return real(path, mode);
    if (changing(is_named(path))) return errno = stopped ? EIO : errno, -1;
    int result = real(path, mode);
    if (result == 0 && lstat(path, &found) == 0) note_path(FOLDER, found.st_ino, path, NULL);
    return result;
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    if (!below(path)) return real(path);
    if (changing(is_named(path))) return errno = stopped ? EIO : errno, -1;
    int result = real(path);
    if (result == 0) note_path(REMOVE, 0, path, NULL);
    return result;
}
int link(const char *path, const char *other) {
    REAL(int, "link", const char *, const char *);
    struct stat found;
    if (!below(other)) return real(path, other);
    if (changing(is_named(other))) return errno = stopped ? EIO : errno, -1;
    int result = real(path, other);
    if (result == 0 && lstat(other, &found) == 0) note_path(LINK, found.st_ino, other, NULL);
    return result;
}

/* Sleeping takes only simulated time: whoever would wake the process runs in it. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    REAL(int, "clock_nanosleep", clockid_t, int, const struct timespec *, struct timespec *);
    if (disk_clocks[0] < 0) return real(clock, flags, wanted, left);
    int64_t until = (int64_t)wanted->tv_sec * 1000000000 + wanted->tv_nsec;
    if (!(flags & TIMER_ABSTIME)) until += disk_clocks[0];
    if (until > disk_clocks[0]) disk_clocks[1] += until - disk_clocks[0], disk_clocks[0] = until;
    return 0;
}
