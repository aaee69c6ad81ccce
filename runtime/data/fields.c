/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets of any fields: the program's callback in, samples out; and the one entrance
 * to the samples of either kind of dataset. Keeps nothing between two samples.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "data/data_impl.h"

/* bytes of all fields of a sample */
#define SAMPLE_MAX ((int64_t)1 << 31)

static accel_status_t bad(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0708, "see accel_dataset_new in accel.h", "%s", what);
}

/* Adds the bytes of the field to *total, without overflow. */
static accel_status_t check_field(const accel_field_t *f, int64_t *total,
                                  accel_error_t *err)
{
    int64_t bytes = (int64_t)accel_dtype_array_bytes(f->dtype);

    if (bytes == 0 || f->ndim < 0 || f->ndim > 3)
        return bad(err, "every field must have a known dtype and 0 to 3 dimensions");
    for (int i = 0; i < f->ndim; i++)
        if (f->dims[i] < 1 || __builtin_mul_overflow(bytes, f->dims[i], &bytes))
            return bad(err, "every size of a field must be at least 1");
    if (bytes > SAMPLE_MAX - *total)
        return bad(err, "a sample must have at most 2 GiB");
    *total += bytes;
    return ACCEL_OK;
}

accel_status_t data_check_fields(const accel_field_t *fields, int n, accel_error_t *err)
{
    int64_t bytes = 0;
    accel_status_t st = ACCEL_OK;

    if (!fields || n < 1 || n > DATA_MAX_FIELDS)
        return bad(err, "a dataset must have 1 to 8 fields");
    for (int i = 0; i < n && st == ACCEL_OK; i++)
        st = check_field(&fields[i], &bytes, err);
    return st;
}

accel_status_t data_check_holdout(double holdout, accel_error_t *err)
{
    if (holdout >= 0 && holdout <= 0.5)
        return ACCEL_OK;
    return accel_fail(err, A0708,
                      "use a fraction below 0.5; 0.1 keeps a tenth for evaluation",
                      "holdout %g is not between 0 and 0.5", holdout);
}

/* The held-out samples are the last ones of the program's numbering. */
accel_status_t accel_dataset_new(accel_dataset_t **out, int64_t samples,
                                 const accel_field_t *fields, int n,
                                 accel_fetch_f fetch, void *user, double holdout,
                                 accel_error_t *err)
{
    accel_dataset_t *d;
    accel_status_t st;

    if (!out || !fetch)
        return bad(err, "a dataset must have a fetch function and 1 to 8 fields");
    ACCEL_CHECK(st, data_check_fields(fields, n, err));
    ACCEL_CHECK(st, data_check_holdout(holdout, err));
    if (samples < 1 || samples > (int64_t)1 << 48)
        return accel_fail(err, A0708, "pass at least one sample", "%" PRId64 " samples",
                          samples);
    d = calloc(1, sizeof(*d));
    if (!d)
        return accel_fail_nomem(err, "dataset", sizeof(*d));
    memcpy(d->field, fields, (size_t)n * sizeof(*fields));
    d->fields = n;
    d->held_out = (int64_t)floor((double)samples * holdout);
    d->samples = samples - d->held_out;
    d->fetch = fetch;
    d->threads = 1;
    d->user = user;
    *out = d;
    return ACCEL_OK;
}

int64_t accel_dataset_samples(const accel_dataset_t *d)
{
    return d ? d->samples : 0;
}

int64_t data_holdout_samples(const accel_dataset_t *d)
{
    return d->held_out;
}

int data_fields(const accel_dataset_t *d, const accel_field_t **fields_out)
{
    *fields_out = d->field;
    return d->fields;
}

/* A field without dimensions is one number. */
int64_t data_field_elems(const accel_field_t *f)
{
    int64_t n = 1;

    for (int i = 0; i < f->ndim; i++)
        n *= f->dims[i];
    return n;
}

int64_t data_field_bytes(const accel_field_t *f)
{
    return data_field_elems(f) * (int64_t)accel_dtype_bytes(f->dtype);
}

/* snprintf returns what it would have written, so n can pass len; the loops
 * stop there. */
const char *data_fields_text(const accel_dataset_t *d, char *buf, size_t len)
{
    size_t n = 0;

    buf[0] = '\0';
    for (int f = 0; f < d->fields && n < len; f++) {
        n += (size_t)snprintf(buf + n, len - n, "%s%s [", f ? ", " : "",
                              accel_dtype_name(d->field[f].dtype));
        for (int i = 0; i < d->field[f].ndim && n < len; i++)
            n += (size_t)snprintf(buf + n, len - n, "%s%" PRId64, i ? ", " : "",
                                  d->field[f].dims[i]);
        if (n < len)
            n += (size_t)snprintf(buf + n, len - n, "]");
    }
    return buf;
}

int data_seq(const accel_dataset_t *d)
{
    return d->seq;
}

/* ---- samples --------------------------------------------------------------------- */

/* `index` counts training and held-out samples together, as fetch does. */
static accel_status_t fetch_sample(const accel_dataset_t *d, int64_t index,
                                   void *const *dst, accel_error_t *err)
{
    int failed;

    if (!d->fetch)
        return data_tokens(d, index, dst[0], dst[1], err);
    failed = d->fetch(d->user, index, dst);
    if (!failed)
        return ACCEL_OK;
    return accel_fail(err, A0713, "see the messages of the program's fetch function",
                      "sample %" PRId64 " is not available: fetch returned %d", index,
                      failed);
}

/* Only a caller's mistake comes here: orders of samples stay in range. */
static accel_status_t bad_index(int64_t index, int64_t samples, const char *part,
                                accel_error_t *err)
{
    return accel_fail(
        err, A0708, "number samples from 0 to the size of the part minus 1",
        "sample %" PRId64 " of %" PRId64 " in the %s part", index, samples, part);
}

accel_status_t data_sample(const accel_dataset_t *d, int64_t index, void *const *dst,
                           accel_error_t *err)
{
    if (index < 0 || index >= d->samples)
        return bad_index(index, d->samples, "training", err);
    return fetch_sample(d, index, dst, err);
}

accel_status_t data_holdout_sample(const accel_dataset_t *d, int64_t index,
                                   void *const *dst, accel_error_t *err)
{
    if (index < 0 || index >= d->held_out)
        return bad_index(index, d->held_out, "held-out", err);
    return fetch_sample(d, d->samples + index, dst, err);
}

/* ---- digest ---------------------------------------------------------------------- */

#define PROBES 64

/* A program's samples are what it makes of their index: a few of them stand for all.
 * Each field starts at a multiple of 64 bytes of one buffer. The p-th of 64 indices is
 * total * p / probes, without overflow. */
static accel_status_t digest_samples(const accel_dataset_t *d, XXH3_state_t *h,
                                     accel_error_t *err)
{
    int64_t total = d->samples + d->held_out, bytes = 0, at = 0;
    void *dst[DATA_MAX_FIELDS];
    char text[512], *room;
    accel_status_t st = ACCEL_OK;

    for (int f = 0; f < d->fields; f++)
        bytes += data_field_bytes(&d->field[f]) + 64;
    room = calloc(1, (size_t)bytes);
    if (!room)
        return accel_fail_nomem(err, "a sample", (size_t)bytes);
    for (int f = 0; f < d->fields; f++) {
        dst[f] = room + at;
        at += (data_field_bytes(&d->field[f]) + 63) / 64 * 64;
    }
    data_fields_text(d, text, sizeof(text));
    XXH3_64bits_update(h, text, strlen(text));
    XXH3_64bits_update(h, &total, sizeof(total));
    for (int64_t p = 0; p < PROBES && p < total && !st; p++) {
        int64_t probes = total < PROBES ? total : PROBES;

        st =
            fetch_sample(d, total / probes * p + total % probes * p / probes, dst, err);
        for (int f = 0; f < d->fields && !st; f++)
            XXH3_64bits_update(h, dst[f], (size_t)data_field_bytes(&d->field[f]));
    }
    free(room);
    return st;
}

/* The seed of the hash is fixed: the digest is stored in checkpoints. */
accel_status_t data_digest(const accel_dataset_t *d, uint64_t *digest_out,
                           accel_error_t *err)
{
    XXH3_state_t *h = XXH3_createState();
    accel_status_t st;

    if (!h)
        return accel_fail_nomem(err, "hash state", 1024);
    XXH3_64bits_reset(h);
    st = d->fetch ? digest_samples(d, h, err) : data_tokens_digest(d, h, err);
    if (!st)
        *digest_out = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return st;
}
