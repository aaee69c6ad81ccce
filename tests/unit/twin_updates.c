/* SPDX-License-Identifier: Apache-2.0
 *
 * Twins of what happens to the shards between two steps: optimizers, scaling, limits,
 * moving averages, sums.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "numbers/wire.h"
#include "tests/tap.h"
#include "tests/unit/twin.h"

static const int64_t lengths[] = { 0, 1, 3, 4, 5, 127, 4099, 70001 };

/* Three ranges and a gap of one element after the first; the constants of the ranges
 * differ. a[1] NULL: no momentum. */
static void update(const struct backend *be, void *const *a, const struct twin_call *c)
{
    const int64_t cut[] = { 0, c->n / 3, c->n / 3 + (c->n > 4), c->n - c->n / 4, c->n };
    static const int step[] = { 1, -1, 0, 1 };
    struct update_span x[4];

    for (int i = 0; i < 4; i++)
        x[i] = (struct update_span){ .p = (float *)a[0] + cut[i],
                                     .m.data = a[1] ? (float *)a[1] + cut[i] : NULL,
                                     .v.data = (float *)a[2] + cut[i],
                                     .g = (float *)a[3] + cut[i],
                                     .n = cut[i + 1] - cut[i],
                                     .step = step[i] };
    be->update(be, x, 4, (const struct optim_step *)c->more);
}

/* As many ranges as there are constants, more than a launch of a device takes. */
enum { MANY = 130 };

static void update_many(const struct backend *be, void *const *a,
                        const struct twin_call *c)
{
    struct optim_step k[MANY];
    struct update_span x[MANY];

    for (int i = 0; i < MANY; i++) {
        const int64_t from = c->n * i / MANY, to = c->n * (i + 1) / MANY;

        k[i] = *(const struct optim_step *)c->more;
        k[i].adamw.rate *= (float)(1 + i % 29);
        x[i] = (struct update_span){ .p = (float *)a[0] + from,
                                     .m.data = (float *)a[1] + from,
                                     .v.data = (float *)a[2] + from,
                                     .g = (float *)a[3] + from,
                                     .n = to - from,
                                     .step = i % 29 };
    }
    be->update(be, x, MANY, k);
}

static void scale(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->scale(be, (float *)a[0], c->n, c->by);
}

static void clamp(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->clamp(be, (float *)a[0], c->n, c->by);
}

static void blend(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->blend(be, (float *)a[0], (const float *)a[1], c->n, 1 - c->by, c->by);
}

static void sum_parts(const struct backend *be, void *const *a,
                      const struct twin_call *c)
{
    be->sum_parts(be, (float *)a[0], c->add, NULL, a[1], c->type, (int)c->dim[0], c->n,
                  c->by);
}

/* Goes on from a[2]. */
static void go_on_summing(const struct backend *be, void *const *a,
                          const struct twin_call *c)
{
    be->sum_parts(be, (float *)a[0], c->add, (const float *)a[2], a[1], c->type,
                  (int)c->dim[0], c->n, c->by);
}

/* Into a[1], of the floats of a[0]. */
static void narrow_parts(const struct backend *be, void *const *a,
                         const struct twin_call *c)
{
    be->narrow_parts(be, a[1], c->type, (const float *)a[0], (int)c->dim[0], c->n);
}

static void narrow_parts_in_place(const struct backend *be, void *const *a,
                                  const struct twin_call *c)
{
    be->narrow_parts(be, a[0], c->type, (const float *)a[0], (int)c->dim[0], c->n);
}

/* The bytes of the floats, which are watched to the bit. */
static void sum_blocks(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    be->narrow_parts(be, a[1], c->type, (const float *)a[2], (int)c->dim[0], c->n);
    be->sum_parts(be, (float *)a[0], false, NULL, a[1], c->type, (int)c->dim[0], c->n,
                  c->by);
}

static void four(struct twin *t, int64_t n, int64_t shift, bool momentum)
{
    twin_values(t, ACCEL_F32, n, shift, -1, 1);
    if (momentum)
        twin_values(t, ACCEL_F32, n, shift, -1, 1);
    else
        twin_none(t);
    twin_values(t, ACCEL_F32, n, shift, 0, 1);
    twin_values(t, ACCEL_F32, n, shift, -1, 1);
}

static void optimizers(struct twin *t, struct twin_call c, int64_t shift)
{
    const struct adamw_step adamw = { 0.9f,  0.95f, 0.1f,    0.05f, 3e-4f,
                                      1.02f, 1e-8f, 0.9997f, 0.7f };
    const struct sgd_step plain = { 0.1f, 0.0f, 1.0f, 0.0f, 0.01f, 0.7f };
    const struct sgd_step nesterov = { 0.1f, 0.9f, 1.0f, 0.9f, 0.01f, 0.7f };
    const struct lion_step lion = { 1e-3f, 0.9f, 0.99f, 0.1f, 0.01f, 0.999f, 0.7f };
    const struct {
        const char *name;
        bool momentum;
        struct optim_step k;
    } rows[] = { { "adamw", true, { ACCEL_ADAMW, .adamw = adamw } },
                 { "sgd", false, { ACCEL_SGD, .sgd = plain } },
                 { "sgd with momentum", true, { ACCEL_SGD, .sgd = nesterov } },
                 { "lion", true, { ACCEL_LION, .lion = lion } } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct optim_step k[2] = { rows[i].k, rows[i].k };

        k[1].adamw.decay = 1.0f;
        k[1].sgd.lr = k[1].lion.lr = 0.3f;
        c.more = k;
        four(t, c.n, shift, rows[i].momentum);
        twin_run(t, update, &c, "%s of %lld, shift %lld", rows[i].name, (long long)c.n,
                 (long long)shift);
    }
    c.more = &rows[0].k;
    four(t, c.n, shift, true);
    twin_run(t, update_many, &c, "adamw of %lld in %d ranges, shift %lld",
             (long long)c.n, MANY, (long long)shift);
}

static void parts(struct twin *t, struct twin_call c, int64_t shift)
{
    static const int64_t counts[] = { 1, 2, 7 };

    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    twin_run(t, scale, &c, "scale of %lld, shift %lld", (long long)c.n,
             (long long)shift);
    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    twin_run(t, clamp, &c, "clamp of %lld, shift %lld", (long long)c.n,
             (long long)shift);
    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    twin_values(t, ACCEL_F32, c.n, 0, -1, 1);
    twin_run(t, blend, &c, "blend of %lld, shift %lld", (long long)c.n,
             (long long)shift);
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(counts); k++)
        for (int type = ACCEL_F32; type <= ACCEL_BF16; type++) {
            c.dim[0] = counts[k];
            c.type = (accel_dtype_t)type;
            c.add = !c.add;
            twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
            twin_values(t, c.type, c.n * counts[k], 0, -1, 1);
            twin_run(t, sum_parts, &c, "sum_parts of %lld x %lld %s, accumulate %d",
                     (long long)counts[k], (long long)c.n, accel_dtype_name(c.type),
                     c.add);
            twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
            twin_values(t, c.type, c.n * counts[k], 0, -1, 1);
            twin_values(t, ACCEL_F32, c.n, 0, -1, 1);
            twin_run(t, go_on_summing, &c, "a sum goes on with %lld x %lld %s",
                     (long long)counts[k], (long long)c.n, accel_dtype_name(c.type));
        }
}

/* Floats of all sizes, as bytes; some are infinite. */
static void gradients(struct twin *t, int k, int64_t n)
{
    unsigned char *bytes = (unsigned char *)twin_host(t, k);

    for (int64_t i = 0; i < n; i++) {
        const uint32_t draw = (uint32_t)bytes[4 * i] << 8 | bytes[4 * i + 1];
        float x = ((float)draw - 32768.0f) * ldexpf(1, -20 - bytes[4 * i + 2] / 8);

        if (i % 331 == 330)
            x = i % 2 ? INFINITY : -INFINITY;
        if (i / WIRE_BLOCK % 3 == 2)
            x *= 1e-30f;
        memcpy(bytes + 4 * i, &x, sizeof(x));
    }
}

/* With the sanitizer each access takes its time: many parts, or many elements in each. */
#ifdef __SANITIZE_ADDRESS__
#define MOST_OF_PARTS 140002
#else
#define MOST_OF_PARTS INT64_MAX
#endif

static void wire_parts(struct twin *t, struct twin_call c)
{
    static const int64_t counts[] = { 1, 2, 7 };

    for (int type = ACCEL_F16; type <= ACCEL_F8E5M2; type++)
        for (size_t k = 0;
             k < ACCEL_ARRAY_SIZE(counts) && counts[k] * c.n <= MOST_OF_PARTS; k++) {
            const int64_t all = counts[k] * c.n;
            const char *name = accel_dtype_name((accel_dtype_t)type);
            int64_t bytes;

            c.type = (accel_dtype_t)type;
            c.dim[0] = counts[k];
            bytes = counts[k] * (int64_t)wire_bytes((size_t)c.n, c.type);
            twin_values(t, ACCEL_U8, 4 * all, 0, 0, 256);
            gradients(t, 0, all);
            twin_values(t, ACCEL_U8, bytes, 0, 0, 256);
            twin_run(t, narrow_parts, &c, "%lld x %lld into blocks of %s",
                     (long long)counts[k], (long long)c.n, name);
            if (c.n % 32 == 0) {
                twin_values(t, ACCEL_U8, 4 * all, 0, 0, 256);
                gradients(t, 0, all);
                twin_run(t, narrow_parts_in_place, &c, "  in place");
            }
            twin_values(t, ACCEL_U8, 4 * c.n, c.n % 2 ? 4 : 0, 0, 256);
            twin_values(t, ACCEL_U8, bytes, 0, 0, 256);
            twin_values(t, ACCEL_F32, all, 0, -1, 1);
            twin_run(t, sum_blocks, &c, "  added up");
        }
}

/* The sums are numbers of the host: seen here, not in an array. */
static double sums[3];
static int called;

static void sumsq(const struct backend *be, void *const *a, const struct twin_call *c)
{
    struct span span[100];
    double *sum = be->host_alloc(be, sizeof(*sum));
    const int count = (int)c->dim[0];
    int64_t at = 0;

    for (int k = 0; k < count; k++) {
        const int64_t n = k == count - 1 ? c->n - at : c->n / count;

        span[k] = (struct span){ (const float *)a[0] + at, n };
        at += n;
    }
    be->sumsq(be, sum, span, count);
    be->sync(be, NULL);
    sums[called++] = *sum;
    be->host_free(be, sum, sizeof(*sum));
}

static void squares(struct twin *t, struct twin_call c, int64_t shift)
{
    static const int64_t counts[] = { 0, 1, 3, 100 };

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(counts); k++) {
        char what[96];

        c.dim[0] = counts[k];
        called = 0;
        snprintf(what, sizeof(what), "sumsq of %lld in %lld spans", (long long)c.n,
                 (long long)counts[k]);
        twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
        twin_run(t, sumsq, &c, "%s: nothing is written", what);
        tap_is_close(sums[1], sums[0], 1e-12, "%s: sum", what);
        tap_ok(sums[1] == sums[2], "%s: twice the same", what);
    }
}

/* ---- 8-bit moments ----------------------------------------------------------- */

/* a: parameters, gradients, codes and scales of m, those of v (NULL: Lion). Two ranges
 * of one parameter, from a block in its middle on, and one without constants. */
static void update_codes(const struct backend *be, void *const *a,
                         const struct twin_call *c)
{
    const int64_t cut[] = { 0, c->n / 32 * 16, c->n / 32 * 16 + c->n / 64 * 16, c->n };
    static const int step[] = { 1, -1, 0 };
    struct update_span x[3];

    for (int i = 0; i < 3; i++) {
        const int64_t at = cut[i];

        x[i] = (struct update_span){ .p = (float *)a[0] + at,
                                     .g = (float *)a[1] + at,
                                     .m = { (uint8_t *)a[2] + at,
                                            (uint16_t *)a[3] + at / MOMENT_BLOCK },
                                     .n = cut[i + 1] - at,
                                     .step = step[i],
                                     .name = 77,
                                     .first = 48 + at };
        if (a[4])
            x[i].v = (struct moments){ (uint8_t *)a[4] + at,
                                       (uint16_t *)a[5] + at / MOMENT_BLOCK };
    }
    be->update(be, x, 3, (const struct optim_step *)c->more);
}

/* Whole multiples of `step`, which are sums and products without rounding: a device that
 * fuses them has the same codes. */
static void grid(struct twin *t, int k, int64_t n, float step)
{
    float *x = (float *)twin_host(t, k);

    for (int64_t i = 0; i < n; i++)
        x[i] = floorf(x[i] / step) * step;
}

static void powers(struct twin *t, int k, int64_t n, int least)
{
    uint16_t *x = (uint16_t *)twin_host(t, k);

    for (int64_t i = 0; i < n; i++)
        x[i] = (uint16_t)((least + (int)(i % 5) + 127) << 7);
}

static void codes(struct twin *t, struct twin_call c)
{
    const struct adamw_step adamw = { 0.5f,  0.5f,  0.5f,    0.5f, 3e-4f,
                                      1.02f, 1e-8f, 0.9997f, 1.0f };
    const struct lion_step lion = { 1e-3f, 0.5f, 0.5f, 0.5f, 0.5f, 0.999f, 1.0f };
    const int64_t scales = (int64_t)moment_scales(c.n);
    struct optim_step k[2] = { { ACCEL_ADAMW, 5, .adamw = adamw },
                               { ACCEL_ADAMW, 5, .adamw = adamw } };

    k[1].adamw.rate = 1e-2f;
    for (int kind = 0; kind < 2; kind++) {
        twin_values(t, ACCEL_F32, c.n, 0, -1, 1);
        twin_values(t, ACCEL_F32, c.n, 0, -1, 1);
        grid(t, 1, c.n, 0x1p-10f);
        twin_values(t, ACCEL_U8, c.n, 0, 0, 256);
        twin_values(t, ACCEL_BF16, scales, 0, 0, 1);
        powers(t, 3, scales, -12);
        if (kind == 0) {
            twin_values(t, ACCEL_U8, c.n, 0, 0, 256);
            twin_values(t, ACCEL_BF16, scales, 0, 0, 1);
            powers(t, 5, scales, -20);
        }
        for (int i = 0; i < 2 && kind == 1; i++)
            k[i] = (struct optim_step){ ACCEL_LION, 5, .lion = lion };
        c.more = k;
        if (kind == 1) {
            twin_none(t);
            twin_none(t);
        }
        twin_run(t, update_codes, &c, "%s of %lld with 8-bit moments",
                 kind ? "lion" : "adamw", (long long)c.n);
    }
}

/* ---- bfloat16 masters ------------------------------------------------------------ */

/* Ranges of one parameter, of which numbers go on beyond 2^32, with a gap of one element
 * after the first. a: weights, gradients, momentum and second moment or NULL; with a[4]
 * and a[5] scales, these are codes. */
static void update_narrow(const struct backend *be, void *const *a,
                          const struct twin_call *c)
{
    const int64_t block = c->n / 3 / MOMENT_BLOCK * MOMENT_BLOCK;
    const int64_t cut[] = { 0, block, block + (c->n > 48) * MOMENT_BLOCK, c->n };
    static const int step[] = { 1, -1, 0 };
    const int64_t bytes = a[4] ? 1 : (int64_t)sizeof(float);
    struct update_span x[3];

    for (int i = 0; i < 3; i++) {
        const int64_t at = cut[i];

        x[i] = (struct update_span){ .narrow = (uint16_t *)a[0] + at,
                                     .g = (float *)a[1] + at,
                                     .n = cut[i + 1] - at,
                                     .step = step[i],
                                     .name = 77,
                                     .first = ((int64_t)1 << 32) - 48 + at };
        for (int k = 0; k < 2; k++)
            if (a[2 + k])
                *(k ? &x[i].v : &x[i].m) = (struct moments){
                    (char *)a[2 + k] + at * bytes,
                    a[4 + k] ? (uint16_t *)a[4 + k] + at / MOMENT_BLOCK : NULL
                };
    }
    be->update(be, x, 3, (const struct optim_step *)c->more);
}

/* bfloat16 as its bits, which are compared: of rules without a rounding of their own. */
static void bits(struct twin *t, int64_t n, int64_t shift)
{
    uint16_t *x;

    twin_values(t, ACCEL_U16, n, shift, 0, 65536);
    x = (uint16_t *)twin_host(t, t->count - 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint16_t)((x[i] & 0x80ff) | (uint16_t)(0x3f00 - (x[i] >> 8 & 3) * 128));
}

struct narrow_row {
    const char *name;
    int states;
    bool codes;
    struct optim_step k;
};

static void narrow_row(struct twin *t, struct twin_call c, int64_t shift,
                       const struct narrow_row *row)
{
    struct optim_step k[2] = { row->k, row->k };

    k[1].sgd.lr *= 2;
    k[1].lion.lr *= 2;
    k[1].adamw.rate *= 2;
    c.more = k;
    if (row->k.kind == ACCEL_ADAMW)
        twin_values(t, ACCEL_BF16, c.n, shift, -1, 1);
    else
        bits(t, c.n, shift);
    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    grid(t, 1, c.n, 0x1p-10f);
    for (int i = 0; i < 2; i++)
        if (i >= row->states)
            twin_none(t);
        else
            twin_values(t, row->codes ? ACCEL_U8 : ACCEL_F32, c.n, shift, 0,
                        row->codes ? 256 : 1);
    if (row->states > 0 && !row->codes)
        grid(t, 2, c.n, 0x1p-10f);
    for (int i = 0; i < 2; i++)
        if (!row->codes || i >= row->states) {
            twin_none(t);
        } else {
            twin_values(t, ACCEL_BF16, (int64_t)moment_scales(c.n), 0, 0, 1);
            powers(t, 4 + i, (int64_t)moment_scales(c.n), -12 - 8 * i);
        }
    twin_run(t, update_narrow, &c, "%s of %lld bfloat16%s, shift %lld", row->name,
             (long long)c.n, row->k.nearest ? " to the nearest" : "", (long long)shift);
}

static void masters(struct twin *t, struct twin_call c, int64_t shift)
{
    const struct adamw_step adamw = { 0.5f,  0.5f,  0.5f, 0.5f, 3e-4f,
                                      1.02f, 1e-8f, 1.0f, 1.0f };
    const struct sgd_step plain = { 0x1p-6f, 0.0f, 1.0f, 0.0f, 0.0f, 1.0f };
    const struct sgd_step momentum = { 0x1p-6f, 0.5f, 1.0f, 0.5f, 0.0f, 1.0f };
    const struct lion_step lion = { 0x1p-12f, 0.5f, 0.5f, 0.5f, 0.5f, 1.0f, 1.0f };

    for (int nearest = 0; nearest < 2; nearest++) {
        const struct narrow_row rows[] = {
            { "adamw", 2, false, { ACCEL_ADAMW, 5, nearest, .adamw = adamw } },
            { "sgd", 0, false, { ACCEL_SGD, 5, nearest, .sgd = plain } },
            { "momentum", 1, false, { ACCEL_SGD, 5, nearest, .sgd = momentum } },
            { "lion", 1, false, { ACCEL_LION, 5, nearest, .lion = lion } },
            { "adamw, 8 bits", 2, true, { ACCEL_ADAMW, 5, nearest, .adamw = adamw } },
            { "lion, 8 bits", 1, true, { ACCEL_LION, 5, nearest, .lion = lion } },
        };

        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
            if (shift == 0 || !rows[i].codes)
                narrow_row(t, c, shift, &rows[i]);
    }
}

/* ---- 8 bits and back ------------------------------------------------------------- */

/* a[0] to codes a[1] with scales a[2], and back into a[3]. */
static void codes_and_back(const struct backend *be, void *const *a,
                           const struct twin_call *c)
{
    const struct moments x = { a[1], (uint16_t *)a[2] };

    be->moments_narrow(be, x, (const float *)a[0], c->flag, c->n);
    be->moments_widen(be, (float *)a[3], x, c->flag, c->n);
}

static void whole_codes(struct twin *t, struct twin_call c)
{
    for (int positive = 0; positive < 2; positive++) {
        c.flag = positive;
        twin_values(t, ACCEL_F32, c.n, 0, positive ? 0 : -1, 1);
        twin_values(t, ACCEL_U8, c.n, 0, 0, 256);
        twin_values(t, ACCEL_BF16, (int64_t)moment_scales(c.n), 0, 0, 1);
        twin_values(t, ACCEL_F32, c.n, 0, -1, 1);
        twin_run(t, codes_and_back, &c, "%lld %s to 8 bits and back", (long long)c.n,
                 positive ? "squares" : "numbers");
    }
}

/* Of the arrays of an update one alone begins between two packs. */
static void shifted_alone(struct twin *t)
{
    const struct adamw_step adamw = { 0.5f,  0.5f,  0.5f, 0.5f, 3e-4f,
                                      1.02f, 1e-8f, 1.0f, 1.0f };
    const struct optim_step k[] = { { ACCEL_ADAMW, 5, true, .adamw = adamw },
                                    { ACCEL_ADAMW, 5, true, .adamw = adamw } };
    const struct twin_call c = { .n = 127, .more = k };

    for (int alone = 0; alone < 4; alone++) {
        for (int i = 0; i < 4; i++)
            twin_values(t, ACCEL_F32, c.n, i == alone, i == 2 ? 0 : -1, 1);
        twin_run(t, update, &c, "adamw, array %d alone begins at element 1", alone);
        twin_values(t, ACCEL_BF16, c.n, alone == 0, -1, 1);
        for (int i = 1; i < 4; i++)
            twin_values(t, ACCEL_F32, c.n, i == alone, i == 3 ? 0 : -1, 1);
        grid(t, 1, c.n, 0x1p-10f);
        grid(t, 2, c.n, 0x1p-10f);
        twin_none(t);
        twin_none(t);
        twin_run(t, update_narrow, &c, "adamw of bfloat16, array %d alone", alone);
    }
}

void twin_updates(struct twin *t)
{
    shifted_alone(t);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths); i++)
        for (int64_t shift = 0; shift < 2; shift++) {
            struct twin_call c = { .n = lengths[i], .by = 0.37f };

            optimizers(t, c, shift);
            parts(t, c, shift);
            squares(t, c, shift);
            masters(t, c, shift);
            if (shift == 0) {
                wire_parts(t, c);
                codes(t, c);
                whole_codes(t, c);
            }
        }
    for (int64_t n = 32; n <= 4096; n *= 8) /* what shards are padded to */
        wire_parts(t, (struct twin_call){ .n = n, .by = 0.37f });
}
