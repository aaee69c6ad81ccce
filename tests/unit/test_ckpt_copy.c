/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of a staged checkpoint from its node that is given up: it reads no more, in the
 * check of its hashes and in the copy itself, and leaves no checkpoint. One that goes to
 * its end has every byte.
 */
#include <fcntl.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

enum { BYTES = 64 << 20 };

static char root[256], node[300];
static char *memory;

/* ---- reads ----------------------------------------------------------------------- */

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);

/* What is given up once so many bytes of shards have been read; and how many more are,
 * by whatever thread. */
static struct {
    accel_ckpt_saving_t *saving;
    int64_t at;
    atomic_llong read, more;
} giving_up;

static int reads_fail; /* with this error; 0: they do not */

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    ssize_t done;

    if (reads_fail && world_is_shard(fd)) {
        errno = reads_fail;
        return -1;
    }
    done = __real_pread(fd, p, n, at);
    if (!giving_up.saving || done <= 0 || !world_is_shard(fd))
        return done;
    if (giving_up.read >= giving_up.at)
        giving_up.more += done;
    giving_up.read += done;
    if (giving_up.read >= giving_up.at)
        accel_ckpt_save_cancel(giving_up.saving);
    return done;
}

/* ---- a checkpoint of one tensor --------------------------------------------------- */

static accel_ckpt_box_t tensor(void)
{
    return (accel_ckpt_box_t){ .name = "model/t",
                               .dtype = ACCEL_U8,
                               .ndim = 1,
                               .global_shape = { BYTES },
                               .shape = { BYTES },
                               .data = memory };
}

static char value(int64_t i)
{
    return (char)((uint64_t)i * 0x9e3779b97f4a7c15u >> 40);
}

static bool is_there(accel_error_t *err)
{
    const accel_ckpt_box_t box = tensor();
    accel_ckpt_t *c = NULL;
    char dir[400];
    bool right;

    snprintf(dir, sizeof(dir), "%s/step_00000005", root);
    memset(memory, 0, BYTES);
    right = !accel_ckpt_open(&c, dir, err) && !accel_ckpt_read(c, &box, 1, err) &&
            !accel_ckpt_verify(dir, NULL, NULL, err);
    accel_ckpt_close(c);
    for (int64_t i = 0; i < BYTES && right; i++)
        right = memory[i] == value(i);
    return right;
}

/* The copy of `staged`, given up behind `at` bytes; 0: not. Each byte is read twice: its
 * hashes are checked before it is copied. */
static accel_status_t copy_staged(const char *staged, int64_t at, accel_error_t *err)
{
    const accel_ckpt_save_t s = { sizeof(s), .root = root, .owner = "1.0", .keep = 9,
                                  .local = node };
    accel_ckpt_saving_t *g = NULL;
    accel_status_t st = accel_ckpt_drain_begin(&g, staged, &s, NULL, err);

    if (st)
        return st;
    giving_up.at = at;
    giving_up.read = giving_up.more = 0;
    giving_up.saving = at ? g : NULL;
    (void)accel_ckpt_save_write(g, NULL);
    giving_up.saving = NULL;
    st = accel_ckpt_save_publish(g, NULL, NULL, err);
    accel_ckpt_save_free(g);
    return st;
}

static accel_status_t stage(accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    const accel_ckpt_box_t box = tensor();

    return accel_ckpt_save(
        &(accel_ckpt_save_t){ sizeof(accel_ckpt_save_t), .root = root, .step = 5,
                              .owner = "1.0", .run_id = "r", .sharding = "NO_SHARD",
                              .boxes = &box, .box_count = 1, .keep = 2, .local = node },
        NULL, stats_out, err);
}

/* The part has the same name: what is committed is not written over, nor while its
 * record is set aside. */
static void again_fails(const accel_ckpt_stats_t *stats)
{
    accel_error_t err = { 0 };
    char away[900], record[900], name[400];

    tap_ok(stage(NULL, &err) != ACCEL_OK && message_of(&err) == A0860,
           "staged again: %s", err.text);
    tap_is_int(accel_ckpt_staged_away(root, stats->staged, name, sizeof(name), &err),
               ACCEL_OK, "set aside");
    tap_ok(stage(NULL, &err) != ACCEL_OK && message_of(&err) == A0860,
           "staged again, with the first one aside: %s", err.text);
    snprintf(away, sizeof(away), "%s/%s", root, name);
    snprintf(record, sizeof(record), "%s/%s", root, stats->staged);
    tap_ok(rename(away, record) == 0, "back");
}

int main(void)
{
    accel_ckpt_stats_t stats = { 0 };
    accel_error_t err = { 0 };

    memory = malloc(BYTES);
    if (!memory)
        return 1;
    world_tmpdir(root, "ckpt-copy");
    snprintf(node, sizeof(node), "%s/node", root);
    strcat(root, "/root");
    for (int64_t i = 0; i < BYTES; i++)
        memory[i] = value(i);
    tap_is_int(stage(&stats, &err), ACCEL_OK, "staged (%s)", err.text);
    again_fails(&stats);
    tap_ok(copy_staged(stats.staged, 1, &err) != ACCEL_OK,
           "given up while it is checked: %s", err.text);
    tap_ok(giving_up.more <= BYTES / 2, "%lld of %d bytes are read after that",
           (long long)giving_up.more, BYTES);
    tap_ok(copy_staged(stats.staged, BYTES + CKPT_IO_BYTES, &err) != ACCEL_OK,
           "given up while it is copied: %s", err.text);
    tap_ok(giving_up.more <= 2 * CKPT_IO_BYTES, "%lld bytes are read after that",
           (long long)giving_up.more);
    tap_ok(!is_there(&err), "neither is a checkpoint: %s", err.text);
    reads_fail = EIO;
    tap_ok(copy_staged(stats.staged, 0, &err) == ACCEL_EIO && message_of(&err) == A0863,
           "nor is one that cannot be read now: %s", err.text);
    reads_fail = 0;
    tap_is_int(copy_staged(stats.staged, 0, &err), ACCEL_OK, "one to the end is");
    tap_ok(is_there(&err), "with every byte");
    tap_ok(copy_staged(CKPT_STAGED_PREFIX "none", 0, &err) != ACCEL_OK,
           "nor one that is not there: %s", err.text);
    tap_ok(fcntl(STDIN_FILENO, F_GETFD) >= 0, "no failure closed standard input");
    *strrchr(root, '/') = '\0';
    world_rmtree(root);
    free(memory);
    return tap_done();
}
