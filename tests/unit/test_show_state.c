/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of `accel ckpt show` about state beside tensors: of every kind that a run
 * stores, with names and without, and of blobs that are not laid out so.
 */
#include <stdio.h>
#include <string.h>

#include "cli/data/ckpt_cmd.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

static char root[256], rows[2048];

static void add_row(void *user, const char *kind, const char *name, const char *what)
{
    size_t n = strlen(rows);

    (void)user;
    snprintf(rows + n, sizeof(rows) - n, "%s|%s|%s\n", kind, name, what);
}

/* The rows of a checkpoint with these two blobs; NULL: without it. */
static const char *rows_of(int64_t step, const char *trainer, const char *objects)
{
    accel_ckpt_blob_t blob[2];
    size_t n = 0;
    float one = 1;
    accel_ckpt_box_t box = { .name = "model/w",
                             .dtype = ACCEL_F32,
                             .ndim = 1,
                             .global_shape = { 1 },
                             .shape = { 1 },
                             .data = &one };
    accel_ckpt_save_t s = { sizeof(s),      .root = root,   .step = step,
                            .owner = "1.0", .run_id = "r",  .sharding = "NO_SHARD",
                            .boxes = &box,  .box_count = 1, .blobs = blob,
                            .keep = 99 };
    static accel_error_t err;
    accel_ckpt_t *c = NULL;
    char dir[300];

    if (trainer)
        blob[n++] = (accel_ckpt_blob_t){ "trainer", trainer, strlen(trainer) };
    if (objects)
        blob[n++] = (accel_ckpt_blob_t){ "objects", objects, strlen(objects) };
    s.blob_count = n;
    rows[0] = '\0';
    snprintf(dir, sizeof(dir), "%s/step_%08d", root, (int)step);
    if (accel_ckpt_save(&s, NULL, NULL, &err) || accel_ckpt_open(&c, dir, &err))
        return err.text;
    ckpt_state_rows(c, add_row, NULL);
    accel_ckpt_close(c);
    return rows;
}

int main(void)
{
    world_tmpdir(root, "show");
    tap_is_str(rows_of(1,
                       "accel_trainer=1\nstep=4\noptimizer=adamw\noptim_steps=4\n"
                       "schedule_at=cosine position 4\nloss_scale=65536 3\n"
                       "loss_scaler=init 65536\nloader.train=epoch=1 taken=32\n",
                       NULL),
               "optimizer||adamw, 4 steps\nschedule||cosine position 4\n"
               "scaler||65536 3\nloader|train|epoch=1 taken=32\n",
               "one optimizer, a scale and a loader");
    tap_is_str(rows_of(2,
                       "accel_trainer=1\noptimizer.critic=sgd\noptim_steps.critic=9\n"
                       "optimizer.actor=lion\noptim_steps.actor=8\nema.actor=0.99\n"
                       "ema_steps.actor=8\n",
                       "objects 1\nvocab 3 0 1 2048\nstream 0 1 2 10 20\n\nbytes"),
               "optimizer|critic|sgd, 9 steps\noptimizer|actor|lion, 8 steps\n"
               "average|actor|0.99\n"
               "object|vocab|version 3, common, of 1 rank, 2.0 KiB\n"
               "object|stream|version 0, per rank, of 2 ranks, 30 B\n",
               "several with names, and objects");
    tap_is_str(rows_of(3, NULL, "objects 2\nvocab 3 0 1 2048\n\n"), "",
               "another layout is left out");
    tap_is_str(rows_of(4, "optimizer", "objects 1\nvocab 3 7 1 5\nx\nbox 1 0 1 y\n=\n"),
               "", "and so are lines that nobody wrote");
    tap_is_str(rows_of(5, NULL, NULL), "", "weights alone have none");
    world_rmtree(root);
    return tap_done();
}
