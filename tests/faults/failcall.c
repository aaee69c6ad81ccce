/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD shim: makes the n-th call that touches a checkpoint fail or end the
 * process.
 *   FAILCALL_AT=n        which intercepted call (1 ...), counted per process
 *   FAILCALL_TIMES=k     and how many from there on; 0: all of them; unset: 1
 *   FAILCALL_HOW=KIND    EIO EACCES EMFILE ENOSPC EDQUOT EXDEV EROFS EINTR short kill
 *                        hang; at every call:
 *   noopen
 *                        (O_DIRECT is refused when opening), nowrite (when writing)
 *   FAILCALL_SLOW=MS     each write to a place of a file takes so much longer
 *   FAILCALL_SLOW_PATH=TEXT, FAILCALL_SLOW_FROM=BYTES
 *                        only of a file that has TEXT in its path, of so many bytes
 *   FAILCALL_SEEN=FILE   created when the call was reached
 *   FAILCALL_PATH=TEXT   only what has TEXT in its path counts, and then the calls that
 *                        open, read, list and lock count as well
 *   FAILCALL_RANK=r      only in the process whose PMIX_RANK is r
 *   FAILCALL_COUNT=FILE  gets the number of calls of each such process at its end
 *   FAILCALL_LEAVE=FILE  the rank named by FAILCALL_RANK (and not the scontrol it asks)
 *   waits
 *                        in exit() for a signal, 30 s at most; FILE is created before
 *                        that
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
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

static int error_named(const char *how)
{
    static const struct {
        const char *name;
        int error;
    } errors[] = { { "EACCES", EACCES }, { "EMFILE", EMFILE }, { "ENOSPC", ENOSPC },
                   { "EDQUOT", EDQUOT }, { "EXDEV", EXDEV },   { "EROFS", EROFS },
                   { "EINTR", EINTR } };

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(how, errors[i].name) == 0)
            return errors[i].error;
    return EIO;
}

static bool this_rank(void)
{
    const char *rank = getenv("FAILCALL_RANK"), *mine = getenv("PMIX_RANK");

    return !rank || (mine && strcmp(rank, mine) == 0);
}

/* 0: go on; 1: do it short; -1: fail with errno. */
static int strike(void)
{
    const char *at = getenv("FAILCALL_AT"), *how = getenv("FAILCALL_HOW");
    const char *times = getenv("FAILCALL_TIMES");
    int n, over;

    if ((!at && !getenv("FAILCALL_COUNT")) || !this_rank())
        return 0;
    n = atomic_fetch_add(&calls, 1) + 1;
    if (!at || !how)
        return 0;
    over = n - atoi(at);
    if (over < 0 || (times ? atoi(times) > 0 && over >= atoi(times) : over > 0))
        return 0;
    seen_now();
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    while (strcmp(how, "hang") == 0)
        pause();
    if (strcmp(how, "short") == 0)
        return 1;
    errno = error_named(how);
    return -1;
}

static bool in_path(const char *path)
{
    const char *text = getenv("FAILCALL_PATH");

    return path && text && strstr(path, text);
}

/* `name` (NULL: none) below descriptor fd. */
static bool at_in_path(int fd, const char *name)
{
    char link[64], path[4096];
    ssize_t n;

    if (!getenv("FAILCALL_PATH"))
        return false;
    if (name && (name[0] == '/' || fd == AT_FDCWD))
        return in_path(name);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return false;
    snprintf(path + n, sizeof(path) - (size_t)n, "%s%s", name ? "/" : "",
             name ? name : "");
    return in_path(path);
}

/* A call that changes what is on the disk: counts everywhere, or below
 * FAILCALL_PATH. */
static int strike_at(int fd, const char *name)
{
    return !getenv("FAILCALL_PATH") || at_in_path(fd, name) ? strike() : 0;
}

/* One that changes nothing: counts below FAILCALL_PATH alone. */
static int strike_look(int fd, const char *name)
{
    return at_in_path(fd, name) ? strike() : 0;
}

__attribute__((destructor)) static void leave_late(void)
{
    const struct timespec limit = { .tv_sec = 30 };
    const char *file = getenv("FAILCALL_LEAVE"), *rank = getenv("FAILCALL_RANK");

    if (!file || !rank || !getenv("PMIX_RANK") || !this_rank() ||
        strcmp(program_invocation_short_name, "scontrol") == 0)
        return;
    close(open(file, O_WRONLY | O_CREAT, 0666));
    nanosleep(&limit, NULL);
}

__attribute__((destructor)) static void tell_count(void)
{
    const char *file = getenv("FAILCALL_COUNT");
    char path[4096], text[32];
    int fd, n;

    if (!file || !this_rank() || calls == 0)
        return;
    snprintf(path, sizeof(path), "%s.%s", file,
             getenv("PMIX_RANK") ? getenv("PMIX_RANK") : "0");
    n = snprintf(text, sizeof(text), "%d\n", calls);
    unsetenv("FAILCALL_PATH"); /* what follows is not counted */
    unsetenv("FAILCALL_AT");
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && write(fd, text, (size_t)n) == n)
        close(fd);
}

/* Does fd lead to a path with FAILCALL_SLOW_PATH in it? */
static bool is_slow(int fd)
{
    const char *text = getenv("FAILCALL_SLOW_PATH");
    char link[64], path[4096];
    ssize_t n;

    if (!text)
        return true;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    return strstr(path, text) != NULL;
}

static long number_of(const char *name)
{
    const char *text = getenv(name);

    return text ? atol(text) : 0;
}

/* A disk that takes its time for n bytes. */
static void be_slow(int fd, size_t n)
{
    const long ms = number_of("FAILCALL_SLOW");

    if (ms > 0 && (long)n >= number_of("FAILCALL_SLOW_FROM") && is_slow(fd))
        nanosleep(
            &(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 },
            NULL);
}

static ssize_t write_at(const char *name, int fd, const void *p, size_t n, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
    int s;

    if (refuses("nowrite", fcntl(fd, F_GETFL)))
        return -1;
    be_slow(fd, n);
    s = strike_at(fd, NULL);
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

#define ON_FD(name, args, values, ...)                                                 \
    int name args                                                                      \
    {                                                                                  \
        REAL(int, #name, __VA_ARGS__);                                                 \
        return strike_at(fd, NULL) < 0 ? -1 : real values;                             \
    }
ON_FD(fsync, (int fd), (fd), int)
ON_FD(fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), int, int,
      off_t, off_t)
ON_FD(ftruncate, (int fd, off_t n), (fd, n), int, off_t)
ON_FD(ftruncate64, (int fd, off_t n), (fd, n), int, off_t)

#define ON_NAME(name, args, values, ...)                                               \
    int name args                                                                      \
    {                                                                                  \
        REAL(int, #name, __VA_ARGS__);                                                 \
        return strike_at(fd, from) < 0 ? -1 : real values;                             \
    }
ON_NAME(renameat, (int fd, const char *from, int to, const char *name),
        (fd, from, to, name), int, const char *, int, const char *)
ON_NAME(renameat2, (int fd, const char *from, int to, const char *name, unsigned flags),
        (fd, from, to, name, flags), int, const char *, int, const char *, unsigned)
ON_NAME(mkdirat, (int fd, const char *from, mode_t mode), (fd, from, mode), int,
        const char *, mode_t)

int unlinkat(int fd, const char *name, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    /* Removing is never made to fail: a disk that refuses it leaves what it leaves. */
    const char *how = getenv("FAILCALL_HOW");

    if (how && strcmp(how, "kill") == 0)
        strike_at(fd, name);
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
    /* Without a path only files that are written: a failed directory open is met
     * through the others. */
    if (((flags & O_ACCMODE) != O_RDONLY ? strike_at(dir, name)
                                         : strike_look(dir, name)) < 0)
        return -1;
    return real(dir, name, flags, mode);
}

/* ---- what only looks, and what is reached by its full name ----------------------- */

static int open_path(const char *call, const char *name, int flags, mode_t mode)
{
    int (*real)(const char *, int, ...) =
        (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, call);

    return strike_look(AT_FDCWD, name) < 0 ? -1 : real(name, flags, mode);
}

#define OPEN(call)                                                                     \
    int call(const char *name, int flags, ...)                                         \
    {                                                                                  \
        mode_t mode = 0;                                                               \
        va_list ap;                                                                    \
                                                                                       \
        va_start(ap, flags);                                                           \
        if (flags & (O_CREAT | O_TMPFILE))                                             \
            mode = va_arg(ap, mode_t);                                                 \
        va_end(ap);                                                                    \
        return open_path(#call, name, flags, mode);                                    \
    }
OPEN(open)
OPEN(open64)

#define LOOK(type, fails, call, where, args, values, ...)                              \
    type call args                                                                     \
    {                                                                                  \
        REAL(type, #call, __VA_ARGS__);                                                \
        return strike_look where < 0 ? fails : real values;                            \
    }
LOOK(ssize_t, -1, read, (fd, NULL), (int fd, void *p, size_t n), (fd, p, n), int,
     void *, size_t)
LOOK(ssize_t, -1, write, (fd, NULL), (int fd, const void *p, size_t n), (fd, p, n), int,
     const void *, size_t)
LOOK(ssize_t, -1, pread, (fd, NULL), (int fd, void *p, size_t n, off_t at),
     (fd, p, n, at), int, void *, size_t, off_t)
LOOK(ssize_t, -1, pread64, (fd, NULL), (int fd, void *p, size_t n, off_t at),
     (fd, p, n, at), int, void *, size_t, off_t)
LOOK(int, -1, fstat, (fd, NULL), (int fd, struct stat *st), (fd, st), int,
     struct stat *)
LOOK(int, -1, fstat64, (fd, NULL), (int fd, struct stat64 *st), (fd, st), int,
     struct stat64 *)
LOOK(int, -1, flock, (fd, NULL), (int fd, int how), (fd, how), int, int)
LOOK(int, -1, symlinkat, (fd, name), (const char *to, int fd, const char *name),
     (to, fd, name), const char *, int, const char *)
LOOK(DIR *, NULL, fdopendir, (fd, NULL), (int fd), (fd), int)
LOOK(struct dirent *, NULL, readdir, (dirfd(d), NULL), (DIR * d), (d), DIR *)
LOOK(FILE *, NULL, fopen, (AT_FDCWD, name), (const char *name, const char *mode),
     (name, mode), const char *, const char *)
LOOK(int, -1, mkdir, (AT_FDCWD, name), (const char *name, mode_t mode), (name, mode),
     const char *, mode_t)
LOOK(int, -1, access, (AT_FDCWD, name), (const char *name, int mode), (name, mode),
     const char *, int)
LOOK(int, -1, rename, (AT_FDCWD, name), (const char *name, const char *to), (name, to),
     const char *, const char *)
