/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of disk_shim.h. Comes in: calls of the program and of its libraries. Goes
 * out:
 * the same calls, or the failure that the hook wants.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/disk_shim.h"

int (*disk_hook)(const char *call, const char *name, int fd);
void (*disk_synced)(int fd);
long disk_paused_ms;
__thread int disk_short;

/* A hook is at work, perhaps with threads of its own. */
static atomic_bool inside;

/* false: the call is to fail, errno says how. */
static bool ask(const char *call, const char *name, int fd)
{
    int kept = errno, error;

    if (!disk_hook || atomic_exchange(&inside, true))
        return true;
    error = disk_hook(call, name, fd);
    inside = false;
    errno = error ? error : kept;
    return error == 0;
}

#pragma GCC visibility push(default) /* so that libraries find them */

#define REAL(type, name, ...)                                                          \
    static type (*real)(__VA_ARGS__);                                                  \
    if (!real)                                                                         \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* How many of n bytes a write takes. */
static size_t taken(size_t n)
{
    const size_t half = disk_short && n > 1 ? n / 2 : n;

    disk_short = 0;
    return half;
}

/* The mode, which is there only when a file may be created. */
#define TAKE_MODE(mode, flags)                                                         \
    do {                                                                               \
        va_list ap;                                                                    \
        va_start(ap, flags);                                                           \
        if ((flags) & (O_CREAT | __O_TMPFILE))                                         \
            (mode) = va_arg(ap, mode_t);                                               \
        va_end(ap);                                                                    \
    } while (0)

int open(const char *path, int flags, ...)
{
    REAL(int, "open", const char *, int, ...);
    mode_t mode = 0;

    TAKE_MODE(mode, flags);
    return ask(flags & O_CREAT ? "create" : "open", path, -1) ? real(path, flags, mode)
                                                              : -1;
}

int openat(int dir, const char *name, int flags, ...)
{
    REAL(int, "openat", int, const char *, int, ...);
    mode_t mode = 0;

    TAKE_MODE(mode, flags);
    return ask(flags & O_CREAT ? "createat" : "openat", name, dir)
               ? real(dir, name, flags, mode)
               : -1;
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    return ask("mkdir", path, -1) ? real(path, mode) : -1;
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    REAL(int, "mkdirat", int, const char *, mode_t);
    return ask("mkdirat", name, dir) ? real(dir, name, mode) : -1;
}

int renameat(int a, const char *from, int b, const char *to)
{
    REAL(int, "renameat", int, const char *, int, const char *);
    return ask("renameat", to, b) ? real(a, from, b, to) : -1;
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return ask(flags ? "renameat2" : "renameat", to, b) ? real(a, from, b, to, flags)
                                                        : -1;
}

int symlinkat(const char *target, int dir, const char *name)
{
    REAL(int, "symlinkat", const char *, int, const char *);
    return ask("symlinkat", name, dir) ? real(target, dir, name) : -1;
}

int unlinkat(int dir, const char *name, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    return ask("unlinkat", name, dir) ? real(dir, name, flags) : -1;
}

int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    REAL(int, "fallocate", int, int, off_t, off_t);
    return ask("fallocate", "", fd) ? real(fd, mode, at, bytes) : -1;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return ask("pwrite", "", fd) ? real(fd, p, taken(n), at) : -1;
}

/* libhdf5's. */
ssize_t write(int fd, const void *p, size_t n)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    return ask("write", "", fd) ? real(fd, p, taken(n)) : -1;
}

int ftruncate(int fd, off_t bytes)
{
    REAL(int, "ftruncate", int, off_t);
    return ask("ftruncate", "", fd) ? real(fd, bytes) : -1;
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    int r = ask("fsync", "", fd) ? real(fd) : -1;

    if (r == 0 && disk_synced && !atomic_exchange(&inside, true)) {
        disk_synced(fd);
        inside = false;
    }
    return r;
}

int nanosleep(const struct timespec *want, struct timespec *left)
{
    REAL(int, "nanosleep", const struct timespec *, struct timespec *);
    if (!disk_hook)
        return real(want, left);
    disk_paused_ms += want->tv_sec * 1000 + want->tv_nsec / 1000000;
    return 0;
}

#pragma GCC visibility pop
