/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything of a run that a checkpoint holds as tensors: the boxes of the shards, and
 * the buffers, which rank 0 stores whole and every rank reads. To and from a device by
 * way of a copy on the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "run/run.h"

/* A box that is the whole tensor. `name` must outlive it. */
static accel_ckpt_box_t box_of(accel_tensor_t *t, const char *name)
{
    accel_ckpt_box_t box = {
        .name = name, .dtype = t->dtype, .ndim = t->ndim, .data = t->data
    };

    for (int d = 0; d < t->ndim; d++)
        box.global_shape[d] = box.shape[d] = t->dim[d];
    return box;
}

/* The boxes of the shards, those of the buffers behind them, and the names of the
 * latter, in one malloc. */
static accel_status_t join(accel_tensor_t **buffer, size_t buffers,
                           const accel_ckpt_box_t *shards, size_t n,
                           accel_ckpt_box_t **boxes_out, accel_error_t *err)
{
    static const char prefix[] = "buffer/";
    size_t bytes = (n + buffers) * sizeof(**boxes_out), names = 0;
    accel_ckpt_box_t *all;
    char *text;

    /* bytes of the names, each with its NUL */
    for (size_t i = 0; i < buffers; i++)
        names += sizeof(prefix) + strlen(tensor_full_name(buffer[i]));
    all = malloc(bytes + names);
    if (!all)
        return accel_fail_nomem(err, "list of checkpoint boxes", bytes + names);
    memcpy(all, shards, n * sizeof(*all));
    text = (char *)(all + n + buffers);
    for (size_t i = 0; i < buffers; i++) {
        all[n + i] = box_of(buffer[i], text);
        text += sprintf(text, "%s%s", prefix, tensor_full_name(buffer[i])) + 1;
    }
    *boxes_out = all;
    return ACCEL_OK;
}

/* bytes of a box in memory */
static size_t box_bytes(const accel_ckpt_box_t *b)
{
    size_t n = accel_dtype_bytes(b->dtype);

    for (int d = 0; d < b->ndim; d++)
        n *= (size_t)b->shape[d];
    return n;
}

/* Is box i in device memory? Of an offloaded run only the buffers are: its shards live
 * in host memory (run->home). */
static bool on_device(const accel_t *run, const struct run_boxes *b, size_t i)
{
    return run->backend->device && !(run->home && i < b->shard_count);
}

/* Points boxes that are on the device to host memory, one allocation for all, and fills
 * it with copies of what is to be saved. */
static accel_status_t bring(accel_t *run, bool for_load, struct run_boxes *b,
                            accel_error_t *err)
{
    const struct backend *be = run->backend;
    size_t bytes = 0, at = 0;

    for (size_t i = 0; i < b->count; i++)
        bytes += on_device(run, b, i) ? box_bytes(&b->all[i]) : 0;
    b->image = malloc(bytes + 1);
    b->device = calloc(b->count + 1, sizeof(*b->device));
    if (!b->image || !b->device)
        return accel_fail_nomem(err, "a copy of the shards on the host", bytes);
    for (size_t i = 0; i < b->count; i++) {
        accel_ckpt_box_t *box = &b->all[i];

        if (!on_device(run, b, i))
            continue;
        b->device[i] = box->data;
        box->data = b->image + at;
        at += box_bytes(box);
        if (!for_load)
            be->to_host_bytes(be, box->data, b->device[i], box_bytes(box));
    }
    return be->check(be, err);
}

void run_boxes_store(accel_t *run, const struct run_boxes *b)
{
    for (size_t i = 0; b->device && i < b->count; i++)
        if (b->device[i])
            run->backend->from_host(run->backend, b->device[i], b->all[i].data,
                                    box_bytes(&b->all[i]));
    shard_loaded(run->shard);
}

/* Buffers are equal on all ranks: one copy is stored, and each rank reads it. Whatever
 * was allocated before an error is in *boxes_out, which the caller frees. */
accel_status_t run_boxes(accel_t *run, bool for_load, struct run_boxes *boxes_out,
                         accel_error_t *err)
{
    size_t buffers =
        for_load || run->boot.rank == 0 ? (size_t)models_buffers(run, NULL) : 0;
    accel_tensor_t **list;
    accel_status_t st;

    memset(boxes_out, 0, sizeof(*boxes_out));
    st = shard_boxes(run->shard, for_load, &boxes_out->shards, &boxes_out->count, err);
    boxes_out->all = boxes_out->shards;
    boxes_out->shard_count = boxes_out->count;
    if (st || !buffers)
        return st || !run->backend->device ? st : bring(run, for_load, boxes_out, err);
    list = calloc(buffers, sizeof(*list));
    if (!list)
        return accel_fail_nomem(err, "list of buffers", buffers * sizeof(*list));
    models_buffers(run, list);
    st = join(list, buffers, boxes_out->shards, boxes_out->count, &boxes_out->all, err);
    if (!st)
        boxes_out->count += buffers;
    free(list);
    return st || !run->backend->device ? st : bring(run, for_load, boxes_out, err);
}

void run_boxes_free(struct run_boxes *b)
{
    if (b->all != b->shards)
        free(b->all);
    free(b->shards);
    free(b->image);
    free(b->device);
}
