/* SPDX-License-Identifier: Apache-2.0
 *
 * The shards as the checkpoint sees them: every parameter and its optimizer state as
 * n-dimensional boxes of its own tensor, contiguous in the flat memory. Nothing that is
 * stored depends on units, padding or world size.
 */
#include "shard/shard_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOXES_MAX (2 * TENSOR_MAX_DIMS - 1)

/* Name of tensor k of a parameter: itself, then its optimizer state. Returns the
 * length, as snprintf does, so that a first pass can count. */
static int name_of(const struct shard_trainer *t, const accel_tensor_t *p, int k,
                   char *to, size_t len)
{
    return k == 0 ? snprintf(to, len, "model/%s", tensor_full_name(p))
                  : snprintf(to, len, "optim/%s/%s", tensor_full_name(p),
                             t->state_name[k - 1]);
}

/* The unit's optimizer; NULL: it has none. */
static const struct shard_trainer *trainer_of(const struct shard *s,
                                              const struct shard_unit *u)
{
    return u->def->optim >= 0 ? &s->trainer[u->def->optim] : NULL;
}

/* Frozen parameters have no optimizer state and no average. */
static int tensors_of(const struct shard_trainer *t, const accel_tensor_t *p)
{
    return param_is_trained(p) ? 1 + t->arrays : 1;
}

/* The flat range of unit u that this rank stores in a checkpoint, or loads from one.
 * Under NO_SHARD each rank stores a share, but loads everything. */
static void range_of(const struct shard *s, const struct shard_unit *u, bool for_load,
                     int64_t *first_out, int64_t *count_out)
{
    shard_answers(s, u, first_out, count_out);
    if (for_load) {
        *first_out = u->first;
        *count_out = u->stored;
    }
}

/* A contiguous range of a tensor as at most BOXES_MAX boxes, in order of
 * the elements. */
static int cut(const accel_tensor_t *p, int64_t begin, int64_t end,
               accel_ckpt_box_t boxes_out[BOXES_MAX])
{
    return accel_ckpt_boxes_of_range(p->ndim, p->dim, begin, end, boxes_out);
}

/* First pass: boxes, and bytes of all names. */
static void measure(const struct shard *s, bool for_load, size_t *boxes_out,
                    size_t *text_out)
{
    accel_ckpt_box_t scratch[BOXES_MAX];

    *boxes_out = *text_out = 0;
    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];
        const struct shard_trainer *t = trainer_of(s, u);
        int64_t first, count, b, e;

        range_of(s, u, for_load, &first, &count);
        for (int j = 0; j < u->def->param_count; j++) {
            const accel_tensor_t *p = u->def->param[j];

            if (!shard_param_range(p, first, count, &b, &e))
                continue;
            *boxes_out += (size_t)tensors_of(t, p) * (size_t)cut(p, b, e, scratch);
            for (int k = 0; k < tensors_of(t, p); k++)
                *text_out += (size_t)name_of(t, p, k, NULL, 0) + 1;
        }
    }
}

static size_t box_elems(const accel_ckpt_box_t *box)
{
    size_t n = 1;

    for (int d = 0; d < box->ndim; d++)
        n *= (size_t)box->shape[d];
    return n;
}

/* Boxes of elements [b, e) of p of unit u, for all its tensors; data follows the flat
 * memory. Names go to *text, before `end`. Returns the place behind the last box. */
static accel_ckpt_box_t *boxes_fill(const struct shard *s, const struct shard_unit *u,
                                    const accel_tensor_t *p, int64_t b, int64_t e,
                                    accel_ckpt_box_t *box, char **text, const char *end)
{
    int64_t at = p->unit_offset + b - u->first;
    const struct shard_trainer *t = trainer_of(s, u);
    accel_ckpt_box_t part[BOXES_MAX];
    int parts = cut(p, b, e, part);

    for (int k = 0; k < tensors_of(t, p); k++) {
        float *data =
            k == 0 ? s->master + u->at + at : t->state[k - 1] + u->state_at + at;
        const char *name = *text;

        *text += name_of(t, p, k, *text, (size_t)(end - *text)) + 1;
        for (int i = 0; i < parts; i++, box++) {
            *box = (accel_ckpt_box_t){
                .name = name, .dtype = ACCEL_F32, .ndim = p->ndim, .data = data
            };
            for (int d = 0; d < p->ndim; d++) {
                box->global_shape[d] = p->dim[d];
                box->offset[d] = part[i].offset[d];
                box->shape[d] = part[i].shape[d];
            }
            data += box_elems(box);
        }
    }
    return box;
}

/* A save draws what has no values yet; a load is about to write them. Names lie behind
 * the boxes in one malloc. */
accel_status_t shard_boxes(struct shard *s, bool for_load, accel_ckpt_box_t **boxes_out,
                           size_t *count_out, accel_error_t *err)
{
    accel_ckpt_box_t *boxes, *next;
    size_t n, text_bytes;
    char *text, *end;

    if (!for_load)
        shard_draw(s);
    measure(s, for_load, &n, &text_bytes);
    boxes = malloc(n * sizeof(*boxes) + text_bytes + 1);
    if (!boxes)
        return accel_fail_nomem(err, "list of checkpoint boxes",
                                n * sizeof(*boxes) + text_bytes);
    next = boxes;
    text = (char *)(boxes + n);
    end = text + text_bytes;
    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];
        int64_t first, elems, b, e;

        range_of(s, u, for_load, &first, &elems);
        for (int j = 0; j < u->def->param_count; j++) {
            const accel_tensor_t *p = u->def->param[j];

            if (shard_param_range(p, first, elems, &b, &e))
                next = boxes_fill(s, u, p, b, e, next, &text, end);
        }
    }
    *boxes_out = boxes;
    *count_out = n;
    return ACCEL_OK;
}
