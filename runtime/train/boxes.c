/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything of a run that a checkpoint holds as tensors: the shards' boxes and the
 * buffers, which rank 0 stores whole and every rank reads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run.h"

static accel_ckpt_box_t box_of(accel_tensor_t *t, const char *name)
{
    accel_ckpt_box_t box = {
        .name = name, .dtype = t->dtype, .ndim = t->ndim, .data = t->data
    };

    for (int d = 0; d < t->ndim; d++)
        box.global_shape[d] = box.shape[d] = t->dim[d];
    return box;
}

/* The buffers' boxes behind `shards`[n], all in one malloc with the names. */
static accel_status_t join(accel_tensor_t **buffer, size_t buffers,
                           const accel_ckpt_box_t *shards, size_t n,
                           accel_ckpt_box_t **out, accel_error_t *err)
{
    static const char prefix[] = "buffer/";
    size_t bytes = (n + buffers) * sizeof(**out), names = 0;
    accel_ckpt_box_t *all;
    char *text;

    for (size_t i = 0; i < buffers; i++)
        names += sizeof(prefix) + strlen(buffer[i]->buffer);
    all = malloc(bytes + names);
    if (!all)
        return accel_fail_nomem(err, "list of checkpoint boxes", bytes + names);
    memcpy(all, shards, n * sizeof(*all));
    text = (char *)(all + n + buffers);
    for (size_t i = 0; i < buffers; i++) {
        all[n + i] = box_of(buffer[i], text);
        text += sprintf(text, "%s%s", prefix, buffer[i]->buffer) + 1;
    }
    *out = all;
    return ACCEL_OK;
}

accel_status_t run_boxes(accel_t *run, bool for_load, struct run_boxes *out,
                         accel_error_t *err)
{
    accel_module_t *model = run->job.model;
    size_t buffers = model && (for_load || run->boot.rank == 0)
                         ? (size_t)nn_buffers_list(model, NULL)
                         : 0;
    accel_tensor_t **list;
    accel_status_t st;

    memset(out, 0, sizeof(*out));
    st = shard_boxes(run->shard, for_load, &out->shards, &out->count, err);
    out->all = out->shards;
    if (st || !buffers)
        return st;
    list = calloc(buffers, sizeof(*list));
    if (!list)
        return accel_fail_nomem(err, "list of buffers", buffers * sizeof(*list));
    nn_buffers_list(model, list);
    st = join(list, buffers, out->shards, out->count, &out->all, err);
    if (!st)
        out->count += buffers;
    free(list);
    return st;
}

void run_boxes_free(struct run_boxes *b)
{
    if (b->all != b->shards)
        free(b->all);
    free(b->shards);
}
