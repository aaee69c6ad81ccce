/* SPDX-License-Identifier: Apache-2.0
 *
 * Lost power (power_model.h): a save that returned must load from every tree that it
 * may leave, and while one runs the older checkpoint must, whenever the power goes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ckpt_internal.h"
#include "common/path_dir.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/unit/disk_shim.h"
#include "tests/unit/power_model.h"

static char root[400], lost_root[400]; /* of the checkpoints, there and afterwards */

/* ---- the power goes -------------------------------------------------------------- */

static int64_t older, newer; /* what may be there while a save runs */
static long moments, wrong;
static const char *refused; /* a call that this file system does not have */

/* What the next life finds, which begins with the fence. */
static int64_t lose(int mix)
{
    power_lose(mix);
    if (accel_ckpt_fence(lost_root, NULL))
        return -2;
    return numbers_load(lost_root);
}

static int power_goes(const char *call, const char *name, int fd)
{
    (void)fd;
    if (strcmp(call, "open") == 0 || strcmp(call, "openat") == 0)
        return 0; /* changes nothing */
    moments++;
    for (int mix = 0; mix < POWER_MIXES; mix++) {
        int64_t got = lose(mix);

        if (got != older && got != newer && wrong++ < 5)
            tap_diag("before %s(%s), mix %d: %lld", call, name, mix, (long long)got);
    }
    return refused && strcmp(refused, call) == 0 ? EINVAL : 0;
}

/* A save of `step` while `before` is the newest there, and the power goes at each of
 * its calls and after it. */
static void test_save(int64_t before, int64_t step, int keep, const char *without,
                      const char *what)
{
    accel_error_t err = { 0 };
    int lost = 0;

    older = before;
    newer = step;
    moments = wrong = 0;
    refused = without;
    disk_hook = power_goes;
    tap_is_int(numbers_save_alone(root, step, keep, NULL, &err), ACCEL_OK, "%s (%s)",
               what, err.text);
    disk_hook = NULL;
    tap_is_int(wrong, 0, "at each of its %ld moments the older one loads", moments);
    tap_ok(moments > 15, "the model saw its calls");
    for (int mix = 0; mix < POWER_MIXES; mix++)
        lost += lose(mix) != step;
    tap_is_int(lost, 0, "and when it has returned, it loads");
}

static void test_ranks(int64_t step)
{
    accel_error_t err = { 0 };
    struct world w;
    accel_status_t s;
    int lost = 0;

    world_start(&w, 3);
    s = numbers_save(&w,
                     &(accel_ckpt_save_t){ sizeof(accel_ckpt_save_t), .root = root,
                                           .step = step, .keep = 9 },
                     &err);
    tap_is_int(world_end(&w, s != ACCEL_OK), 0, "a save of 3 ranks (%s)", err.text);
    for (int mix = 0; mix < POWER_MIXES; mix++)
        lost += lose(mix) != step;
    tap_is_int(lost, 0, "it loads after a loss of power");
}

/* ---- directories made on the way ------------------------------------------------- */

static int fail_at; /* the n-th fsync fails */

static int no_fsync(const char *call, const char *name, int fd)
{
    (void)name;
    (void)fd;
    return strcmp(call, "fsync") == 0 && --fail_at == 0 ? EIO : 0;
}

/* Where the directory above may not be read. */
static int no_reading(const char *call, const char *name, int fd)
{
    size_t len = strlen(power_live);

    (void)fd;
    return strcmp(call, "open") == 0 && strncmp(name, power_live, len) == 0 &&
                   strcmp(name + len, "/") == 0
               ? EACCES
               : 0;
}

static void test_directories(void)
{
    static const struct {
        const char *path;
        int leaf;
    } ways[] = { { "out/checkpoints", 0 }, { "./x//y/", 0 }, { "./x/z///", 0 } };
    char path[700], there[700];
    size_t len = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ways); i++) {
        snprintf(path, sizeof(path), "%s/%s", power_live, ways[i].path);
        tap_is_int(path_make_dirs(path, &len), 0, "%s is made", ways[i].path);
        lose(0);
        snprintf(there, sizeof(there), "%s/%s", power_after, ways[i].path);
        tap_is_int(access(there, F_OK), 0, "and there after a loss of power");
    }
    if (chdir(power_live))
        abort();
    tap_is_int(path_make_dirs("below/here", &len), 0, "from the current directory");
    lose(0);
    snprintf(there, sizeof(there), "%s/below/here", power_after);
    tap_is_int(access(there, F_OK), 0, "and there after a loss of power");
    disk_hook = no_fsync;
    fail_at = 2;
    tap_is_int(path_make_dirs("a/b/c", &len), EIO,
               "one that is not durable is an error");
    tap_is_int((long)len, 3, "which names it");
    tap_ok(access("a", F_OK) == 0 && access("a/b", F_OK) != 0,
           "and takes it back, so that the next try makes it again");
    disk_hook = no_reading;
    snprintf(path, sizeof(path), "%s/drop", power_live);
    tap_is_int(path_make_dirs(path, &len), 0, "below one that cannot be read");
    disk_hook = NULL;
    tap_is_int(path_make_dirs("", &len), ENOENT, "no name");
    if (symlink("nowhere", "dangling"))
        abort();
    tap_is_int(path_make_dirs("/", &len), 0, "the root is there");
    tap_ok(path_make_dirs("/dev/null/x", &len) == ENOTDIR && len == 11,
           "below what is no directory");
}

int main(void)
{
    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    if (!power_begin())
        return 1;
    snprintf(root, sizeof(root), "%s/out/run/checkpoints", power_live);
    snprintf(lost_root, sizeof(lost_root), "%s/out/run/checkpoints", power_after);
    test_save(-1, 1, 1, NULL, "the first one, with new directories above it");
    test_save(1, 2, 1, NULL, "the next one, which replaces it");
    test_save(2, 2, 1, NULL, "the same step again");
    test_save(2, 3, 1, "symlinkat", "where there are no symbolic links");
    test_save(3, 4, 1, "renameat2", "where renames have no flags");
    test_save(4, 4, 1, "renameat2", "the same step again there");
    test_ranks(5);
    test_directories();
    if (chdir("/"))
        return 1;
    power_end();
    return tap_done();
}
