/* SPDX-License-Identifier: Apache-2.0
 *
 * A config file onto the disk: whole or not at all. A temporary file in the same directory,
 * on disk before it gets its name; signals wait meanwhile, so that none is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "cli/config/config_values.h"

static accel_status_t failed(const char *what, const char *path, accel_error_t *err)
{
    return accel_fail_at(
        err, A0261, path,
        "check the directory (it must be yours to write) and the space "
        "left, or name another file",
        "cannot %s: %s", what, strerror(errno));
}

static bool write_all(int fd, const char *s, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, s, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        s += done;
        n -= (size_t)done;
    }
    return fsync(fd) == 0;
}

/* The mode of the file that goes, or what the umask allows. */
static mode_t mode_for(const char *path)
{
    struct stat st;
    mode_t mask;

    if (stat(path, &st) == 0)
        return st.st_mode & 0777;
    mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static bool make_parents(const char *path)
{
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];
    size_t failed_len;

    if (!slash || slash == path)
        return true;
    errno = ENAMETOOLONG;
    if ((size_t)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path) <
        sizeof(dir))
        errno = path_make_dirs(dir, &failed_len);
    return errno == 0;
}

/* Gives the finished temporary file its name. */
static accel_status_t place(const char *temp, const char *path, bool replace,
                            accel_error_t *err)
{
    if (replace)
        return rename(temp, path) ? failed("rename", path, err) : ACCEL_OK;
    if (link(temp, path) == 0) {
        unlink(temp);
        return ACCEL_OK;
    }
    if (errno == EEXIST)
        return accel_fail_at(err, A0260, path,
                             "give another name, or move the old file away",
                             "the file exists and is left as it is");
    return failed("create", path, err);
}

static accel_status_t write_beside(const char *path, const struct strbuf *text,
                                   bool replace, accel_error_t *err)
{
    char temp[PATH_MAX], dir[PATH_MAX];
    accel_status_t status;
    int fd, dirfd;

    if ((size_t)snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= sizeof(temp)) {
        errno = ENAMETOOLONG;
        return failed("create", path, err);
    }
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return failed("create a file beside", path, err);
    if (fchmod(fd, mode_for(path)) || !write_all(fd, text->s, text->len))
        status = failed("write", path, err);
    else
        status = place(temp, path, replace, err);
    close(fd);
    if (status) {
        unlink(temp);
        return status;
    }
    memcpy(dir, temp, sizeof(dir));
    dirfd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd >= 0) {
        fsync(dirfd);
        close(dirfd);
    }
    return ACCEL_OK;
}

accel_status_t config_file_write(const char *path, const struct strbuf *text,
                                 bool replace, accel_error_t *err)
{
    sigset_t all, before;
    accel_status_t status;
    char *real = NULL;

    if (text->failed)
        return accel_fail_nomem(err, "the config file", text->len);
    if (!make_parents(path))
        return failed("make the directory of", path, err);
    /* A link stays a link: what it points at is replaced. */
    if (replace)
        real = realpath(path, NULL);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    status = write_beside(real ? real : path, text, replace, err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(real);
    return status;
}

/* Does the file hold exactly this text? */
static bool is_same(const char *path, const struct strbuf *text)
{
    FILE *f = fopen(path, "re");
    bool same = f != NULL && text->s;

    for (size_t i = 0; same && i <= text->len; i++)
        same = getc(f) == (i < text->len ? (unsigned char)text->s[i] : EOF);
    if (f)
        fclose(f);
    return same;
}

static accel_status_t not_kept(const char *bak, accel_error_t *err)
{
    return accel_fail_at(err, A0262, bak, "move the .bak file away",
                         "the old file cannot be kept under this name: %m");
}

static accel_status_t name_bak(const char *path, char bak[PATH_MAX], accel_error_t *err)
{
    if ((size_t)snprintf(bak, PATH_MAX, "%s.bak", path) < PATH_MAX)
        return ACCEL_OK;
    errno = ENAMETOOLONG;
    return not_kept(bak, err);
}

accel_status_t config_file_replaceable(const char *path, accel_error_t *err)
{
    struct stat st;
    char bak[PATH_MAX];

    if (access(path, F_OK))
        return ACCEL_OK;
    if (name_bak(path, bak, err))
        return err->code;
    if (lstat(bak, &st))
        return ACCEL_OK;
    errno = EEXIST;
    return not_kept(bak, err);
}

accel_status_t config_file_replace(const char *path, const struct strbuf *text,
                                   bool *kept_out, accel_error_t *err)
{
    char bak[PATH_MAX];
    accel_status_t status;

    *kept_out = false;
    if (text->failed || access(path, F_OK))
        return config_file_write(path, text, true, err);
    if (is_same(path, text))
        return ACCEL_OK;
    status = name_bak(path, bak, err);
    if (status)
        return status;
    /* Of a link the file behind it is what goes. */
    if (linkat(AT_FDCWD, path, AT_FDCWD, bak, AT_SYMLINK_FOLLOW))
        return not_kept(bak, err);
    status = config_file_write(path, text, true, err);
    if (status)
        unlink(
            bak); /* the file itself is whole, and the next try finds the name free */
    *kept_out = status == ACCEL_OK;
    return status;
}
