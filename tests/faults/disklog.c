/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD shim: a line in the file DISKLOG for every call that changes what is on the
 * disk, or makes it durable, as soon as it has succeeded:
 *   make KIND MODE PATH   a file, directory or link that was not there; octal
 *   mode MODE PATH        of what is there
 *   write PATH            contents or length
 *   sync PATH             one file, or the names in one directory
 *   name FROM TO          TO is what FROM was; swap: and FROM what TO was
 *   link FROM TO          and TO was made
 *   drop PATH
 * Fields are separated by tabs. Anonymous files and standard output are left out.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4400

/* By the system's own calls, which no shim sees. Keeps errno. */
static void put(const char *call, const char *a, const char *b)
{
    const char *log = getenv("DISKLOG");
    const int kept = errno;
    char line[2 * PATH_BYTES + 40];
    int fd = log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND, 0) : -1;
    long n = snprintf(line, sizeof(line), "%s\t%s%s%s\n", call, a, *b ? "\t" : "", b);

    if (fd >= 0 && syscall(SYS_write, fd, line, n) != n)
        abort();
    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = kept;
}

/* The path of `name` below descriptor `dir`, or of `dir` itself (NULL); false: it is
 * none, or is gone. */
static bool path_of(char path[PATH_BYTES], int dir, const char *name)
{
    const int kept = errno;
    char link[40];
    long n = 0;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    if (!name || name[0] != '/')
        n = syscall(SYS_readlink, dir == AT_FDCWD ? "/proc/self/cwd" : link, path,
                    4096);
    n = n > 0 ? n : 0;
    snprintf(path + n, (size_t)(PATH_BYTES - n), "%s%.250s", n && name ? "/" : "",
             name ? name : "");
    errno = kept;
    return path[0] == '/' && !strstr(path, " (deleted)") && strncmp(path, "/dev/", 5);
}

static void note_fd(const char *call, int fd)
{
    char path[PATH_BYTES];

    if (fd > STDERR_FILENO && path_of(path, fd, NULL))
        put(call, path, "");
}

static void note_at(const char *call, int dir, const char *name)
{
    char path[PATH_BYTES];

    if (path_of(path, dir, name))
        put(call, path, "");
}

static bool is_there(int dir, const char *name)
{
    const int kept = errno;
    struct stat sb;
    const bool there = fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) == 0;

    errno = kept;
    return there;
}

/* A file may be opened as /proc/self/fd/N/NAME. */
static const char *below_fd(const char *name, int *dir)
{
    static const char proc[] = "/proc/self/fd/";
    char *end;
    long fd;

    if (strncmp(name, proc, sizeof(proc) - 1) != 0)
        return name;
    fd = strtol(name + sizeof(proc) - 1, &end, 10);
    if (*end != '/')
        return name;
    *dir = (int)fd;
    return end + 1;
}

static void note_made(int dir, const char *name)
{
    char path[PATH_BYTES], what[40];
    struct stat sb;

    name = below_fd(name, &dir);
    if (!path_of(path, dir, name) || fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW))
        return;
    snprintf(what, sizeof(what), "%s\t%o",
             S_ISDIR(sb.st_mode)   ? "dir"
             : S_ISLNK(sb.st_mode) ? "link"
                                   : "file",
             (unsigned)(sb.st_mode & 07777));
    put("make", what, path);
}

static void note_mode(int fd, mode_t mode)
{
    char path[PATH_BYTES], what[20];

    snprintf(what, sizeof(what), "%o", (unsigned)mode);
    if (path_of(path, fd, NULL))
        put("mode", what, path);
}

#define REAL(type, name, ...)                                                          \
    static type (*real)(__VA_ARGS__);                                                  \
    if (!real)                                                                         \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* ---- what makes -------------------------------------------------------------------- */

#define OPEN(call, args, dir, ...)                                                     \
    int call args                                                                      \
    {                                                                                  \
        REAL(int, #call, __VA_ARGS__, ...);                                            \
        const bool may = (flags & O_CREAT) != 0, old = may && is_there(dir, name);     \
        mode_t mode = 0;                                                               \
        int fd;                                                                        \
        va_list ap;                                                                    \
                                                                                       \
        va_start(ap, flags);                                                           \
        if (flags & (O_CREAT | __O_TMPFILE))                                           \
            mode = va_arg(ap, mode_t);                                                 \
        va_end(ap);                                                                    \
        fd = real(OPEN_ARGS, mode);                                                    \
        if (fd >= 0 && may && !old)                                                    \
            note_made(dir, name);                                                      \
        if (fd >= 0 && (flags & O_TRUNC))                                              \
            note_fd("write", fd);                                                      \
        return fd;                                                                     \
    }
#define OPEN_ARGS name, flags
OPEN(open, (const char *name, int flags, ...), AT_FDCWD, const char *, int)
OPEN(open64, (const char *name, int flags, ...), AT_FDCWD, const char *, int)
#undef OPEN_ARGS
#define OPEN_ARGS dir, name, flags
OPEN(openat, (int dir, const char *name, int flags, ...), dir, int, const char *, int)
OPEN(openat64, (int dir, const char *name, int flags, ...), dir, int, const char *, int)

#define MAKE(type, bad, call, args, values, dir, name, ...)                            \
    type call args                                                                     \
    {                                                                                  \
        REAL(type, #call, __VA_ARGS__);                                                \
        type r = real values;                                                          \
                                                                                       \
        if (r != (bad))                                                                \
            note_made(dir, name);                                                      \
        return r;                                                                      \
    }
MAKE(int, -1, mkdir, (const char *p, mode_t m), (p, m), AT_FDCWD, p, const char *,
     mode_t)
MAKE(int, -1, mkdirat, (int d, const char *p, mode_t m), (d, p, m), d, p, int,
     const char *, mode_t)
MAKE(char *, NULL, mkdtemp, (char *p), (p), AT_FDCWD, p, char *)
MAKE(int, -1, mkostemp, (char *p, int f), (p, f), AT_FDCWD, p, char *, int)
MAKE(int, -1, mkostemp64, (char *p, int f), (p, f), AT_FDCWD, p, char *, int)
MAKE(int, -1, symlinkat, (const char *a, int d, const char *p), (a, d, p), d, p,
     const char *, int, const char *)

/* ---- what changes ------------------------------------------------------------------ */

#define ON_FD(type, what, call, args, values, ...)                                     \
    type call args                                                                     \
    {                                                                                  \
        REAL(type, #call, __VA_ARGS__);                                                \
        type r = real values;                                                          \
                                                                                       \
        if (r >= 0)                                                                    \
            note_fd(what, fd);                                                         \
        return r;                                                                      \
    }
ON_FD(ssize_t, "write", write, (int fd, const void *p, size_t n), (fd, p, n), int,
      const void *, size_t)
ON_FD(ssize_t, "write", pwrite, (int fd, const void *p, size_t n, off_t at),
      (fd, p, n, at), int, const void *, size_t, off_t)
ON_FD(ssize_t, "write", pwrite64, (int fd, const void *p, size_t n, off_t at),
      (fd, p, n, at), int, const void *, size_t, off_t)
ON_FD(ssize_t, "write", sendfile, (int fd, int in, off_t *at, size_t n),
      (fd, in, at, n), int, int, off_t *, size_t)
ON_FD(ssize_t, "write", sendfile64, (int fd, int in, off_t *at, size_t n),
      (fd, in, at, n), int, int, off_t *, size_t)
ON_FD(int, "write", ftruncate, (int fd, off_t n), (fd, n), int, off_t)
ON_FD(int, "write", ftruncate64, (int fd, off_t n), (fd, n), int, off_t)
ON_FD(int, "write", fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n),
      int, int, off_t, off_t)
ON_FD(int, "sync", fsync, (int fd), (fd), int)
ON_FD(int, "sync", fdatasync, (int fd), (fd), int)

int fchmod(int fd, mode_t mode)
{
    REAL(int, "fchmod", int, mode_t);
    const int r = real(fd, mode);

    if (r == 0)
        note_mode(fd, mode);
    return r;
}

/* ---- names ------------------------------------------------------------------------- */

static int renamed(int r, int a, const char *from, int b, const char *to, bool swap)
{
    char was[PATH_BYTES], is[PATH_BYTES];

    if (r == 0 && path_of(was, a, from) && path_of(is, b, to))
        put(swap ? "swap" : "name", was, is);
    return r;
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    return renamed(real(from, to), AT_FDCWD, from, AT_FDCWD, to, false);
}

int renameat(int a, const char *from, int b, const char *to)
{
    REAL(int, "renameat", int, const char *, int, const char *);
    return renamed(real(a, from, b, to), a, from, b, to, false);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return renamed(real(a, from, b, to, flags), a, from, b, to,
                   flags & RENAME_EXCHANGE);
}

/* The contents have two names then. */
static int linked(int r, int a, const char *from, int b, const char *to)
{
    char was[PATH_BYTES], is[PATH_BYTES];

    if (r == 0)
        note_made(b, to);
    if (r == 0 && path_of(was, a, from) && path_of(is, b, to))
        put("link", was, is);
    return r;
}

int link(const char *from, const char *to)
{
    REAL(int, "link", const char *, const char *);
    return linked(real(from, to), AT_FDCWD, from, AT_FDCWD, to);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
    REAL(int, "linkat", int, const char *, int, const char *, int);
    return linked(real(a, from, b, to, flags), a, from, b, to);
}

#define DROP(call, args, values, dir, name, ...)                                       \
    int call args                                                                      \
    {                                                                                  \
        REAL(int, #call, __VA_ARGS__);                                                 \
        const int r = real values;                                                     \
                                                                                       \
        if (r == 0)                                                                    \
            note_at("drop", dir, name);                                                \
        return r;                                                                      \
    }
DROP(unlink, (const char *p), (p), AT_FDCWD, p, const char *)
DROP(rmdir, (const char *p), (p), AT_FDCWD, p, const char *)
DROP(unlinkat, (int d, const char *p, int f), (d, p, f), d, p, int, const char *, int)
