/* SPDX-License-Identifier: Apache-2.0
 *
 * Path trust on descriptors: every step opens the next name below an open directory
 * without following links, and judges what fstat says of that descriptor. No path is
 * opened twice. Never prints, never changes a file.
 */
#include "common/path_trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINKS = 40 }; /* the kernel's limit */

/* Where the walk stands. The first fault is kept and reported only at the end: a file
 * that is not there is reported as missing, whatever its directories are like. */
struct walk {
    int dir;             /* the open directory; -1: none yet */
    char at[PATH_MAX];   /* its path, for messages */
    char rest[PATH_MAX]; /* components still to walk */
    int links;           /* followed so far */
    accel_error_t fault; /* code ACCEL_OK: none so far */
};

/* Notes a fault if somebody else may have made or changed the object. `what` names its
 * kind in messages. A writable directory with the sticky bit (/tmp) passes: others
 * cannot replace what is trusted in it. The mode of a link means nothing. */
static void trust_judge(struct walk *w, const struct stat *info, const char *what,
                        const char *path)
{
    bool sticky_dir = S_ISDIR(info->st_mode) && (info->st_mode & S_ISVTX);
    char hint[sizeof(w->fault.hint)];

    if (w->fault.code)
        return;
    if (info->st_uid != 0 && info->st_uid != geteuid()) {
        snprintf(hint, sizeof(hint), "chown root '%s', or remove it", path);
        accel_fail(&w->fault, A0206, hint,
                   "%s %s is owned by uid %u, who is neither root nor you", what, path,
                   (unsigned)info->st_uid);
    } else if (!S_ISLNK(info->st_mode) && (info->st_mode & 022) && !sticky_dir) {
        snprintf(hint, sizeof(hint), "chmod go-w '%s'", path);
        accel_fail(&w->fault, A0206, hint, "%s %s can be written by %s (mode %04o)",
                   what, path, info->st_mode & 02 ? "everybody" : "its group",
                   (unsigned)info->st_mode & 07777);
    }
}

/* The error for errno while opening `path`. */
static accel_status_t os_failed(const char *path, accel_error_t *err)
{
    if (errno == ENOENT || errno == ENOTDIR)
        return accel_fail(err, A0240, "check the path", "%s: %s", path,
                          strerror(errno));
    if (errno == EACCES || errno == EPERM)
        return accel_fail(err, A0206,
                          "make it readable, and its directories searchable",
                          "cannot open %s: %s", path, strerror(errno));
    return accel_fail(err, A0241, "check the path", "cannot open %s: %s", path,
                      strerror(errno));
}

/* Moves the first component of w->rest to `name`. False: none is left, or it
 * is too long. */
static bool next_name(struct walk *w, char name[NAME_MAX + 1])
{
    char left[PATH_MAX]; /* a copy, because valgrind takes a memmove for memcpy here */
    const char *s = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(s, "/");

    if (n == 0 || n > NAME_MAX)
        return false;
    memcpy(name, s, n);
    name[n] = '\0';
    s += n;
    s += strspn(s, "/");
    n = strlen(s) + 1;
    memcpy(left, s, n);
    memcpy(w->rest, left, n);
    return true;
}

/* Makes `dir` the directory of the walk. */
static void enter(struct walk *w, int dir, const char *path)
{
    if (w->dir >= 0)
        close(w->dir);
    w->dir = dir;
    snprintf(w->at, sizeof(w->at), "%s", path);
}

/* Begins at "/", also after an absolute link. */
static accel_status_t trust_start(struct walk *w, accel_error_t *err)
{
    struct stat info;
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (root < 0 || fstat(root, &info)) {
        if (root >= 0)
            close(root);
        return os_failed("/", err);
    }
    enter(w, root, "");
    trust_judge(w, &info, "directory", "/");
    return ACCEL_OK;
}

/* Puts the components of the link `fd` before those that are left. The walk then judges
 * them like all others. */
static accel_status_t follow(struct walk *w, int fd, const char *path,
                             accel_error_t *err)
{
    char target[PATH_MAX], joined[PATH_MAX];
    ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);

    if (n < 0)
        return os_failed(path, err);
    target[n] = '\0';
    if (++w->links > MAX_LINKS || snprintf(joined, sizeof(joined), "%s/%s", target,
                                           w->rest) >= (int)sizeof(joined)) {
        errno = ELOOP;
        return os_failed(path, err);
    }
    memcpy(w->rest, joined, sizeof(joined));
    return target[0] == '/' ? trust_start(w, err) : ACCEL_OK;
}

/* Walks one component: into a directory, or by way of a link. */
static accel_status_t step(struct walk *w, const char *name, accel_error_t *err)
{
    char path[PATH_MAX];
    struct stat info;
    accel_status_t st = ACCEL_OK;
    int fd;

    if (snprintf(path, sizeof(path), "%s/%s", w->at, name) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return os_failed(name, err);
    }
    fd = openat(w->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return os_failed(path, err);
    if (fstat(fd, &info)) {
        st = os_failed(path, err);
    } else if (S_ISLNK(info.st_mode)) {
        trust_judge(w, &info, "link", path);
        st = follow(w, fd, path, err);
    } else if (!S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        st = os_failed(path, err);
    } else {
        trust_judge(w, &info, "directory", path);
        enter(w, fd, path);
        return ACCEL_OK;
    }
    close(fd);
    return st;
}

/* The last component, the file itself. Here the walk's first fault is reported.
 * O_NONBLOCK: opening a fifo must not wait for a writer. */
static accel_status_t trust_finish(struct walk *w, const char *name, int *fd_out,
                                   accel_error_t *err)
{
    char path[PATH_MAX];
    struct stat info;
    int fd;

    if (snprintf(path, sizeof(path), "%s/%s", w->at, name) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return os_failed(name, err);
    }
    fd =
        openat(w->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return accel_fail(err, A0206, "replace the link with the file itself",
                          "%s is a symbolic link", path);
    if (fd < 0)
        return os_failed(path, err);
    if (fstat(fd, &info)) {
        accel_status_t st = os_failed(path, err);

        close(fd);
        return st;
    }
    if (!S_ISREG(info.st_mode) && !w->fault.code)
        accel_fail(&w->fault, A0206, "replace it with a regular file",
                   "%s is %s, not a file", path,
                   S_ISDIR(info.st_mode) ? "a directory" : "a fifo or device");
    trust_judge(w, &info, "file", path);
    if (w->fault.code) {
        close(fd);
        if (err)
            *err = w->fault;
        return w->fault.code;
    }
    *fd_out = fd;
    return ACCEL_OK;
}

accel_status_t path_trust_open(const char *path, int *fd_out, accel_error_t *err)
{
    struct walk w = { .dir = -1 };
    char name[NAME_MAX + 1] = "", cwd[PATH_MAX] = "";
    accel_status_t st;

    if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
        return os_failed(path, err);
    if (snprintf(w.rest, sizeof(w.rest), "%s/%s", cwd, path) >= (int)sizeof(w.rest)) {
        errno = ENAMETOOLONG;
        return os_failed(path, err);
    }
    st = trust_start(&w, err);
    while (st == ACCEL_OK) {
        if (!next_name(&w, name)) {
            errno = ENOENT;
            st = os_failed(path, err);
        } else if (!w.rest[0]) {
            st = trust_finish(&w, name, fd_out, err);
            break;
        } else {
            st = step(&w, name, err);
        }
    }
    if (w.dir >= 0)
        close(w.dir);
    return st;
}
