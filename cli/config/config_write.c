/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a config file to disk: whole or not at all. The text goes into a temporary
 * file in the same directory, which is durable before it gets its name. Signals are
 * blocked meanwhile, so that no temporary file is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "common/whole_io.h"
#include "cli/config/config_values.h"

/* A0261 with errno's text; `what` is a verb phrase, "cannot WHAT: ...". */
static accel_status_t config_write_failed(const char *what, const char *path,
                                          accel_error_t *err)
{
    return accel_fail_at(
        err, A0261, path,
        "check that the directory is writable and has free space, or name another file",
        "cannot %s: %s", what, strerror(errno));
}

/* The mode of the file that is replaced, or what the umask allows. umask can only be
 * read by setting it. */
static mode_t mode_for(const char *path)
{
    struct stat st;
    mode_t mask;

    /* A config may be private; a rewrite must not open it to others. */
    if (stat(path, &st) == 0)
        return st.st_mode & 0777;
    mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* Makes the missing directories of `path`. False: errno says why. */
static bool make_parents(const char *path)
{
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];
    size_t failed_len;

    if (!slash || slash == path)
        return true;
    /* For the case that the directory's name does not fit. */
    errno = ENAMETOOLONG;
    if ((size_t)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path) <
        sizeof(dir))
        errno = path_make_dirs(dir, &failed_len);
    return errno == 0;
}

/* Gives the finished temporary file its name. link, unlike rename, fails if the name
 * exists: two programs cannot both think they made the file. */
static accel_status_t place_config_file(const char *temp, const char *path,
                                        bool replace, accel_error_t *err)
{
    if (replace)
        return rename(temp, path) ? config_write_failed("rename", path, err) : ACCEL_OK;
    if (link(temp, path) == 0) {
        unlink(temp);
        return ACCEL_OK;
    }
    if (errno == EEXIST)
        return accel_fail_at(err, A0260, path,
                             "give another name, or move the old file away",
                             "the file exists and was not changed");
    return config_write_failed("create", path, err);
}

/* Writes the temporary file, places it and syncs the directory, without which
 * the name could be lost in a crash. A directory that cannot be synced is no
 * error: the file is there. */
static accel_status_t write_beside(const char *path, const struct strbuf *text,
                                   bool replace, accel_error_t *err)
{
    char temp[PATH_MAX];
    accel_status_t st;
    int fd;

    if ((size_t)snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= sizeof(temp)) {
        errno = ENAMETOOLONG;
        return config_write_failed("create", path, err);
    }
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return config_write_failed("create a file beside", path, err);
    /* mkostemp made it 0600. */
    if (fchmod(fd, mode_for(path)) || pwrite_all(fd, text->s, text->len, 0) ||
        fsync(fd))
        st = config_write_failed("write", path, err);
    else
        st = place_config_file(temp, path, replace, err);
    close(fd);
    /* Keeps errno's text: the error was made before this unlink. */
    if (st) {
        unlink(temp);
        return st;
    }
    (void)path_sync_name(temp);
    return ACCEL_OK;
}

accel_status_t config_file_write(const char *path, const struct strbuf *text,
                                 bool replace, accel_error_t *err)
{
    sigset_t all, before;
    accel_status_t st;
    char *real = NULL;

    /* A strbuf that ran out of memory holds half of the text. */
    if (text->failed)
        return accel_fail_nomem(err, "the config file", text->len);
    if (!make_parents(path))
        return config_write_failed("make the directory of", path, err);
    /* A symbolic link stays a link: its target is replaced. */
    if (replace)
        real = realpath(path, NULL);
    /* SIGKILL alone may still leave PATH.XXXXXX, which nothing reads. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    st = write_beside(real ? real : path, text, replace, err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(real);
    return st;
}

/* Does the file hold exactly this text? One more byte is read than the
 * text has, for the end. */
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

/* A0262 with errno's text. */
static accel_status_t not_kept(const char *bak, accel_error_t *err)
{
    return accel_fail_at(err, A0262, bak, "move the .bak file away",
                         "cannot keep the old file under this name: %m");
}

/* PATH.bak into bak, unless it is too long. */
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

    /* No old file, no .bak. */
    if (access(path, F_OK))
        return ACCEL_OK;
    if (name_bak(path, bak, err))
        return err->code;
    if (lstat(bak, &st))
        return ACCEL_OK;
    errno = EEXIST;
    return not_kept(bak, err);
}

/* Order matters: first a second name (.bak) for the old file, then the new file under
 * the first name. At no moment is `path` missing or half written. */
accel_status_t config_file_replace(const char *path, const struct strbuf *text,
                                   bool *kept_out, accel_error_t *err)
{
    char bak[PATH_MAX];
    accel_status_t st;

    *kept_out = false;
    if (text->failed || access(path, F_OK))
        return config_file_write(path, text, true, err);
    /* Nothing to write, so nothing to keep either. */
    if (is_same(path, text))
        return ACCEL_OK;
    ACCEL_CHECK(st, name_bak(path, bak, err));
    /* For a symbolic link, .bak becomes the file it points to, which
     * is what is replaced. */
    if (linkat(AT_FDCWD, path, AT_FDCWD, bak, AT_SYMLINK_FOLLOW))
        return not_kept(bak, err);
    st = config_file_write(path, text, true, err);
    /* The old file is still whole at its path; the next try must find .bak free. */
    if (st)
        unlink(bak);
    *kept_out = st == ACCEL_OK;
    return st;
}
