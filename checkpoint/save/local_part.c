/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's part of a staged checkpoint: LOCAL/accel-ID/step_N.OWNER, with the shard
 * files that ranks wrote on this node. ID is in the root and in the name of the part's
 * record there, so that several runs share LOCAL and a root may be renamed. The part
 * means nothing without that record, which has the hashes of all its bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "save/ckpt_saving.h"
#include "common/path_dir.h"

static accel_status_t fail_local(accel_error_t *err, const char *where,
                                 const char *what)
{
    return accel_fail_at(err, A0860, where,
                         "check accel.checkpoint.local_dir, its disk and permissions",
                         "%s: %s", what, strerror(errno));
}

/* ---- names ----------------------------------------------------------------------- */

/* Where the ID begins in ".local-step_N.OWNER@ID"; NULL: an older release wrote it. */
static const char *id_in(const char *record)
{
    const char *at = strrchr(record, '@');

    return at && strlen(at + 1) == CKPT_ID_MAX - 1 &&
                   strspn(at + 1, "0123456789abcdef") == CKPT_ID_MAX - 1
               ? at + 1
               : NULL;
}

/* The directory on a node that has the part of a record. Older releases named it by the
 * path of the root. 0, or -1 with errno. */
static int home_of(const char *root, const char *record, char home_out[CKPT_DIR_MAX])
{
    const char *id = id_in(record);
    char *real = id ? NULL : realpath(root, NULL);

    if (!id && !real)
        return -1;
    if (id)
        snprintf(home_out, CKPT_DIR_MAX, "accel-%s", id);
    else
        snprintf(home_out, CKPT_DIR_MAX, "accel-%016" PRIx64, ckpt_run_hash(real));
    free(real);
    return 0;
}

/* "step_N.OWNER" of a record. */
static void part_name(const char *record, char part_out[CKPT_DIR_MAX])
{
    const char *id = id_in(record), *part = record + strlen(CKPT_STAGED_PREFIX);

    snprintf(part_out, CKPT_DIR_MAX, "%.*s",
             (int)(id ? (size_t)(id - 1 - part) : strlen(part)), part);
}

/* Opens directory `name` of `at`; -1 with errno. What belongs to somebody else, in a
 * place where everybody may write, is not ours to use: EPERM. */
static int open_ours(int at, const char *name)
{
    int fd = ckpt_open_dir(at, name), error;
    struct stat sb;

    if (fd < 0)
        return -1;
    error = fstat(fd, &sb) ? errno : sb.st_uid != geteuid() ? EPERM : 0;
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

/* The same of directory `home` of LOCAL. */
static int open_home(const char *local, const char *home)
{
    int at = TEMP_FAILURE_RETRY(open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int fd = at >= 0 ? open_ours(at, home) : -1, error = errno;

    if (at >= 0)
        close(at);
    errno = error;
    return fd;
}

/* mkdir of a name that may be there, and its name made durable. Others may not read the
 * weights. 0 or -1. */
static int make_at(int at, const char *name)
{
    if (TEMP_FAILURE_RETRY(mkdirat(at, name, 0700)) && errno != EEXIST)
        return -1;
    return TEMP_FAILURE_RETRY(fsync(at));
}

/* The directory of all parts, made where it is missing. */
static accel_status_t make_home(const char *local, const char *home, int *fd_out,
                                accel_error_t *err)
{
    size_t len = 0;
    int at, made;

    errno = path_make_dirs(local, &len);
    if (errno)
        return fail_local(err, local, "cannot create the directory");
    at = TEMP_FAILURE_RETRY(open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (at < 0)
        return fail_local(err, local, "cannot open the directory");
    made = make_at(at, home);
    close(at);
    *fd_out = made == 0 ? open_home(local, home) : -1;
    return *fd_out >= 0 ? ACCEL_OK
                        : fail_local(err, local, "cannot make a directory there");
}

/* What an earlier try left of this rank's file is in the way. */
accel_status_t ckpt_local_make(const struct accel_ckpt_saving *g, int *fd_out,
                               accel_error_t *err)
{
    char step[64], name[CKPT_DIR_MAX], dir[CKPT_DIR_MAX];
    int home = -1, fd = -1;
    accel_status_t st;

    snprintf(dir, sizeof(dir), "accel-%s", g->commit.id);
    ACCEL_CHECK(st, make_home(g->local, dir, &home, err));
    ckpt_step_name(step, g->m.step);
    snprintf(name, sizeof(name), "%s.%s", step, g->m.owner);
    if (make_at(home, name) == 0)
        fd = open_ours(home, name);
    if (fd < 0 || (TEMP_FAILURE_RETRY(unlinkat(fd, g->m.file[g->rank].name, 0)) &&
                   errno != ENOENT))
        st = fail_local(err, g->local, "cannot make a directory there");
    close(home);
    if (st && fd >= 0)
        close(fd);
    else
        *fd_out = fd;
    return st;
}

int ckpt_local_open(const struct accel_ckpt_saving *g, const char *name,
                    char path_out[PATH_MAX])
{
    char home[CKPT_DIR_MAX], part[CKPT_DIR_MAX];
    int at, fd, error;

    snprintf(path_out, PATH_MAX, "%s", g->local);
    if (home_of(g->root, name, home))
        return -1;
    part_name(name, part);
    snprintf(path_out, PATH_MAX, "%.3800s/%s", g->local, home);
    at = open_home(g->local, home);
    if (at < 0)
        return -1;
    snprintf(path_out, PATH_MAX, "%.3600s/%s/%s", g->local, home, part);
    fd = open_ours(at, part);
    error = errno;
    close(at);
    errno = error;
    return fd;
}

/* ---- removal --------------------------------------------------------------------- */

/* Ours alone; several ranks of a node remove the same, and what is gone is fine. */
static void remove_part(int home, const char *part)
{
    int fd = open_ours(home, part);

    if (fd < 0)
        return;
    close(fd);
    (void)ckpt_remove_dir(home, part);
}

bool ckpt_is_recorded(int rootfd, const char *record)
{
    char given_up[CKPT_DIR_MAX + sizeof(CKPT_AWAY_PREFIX)];
    const char *const names[] = { record, given_up };

    snprintf(given_up, sizeof(given_up), CKPT_AWAY_PREFIX "%s",
             record + strlen(CKPT_STAGED_PREFIX));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++)
        if (faccessat(rootfd, names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
            errno != ENOENT)
            return true;
    return false;
}

/* What saves that were killed left on this node. */
static void remove_unknown(int rootfd, const char *local)
{
    char(*list)[CKPT_DIR_MAX] = NULL;
    char home[CKPT_DIR_MAX], id[CKPT_ID_MAX], record[2 * CKPT_DIR_MAX];
    size_t n = 0;
    int at;

    if (!ckpt_staging_id(rootfd, id))
        return;
    snprintf(home, sizeof(home), "accel-%s", id);
    at = open_home(local, home);
    if (at >= 0 && ckpt_list_names(at, "step_", &list, &n, NULL) == ACCEL_OK)
        for (size_t i = 0; i < n; i++) {
            snprintf(record, sizeof(record), CKPT_STAGED_PREFIX "%s@%s", list[i], id);
            if (!ckpt_is_recorded(rootfd, record))
                remove_part(at, list[i]);
        }
    free(list);
    if (at >= 0)
        close(at);
}

int accel_ckpt_local_remove(const char *root, const char *local, const char *name)
{
    int rootfd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    char home[CKPT_DIR_MAX], part[CKPT_DIR_MAX];
    int at, r = 0;

    if (rootfd < 0 || (name && ckpt_is_recorded(rootfd, name))) {
        r = -1;
    } else if (!name) {
        remove_unknown(rootfd, local);
    } else if (home_of(root, name, home) == 0 && (at = open_home(local, home)) >= 0) {
        part_name(name, part);
        remove_part(at, part);
        close(at);
    }
    if (rootfd >= 0)
        close(rootfd);
    return r;
}
