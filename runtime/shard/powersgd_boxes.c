/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of PowerSGD, as boxes of a checkpoint: the error and the right factor of
 * each compressed parameter, or those of an optimizer's square. They are the same on
 * all ranks when they are saved, and each rank stores its share of the rows.
 */
#include "shard/shard_impl.h"

#include <stdio.h>

/* "optim/PARAMETER/powersgd_error", or of a square "powersgd/OPTIMIZER/error". Returns
 * the length, as snprintf does. */
static int part_name(const struct shard *s, int optim, int shape, const char *what,
                     char *to, size_t len)
{
    const char *name = s->store.trainer[optim].o.name;

    if (s->o.powersgd->batched)
        return snprintf(to, len, "powersgd/%s%s%s", name, name[0] ? "/" : "", what);
    return snprintf(to, len, "optim/%s/powersgd_%s",
                    tensor_full_name(shard_trained_param(s, optim, shape)), what);
}

/* Appends this rank's rows of data[rows][cols]; NULL data and no rows are left out. */
static void part_add(const struct shard *s, bool for_load, struct box_walk *w,
                     int optim, int shape, const char *what, float *data, int64_t rows,
                     int64_t cols)
{
    const int64_t from = for_load ? 0 : rows * s->rank / s->world;
    const int64_t to = for_load ? rows : rows * (s->rank + 1) / s->world;
    size_t bytes;

    if (!data || from == to)
        return;
    bytes = (size_t)part_name(s, optim, shape, what, NULL, 0) + 1;
    if (w->box) {
        part_name(s, optim, shape, what, w->text + w->text_bytes, bytes);
        w->box[w->boxes] = (accel_ckpt_box_t){ .name = w->text + w->text_bytes,
                                               .dtype = ACCEL_F32,
                                               .ndim = 2,
                                               .global_shape = { rows, cols },
                                               .offset = { from, 0 },
                                               .shape = { to - from, cols },
                                               .data = data + from * cols };
    }
    w->boxes++;
    w->text_bytes += bytes;
}

void shard_powersgd_boxes(const struct shard *s, bool for_load, struct box_walk *w)
{
    for (int i = 0; i < s->store.trainers && s->o.powersgd; i++) {
        struct powersgd_part p;

        for (int k = 0; powersgd_part(s->store.trainer[i].powersgd, k, &p); k++) {
            part_add(s, for_load, w, i, p.shape, "error", p.error, p.rows, p.cols);
            part_add(s, for_load, w, i, p.shape, "right", p.right, p.cols, p.rank);
        }
    }
}
