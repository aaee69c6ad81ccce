/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything of a run that a checkpoint holds as tensors: the boxes of the shards, and
 * the buffers, which rank 0 stores whole and every rank reads. Data of a device goes
 * through a copy on the host. In a load what several ranks hold is read from storage
 * once for all of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "training/fp8_scaling.h"
#include "state/run_boxes.h"
#include "backend/device.h"
#include "handle/run.h"

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

/* What follows the boxes of the shards. */
struct more_boxes {
    accel_tensor_t **buffer;
    size_t buffers;
    /* scales of fp8 linears, and the bytes of their names */
    size_t scales, scale_names;
};

/* The boxes of the shards, those of the buffers and of the scales behind them, and
 * their names, in one malloc. */
static accel_status_t join(const accel_t *run, const struct more_boxes *more,
                           struct run_boxes *boxes, accel_error_t *err)
{
    static const char prefix[] = "buffer/";
    const size_t n = boxes->count, count = n + more->buffers + more->scales;
    size_t names = more->scale_names;
    accel_ckpt_box_t *all;
    char *text;

    /* bytes of the names, each with its NUL */
    for (size_t i = 0; i < more->buffers; i++)
        names += sizeof(prefix) + strlen(tensor_full_name(more->buffer[i]));
    all = malloc(count * sizeof(*all) + names);
    if (!all)
        return accel_fail_nomem(err, "list of checkpoint boxes",
                                count * sizeof(*all) + names);
    memcpy(all, boxes->shards, n * sizeof(*all));
    text = (char *)(all + count);
    for (size_t i = 0; i < more->buffers; i++) {
        all[n + i] = box_of(more->buffer[i], text);
        text += sprintf(text, "%s%s", prefix, tensor_full_name(more->buffer[i])) + 1;
    }
    if (more->scales > 0)
        fp8_boxes(run, all + n + more->buffers, text, &names);
    boxes->all = all;
    boxes->count = count;
    boxes->scale_count = more->scales;
    return ACCEL_OK;
}

size_t run_box_bytes(const accel_ckpt_box_t *b)
{
    size_t n = accel_dtype_bytes(b->dtype);

    for (int d = 0; d < b->ndim; d++)
        n *= (size_t)b->shape[d];
    return n;
}

/* Of an offloaded run only the buffers are; scales and state in another form never. */
bool run_box_on_device(const accel_t *run, const struct run_boxes *b, size_t i)
{
    const uintptr_t room = (uintptr_t)b->saved.room, at = (uintptr_t)b->all[i].data;

    if (at - room < b->saved.room_bytes || i >= b->count - b->scale_count)
        return false;
    return (i < b->shard_count ? run_home(run) : run->backend)->device;
}

/* Points boxes that are on the device to host memory, one allocation for all, and fills
 * it with copies of what is to be saved. */
static accel_status_t bring(accel_t *run, bool for_load, struct run_boxes *b,
                            accel_error_t *err)
{
    const struct backend *be = run->backend;
    size_t bytes = 0, at = 0;

    for (size_t i = 0; i < b->count; i++)
        bytes += run_box_on_device(run, b, i) ? run_box_bytes(&b->all[i]) : 0;
    b->image = malloc(bytes + 1);
    b->device = calloc(b->count + 1, sizeof(*b->device));
    if (!b->image || !b->device)
        return accel_fail_nomem(err, "a copy of the shards on the host", bytes);
    for (size_t i = 0; i < b->count; i++) {
        accel_ckpt_box_t *box = &b->all[i];

        if (!run_box_on_device(run, b, i))
            continue;
        b->device[i] = box->data;
        box->data = b->image + at;
        at += run_box_bytes(box);
        if (!for_load)
            be->to_host_bytes(be, box->data, b->device[i], run_box_bytes(box));
    }
    return be->check(be, err);
}

void run_boxes_store(accel_t *run, const struct run_boxes *b)
{
    for (size_t i = 0; b->device && i < b->count; i++)
        if (b->device[i])
            run->backend->from_host(run->backend, b->device[i], b->all[i].data,
                                    run_box_bytes(&b->all[i]));
    shard_loaded(run->shard);
}

/* Buffers and scales are equal on all ranks: one copy is stored. Each rank reads the
 * buffers here, and the scales by fp8_read. */
static accel_status_t add_more(accel_t *run, bool for_load, struct run_boxes *b,
                               accel_error_t *err)
{
    const bool first = run->boot.rank == 0;
    struct more_boxes more = { 0 };
    accel_status_t st;

    b->all = b->shards;
    b->shard_count = b->count;
    more.buffers = for_load || first ? (size_t)models_buffers(run, NULL) : 0;
    if (!for_load && first)
        more.scales = fp8_boxes(run, NULL, NULL, &more.scale_names);
    if (more.buffers + more.scales == 0)
        return ACCEL_OK;
    more.buffer = calloc(more.buffers + 1, sizeof(*more.buffer));
    if (!more.buffer)
        return accel_fail_nomem(err, "list of buffers",
                                more.buffers * sizeof(*more.buffer));
    models_buffers(run, more.buffer);
    st = join(run, &more, b, err);
    free(more.buffer);
    return st;
}

/* Whatever was allocated before an error is in *boxes_out, which the caller frees. */
accel_status_t run_boxes_list(accel_t *run, struct run_boxes *boxes_out,
                              accel_error_t *err)
{
    accel_status_t st;

    memset(boxes_out, 0, sizeof(*boxes_out));
    st = (config_state_dict(&run->config) == DICT_LOCAL ? shard_flat_boxes
                                                        : shard_boxes)(
        run->shard, false, &boxes_out->shards, &boxes_out->count, err);
    return st ? st : add_more(run, false, boxes_out, err);
}

accel_status_t run_boxes(accel_t *run, struct run_boxes *boxes_out, accel_error_t *err)
{
    accel_status_t st = run_boxes_list(run, boxes_out, err);

    return st || !run->backend->device ? st : bring(run, false, boxes_out, err);
}

accel_status_t run_boxes_saved(accel_t *run, bool local, accel_dtype_t masters,
                               const accel_moments_t *moments,
                               struct run_boxes *boxes_out, accel_error_t *err)
{
    accel_status_t st;

    memset(boxes_out, 0, sizeof(*boxes_out));
    boxes_out->saved.masters = masters;
    memcpy(boxes_out->saved.moments, moments, sizeof(boxes_out->saved.moments));
    if (local)
        st = shard_flat_boxes(run->shard, true, &boxes_out->shards, &boxes_out->count,
                              err);
    else
        st = shard_boxes_saved(run->shard, &boxes_out->saved, &boxes_out->shards,
                               &boxes_out->count, err);
    ACCEL_TRY(st, add_more(run, true, boxes_out, err));
    return st || !run->backend->device ? st : bring(run, true, boxes_out, err);
}

void run_boxes_free(struct run_boxes *b)
{
    if (b->all != b->shards)
        free(b->all);
    free(b->shards);
    free(b->saved.room);
    free(b->image);
    free(b->device);
}

/* ---- a load ---------------------------------------------------------------------- */

/* HYBRID: the ranks with copies of one part read it together. The run's communicator of
 * them may be the device's, and a load is in host memory. Neither read is left out
 * after an error in the other: some ranks may have none. */
static accel_status_t read_copies(accel_t *run, accel_ckpt_t *c,
                                  const struct run_boxes *b, accel_error_t *err)
{
    const accel_ckpt_coll_t all = state_collectives(run->comm);
    accel_ckpt_coll_t some;
    struct comm *copies = NULL;
    accel_error_t e = { 0 };
    accel_status_t st, more;

    ACCEL_CHECK(st, comm_split(run->comm, mesh_color(&run->mesh, AXIS_REPLICATE),
                               run->boot.rank, &copies, err));
    some = state_collectives(copies);
    st = accel_ckpt_read_together(c, b->all, b->shard_count, &some, err);
    more = accel_ckpt_read_together(c, b->all + b->shard_count,
                                    b->count - b->shard_count, &all, &e);
    comm_close(copies);
    if (st == ACCEL_OK && more != ACCEL_OK)
        *err = e;
    return st != ACCEL_OK ? st : more;
}

accel_status_t run_boxes_read(accel_t *run, accel_ckpt_t *c, const struct run_boxes *b,
                              accel_error_t *err)
{
    const accel_ckpt_coll_t all = state_collectives(run->comm);

    return run->mesh.copies ? read_copies(run, c, b, err)
                            : accel_ckpt_read_together(c, b->all, b->count, &all, err);
}
