/* SPDX-License-Identifier: Apache-2.0
 *
 * The shards as the checkpoint sees them: every parameter and its optimizer state as
 * n-dimensional boxes of its own tensor, contiguous in the flat memory. Nothing that is
 * stored depends on units, padding or world size.
 */
#include "shard/shard_impl.h"

#include <stdio.h>
#include <stdlib.h>

#define BOXES_MAX (2 * TENSOR_MAX_DIMS - 1)

/* ---- which tensors a parameter has ----------------------------------------------- */

/* The unit's optimizer; NULL: it has none. */
static const struct shard_trainer *trainer_of(const struct shard *s,
                                              const struct shard_unit *u)
{
    return u->optim >= 0 ? &s->store.trainer[u->optim] : NULL;
}

/* Number of the scales of float16 masters among a parameter's tensors. */
#define EXPONENTS (-1)

/* The parameter itself, its optimizer state and average, and the scales of that state
 * where it is narrow: numbers from 0 on. Frozen parameters are alone. */
static int tensors_of(const struct shard *s, const struct shard_unit *u,
                      const struct shard_saved *saved, const accel_tensor_t *p)
{
    const struct shard_trainer *t = trainer_of(s, u);

    if (!param_is_trained(p))
        return 1;
    return 1 + t->arrays + (shard_saved_moments(saved, t, u->optim) ? t->states : 0);
}

/* Name of tensor k of a parameter. Returns the length, as snprintf does, so that a
 * first pass can count. */
static int name_of(const struct shard_trainer *t, const accel_tensor_t *p, int k,
                   char *to, size_t len)
{
    if (k == EXPONENTS)
        return snprintf(to, len, SHARD_EXPONENT_PREFIX "%s", tensor_full_name(p));
    if (k == 0)
        return snprintf(to, len, "model/%s", tensor_full_name(p));
    if (k > t->arrays)
        return snprintf(to, len, "optim/%s/%s" SHARD_SCALE_SUFFIX, tensor_full_name(p),
                        t->state_name[k - t->arrays - 1]);
    return snprintf(to, len, "optim/%s/%s", tensor_full_name(p), t->state_name[k - 1]);
}

/* Room for what a checkpoint has in another form than the run: masters, and array 0 of
 * the state; NULL: it has the run's form. */
struct rooms {
    char *masters, *state;
};

/* e4m3 is stored as bytes: HDF5 has no such type. */
struct stored shard_stored_state(struct state_array x, bool scales)
{
    if (x.scaled.data && scales)
        return (struct stored){ ACCEL_U8, (char *)x.scaled.exponent, SCALED_BLOCK };
    if (x.scaled.data)
        return (struct stored){ x.scaled.type == ACCEL_F16 ? ACCEL_F16 : ACCEL_U8,
                                x.scaled.data, 0 };
    if (scales)
        return (struct stored){ ACCEL_BF16, (char *)x.plain.scale, MOMENT_BLOCK };
    return (struct stored){ x.plain.scale ? ACCEL_U8 : ACCEL_F32, x.plain.data, 0 };
}

/* Tensor k of elements [b, e) of p, of which the first is element `at` of the unit's
 * stored ones, in the checkpoint's form. */
static struct stored stored_of(const struct shard *s, const struct shard_unit *u, int k,
                               int64_t at, int64_t n, const struct shard_saved *saved,
                               struct rooms room)
{
    const struct shard_trainer *t = trainer_of(s, u);
    const bool scales = t && k > t->arrays;

    if (k == EXPONENTS)
        return (struct stored){ ACCEL_U8,
                                (char *)(room.masters
                                             ? shard_master_room(room.masters, n)
                                             : shard_scaled_at(s, u->at + at))
                                    .exponent,
                                SCALED_BLOCK };
    if (k == 0)
        return (struct stored){ shard_saved_masters(saved, s),
                                room.masters ? room.masters
                                             : shard_master_at(s, u->at + at),
                                0 };
    k = scales ? k - t->arrays - 1 : k - 1;
    return shard_stored_state(
        k < t->states && room.state
            ? shard_room_at(t, room.state, k, n,
                            shard_saved_moments(saved, t, u->optim))
            : shard_array_at(t, k, u->state_at + at),
        scales);
}

/* ---- boxes ----------------------------------------------------------------------- */

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

/* The scales of elements [begin, end) of the tensor, as its one box. */
static int cut_scales(const accel_tensor_t *p, int64_t begin, int64_t end, int block,
                      accel_ckpt_box_t boxes_out[BOXES_MAX])
{
    const int64_t blocks = shard_blocks(p->elems, block);

    return accel_ckpt_boxes_of_range(1, &blocks, begin / block,
                                     shard_blocks(end, block), boxes_out);
}

static size_t box_elems(const accel_ckpt_box_t *box)
{
    size_t n = 1;

    for (int d = 0; d < box->ndim; d++)
        n *= (size_t)box->shape[d];
    return n;
}

/* The boxes of one tensor; data follows the flat memory. */
static void put_boxes(struct box_walk *w, const accel_tensor_t *p, const char *name,
                      struct stored x, const accel_ckpt_box_t *part, int parts)
{
    for (int i = 0; i < parts; i++) {
        accel_ckpt_box_t *box = &w->box[w->boxes + (size_t)i];

        *box = (accel_ckpt_box_t){
            .name = name, .dtype = x.type, .ndim = x.block ? 1 : p->ndim, .data = x.data
        };
        for (int d = 0; d < box->ndim; d++) {
            box->global_shape[d] =
                x.block ? shard_blocks(p->elems, x.block) : p->dim[d];
            box->offset[d] = part[i].offset[d];
            box->shape[d] = part[i].shape[d];
        }
        x.data += box_elems(box) * accel_dtype_bytes(x.type);
    }
}

/* Elements [b, e) of p of unit u, for all its tensors. */
static void walk_param(const struct shard *s, const struct shard_unit *u,
                       const accel_tensor_t *p, int64_t b, int64_t e,
                       struct box_walk *w)
{
    const struct shard_trainer *t = trainer_of(s, u);
    const int64_t at = p->param->unit_offset + b - u->first;
    const bool trained = param_is_trained(p);
    const accel_moments_t form =
        trained ? shard_saved_moments(w->saved, t, u->optim) : ACCEL_MOMENTS_FLOAT32;
    const bool other = trained && form != t->form;
    const accel_dtype_t type = shard_saved_masters(w->saved, s);
    struct rooms room = { NULL, NULL };

    if (type != s->o.precision.masters) {
        room.masters = w->box ? w->saved->room + w->room_bytes : NULL;
        w->room_bytes += shard_master_room_bytes(e - b, type);
    }
    if (other) {
        room.state = w->box ? w->saved->room + w->room_bytes : NULL;
        w->room_bytes += (size_t)t->states * shard_room_bytes(e - b, form);
    }

    for (int k = type == ACCEL_F16 ? EXPONENTS : 0; k < tensors_of(s, u, w->saved, p);
         k++) {
        const bool scales = k == EXPONENTS || (trained && k > t->arrays);
        const int block = !scales                                       ? 0
                          : k == EXPONENTS || form == ACCEL_MOMENTS_FP8 ? SCALED_BLOCK
                                                                        : MOMENT_BLOCK;
        accel_ckpt_box_t part[BOXES_MAX];
        int parts = block ? cut_scales(p, b, e, block, part)
                          : accel_ckpt_boxes_of_range(p->ndim, p->dim, b, e, part);
        size_t length = (size_t)name_of(t, p, k, NULL, 0) + 1;

        if (w->box) {
            name_of(t, p, k, w->text + w->text_bytes, length);
            put_boxes(w, p, w->text + w->text_bytes,
                      stored_of(s, u, k, at, e - b, w->saved, room), part, parts);
        }
        w->boxes += (size_t)parts;
        w->text_bytes += length;
    }
}

static void walk_params(const struct shard *s, bool for_load, struct box_walk *w)
{
    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];
        int64_t first, count, b, e;

        range_of(s, u, for_load, &first, &count);
        for (int j = 0; j < u->def->param_count; j++)
            if (shard_param_range(u->def->param[j], first, count, &b, &e))
                walk_param(s, u, u->def->param[j], b, e, w);
    }
}

/* A save draws what has no values yet; a load is about to write them. Names lie after
 * the boxes in one malloc. */
accel_status_t shard_walk_boxes(struct shard *s, bool for_load, shard_walk_f *walk,
                                struct shard_saved *saved, accel_ckpt_box_t **boxes_out,
                                size_t *count_out, accel_error_t *err)
{
    struct box_walk count = { .saved = saved }, fill = { .saved = saved };
    size_t boxes_bytes;

    if (!for_load)
        shard_draw(s);
    walk(s, for_load, &count);
    shard_powersgd_boxes(s, for_load, &count);
    boxes_bytes = count.boxes * sizeof(*fill.box);
    fill.box = malloc(boxes_bytes + count.text_bytes + 1);
    if (saved)
        saved->room = malloc(count.room_bytes + 1);
    if (!fill.box || (saved && !saved->room)) {
        free(fill.box);
        return accel_fail_nomem(err, "list of checkpoint boxes",
                                boxes_bytes + count.text_bytes + count.room_bytes);
    }
    if (saved)
        saved->room_bytes = count.room_bytes;
    fill.text = (char *)(fill.box + count.boxes);
    walk(s, for_load, &fill);
    shard_powersgd_boxes(s, for_load, &fill);
    *boxes_out = fill.box;
    *count_out = count.boxes;
    return ACCEL_OK;
}

accel_status_t shard_boxes(struct shard *s, bool for_load, accel_ckpt_box_t **boxes_out,
                           size_t *count_out, accel_error_t *err)
{
    return shard_walk_boxes(s, for_load, walk_params, NULL, boxes_out, count_out, err);
}

accel_status_t shard_boxes_saved(struct shard *s, struct shard_saved *saved,
                                 accel_ckpt_box_t **boxes_out, size_t *count_out,
                                 accel_error_t *err)
{
    return shard_walk_boxes(s, true, walk_params, saved, boxes_out, count_out, err);
}
