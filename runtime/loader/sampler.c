/* SPDX-License-Identifier: Apache-2.0
 *
 * Samplers: see sampler.h.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/rng.h"
#include "data/data.h"
#include "loader/sampler.h"
#include "loader/torch_random.h"

/* A sample with what it is sorted by. */
struct sampler_bucket {
    double key;
    int64_t sample;
};

const char *sampler_name(accel_sampler_t kind)
{
    static const char *const name[] = { "keyed", "sequential", "torch", "weighted",
                                        "own" };

    return name[kind];
}

/* ---- sorting --------------------------------------------------------------------- */

/* Merges two sorted halves; of equal keys the one of the left half comes first. */
static void merge(const struct sampler_bucket *from, int64_t left, int64_t middle,
                  int64_t right, struct sampler_bucket *to)
{
    int64_t a = left, b = middle;

    for (int64_t i = left; i < right; i++) {
        bool take_left = a < middle && (b >= right || from[a].key <= from[b].key);

        to[i] = take_left ? from[a++] : from[b++];
    }
}

/* Sorts list[n] by key, stably, with room for as many after it. qsort may allocate. */
static void sort_by_key(struct sampler_bucket *list, int64_t n)
{
    struct sampler_bucket *from = list, *to = list + n;

    for (int64_t width = 1; width < n; width *= 2) {
        struct sampler_bucket *swap = from;

        for (int64_t at = 0; at < n; at += 2 * width) {
            int64_t middle = at + width < n ? at + width : n;
            int64_t right = middle + width < n ? middle + width : n;

            merge(from, at, middle, right, to);
        }
        from = to;
        to = swap;
    }
    if (from != list)
        memcpy(list, from, (size_t)n * sizeof(*list));
}

/* ---- opening --------------------------------------------------------------------- */

static accel_status_t bad_sampler(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0930, "see struct accel_loader_options in accel_loaders.h",
                      "%s", what);
}

/* Sums in the order of the samples, so that they are the same on all ranks. */
static accel_status_t take_weights(struct sampler *s, const double *weights,
                                   accel_error_t *err)
{
    double sum = 0;
    int64_t positive = 0;

    if (!weights)
        return bad_sampler(err, "the weighted sampler needs weights");
    s->sums = malloc((size_t)s->population * sizeof(*s->sums));
    if (!s->sums)
        return accel_fail_nomem(err, "weights of samples",
                                (size_t)s->population * sizeof(*s->sums));
    for (int64_t i = 0; i < s->population; i++) {
        if (!(weights[i] >= 0) || !isfinite(weights[i]))
            return bad_sampler(err, "weights must be finite and not negative");
        sum += weights[i];
        positive += weights[i] > 0;
        s->sums[i] = sum;
    }
    if (positive == 0 || !isfinite(sum))
        return bad_sampler(err, "a weight must be above 0, and their sum finite");
    if (s->once && s->places > positive)
        return bad_sampler(err, "an epoch without replacement has more samples than "
                                "there are weights above 0");
    return ACCEL_OK;
}

/* Room for `n` entries to sort. */
static struct sampler_bucket *sort_room(int64_t n)
{
    return malloc(2 * (size_t)n * sizeof(struct sampler_bucket));
}

size_t sampler_bytes(const struct sampler *s)
{
    size_t population = (size_t)s->population, entry = sizeof(struct sampler_bucket);
    size_t bytes = s->table ? population * sizeof(*s->table) : 0;

    bytes += s->sums ? population * sizeof(*s->sums) : 0;
    bytes += s->keys ? 2 * population * entry : 0;
    return bytes + (s->sorted ? 2 * (size_t)s->bucket * entry : 0);
}

static accel_status_t make_tables(struct sampler *s, accel_error_t *err)
{
    bool table = s->kind == ACCEL_SAMPLER_TORCH || (s->sums && s->once);

    if (table) {
        s->table = malloc((size_t)s->population * sizeof(*s->table));
        s->keys = s->sums ? sort_room(s->population) : NULL;
    }
    if (s->bucket > 0)
        s->sorted = sort_room(s->bucket);
    if ((table && !s->table) || (table && s->sums && !s->keys) ||
        (s->bucket > 0 && !s->sorted))
        return accel_fail_nomem(err, "the order of samples",
                                (size_t)s->population * sizeof(*s->table));
    return ACCEL_OK;
}

static accel_status_t check_sampler(const struct sampler *s,
                                    const accel_loader_options_t *o, accel_error_t *err)
{
    bool chosen = s->kind == ACCEL_SAMPLER_WEIGHTED || s->kind == ACCEL_SAMPLER_OWN;

    if (s->kind < ACCEL_SAMPLER_KEYED || s->kind > ACCEL_SAMPLER_OWN)
        return bad_sampler(err, "an unknown sampler");
    if (s->kind == ACCEL_SAMPLER_OWN && !s->index)
        return bad_sampler(err, "ACCEL_SAMPLER_OWN needs an index function");
    if (o->samples < 0 || (o->samples > 0 && !chosen))
        return bad_sampler(err, "samples per epoch can be set for the weighted and the "
                                "own sampler only, to at least 1");
    if (s->kind == ACCEL_SAMPLER_TORCH && s->population >= TORCH_PERMUTATION_MAX)
        return bad_sampler(err, "torch's order is a table, which holds at most "
                                "214 748 363 samples; the keyed order has no limit");
    if (s->bucket < 0 || (s->bucket > 0 && !s->length))
        return bad_sampler(err, "buckets need a length function and a size of at "
                                "least 1");
    return ACCEL_OK;
}

accel_status_t sampler_open(struct sampler *s, const accel_loader_options_t *o,
                            int64_t population, accel_error_t *err)
{
    accel_status_t st;

    *s = (struct sampler){ .kind = o->sampler,
                           .seed = o->seed,
                           .population = population,
                           .places = o->samples > 0 ? o->samples : population,
                           .index = o->index,
                           .length = o->length,
                           .user = o->user,
                           .once = o->once,
                           .epoch = -1,
                           .bucket = o->bucket,
                           .bucket_at = -1 };
    st = check_sampler(s, o, err);
    if (s->bucket > s->places)
        s->bucket = s->places;
    if (st == ACCEL_OK && s->kind == ACCEL_SAMPLER_WEIGHTED)
        st = take_weights(s, o->weights, err);
    return st == ACCEL_OK ? make_tables(s, err) : st;
}

void sampler_close(struct sampler *s)
{
    free(s->table);
    free(s->sums);
    free(s->keys);
    free(s->sorted);
    *s = (struct sampler){ 0 };
}

/* ---- orders ---------------------------------------------------------------------- */

/* 53 random bits of draw `at` of this epoch, in (0, 1). */
static double draw_unit(const struct sampler *s, int64_t at)
{
    uint32_t r[4];

    rng_block(s->seed, (uint64_t)s->epoch, (uint64_t)at, r);
    return ((double)(((uint64_t)r[0] << 32 | r[1]) >> 11) + 0.5) * 0x1p-53;
}

/* Draws without replacement: the order of exponential variates with rates `weights`
 * (Efraimidis and Spirakis 2006). torch does the same with its own generator, but draws
 * them with vector instructions that differ between machines. */
static void draw_once(struct sampler *s)
{
    for (int64_t i = 0; i < s->population; i++) {
        double w = i > 0 ? s->sums[i] - s->sums[i - 1] : s->sums[0];

        s->keys[i] =
            (struct sampler_bucket){ w > 0 ? -log(draw_unit(s, i)) / w : INFINITY, i };
    }
    sort_by_key(s->keys, s->population);
    for (int64_t i = 0; i < s->population; i++)
        s->table[i] = s->keys[i].sample;
}

void sampler_begin(struct sampler *s, int64_t epoch)
{
    if (s->epoch == epoch)
        return;
    s->epoch = epoch;
    s->bucket_at = -1;
    if (s->kind == ACCEL_SAMPLER_TORCH)
        torch_permutation(s->seed + (uint64_t)epoch, s->population, s->table);
    else if (s->table)
        draw_once(s);
}

/* The first sample whose sum is above the drawn part of all weights: one without weight
 * is never met. */
static int64_t draw_with(const struct sampler *s, int64_t place)
{
    double x = draw_unit(s, place) * s->sums[s->population - 1];
    int64_t low = 0, high = s->population - 1;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (s->sums[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The order before buckets. Negative: the index function failed. */
static int64_t order_at(const struct sampler *s, int64_t place)
{
    switch (s->kind) {
    case ACCEL_SAMPLER_SEQUENTIAL:
        return place;
    case ACCEL_SAMPLER_OWN:
        return s->index(s->user, s->epoch, place);
    case ACCEL_SAMPLER_TORCH:
    case ACCEL_SAMPLER_WEIGHTED:
        return s->table ? s->table[place] : draw_with(s, place);
    default:
        /* an order without an end continues with the next epoch */
        return data_permute(s->seed, s->epoch + place / s->population, s->population,
                            place % s->population);
    }
}

static accel_status_t checked_at(const struct sampler *s, int64_t place,
                                 int64_t *index_out, accel_error_t *err)
{
    int64_t index = order_at(s, place);

    if (index < 0 || index >= s->population)
        return accel_fail(err, A0931, "check the index function of the loader",
                          "the index function gave sample %" PRId64 " of %" PRId64
                          " for place %" PRId64 " of epoch %" PRId64,
                          index, s->population, place, s->epoch);
    *index_out = index;
    return ACCEL_OK;
}

/* Sorts the bucket that `place` is in, the longest first. */
static accel_status_t fill_bucket(struct sampler *s, int64_t bucket, accel_error_t *err)
{
    int64_t first = bucket * s->bucket, n = s->places - first;
    accel_status_t st = ACCEL_OK;

    s->bucket_at = -1;
    n = n < s->bucket ? n : s->bucket;
    for (int64_t i = 0; i < n && st == ACCEL_OK; i++) {
        int64_t length, sample = 0;

        ACCEL_CHECK(st, checked_at(s, first + i, &sample, err));
        length = s->length(s->user, sample, NULL);
        if (length < 0)
            return accel_fail(err, A0931, "check the length function of the loader",
                              "the length function gave %" PRId64
                              " for sample %" PRId64,
                              length, sample);
        s->sorted[i] = (struct sampler_bucket){ -(double)length, sample };
    }
    sort_by_key(s->sorted, n);
    s->bucket_at = bucket;
    return st;
}

accel_status_t sampler_at(struct sampler *s, int64_t place, int64_t *index_out,
                          accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (!s->sorted)
        return checked_at(s, place, index_out, err);
    if (place / s->bucket != s->bucket_at)
        st = fill_bucket(s, place / s->bucket, err);
    if (st == ACCEL_OK)
        *index_out = s->sorted[place % s->bucket].sample;
    return st;
}
