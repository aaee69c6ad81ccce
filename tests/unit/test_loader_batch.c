/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in a batch: samples of different length, buckets, collate functions, weighted
 * and own orders, the held-out part, float values in the compute dtype, and ranks that
 * join without a sample of their own.
 */
#include <math.h>
#include <string.h>

#include "loader/loader.h"
#include "numbers/bf16.h"
#include "numbers/floats.h"
#include "data/data.h"
#include "tests/tap.h"
#include "tests/world/loader_world.h"

enum { SAMPLES = 40, LONGEST = 8 };

static struct loader_rig rig;

/* Sample i: its number, and 1 + i * 7 % 8 rows of two floats i + row / 16. */
static int64_t rows_of(int64_t i)
{
    return 1 + i * 7 % LONGEST;
}

static int ragged_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    *(int32_t *)dst[0] = (int32_t)index;
    for (int64_t row = 0; row < rows_of(index); row++)
        for (int k = 0; k < 2; k++)
            ((float *)dst[1])[row * 2 + k] = (float)index + (float)row / 16;
    return 0;
}

static int64_t ragged_length(void *user, int64_t index, void *const *sample)
{
    if (user && index == *(int64_t *)user)
        return -1;
    return rows_of(sample ? *(int32_t *)sample[0] : index);
}

static accel_dataset_t *ragged(double holdout)
{
    static const accel_field_t field[2] = { { .dtype = ACCEL_I32 },
                                            { ACCEL_F32, 2, { LONGEST, 2 } } };
    accel_dataset_t *d = NULL;

    tap_ok(!accel_dataset_new(&d, SAMPLES, field, 2, ragged_fetch, NULL, holdout, NULL),
           "a dataset");
    return d;
}

/* None of it is held out. */
static accel_dataset_t *whole;

static struct accel_loader *ragged_open(accel_dataset_t *d, accel_loader_options_t o)
{
    struct accel_loader *l = NULL;
    accel_error_t err = { 0 };

    if (loader_open(&l, &rig.place, "ragged", d, &o, &err))
        tap_ok(false, "open: %s", err.text);
    return l;
}

/* False at the end of the epoch, or after a failure, which is in err. */
static bool next_of(struct accel_loader *l, accel_tensor_t **t, accel_error_t *err)
{
    bool got = false;

    graph_reset(&rig.g);
    return !loader_advance(l, &got, err) && got && !loader_tensors(l, t, err);
}

static int32_t number_in(const accel_tensor_t *t, int64_t i)
{
    return ((int32_t *)t->data)[i];
}

/* ---- samples of different length -------------------------------------------------- */

/* Every value of a padded batch. Returns the wrong ones. */
static int wrong_values(const accel_tensor_t *number, const accel_tensor_t *t,
                        float pad)
{
    int wrong = 0;

    for (int64_t i = 0; i < t->dim[0]; i++)
        for (int64_t row = 0; row < t->dim[1]; row++)
            for (int64_t k = 0; k < 2; k++) {
                float v = ((float *)t->data)[(i * t->dim[1] + row) * 2 + k];
                int32_t n = number_in(number, i);

                wrong += v != (row < rows_of(n) ? (float)n + (float)row / 16 : pad);
            }
    return wrong;
}

static int64_t longest_of(const accel_tensor_t *number)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < number->elems; i++)
        if (rows_of(number_in(number, i)) > longest)
            longest = rows_of(number_in(number, i));
    return longest;
}

static void test_padding(void)
{
    struct accel_loader *l =
        ragged_open(whole, (accel_loader_options_t){ .batch = 3,
                                                     .seed = 3,
                                                     .length = ragged_length,
                                                     .pad = 1 << 1,
                                                     .pad_value = { 0, -5 } });
    accel_error_t err = { 0 };
    accel_tensor_t *t[2];
    int wrong = 0, lengths = 0, batches = 0;

    for (; next_of(l, t, &err); batches++) {
        wrong += wrong_values(t[0], t[1], -5);
        lengths += t[1]->dim[1] != longest_of(t[0]) || t[1]->ndim != 3;
    }
    tap_is_int(batches, 14, "batches of samples of different length");
    tap_is_int(wrong, 0, "their values, and -5 behind them");
    tap_is_int(lengths, 0, "each batch is as long as its longest sample");
    loader_free(l);
    l = ragged_open(whole, (accel_loader_options_t){ .batch = 3,
                                                     .length = ragged_length,
                                                     .pad = 1 << 1,
                                                     .pad_multiple = 3 });
    for (lengths = 0; next_of(l, t, &err);)
        lengths += t[1]->dim[1] != fmin(8, (double)((longest_of(t[0]) + 2) / 3 * 3));
    tap_is_int(lengths, 0, "to a multiple of 3, at most the field's 8");
    loader_free(l);
}

/* One sample is as long as its field, the other has no row: what it gets is the pad. */
static int64_t all_or_none(void *user, int64_t index, void *const *sample)
{
    (void)user;
    (void)sample;
    return index % 2 ? 0 : LONGEST;
}

static int zeros_fetch(void *user, int64_t index, void *const *dst)
{
    (void)index;
    memset(dst[0], 0, LONGEST * accel_dtype_bytes(*(const accel_dtype_t *)user));
    return 0;
}

/* The loader of two samples of `dtype`; NULL: refused. */
static struct accel_loader *padded_open(accel_dataset_t **d, const accel_dtype_t *dtype,
                                        double pad, accel_error_t *err)
{
    const accel_field_t field = { *dtype, 1, { LONGEST } };
    accel_loader_options_t o = { .batch = 2,
                                 .sampler = ACCEL_SAMPLER_SEQUENTIAL,
                                 .length = all_or_none,
                                 .pad = 1,
                                 .pad_value = { pad } };
    struct accel_loader *l = NULL;

    if (accel_dataset_new(d, 2, &field, 1, zeros_fetch, (void *)(uintptr_t)dtype, 0,
                          err) ||
        loader_open(&l, &rig.place, "padded", *d, &o, err))
        return NULL;
    return l;
}

static double value_of(const accel_tensor_t *t, int64_t i)
{
    switch (t->dtype) {
    case ACCEL_I64:
        return (double)((int64_t *)t->data)[i];
    case ACCEL_I32:
        return ((int32_t *)t->data)[i];
    case ACCEL_U16:
        return ((uint16_t *)t->data)[i];
    case ACCEL_I8:
        return ((int8_t *)t->data)[i];
    case ACCEL_U8:
        return ((uint8_t *)t->data)[i];
    case ACCEL_F64:
        return ((double *)t->data)[i];
    default: {
        float v = NAN;

        floats_widen(&v, (char *)t->data + i * (int64_t)accel_dtype_bytes(t->dtype),
                     t->dtype, 1);
        return (double)v;
    }
    }
}

/* Least and largest value of each dtype that pads, and what integers refuse. */
static void test_pad_values(void)
{
    static const struct {
        accel_dtype_t dtype;
        double least, largest, beyond[3];
    } row[] = {
        { ACCEL_I8, -128, 127, { -129, 128, 0.5 } },
        { ACCEL_U8, 0, 255, { -1, 256, NAN } },
        { ACCEL_U16, 0, 65535, { -1, 65536, 1.5 } },
        { ACCEL_I32, -0x1p31, 0x1p31 - 1, { -0x1p31 - 1, 0x1p31, -0.25 } },
        { ACCEL_I64, -0x1p53, 0x1p53, { -0x1p63, 0x1p53 + 2, INFINITY } },
        { ACCEL_BF16, -0x1p127, 1.5, { 0 } },
        { ACCEL_F16, -65504, INFINITY, { 0 } },
        { ACCEL_F32, -0x1p127, 0.25, { 0 } },
        { ACCEL_F64, -0x1p100, 0.25, { 0 } },
    };

    for (size_t r = 0; r < sizeof(row) / sizeof(row[0]); r++) {
        const double pad[2] = { row[r].least, row[r].largest };
        int wrong = 0, accepted = 0;
        accel_error_t err = { 0 };

        for (int i = 0; i < (row[r].beyond[0] != 0 ? 5 : 2); i++) {
            const double by = i < 2 ? pad[i] : row[r].beyond[i - 2];
            accel_dataset_t *d = NULL;
            accel_tensor_t *t[1] = { NULL };
            struct accel_loader *l = padded_open(&d, &row[r].dtype, by, &err);
            bool got = l && i < 2 && next_of(l, t, &err);

            if (i < 2)
                wrong += !got;
            else
                accepted += l || !strstr(err.text, "does not have the value");
            for (int64_t at = 0; got && at < 2 * LONGEST; at++)
                wrong += value_of(t[0], at) != (at < LONGEST ? 0 : by);
            loader_free(l);
            accel_dataset_close(d);
        }
        tap_ok(wrong == 0 && accepted == 0, "%s pads with %g and %g%s%s",
               accel_dtype_name(row[r].dtype), pad[0], pad[1],
               row[r].beyond[0] != 0 ? ": " : "",
               row[r].beyond[0] != 0 ? err.text : "");
    }
}

/* The numbers of an epoch in their order. */
static int epoch_order(struct accel_loader *l, int order_out[SAMPLES])
{
    accel_tensor_t *t[2];
    accel_error_t err = { 0 };
    int n = 0;

    while (next_of(l, t, &err))
        for (int64_t i = 0; i < t[0]->elems && n < SAMPLES; i++)
            order_out[n++] = number_in(t[0], i);
    return n;
}

/* What buckets of that size make of an order: each stable, the longest first. */
static void sort_buckets(int order[SAMPLES], int bucket)
{
    for (int first = 0; first < SAMPLES; first += bucket)
        for (int i = first; i < SAMPLES && i < first + bucket; i++)
            for (int k = i; k > first && rows_of(order[k]) > rows_of(order[k - 1]);
                 k--) {
                const int swap = order[k];

                order[k] = order[k - 1];
                order[k - 1] = swap;
            }
}

/* In every epoch; sizes that do not divide the samples, and those around all of them. */
static void test_bucket_sizes(void)
{
    static const int sizes[] = { 1, 2, 7, 10, SAMPLES - 1, SAMPLES, SAMPLES + 1 };
    enum { EPOCHS = 3 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(sizes); i++) {
        accel_loader_options_t o = { .batch = 4, .seed = 3, .length = ragged_length };
        struct accel_loader *plain = ragged_open(whole, o), *sorted;
        int want[EPOCHS][SAMPLES], got[SAMPLES], wrong = 0;

        o.bucket = sizes[i];
        sorted = ragged_open(whole, o);
        for (int e = 0; e < EPOCHS; e++) {
            wrong += epoch_order(plain, want[e]) != SAMPLES;
            sort_buckets(want[e], sizes[i]);
            wrong += epoch_order(sorted, got) != SAMPLES;
            wrong += memcmp(got, want[e], sizeof(got)) != 0;
            wrong += e > 0 && memcmp(want[e], want[e - 1], sizeof(got)) == 0;
        }
        tap_is_int(wrong, 0, "buckets of %d, in %d epochs", sizes[i], EPOCHS);
        loader_free(plain);
        loader_free(sorted);
    }
}

static void test_bad_length(void)
{
    int64_t bad = 17;
    accel_loader_options_t o = {
        .batch = 10, .seed = 3, .length = ragged_length, .bucket = 10, .user = &bad
    };
    struct accel_loader *sorted = ragged_open(whole, o);
    accel_error_t err = { 0 };
    accel_tensor_t *t[2];

    while (next_of(sorted, t, &err))
        continue;
    tap_ok(err.code == ACCEL_EIO && strstr(err.text, "length function gave -1"), "%s",
           err.text);
    rig.failure.failed = false;
    loader_free(sorted);
}

/* ---- collate functions ------------------------------------------------------------ */

/* Keeps one float per sample, their sum, as a vector; user: what it returns. */
static int sum_rows(void *user, accel_batch_t *batch)
{
    struct accel_batch_field *f = &batch->field[1];
    float *data = f->data;
    int64_t each = f->dims[1] * f->dims[2];

    for (int i = 0; i < batch->count; i++) {
        float sum = 0;

        for (int64_t k = 0; k < rows_of(batch->index[i]) * 2; k++)
            sum += data[i * each + k];
        data[i] = sum;
    }
    f->ndim = 1;
    if (*(int *)user == 2)
        f->dims[0]++;
    return *(int *)user == 1;
}

static void test_collate(void)
{
    int what = 0;
    accel_loader_options_t o = { .batch = 4, .collate = sum_rows, .user = &what };
    struct accel_loader *l = ragged_open(whole, o);
    accel_error_t err = { 0 };
    accel_tensor_t *t[2] = { NULL };
    int wrong = 0;

    while (next_of(l, t, &err))
        for (int64_t i = 0; i < t[0]->elems; i++) {
            int32_t n = number_in(t[0], i);
            double rows = (double)rows_of(n);

            wrong +=
                t[1]->ndim != 1 || ((float *)t[1]->data)[i] !=
                                       (float)(2 * (n * rows + rows * (rows - 1) / 32));
        }
    tap_is_int(wrong, 0, "a collate function makes the batch");
    for (what = 1; what <= 2; what++) {
        next_of(l, t, &err);
        tap_ok(err.code == ACCEL_EIO && strstr(err.text, "collate"), "%s", err.text);
        rig.failure.failed = false;
        accel_loader_set_epoch(l, 0, &err);
        err = (accel_error_t){ 0 };
    }
    loader_free(l);
}

/* ---- orders ------------------------------------------------------------------------ */

/* Draws by weights 0, 1, 2, 3, 0 ... of 10 000 samples. */
static void test_weighted(void)
{
    double weights[SAMPLES] = { 0, 1, 2, 3 };
    accel_loader_options_t o = { .batch = 100,
                                 .sampler = ACCEL_SAMPLER_WEIGHTED,
                                 .samples = 10000,
                                 .weights = weights,
                                 .seed = 9 };
    struct accel_loader *l = ragged_open(whole, o);
    int hits[SAMPLES] = { 0 }, others = 0, twice = 0, first_three = 0;
    accel_error_t err = { 0 };
    accel_tensor_t *t[2];

    while (next_of(l, t, &err))
        for (int i = 0; i < 100; i++)
            hits[number_in(t[0], i)]++;
    for (int i = 4; i < SAMPLES; i++)
        others += hits[i];
    tap_is_int(hits[0] + others, 0, "nothing without weight");
    for (int i = 1; i <= 3; i++)
        tap_is_close(hits[i], 10000.0 * i / 6, 0.06, "weight %d of 6", i);
    loader_free(l);
    for (int i = 0; i < SAMPLES; i++)
        weights[i] = i == 3 ? 1e6 : 1;
    o.once = 1;
    o.samples = 0;
    o.batch = SAMPLES;
    l = ragged_open(whole, o);
    for (int epoch = 0; epoch < 20; epoch++) {
        memset(hits, 0, sizeof(hits));
        next_of(l, t, &err);
        for (int i = 0; i < SAMPLES; i++)
            twice += hits[number_in(t[0], i)]++;
        first_three += number_in(t[0], 0) == 3;
        next_of(l, t, &err);
    }
    tap_is_int(twice, 0, "without replacement each comes once");
    tap_is_int(first_three, 20, "the heaviest first");
    loader_free(l);
}

static int64_t backwards(void *user, int64_t epoch, int64_t place)
{
    return *(int *)user ? SAMPLES : (SAMPLES - 1 - place + epoch) % SAMPLES;
}

static void test_own_order(void)
{
    int beyond = 0;
    accel_loader_options_t o = { .batch = 2,
                                 .sampler = ACCEL_SAMPLER_OWN,
                                 .samples = 4,
                                 .index = backwards,
                                 .user = &beyond };
    struct accel_loader *l = ragged_open(whole, o);
    accel_error_t err = { 0 };
    accel_tensor_t *t[2];

    tap_is_int(accel_loader_length(l), 2, "an epoch of 4 of 40 samples");
    next_of(l, t, &err);
    tap_ok(number_in(t[0], 0) == 39 && number_in(t[0], 1) == 38, "from the end");
    accel_loader_set_epoch(l, 3, &err);
    next_of(l, t, &err);
    tap_is_int(number_in(t[0], 0), 2, "it knows the epoch");
    accel_loader_set_epoch(l, 0, &err);
    beyond = 1;
    next_of(l, t, &err);
    tap_ok(err.code == ACCEL_EIO && strstr(err.text, "gave sample 40 of 40"), "%s",
           err.text);
    rig.failure.failed = false;
    loader_free(l);
}

static void test_held_out(void)
{
    accel_dataset_t *d = ragged(0.25);
    accel_loader_options_t o = { .batch = 4,
                                 .sampler = ACCEL_SAMPLER_SEQUENTIAL,
                                 .held_out = 1 };
    struct accel_loader *l = ragged_open(d, o);
    accel_error_t err = { 0 };
    accel_tensor_t *t[2];
    int batches = 0, first = -1, last = -1;

    for (; next_of(l, t, &err); batches++) {
        first = first < 0 ? number_in(t[0], 0) : first;
        last = number_in(t[0], t[0]->elems - 1);
    }
    tap_ok(batches == 3 && first == 30 && last == 39, "the held-out part: %d to %d",
           first, last);
    loader_free(l);
    accel_dataset_close(d);
}

/* ---- compute dtype ----------------------------------------------------------------- */

static void test_bf16(void)
{
    struct loader_rig other;
    struct accel_loader *l = NULL;
    accel_loader_options_t o = { .batch = 40, .sampler = ACCEL_SAMPLER_SEQUENTIAL };
    accel_error_t err = { 0 };
    accel_tensor_t *t[2];
    int wrong = 0;
    bool got;

    if (loader_rig_open(&other, NULL, ACCEL_BF16) ||
        loader_open(&l, &other.place, "bf16", whole, &o, &err) ||
        loader_advance(l, &got, &err) || loader_tensors(l, t, &err)) {
        tap_ok(false, "bfloat16: %s", err.text);
        return;
    }
    for (int i = 0; i < SAMPLES; i++) {
        float v = (float)i;
        bf16_t want;

        bf16_narrow(&want, &v, 1);
        wrong += memcmp((bf16_t *)t[1]->data + i * LONGEST * 2, &want, 2) != 0;
    }
    tap_ok(t[1]->dtype == ACCEL_BF16 && t[0]->dtype == ACCEL_I32 && wrong == 0,
           "float fields in the compute dtype");
    loader_free(l);
    loader_rig_close(&other);
}

enum { WIDE = 3000 };

static int wide_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    for (int i = 0; i < WIDE; i++) {
        float v = (float)(index + i % 200);

        bf16_narrow((bf16_t *)dst[0] + i, &v, 1);
    }
    return 0;
}

/* Wider than the pieces in which values are converted. */
static void test_widened(void)
{
    static const accel_field_t field = { ACCEL_BF16, 1, { WIDE } };
    accel_loader_options_t o = { .batch = 2, .sampler = ACCEL_SAMPLER_SEQUENTIAL };
    accel_dataset_t *d = NULL;
    struct accel_loader *l;
    accel_error_t err = { 0 };
    accel_tensor_t *t[1];
    int wrong = 0;

    accel_dataset_new(&d, 2, &field, 1, wide_fetch, NULL, 0, &err);
    l = ragged_open(d, o);
    if (!tap_ok(next_of(l, t, &err) && t[0]->dtype == ACCEL_F32, "bfloat16 samples"))
        return;
    for (int i = 0; i < 2 * WIDE; i++)
        wrong += ((float *)t[0]->data)[i] != (float)(i / WIDE + i % WIDE % 200);
    tap_is_int(wrong, 0, "arrive as float32");
    loader_free(l);
    accel_dataset_close(d);
}

/* ---- joining ----------------------------------------------------------------------- */

/* 5 samples, 2 a batch, 3 ranks: the last has a batch that does not count. */
static int joining_rank(struct boot *b, void *arg)
{
    struct counter counter = { .samples = 5, .fails = -1 };
    const accel_loader_options_t o = { .batch = 2,
                                       .sampler = ACCEL_SAMPLER_SEQUENTIAL,
                                       .dispatch_batches = *(accel_dispatch_t *)arg,
                                       .uneven = 1,
                                       .join = 1 };
    static const int first[] = { 0, 2, 4 };
    accel_dataset_t *d = counter_numbered(&counter, 1);
    struct accel_loader *l = NULL;
    accel_error_t err = { 0 };
    struct loader_rig r;
    int got[2], count;

    if (loader_rig_open(&r, b, ACCEL_F32))
        return 1;
    EXPECT(!loader_open(&l, &r.place, "join", d, &o, &err), "%s", err.text);
    EXPECT(accel_loader_length(l) == 1, "length");
    count = loader_batch(&r, l, got, 2, &err);
    EXPECT(count == (b->rank == 2 ? 1 : 2) && loader_state(l).real == count &&
               got[0] == first[b->rank],
           "%d samples from %d: %s", count, got[0], err.text);
    EXPECT(loader_batch(&r, l, got, 2, &err) == -2, "the end");
    accel_dataset_close(d);
    loader_free(l);
    counter.samples = 4;
    d = counter_numbered(&counter, 1);
    EXPECT(d && !loader_open(&l, &r.place, "join", d, &o, &err), "%s", err.text);
    count = loader_batch(&r, l, got, 2, &err);
    if (b->rank == 2)
        EXPECT(count == 1 && got[0] == 0 && loader_state(l).real == 0, "no sample: %d",
               count);
    else
        EXPECT(count > 0 && loader_state(l).real == count, "%d samples", count);
    EXPECT(loader_batch(&r, l, got, 2, &err) == -2, "the end");
    loader_free(l);
    accel_dataset_close(d);
    loader_rig_close(&r);
    return 0;
}

static void test_join(void)
{
    accel_dispatch_t who = ACCEL_DISPATCH_OFF;

    tap_is_int(fork_world(3, joining_rank, &who, HANG_S), 0,
               "a rank joins without samples");
    who = ACCEL_DISPATCH_ON;
    tap_is_int(fork_world(3, joining_rank, &who, HANG_S), 0, "and with dispatch");
}

int main(void)
{
    test_join();
    if (loader_rig_open(&rig, NULL, ACCEL_F32))
        return 1;
    whole = ragged(0);
    test_padding();
    test_pad_values();
    test_bucket_sizes();
    test_bad_length();
    test_collate();
    test_weighted();
    test_own_order();
    test_held_out();
    test_bf16();
    test_widened();
    accel_dataset_close(whole);
    loader_rig_close(&rig);
    return tap_done();
}
