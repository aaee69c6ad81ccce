/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_param_read and accel_param_write: one parameter or buffer, whole, by its full
 * name. In: a name and an array. Out: its values, gathered from the ranks or split over
 * them. Never touches optimizer state or progress.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "training/ema.h"
#include "training/local_sgd.h"
#include "backend/device.h"
#include "numbers/bf16.h"
#include "handle/run.h"
#include "weights/weights.h"
#include "state/state.h"

/* elements that travel at a time: 16 MiB of float32 */
#define SLICE_ELEMS ((int64_t)4 << 20)
#define INT32_SPAN  2147483648.0f

/* What a name stands for: this rank's part of a parameter, or a buffer. */
struct named {
    const char *name;
    int64_t elems;
    /* of a parameter; .param is NULL for a buffer */
    struct weight_part part;
    accel_tensor_t *buffer;
};

/* The parts of all parameters and the buffers of the run, both one malloc. */
static accel_status_t list_named(accel_t *run, bool for_load,
                                 struct weight_part **parts_out, size_t *parts,
                                 accel_tensor_t ***buffers_out, size_t *buffers,
                                 accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, weight_parts(run, NULL, for_load, parts_out, parts, err));
    *buffers = (size_t)models_buffers(run, NULL);
    *buffers_out = calloc(*buffers + 1, sizeof(**buffers_out));
    if (!*buffers_out)
        return accel_fail_nomem(err, "the list of buffers",
                                *buffers * sizeof(**buffers_out));
    models_buffers(run, *buffers_out);
    return ACCEL_OK;
}

/* Is `end` the end of `s`, behind a dot or slash? */
static bool ends_path(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);

    return m > 0 && m < n && strcmp(s + n - m, end) == 0 &&
           (s[n - m - 1] == '.' || s[n - m - 1] == '/');
}

/* The one of all[n] that `name` is probably meant to be, or NULL. A name that only has
 * more or less in front is nearer than one with other letters. */
static const char *name_near(const char *name, const char *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ends_path(all[i], name) || ends_path(name, all[i]))
            return all[i];
    return suggest_nearest(name, all, n);
}

/* No parameter or buffer has this name: the error, with one that is nearly the same. */
static accel_status_t not_named(const char *name, const struct weight_part *part,
                                size_t parts, accel_tensor_t *const *buffer,
                                size_t buffers, accel_error_t *err)
{
    const char **all = calloc(parts + buffers + 1, sizeof(*all)), *near = NULL;
    char cure[300] = "use the name given to accel_param after those of its modules";

    for (size_t i = 0; all && i < parts; i++)
        all[i] = tensor_full_name(part[i].param);
    for (size_t i = 0; all && i < buffers; i++)
        all[parts + i] = tensor_full_name(buffer[i]);
    if (all)
        near = name_near(name, all, parts + buffers);
    if (near)
        snprintf(cure, sizeof(cure), "did you mean %.250s?", near);
    free(all);
    return accel_fail(err, A0970, cure,
                      "the run has no parameter or buffer of the name '%.200s'", name);
}

/* Looks `name` up. for_load as for weight_parts. Not collective. */
static accel_status_t find_named(accel_t *run, const char *name, bool for_load,
                                 struct named *named_out, accel_error_t *err)
{
    struct weight_part *part = NULL;
    accel_tensor_t **buffer = NULL;
    size_t parts = 0, buffers = 0;
    accel_status_t st =
        list_named(run, for_load, &part, &parts, &buffer, &buffers, err);

    *named_out = (struct named){ 0 };
    for (size_t i = 0; !st && i < parts && !named_out->name; i++)
        if (strcmp(tensor_full_name(part[i].param), name) == 0)
            *named_out = (struct named){ .name = tensor_full_name(part[i].param),
                                         .elems = part[i].param->elems,
                                         .part = part[i] };
    for (size_t i = 0; !st && i < buffers && !named_out->name; i++)
        if (strcmp(tensor_full_name(buffer[i]), name) == 0)
            *named_out = (struct named){ .name = tensor_full_name(buffer[i]),
                                         .elems = buffer[i]->elems,
                                         .buffer = buffer[i] };
    if (!st && !named_out->name)
        st = not_named(name, part, parts, buffer, buffers, err);
    free(part);
    free(buffer);
    return st;
}

/* Collective. Ranks that name different parameters, or send them to different ranks,
 * would wait for each other or mix values. */
static accel_status_t same_call(accel_t *run, const char *name, int to,
                                accel_error_t *err)
{
    /* without its upper bit, so that the negative number exists */
    int64_t hash =
        (int64_t)(XXH3_64bits_withSeed(name, strlen(name), (XXH64_hash_t)(to + 1)) >>
                  1);
    int64_t span[2] = { hash, -hash };
    accel_status_t st = comm_all_reduce(run->comm, span, 2, ACCEL_I64, COMM_MAX, err);

    if (st || span[0] == -span[1])
        return st;
    return accel_fail(err, A0970, "pass the same name and the same rank everywhere",
                      "the ranks do not name the same parameter; rank %d: '%.200s'",
                      run->boot.rank, name);
}

/* What both calls check before anything moves. `here`: this rank's array is used. */
static accel_status_t check_array(const char *call, const struct named *n, bool here,
                                  const float *array, int64_t elems, accel_error_t *err)
{
    if (here && !array)
        return accel_fail(err, A0970, "pass an array of that many numbers",
                          "%s: the array for %.200s is NULL", call, n->name);
    if (elems != n->elems)
        return accel_fail(err, A0970, "pass the number of elements of the whole tensor",
                          "%s: %.200s has %lld elements, but the array has %lld", call,
                          n->name, (long long)n->elems, (long long)elems);
    return ACCEL_OK;
}

/* ---- reading --------------------------------------------------------------------- */

/* Collective. Elements [first, first + count) into dst, which is the whole tensor's, of
 * rank `to`. stage: as for weight_gather. */
static accel_status_t read_slice(accel_t *run, const struct weight_part *p, int to,
                                 int64_t first, int64_t count, float *stage, float *dst,
                                 accel_error_t *err)
{
    const int root = to < 0 ? 0 : to;
    accel_status_t st;

    dst = to < 0 || run->boot.rank == root ? dst + first : NULL;
    st = weight_gather(run, p, root, first, count, stage, dst, err);
    if (!st && to < 0)
        st = comm_broadcast(run->comm, dst, (size_t)count * sizeof(*dst), root, err);
    return st;
}

static accel_status_t read_named(accel_t *run, const char *name, int to, float *dst,
                                 int64_t elems, accel_error_t *err)
{
    const bool here = to < 0 || to == run->boot.rank;
    struct named n;
    float *stage = NULL;
    int64_t most = elems < SLICE_ELEMS ? elems : SLICE_ELEMS;
    accel_status_t st = find_named(run, name, false, &n, err);

    if (!st && (to < ACCEL_ALL_RANKS || to >= run->boot.size))
        st = accel_fail(err, A0970, "name a rank of the run, or ACCEL_ALL_RANKS",
                        "accel_param_read: there is no rank %d among %d", to,
                        run->boot.size);
    ACCEL_TRY(st, check_array("accel_param_read", &n, here, dst, elems, err));
    if (!st && n.part.param && weights_are_staged(run)) {
        stage = malloc((size_t)most * sizeof(*stage));
        if (!stage)
            st = accel_fail_nomem(err, "a copy of weights on the host",
                                  (size_t)most * sizeof(*stage));
    }
    /* a buffer is whole on every rank: only the outcome is common */
    if (!st && n.buffer && here)
        st = accel_tensor_read(n.buffer, dst, (size_t)elems, err);
    st = run_agree(run, st, err);
    ACCEL_TRY(st, run_agree(run, same_call(run, name, to, err), err));
    if (!st && n.part.param)
        st = local_sgd_meet(run, false, err);
    for (int64_t at = 0; !st && n.part.param && at < elems; at += most)
        st = read_slice(run, &n.part, to, at, elems - at < most ? elems - at : most,
                        stage, dst, err);
    free(stage);
    return st;
}

accel_status_t accel_param_read(accel_t *run, const char *name, int to, float *dst,
                                int64_t elems, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, run_ready(run, "accel_param_read", err));
    return state_call_end(run, read_named(run, name ? name : "", to, dst, elems, &e),
                          &e, err);
}

/* ---- writing --------------------------------------------------------------------- */

/* The whole numbers of an int32 buffer; anything else is refused. */
static accel_status_t to_int32(const char *name, const float *src, int64_t elems,
                               int32_t *dst, accel_error_t *err)
{
    for (int64_t i = 0; i < elems; i++) {
        if (!(src[i] >= -INT32_SPAN && src[i] < INT32_SPAN) || src[i] != truncf(src[i]))
            return accel_fail(err, A0970, "write whole numbers of 32 bits",
                              "element %lld for %.200s, an int32 buffer, is %g",
                              (long long)i, name, (double)src[i]);
        dst[i] = (int32_t)src[i];
    }
    return ACCEL_OK;
}

/* src in the dtype of the buffer; *values_out is one malloc. */
static accel_status_t buffer_values(const accel_tensor_t *t, const float *src,
                                    void **values_out, accel_error_t *err)
{
    size_t bytes = (size_t)t->elems * accel_dtype_bytes(t->dtype);
    void *values = malloc(bytes);
    accel_status_t st = ACCEL_OK;

    if (!values)
        return accel_fail_nomem(err, "the values of a buffer", bytes);
    if (t->dtype == ACCEL_I32)
        st = to_int32(t->buffer, src, t->elems, values, err);
    else if (t->dtype == ACCEL_BF16)
        for (int64_t i = 0; i < t->elems; i++)
            ((bf16_t *)values)[i] = f32_to_bf16(src[i]);
    else
        memcpy(values, src, bytes);
    if (st)
        free(values);
    else
        *values_out = values;
    return st;
}

/* This rank's part of src into its shard. */
static void write_part(accel_t *run, const struct weight_part *p, const float *src)
{
    shard_settle(run->shard);
    weight_part_write(run, p, 0, p->count, src + p->begin);
    shard_given(run->shard, p->param);
    shard_loaded(run->shard);
}

/* Written only when all ranks can. */
static accel_status_t write_named(accel_t *run, const char *name, const float *src,
                                  int64_t elems, accel_error_t *err)
{
    struct named n = { 0 };
    void *values = NULL;
    accel_status_t st = ACCEL_OK;

    if (run->loop.in_micro)
        st = accel_fail(err, A0901, "call it after accel_backward",
                        "accel_param_write in the middle of a micro-batch");
    ACCEL_TRY(st, own_units_done(run, err));
    ACCEL_TRY(st, find_named(run, name, true, &n, err));
    ACCEL_TRY(st, check_array("accel_param_write", &n, true, src, elems, err));
    if (!st && n.buffer)
        st = buffer_values(n.buffer, src, &values, err);
    st = run_agree(run, st, err);
    ACCEL_TRY(st, run_agree(run, same_call(run, name, 0, err), err));
    if (!st && n.buffer)
        st = accel_tensor_write(
            n.buffer, values, (size_t)elems * accel_dtype_bytes(n.buffer->dtype), err);
    else if (!st)
        write_part(run, &n.part, src);
    free(values);
    return st;
}

accel_status_t accel_param_write(accel_t *run, const char *name, const float *src,
                                 int64_t elems, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, run_trains(run, "accel_param_write", err));
    return state_call_end(run, write_named(run, name ? name : "", src, elems, &e), &e,
                          err);
}
