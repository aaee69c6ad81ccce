/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of PowerSGD, as boxes of a checkpoint: the error and the right factor of
 * each compressed parameter, or those of an optimizer's square. They are the same on
 * all ranks when they are saved, and each rank stores its share of the rows.
 */
#include "shard/shard_impl.h"

#include <stdio.h>

/* A list that is counted, or filled. */
struct box_list {
    const struct shard *s;
    bool for_load;
    accel_ckpt_box_t *box; /* NULL: counted only */
    char *text;
    size_t boxes, text_bytes;
};

/* "optim/PARAMETER/powersgd_error", or of a square "powersgd/OPTIMIZER/error". Returns
 * the length, as snprintf does. */
static int part_name(const struct box_list *l, int optim, int shape, const char *what,
                     char *to, size_t len)
{
    const char *name = l->s->store.trainer[optim].o.name;

    if (l->s->o.powersgd->batched)
        return snprintf(to, len, "powersgd/%s%s%s", name, name[0] ? "/" : "", what);
    return snprintf(to, len, "optim/%s/powersgd_%s",
                    tensor_full_name(shard_trained_param(l->s, optim, shape)), what);
}

/* Appends this rank's rows of data[rows][cols]; NULL data and no rows are left out. */
static void part_add(struct box_list *l, int optim, int shape, const char *what,
                     float *data, int64_t rows, int64_t cols)
{
    const struct shard *s = l->s;
    const int64_t from = l->for_load ? 0 : rows * s->rank / s->world;
    const int64_t to = l->for_load ? rows : rows * (s->rank + 1) / s->world;
    size_t bytes;

    if (!data || from == to)
        return;
    bytes = (size_t)part_name(l, optim, shape, what, NULL, 0) + 1;
    if (l->box) {
        part_name(l, optim, shape, what, l->text + l->text_bytes, bytes);
        l->box[l->boxes] = (accel_ckpt_box_t){ .name = l->text + l->text_bytes,
                                               .dtype = ACCEL_F32,
                                               .ndim = 2,
                                               .global_shape = { rows, cols },
                                               .offset = { from, 0 },
                                               .shape = { to - from, cols },
                                               .data = data + from * cols };
    }
    l->boxes++;
    l->text_bytes += bytes;
}

size_t shard_powersgd_boxes(const struct shard *s, bool for_load, accel_ckpt_box_t *box,
                            char *text, size_t *text_bytes_out)
{
    struct box_list l = { .s = s, .for_load = for_load, .box = box, .text = text };

    for (int i = 0; i < s->store.trainers && s->o.powersgd; i++) {
        struct powersgd_part p;

        for (int k = 0; powersgd_part(s->store.trainer[i].powersgd, k, &p); k++) {
            part_add(&l, i, p.shape, "error", p.error, p.rows, p.cols);
            part_add(&l, i, p.shape, "right", p.right, p.cols, p.rank);
        }
    }
    *text_bytes_out = l.text_bytes;
    return l.boxes;
}
