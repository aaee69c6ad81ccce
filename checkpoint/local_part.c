/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's part of a staged checkpoint: LOCAL/accel-HASH/step_N.OWNER, with the shard
 * files that ranks wrote on this node. HASH is that of the root's path, so that several
 * runs share LOCAL. The part means nothing without its record in the root, which has
 * the hashes of all its bytes.
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

#include "ckpt_saving.h"
#include "common/path_dir.h"

static accel_status_t fail_local(accel_error_t *err, const char *where,
                                 const char *what)
{
    return accel_fail_at(err, A0860, where,
                         "check accel.checkpoint.local_dir, its disk and permissions",
                         "%s: %s", what, strerror(errno));
}

/* "accel-HASH" of the root, as this node names it. 0 or -1. */
static int home_name(const char *root, char *buf, size_t len)
{
    char *real = realpath(root, NULL);

    if (!real)
        return -1;
    snprintf(buf, len, "accel-%016" PRIx64, ckpt_run_hash(real));
    free(real);
    return 0;
}

/* The directory of all parts of a root; -1 with errno. A directory of somebody else,
 * in a place where everybody may write, is not ours to use. */
static int open_home(const char *root, const char *local)
{
    int at = TEMP_FAILURE_RETRY(open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat sb;
    char name[40];
    int fd = -1;

    if (at >= 0 && home_name(root, name, sizeof(name)) == 0)
        fd = ckpt_open_dir(at, name);
    if (at >= 0)
        close(at);
    if (fd >= 0 && (fstat(fd, &sb) || sb.st_uid != geteuid())) {
        close(fd);
        errno = EPERM;
        return -1;
    }
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
static accel_status_t make_home(const char *root, const char *local, int *fd_out,
                                accel_error_t *err)
{
    char name[40];
    size_t len = 0;
    int at, made;

    errno = path_make_dirs(local, &len);
    if (errno)
        return fail_local(err, local, "cannot create the directory");
    at = TEMP_FAILURE_RETRY(open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (at < 0)
        return fail_local(err, local, "cannot open the directory");
    made = home_name(root, name, sizeof(name)) || make_at(at, name);
    close(at);
    *fd_out = made == 0 ? open_home(root, local) : -1;
    return *fd_out >= 0 ? ACCEL_OK
                        : fail_local(err, local, "cannot make a directory there");
}

/* What an earlier try left of this rank's file is in the way. */
accel_status_t ckpt_local_make(const struct accel_ckpt_saving *g, int *fd_out,
                               accel_error_t *err)
{
    char step[64], name[CKPT_DIR_MAX];
    int home = -1, fd = -1;
    accel_status_t st = make_home(g->root, g->local, &home, err);

    if (st)
        return st;
    ckpt_step_name(step, g->m.step);
    snprintf(name, sizeof(name), "%s.%s", step, g->m.owner);
    if (make_at(home, name) == 0)
        fd = ckpt_open_dir(home, name);
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

int ckpt_local_open(const struct accel_ckpt_saving *g, const char *name)
{
    int home = open_home(g->root, g->local), fd, error;

    if (home < 0)
        return -1;
    fd = ckpt_open_dir(home, name + strlen(CKPT_STAGED_PREFIX));
    error = errno;
    close(home);
    errno = error;
    return fd;
}

/* Several ranks of a node remove the same: what is gone already is fine. */
void accel_ckpt_local_remove(const char *root, const char *local, const char *name)
{
    const char *prefix = name ? name + strlen(CKPT_STAGED_PREFIX) : "step_";
    char(*list)[CKPT_DIR_MAX] = NULL;
    int home = open_home(root, local);
    size_t n = 0;

    if (home >= 0 && ckpt_list_names(home, prefix, &list, &n, NULL) == ACCEL_OK)
        for (size_t i = 0; i < n; i++)
            if (!name || strcmp(list[i], prefix) == 0)
                (void)ckpt_remove_dir(home, list[i]);
    free(list);
    if (home >= 0)
        close(home);
}

/* ---- records --------------------------------------------------------------------- */

void ckpt_staged_name(char name_out[CKPT_DIR_MAX], int64_t step, const char *owner)
{
    char text[64];

    ckpt_step_name(text, step);
    snprintf(name_out, CKPT_DIR_MAX, CKPT_STAGED_PREFIX "%s.%s", text, owner);
}

/* The step of ".local-step_N.OWNER", or -1. */
static int64_t step_of_record(const char *name)
{
    const char *step = name + strlen(CKPT_STAGED_PREFIX), *dot = strchr(step, '.');
    char text[64];

    if (!dot || (size_t)(dot - step) >= sizeof(text))
        return -1;
    snprintf(text, sizeof(text), "%.*s", (int)(dot - step), step);
    return ckpt_step_of_name(text);
}

/* for qsort */
static int newest_first(const void *pa, const void *pb)
{
    const accel_ckpt_staged_t *a = pa, *b = pb;

    return (a->step < b->step) - (a->step > b->step);
}

accel_status_t accel_ckpt_list_staged(const char *root, accel_ckpt_staged_t **list_out,
                                      size_t *count_out, accel_error_t *err)
{
    char(*names)[CKPT_DIR_MAX] = NULL;
    int fd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    accel_ckpt_staged_t *list = NULL;
    size_t n = 0, used = 0;
    accel_status_t st = ACCEL_OK;

    if (fd >= 0)
        st = ckpt_list_names(fd, CKPT_STAGED_PREFIX "step_", &names, &n, err);
    else if (errno != ENOENT)
        st = ckpt_fail_root(err, root, "cannot open", errno);
    if (fd >= 0)
        close(fd);
    if (!st && n > 0) {
        list = calloc(n, sizeof(*list));
        if (!list)
            st = accel_fail_nomem(err, "the list", n * sizeof(*list));
    }
    for (size_t i = 0; !st && i < n; i++) {
        list[used].step = step_of_record(names[i]);
        snprintf(list[used].name, sizeof(list[used].name), "%s", names[i]);
        used += list[used].step >= 0;
    }
    free(names);
    if (st)
        return st;
    if (used)
        qsort(list, used, sizeof(*list), newest_first);
    *list_out = list;
    *count_out = used;
    return ACCEL_OK;
}

accel_status_t accel_ckpt_unstage(const char *root, const char *name,
                                  accel_error_t *err)
{
    int fd;
    accel_status_t st = path_open_dir(root, &fd, err);

    if (st)
        return st;
    if (fd < 0 || (ckpt_trash(fd, name) != 0 && errno != ENOENT))
        st = accel_fail_at(err, A0846, name, "remove it manually",
                           "cannot delete the record of a staged checkpoint: %m");
    if (fd >= 0)
        close(fd);
    return st;
}
