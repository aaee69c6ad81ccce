/* SPDX-License-Identifier: Apache-2.0
 *
 * Twins of what sees a whole row: norms, softmax, cross-entropy.
 */
#include <math.h>

#include "tests/unit/twin.h"

/* Rows of a warp and of a block, with and without packs, kept and too long to be
 * kept. */
static const int64_t shapes[][2] = { { 0, 8 },     { 1, 1 },    { 5, 7 },
                                     { 67, 32 },   { 9, 768 },  { 3, 1024 },
                                     { 3, 1031 },  { 2, 4104 }, { 1, 6151 },
                                     { 2, 13000 }, { 1, 25001 } };

static void norm(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->norm(be, (const struct norm *)c->more, a[0], (float *)a[1], a[2], a[3], a[4],
             NULL);
}

/* a[5] and a[6] are added; a[7] is the sum. */
static void add_norm(const struct backend *be, void *const *a,
                     const struct twin_call *c)
{
    be->add_norm(be, (const struct norm *)c->more, a[7], a[0], (float *)a[1], a[5],
                 a[6], a[3], a[4], NULL);
}

static void norm_grad(const struct backend *be, void *const *a,
                      const struct twin_call *c)
{
    be->norm_grad(be, (const struct norm *)c->more, a[0], c->add, (float *)a[5],
                  (float *)a[6], a[1], a[2], (const float *)a[3], a[4]);
}

static void softmax(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->softmax(be, a[0], a[1], c->type, c->dim[0], c->dim[1]);
}

static void softmax_grad(const struct backend *be, void *const *a,
                         const struct twin_call *c)
{
    be->softmax_grad(be, a[0], c->add, a[1], a[2], c->type, c->dim[0], c->dim[1]);
}

static void soft(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->soft_xent(be, (float *)a[0], (float *)a[1], a[2], a[3], c->type, c->dim[0],
                  c->dim[1]);
    be->soft_xent_grad(be, a[4], c->add, c->flag, a[2], a[3], c->type,
                       (const float *)a[0], (const float *)a[5], c->dim[0], c->dim[1]);
}

static void norms_forward(struct twin *t, const struct norm *p, int64_t shift,
                          bool bias)
{
    const struct twin_call c = { .type = p->type, .more = p };
    const int64_t n = p->rows * p->cols;
    const char *type = accel_dtype_name(p->type), *kind = p->rms ? "rms norm" : "norm";

    for (int sum = 0; sum < 2; sum++) {
        twin_values(t, p->type, n, shift, 0, 1);
        twin_values(t, ACCEL_F32, 2 * p->rows, 0, 0, 1);
        if (sum)
            twin_none(t);
        else
            twin_values(t, p->type, n, shift, -1, 1.5);
        twin_values(t, p->type, p->cols, 0, 0.5, 1.5);
        if (bias)
            twin_values(t, p->type, p->cols, 0, -1, 1);
        else
            twin_none(t);
        for (int k = 0; k < 3 && sum; k++)
            twin_values(t, p->type, n, shift, -1, 1.5);
        twin_run(t, sum ? add_norm : norm, &c, "%s%s %lld x %lld %s",
                 sum ? "sum and " : "", kind, (long long)p->rows, (long long)p->cols,
                 type);
    }
}

static void norms(struct twin *t, struct norm p, int64_t shift, bool bias)
{
    struct twin_call c = { .type = p.type, .add = p.rms != bias, .more = &p };
    const int64_t n = p.rows * p.cols;
    const char *type = accel_dtype_name(p.type), *kind = p.rms ? "rms norm" : "norm";

    norms_forward(t, &p, shift, bias);
    for (int which = 1; which < 4; which++) {
        /* the gradient of x, of the parameters, of all */
        if (which & 1)
            twin_values(t, p.type, n, shift, -1, 1);
        else
            twin_none(t);
        twin_values(t, p.type, n, 0, -1, 1);
        twin_values(t, p.type, n, shift, -1, 1);
        twin_values(t, ACCEL_F32, 2 * p.rows, 0, 0.1, 1);
        twin_values(t, p.type, p.cols, 0, 0.5, 1.5);
        for (int k = 0; k < 2; k++)
            if (which & 2 && k != (p.rms ? 1 : bias ? 2 : 0))
                twin_values(t, ACCEL_F32, p.cols, 0, -1, 1);
            else
                twin_none(t);
        twin_run(t, norm_grad, &c, "%s_grad %lld x %lld %s, add %d, of %d", kind,
                 (long long)p.rows, (long long)p.cols, type, c.add, which);
    }
}

static void softmaxes(struct twin *t, struct twin_call c, int64_t shift)
{
    const int64_t n = c.dim[0] * c.dim[1];

    twin_values(t, c.type, n, shift, 0, 1);
    twin_values(t, c.type, n, 0, -30, 30);
    if (n > 3)
        for (int64_t i = 0; i < n; i += 3)
            if (c.type == ACCEL_F32)
                ((float *)twin_host(t, 1))[i] = i % 2 ? -INFINITY : -100.0f;
    twin_run(t, softmax, &c, "softmax %lld x %lld %s", (long long)c.dim[0],
             (long long)c.dim[1], accel_dtype_name(c.type));
    for (int k = 0; k < 3; k++)
        twin_values(t, c.type, n, k == 1 ? shift : 0, 0, 1);
    twin_run(t, softmax_grad, &c, "softmax_grad %lld x %lld %s, add %d",
             (long long)c.dim[0], (long long)c.dim[1], accel_dtype_name(c.type), c.add);
}

static void softs(struct twin *t, struct twin_call c, int64_t shift)
{
    const int64_t n = c.dim[0] * c.dim[1];

    for (int k = 0; k < 2; k++)
        twin_values(t, ACCEL_F32, c.dim[0], 0, 0, 1);
    twin_values(t, c.type, n, shift, -9, 9);
    twin_values(t, c.type, n, 0, 0, 1);
    twin_values(t, c.type, n, 0, -1, 1);
    twin_values(t, ACCEL_F32, 1, 0, 1, 2);
    twin_run(t, soft, &c, "soft_xent %lld x %lld %s, add %d, by the %s",
             (long long)c.dim[0], (long long)c.dim[1], accel_dtype_name(c.type), c.add,
             c.flag ? "targets" : "logits");
}

/* ---- cross-entropy --------------------------------------------------------------- */

static void xent(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->xent(be, (const struct xent *)c->more, (float *)a[0], (float *)a[1],
             (const float *)a[2], (const int32_t *)a[3], c->dim[0], c->dim[1],
             c->dim[2]);
    be->xent_mean(be, (const struct xent *)c->more, (float *)a[4], (float *)a[5],
                  (const float *)a[1], (const int32_t *)a[3], c->dim[0]);
}

/* In place; then as float32, for rows of bfloat16 leave gaps that are nobody's. */
static void xent_grad(const struct backend *be, void *const *a,
                      const struct twin_call *c)
{
    const int64_t rows = c->dim[0], vocab = c->dim[1], ld = c->dim[2];

    be->xent_grad(be, (const struct xent *)c->more, (float *)a[0], c->type,
                  (const float *)a[1], (const float *)a[2], (const float *)a[3],
                  (const int32_t *)a[4], rows, vocab, ld);
    for (int64_t r = 0; r < rows; r++)
        be->cast(be, (float *)a[5] + r * ld, ACCEL_F32, false,
                 (const float *)a[0] + r * ld, c->type,
                 c->type == ACCEL_F32 ? ld : vocab);
    be->zero(be, a[0], (size_t)(rows * ld) * sizeof(float));
}

static void targets(struct twin *t, int64_t rows, int64_t vocab)
{
    const int k = t->count;

    twin_values(t, ACCEL_I32, rows, 0, 0, (double)vocab);
    if (rows > 2)
        ((int32_t *)twin_host(t, k))[2] = -100;
    if (rows > 4)
        ((int32_t *)twin_host(t, k))[4] = -1;
}

/* Logits [rows, vocab], rows `ld` apart, with NaN in between. */
static void logits(struct twin *t, const struct twin_call *c, int64_t shift, double low,
                   double high)
{
    const int64_t rows = c->dim[0], vocab = c->dim[1], ld = c->dim[2];
    const int k = t->count;

    twin_values(t, ACCEL_F32, rows * ld, shift, low, high);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = vocab; i < ld; i++)
            ((float *)twin_host(t, k))[r * ld + i] = NAN;
}

static void entropies(struct twin *t, struct twin_call c, float smoothing)
{
    const struct xent o = { .ignore = -100, .smoothing = smoothing };
    const int64_t rows = c.dim[0], vocab = c.dim[1], ld = c.dim[2];

    c.more = &o;
    if (c.type == ACCEL_F32) {
        for (int k = 0; k < 2; k++)
            twin_values(t, ACCEL_F32, rows, 0, 0, 1);
        logits(t, &c, 0, -20, 20);
        targets(t, rows, vocab);
        for (int k = 0; k < 2; k++)
            twin_values(t, ACCEL_F32, 1, 0, 0, 1);
        twin_run(t, xent, &c, "xent %lld x %lld of %lld, smoothing %g", (long long)rows,
                 (long long)vocab, (long long)ld, smoothing);
    }
    logits(t, &c, ld % 4 ? rows % 4 : 0, -5, 0);
    twin_values(t, ACCEL_F32, rows, 0, 0, 1);
    twin_values(t, ACCEL_F32, 1, 0, rows % 3 ? 7 : 0, rows % 3 ? 8 : 0);
    twin_values(t, ACCEL_F32, 1, 0, 1, 2);
    targets(t, rows, vocab);
    twin_values(t, ACCEL_F32, rows * ld, 0, 0, 1);
    twin_run(t, xent_grad, &c, "xent_grad %lld x %lld of %lld to %s, smoothing %g",
             (long long)rows, (long long)vocab, (long long)ld, accel_dtype_name(c.type),
             smoothing);
}

void twin_rows(struct twin *t)
{
    /* as a program's own logits may lie, and as the head's do */
    static const int64_t entropy[][3] = {
        { 0, 7, 7 },       { 1, 1, 1 },       { 7, 3, 3 },         { 6, 13, 13 },
        { 5, 50, 50 },     { 2, 4097, 4097 }, { 3, 8192, 8192 },   { 5, 20011, 20011 },
        { 3, 1, 64 },      { 6, 13, 64 },     { 5, 131, 192 },     { 3, 257, 320 },
        { 2, 8200, 8256 }, { 1, 8191, 8192 }, { 5, 20011, 20032 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
        for (int type = ACCEL_F32; type <= ACCEL_BF16; type++) {
            const int64_t rows = shapes[i][0], cols = shapes[i][1], shift = i % 3 == 2;
            struct norm p = { (accel_dtype_t)type, rows, cols, 1e-5f, false };

            norms(t, p, shift, true);
            norms(t, p, shift, false);
            p.rms = true;
            norms(t, p, shift, false);
            softmaxes(t,
                      (struct twin_call){
                          .type = p.type, .dim = { rows, cols }, .add = i % 2 },
                      shift);
            for (int flag = 0; flag < 2; flag++)
                softs(t,
                      (struct twin_call){ .type = p.type,
                                          .dim = { rows, cols },
                                          .add = i % 2,
                                          .flag = flag },
                      shift);
        }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(entropy); i++)
        for (int type = ACCEL_F32; type <= ACCEL_BF16; type++)
            for (int smooth = 0; smooth < 2; smooth++)
                entropies(t,
                          (struct twin_call){
                              .type = (accel_dtype_t)type,
                              .dim = { entropy[i][0], entropy[i][1], entropy[i][2] } },
                          smooth ? 0.1f : 0.0f);
}
