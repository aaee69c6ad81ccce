/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves a checkpoint directory out of the way: step_N becomes step_N.damaged-TIME where
 * damage is proven, step_N.aside-TIME where it is somebody's copy or cannot be judged.
 * One rename and one fsync; nothing is ever removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "save/ckpt_commit.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "common/path_dir.h"

/* Renames without replacing anything. Some file systems lack RENAME_NOREPLACE; there a
 * look at the new name comes first. The gap between look and rename is harmless: the
 * name holds a time, and one process at a time writes here. */
static int rename_to_free(int rootfd, const char *name, const char *to)
{
    struct stat sb;

    if (TEMP_FAILURE_RETRY(renameat2(rootfd, name, rootfd, to, RENAME_NOREPLACE)) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (fstatat(rootfd, to, &sb, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return TEMP_FAILURE_RETRY(renameat(rootfd, name, rootfd, to));
}

/* Two moves within one second get the same time: then a number follows it. After a
 * failed fsync the rename is taken back, so that an error means the old name. */
accel_status_t ckpt_set_aside(int rootfd, const char *name, bool damaged,
                              char name_out[CKPT_DIR_MAX], accel_error_t *err)
{
    char when[32] = "?", number[16] = "", to[CKPT_DIR_MAX];
    time_t now = time(NULL);
    struct ckpt_identity id;
    accel_status_t st;
    struct tm tm;
    int rc = -1;

    ckpt_identify(&id, rootfd, name);
    damaged |= id.status == ACCEL_ECORRUPT;
    if (gmtime_r(&now, &tm))
        strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
    errno = EEXIST;
    for (int i = 1; rc && errno == EEXIST && i < 1000; i++) {
        snprintf(to, sizeof(to), "%.64s.%s-%s%s", name, damaged ? "damaged" : "aside",
                 when, number);
        rc = rename_to_free(rootfd, name, to);
        snprintf(number, sizeof(number), ".%d", i);
    }
    if (rc)
        return accel_fail_at(err, A0833, name,
                             "move it away manually, or make the directory writable",
                             "cannot move the checkpoint aside: %m");
    st = ckpt_fsync(rootfd, name, err);
    if (st) {
        rename_to_free(rootfd, to, name);
        return st;
    }
    snprintf(name_out, CKPT_DIR_MAX, "%s", to);
    return ACCEL_OK;
}

/* Only names of steps are accepted, so that a caller cannot rename anything else. */
accel_status_t accel_ckpt_set_aside(const char *root, const char *name, int damaged,
                                    char *buf, size_t len, accel_error_t *err)
{
    char to[CKPT_DIR_MAX];
    int rootfd;
    accel_status_t st;

    if (ckpt_step_of_name(name) < 0)
        return accel_fail_at(err, A0815, name, "see accel_ckpt.h",
                             "accel_ckpt_set_aside: not the name of a step directory");
    ACCEL_CHECK(st, path_open_dir(root, &rootfd, err));
    if (rootfd < 0)
        return accel_fail_at(err, A0803, root, "check accel.checkpoint.dir",
                             "cannot open the checkpoint directory: %m");
    st = ckpt_set_aside(rootfd, name, damaged, to, err);
    close(rootfd);
    if (!st)
        snprintf(buf, len, "%s", to);
    return st;
}
