/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrapped calls of call_faults.h. Comes in: calls of the objects that are linked in.
 * Goes out: the same calls, or the failure that was asked for.
 */
#include "tests/unit/call_faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct call_fault fault;
void (*call_seen)(const char *call, const char *path);
int64_t paused_ms;

void fail_next(const char *call, const char *name, int error, int times)
{
    fault.call = call;
    fault.name = name;
    fault.error = error;
    fault.times = times;
    fault.met = 0;
}

void no_fault(void)
{
    fail_next(NULL, "", 0, 0);
}

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n >= m && strcmp(path + n - m, end) == 0;
}

static bool fails(const char *call, const char *path)
{
    if (call_seen)
        call_seen(call, path);
    if (!fault.call || strcmp(call, fault.call) != 0 || !ends_in(path, fault.name))
        return false;
    fault.met++;
    if (fault.met < 1 || fault.met > fault.times)
        return false;
    errno = fault.error;
    return true;
}

/* `name` below descriptor `fd`, or that itself (NULL). */
static bool fails_at(const char *call, int fd, const char *name)
{
    char link[64], path[5000];
    ssize_t n = 0;

    if (!call_seen && (!fault.call || strcmp(call, fault.call) != 0))
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (!name || (name[0] != '/' && fd != AT_FDCWD))
        n = readlink(link, path, 4096);
    n = n > 0 ? n : 0;
    snprintf(path + n, sizeof(path) - (size_t)n, "%s%.500s", n && name ? "/" : "",
             name ? name : "");
    return fails(call, path);
}

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
    return fails("open", path) ? -1 : __real_open(path, flags, mode);
}

int __real_faccessat(int dir, const char *name, int mode, int flags);
int __wrap_faccessat(int dir, const char *name, int mode, int flags)
{
    return fails_at("faccessat", dir, name) ? -1
                                            : __real_faccessat(dir, name, mode, flags);
}

int __real_openat(int dir, const char *name, int flags, mode_t mode);
int __wrap_openat(int dir, const char *name, int flags, mode_t mode)
{
    if (fault.vanish && strcmp(name, fault.vanish) == 0)
        renameat(dir, name, dir, ".trash-of-another");
    return fails_at("openat", dir, name) ? -1 : __real_openat(dir, name, flags, mode);
}

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
    return fails_at("fstat", fd, NULL) ? -1 : __real_fstat(fd, st);
}

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    return fails_at("pread", fd, NULL) ? -1 : __real_pread(fd, p, n, at);
}

struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d)
{
    return fails_at("readdir", dirfd(d), NULL) ? NULL : __real_readdir(d);
}

/* The pauses between tries: told apart by their length, not slept. */
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    paused_ms += t->tv_sec * 1000 + t->tv_nsec / 1000000;
    return 0;
}

/* Nobody loses power here, and it takes most of the time. */
int __wrap_fsync(int fd)
{
    return fails_at("fsync", fd, NULL) ? -1 : 0;
}

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    /* A file system without flags renames without them. */
    bool no_flags = fault.error == EINVAL && flags == 0;

    return !no_flags && fails("renameat2", from)
               ? -1
               : __real_renameat2(a, from, b, to, flags);
}
