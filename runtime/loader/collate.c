/* SPDX-License-Identifier: Apache-2.0
 *
 * Padding and collate functions: see collate.h.
 */
#include <inttypes.h>
#include <string.h>

#include "loader/collate.h"

static accel_status_t bad_pad(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0930, "see struct accel_loader_options in accel_loaders.h",
                      "%s", what);
}

accel_status_t collate_open(struct collate *c, const accel_loader_options_t *o,
                            const accel_field_t *field, int fields, accel_error_t *err)
{
    *c = (struct collate){ .length = o->length,
                           .pad = o->pad,
                           .multiple = o->pad_multiple > 0 ? o->pad_multiple : 1,
                           .own = o->collate,
                           .user = o->user };
    if (o->pad_multiple < 0)
        return bad_pad(err, "pad_multiple must not be negative");
    if (c->pad == 0)
        return ACCEL_OK;
    if (!c->length)
        return bad_pad(err, "padded fields need a length function");
    if (c->pad >> fields != 0)
        return bad_pad(err, "pad names a field that the dataset does not have");
    for (int f = 0; f < fields; f++) {
        if (!(c->pad >> f & 1))
            continue;
        if (field[f].ndim < 1)
            return bad_pad(err, "a padded field must have a dimension");
        if (!element_of(&c->fill[f], field[f].dtype, o->pad_value[f]))
            return accel_fail(err, A0930, "pad with a value of the field's dtype",
                              "pad_value[%d]: %s does not have the value %g", f,
                              accel_dtype_name(field[f].dtype), o->pad_value[f]);
    }
    return ACCEL_OK;
}

/* ---- padding --------------------------------------------------------------------- */

/* The length of a batch: that of its longest sample, rounded up, at most the
 * field's. */
static int64_t batch_length(const struct collate *c, const accel_field_t *field,
                            const int64_t *lengths, int count)
{
    int64_t longest = 1;

    for (int i = 0; i < count; i++)
        longest = lengths[i] > longest ? lengths[i] : longest;
    longest = (longest + c->multiple - 1) / c->multiple * c->multiple;
    return longest < field->dims[0] ? longest : field->dims[0];
}

/* Moves the samples of a field together, front to back: a sample never comes to lie
 * after where it was. */
static void trim_field(const struct collate *c, int f, const accel_field_t *field,
                       const int64_t *lengths, accel_batch_t *batch)
{
    int64_t rows = batch_length(c, field, lengths, batch->count);
    int64_t row_elems = data_field_elems(field) / field->dims[0];
    size_t elem = accel_dtype_bytes(field->dtype);
    size_t row = (size_t)row_elems * elem, was = row * (size_t)field->dims[0];
    char *data = batch->field[f].data;

    for (int i = 0; i < batch->count; i++) {
        int64_t own = lengths[i] < rows ? lengths[i] : rows;
        char *to = data + (size_t)(i * rows) * row;

        memmove(to, data + (size_t)i * was, (size_t)own * row);
        element_fill(to + (size_t)own * row, field->dtype, &c->fill[f],
                     (size_t)((rows - own) * row_elems));
    }
    batch->field[f].dims[1] = rows;
}

static accel_status_t find_lengths(const struct collate *c, const struct host_batch *b,
                                   const accel_field_t *field, int fields,
                                   const accel_batch_t *batch, int64_t *lengths,
                                   accel_error_t *err)
{
    void *sample[DATA_MAX_FIELDS];

    for (int i = 0; i < batch->count; i++) {
        host_batch_sample(b, field, fields, i, sample);
        lengths[i] = c->length(c->user, batch->index[i], sample);
        if (lengths[i] < 0)
            return accel_fail(err, A0931, "check the length function of the loader",
                              "the length function gave %" PRId64
                              " for sample %" PRId64,
                              lengths[i], batch->index[i]);
    }
    return ACCEL_OK;
}

/* ---- the program's own ----------------------------------------------------------- */

/* What a collate function leaves must fit into the room of its field. */
static accel_status_t check_batch(const accel_batch_t *batch, int count,
                                  const accel_field_t *field, accel_error_t *err)
{
    for (int f = 0; f < batch->fields; f++) {
        const struct accel_batch_field *b = &batch->field[f];
        int64_t room = data_field_elems(&field[f]), elems = 1;
        bool fits = b->ndim >= 1 && b->ndim <= 4 && b->dims[0] == count;

        for (int i = 1; fits && i < b->ndim; i++)
            fits = b->dims[i] >= 1 && b->dims[i] <= room &&
                   !__builtin_mul_overflow(elems, b->dims[i], &elems);
        if (!fits || elems > room)
            return accel_fail(err, A0931, "see accel_collate_f in accel_loaders.h",
                              "collate left field %d with dims that do not fit", f);
    }
    return ACCEL_OK;
}

accel_status_t collate_batch(const struct collate *c, const struct host_batch *b,
                             const accel_field_t *field, int fields, int count,
                             const int64_t *index, int64_t *lengths,
                             accel_batch_t *batch, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    int failed;

    batch->count = count;
    batch->fields = fields;
    batch->index = index;
    for (int f = 0; f < fields; f++) {
        batch->field[f] = (struct accel_batch_field){
            .data = b->memory + b->at[f],
            .dtype = field[f].dtype,
            .ndim = field[f].ndim + 1,
            .dims = { count, field[f].dims[0], field[f].dims[1], field[f].dims[2] }
        };
    }
    if (c->pad)
        st = find_lengths(c, b, field, fields, batch, lengths, err);
    for (int f = 0; f < fields && st == ACCEL_OK; f++)
        if (c->pad >> f & 1)
            trim_field(c, f, &field[f], lengths, batch);
    if (!c->own || st != ACCEL_OK)
        return st;
    failed = c->own(c->user, batch);
    if (failed)
        return accel_fail(
            err, A0931, "see the messages of the program's collate function",
            "a batch of %d samples cannot be made: collate returned %d", count, failed);
    return check_batch(batch, count, field, err);
}
