/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD shim: a line "CALL PATH" in the file OPENLOG for every call that opens a
 * file or directory, follows a link or loads a library, before it is made. Names below a
 * descriptor are shown with the path of its directory.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By the system's own calls, which no shim sees. */
static void put_line(const char *line, size_t n)
{
    const char *log = getenv("OPENLOG");
    int fd = log ? (int)syscall(SYS_openat, AT_FDCWD, log,
                                O_WRONLY | O_APPEND | O_CREAT, 0666)
                 : -1;

    if (fd < 0)
        return;
    if (syscall(SYS_write, fd, line, n) != (long)n)
        abort();
    syscall(SYS_close, fd);
}

static void note(const char *call, int dir, const char *name)
{
    char link[40], at[4096] = "", line[9000];
    ssize_t n = 0;

    if (name && name[0] != '/') {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
        if (dir < 0)
            strcpy(link, "/proc/self/cwd");
        n = syscall(SYS_readlink, link, at, sizeof(at) - 1);
    }
    at[n < 0 ? 0 : n] = '\0';
    n = snprintf(line, sizeof(line), "%s %s%s%.4000s\n", call, at, at[0] ? "/" : "",
                 name ? name : "");
    put_line(line, (size_t)n);
}

#define REAL(type, name, ...)                                                          \
    static type (*real)(__VA_ARGS__);                                                  \
    if (!real)                                                                         \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define TAKE_MODE(mode, flags)                                                         \
    do {                                                                               \
        va_list ap;                                                                    \
        va_start(ap, flags);                                                           \
        if ((flags) & (O_CREAT | __O_TMPFILE))                                         \
            (mode) = va_arg(ap, mode_t);                                               \
        va_end(ap);                                                                    \
    } while (0)

#define OPEN(call)                                                                     \
    int call(const char *name, int flags, ...)                                         \
    {                                                                                  \
        REAL(int, #call, const char *, int, ...);                                      \
        mode_t mode = 0;                                                               \
                                                                                       \
        TAKE_MODE(mode, flags);                                                        \
        note(#call, -1, name);                                                         \
        return real(name, flags, mode);                                                \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(call)                                                                  \
    int call(int dir, const char *name, int flags, ...)                                \
    {                                                                                  \
        REAL(int, #call, int, const char *, int, ...);                                 \
        mode_t mode = 0;                                                               \
                                                                                       \
        TAKE_MODE(mode, flags);                                                        \
        note(#call, dir, name);                                                        \
        return real(dir, name, flags, mode);                                           \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

#define STREAM(call)                                                                   \
    FILE *call(const char *name, const char *mode)                                     \
    {                                                                                  \
        REAL(FILE *, #call, const char *, const char *);                               \
        note(#call, -1, name);                                                         \
        return real(name, mode);                                                       \
    }
STREAM(fopen)
STREAM(fopen64)

DIR *opendir(const char *name)
{
    REAL(DIR *, "opendir", const char *);
    note("opendir", -1, name);
    return real(name);
}

void *dlopen(const char *name, int flags)
{
    REAL(void *, "dlopen", const char *, int);
    note("dlopen", -1, name);
    return real(name, flags);
}
