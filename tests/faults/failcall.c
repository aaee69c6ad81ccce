/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD shim: makes the n-th call that touches a checkpoint fail or end the process.
 *   FAILCALL_AT=n        which intercepted call (1 ...), counted per process
 *   FAILCALL_HOW=KIND    EIO ENOSPC EINTR short kill; at every call: noopen (O_DIRECT is
 *                        refused when opening), nowrite (when writing)
 *   FAILCALL_SEEN=FILE   created when the call was reached
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(type, name, ...)                                                          \
    static type (*real)(__VA_ARGS__);                                                  \
    if (!real)                                                                         \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static atomic_int calls;

static void seen_now(void)
{
    static int (*real_creat)(const char *, mode_t);
    const char *seen = getenv("FAILCALL_SEEN");

    if (!real_creat)
        real_creat = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "creat");
    if (seen)
        real_creat(seen, 0666);
}

/* As a file system without O_DIRECT answers, at every call. */
static bool refuses(const char *kind, int flags)
{
    const char *how = getenv("FAILCALL_HOW");

    if (!(flags & O_DIRECT) || !how || strcmp(how, kind) != 0)
        return false;
    seen_now();
    errno = EINVAL;
    return true;
}

/* 0: go on; 1: do it short; -1: fail with errno. */
static int strike(void)
{
    const char *at = getenv("FAILCALL_AT"), *how = getenv("FAILCALL_HOW");

    if (!at || !how || atomic_fetch_add(&calls, 1) + 1 != atoi(at))
        return 0;
    seen_now();
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "short") == 0)
        return 1;
    errno = strcmp(how, "ENOSPC") == 0  ? ENOSPC
            : strcmp(how, "EINTR") == 0 ? EINTR
                                        : EIO;
    return -1;
}

static ssize_t write_at(const char *name, int fd, const void *p, size_t n, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
    int s;

    if (refuses("nowrite", fcntl(fd, F_GETFL)))
        return -1;
    s = strike();
    return s < 0 ? -1 : real(fd, p, s && n > 1 ? n / 2 : n, at);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return write_at("pwrite", fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at)
{
    return write_at("pwrite64", fd, p, n, at);
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return strike() < 0 ? -1 : real(fd);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    REAL(int, "fallocate", int, int, off_t, off_t);
    return strike() < 0 ? -1 : real(fd, mode, at, n);
}

int ftruncate(int fd, off_t n)
{
    REAL(int, "ftruncate", int, off_t);
    return strike() < 0 ? -1 : real(fd, n);
}

int ftruncate64(int fd, off_t n)
{
    REAL(int, "ftruncate64", int, off_t);
    return strike() < 0 ? -1 : real(fd, n);
}

int renameat(int a, const char *from, int b, const char *to)
{
    REAL(int, "renameat", int, const char *, int, const char *);
    return strike() < 0 ? -1 : real(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return strike() < 0 ? -1 : real(a, from, b, to, flags);
}

int mkdirat(int fd, const char *name, mode_t mode)
{
    REAL(int, "mkdirat", int, const char *, mode_t);
    return strike() < 0 ? -1 : real(fd, name, mode);
}

int unlinkat(int fd, const char *name, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    /* Removing is never made to fail: a disk that refuses it leaves what it leaves. */
    const char *how = getenv("FAILCALL_HOW");

    if (how && strcmp(how, "kill") == 0)
        strike();
    return real(fd, name, flags);
}

int openat(int dir, const char *name, int flags, ...)
{
    REAL(int, "openat", int, const char *, int, ...);
    mode_t mode = 0;
    va_list ap;

    va_start(ap, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(ap, mode_t);
    va_end(ap);
    if (refuses("noopen", flags))
        return -1;
    /* Only files that are written: a failed directory open is met through the others. */
    if ((flags & O_ACCMODE) != O_RDONLY && strike() < 0)
        return -1;
    return real(dir, name, flags, mode);
}
