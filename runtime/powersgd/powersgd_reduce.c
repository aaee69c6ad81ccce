/* SPDX-License-Identifier: Apache-2.0
 *
 * One reduction: M += error; P = sum of M Q over the ranks, orthonormal; Q = mean of
 * M^T P; M = P Q^T, and the error is what that leaves out of the rank's own M. Products
 * are the backend's; only the factors, which are small, visit the host.
 */
#include <math.h>

#include "powersgd/powersgd_impl.h"

static void multiply(const struct backend *be, const struct gemm *shape)
{
    struct gemm p = *shape;

    p.a_type = p.b_type = p.c_type = ACCEL_F32;
    p.lda = p.trans_a ? p.m : p.k;
    p.ldb = p.trans_b ? p.k : p.n;
    p.ldc = p.n;
    be->gemm(be, &p);
}

/* P = M Q */
static void left_factor(const struct powersgd *s, const struct low_rank *l,
                        const float *m)
{
    multiply(s->be, &(struct gemm){ .m = l->rows,
                                    .n = l->rank,
                                    .k = l->cols,
                                    .a = m,
                                    .b = s->right + l->right_at,
                                    .c = s->left + l->left_at });
}

/* Q = M^T P */
static void right_factor(const struct powersgd *s, const struct low_rank *l,
                         const float *m)
{
    multiply(s->be, &(struct gemm){ .trans_a = true,
                                    .m = l->cols,
                                    .n = l->rank,
                                    .k = l->rows,
                                    .a = m,
                                    .b = s->left + l->left_at,
                                    .c = s->right + l->right_at });
}

/* M = P Q^T */
static void product(const struct powersgd *s, const struct low_rank *l, float *m)
{
    multiply(s->be, &(struct gemm){ .trans_b = true,
                                    .m = l->rows,
                                    .n = l->cols,
                                    .k = l->rank,
                                    .a = s->left + l->left_at,
                                    .b = s->right + l->right_at,
                                    .c = m });
}

/* The same on all ranks, which hold the same bits. */
static void orthogonal_left(const struct powersgd *s)
{
    const struct backend *be = s->be;

    be->to_host(be, s->host, s->left, ACCEL_F32, s->lefts);
    for (int i = 0; i < s->matrices; i++)
        orthogonalize(s->host + s->matrix[i].left_at, s->matrix[i].rows,
                      s->matrix[i].rank);
    be->from_host(be, s->left, s->host, (size_t)s->lefts * sizeof(*s->left));
}

/* Begins with new draws, or with the factors of the step before, which are zero before
 * the first. A column that came out as zero, because a gradient had fewer directions,
 * is drawn again: it would stay zero for ever. */
static void orthogonal_right(struct powersgd *s, int64_t step)
{
    const struct backend *be = s->be;

    if (!s->rule.cold)
        be->to_host(be, s->host, s->right, ACCEL_F32, s->rights);
    for (int i = 0; i < s->matrices; i++) {
        const struct low_rank *l = &s->matrix[i];
        const uint64_t stream = (uint64_t)step << 24 | (uint64_t)i;
        float *q = s->host + l->right_at;

        for (int64_t k = 0; k < l->cols * l->rank && s->rule.cold; k++)
            q[k] = 0;
        if (orthogonalize(q, l->cols, l->rank) > 0) {
            draw_columns(q, l->cols, l->rank, s->seed, stream);
            orthogonalize(q, l->cols, l->rank);
        }
    }
    be->from_host(be, s->right, s->host, (size_t)s->rights * sizeof(*s->right));
}

/* Adds up x[n] over the ranks. */
static accel_status_t add_up(const struct powersgd_peers *peers, float *x, int64_t n,
                             accel_error_t *err)
{
    return n > 0 ? peers->all_reduce(peers->user, x, n, err) : ACCEL_OK;
}

/* Are all elements of x, the same on all ranks, finite? */
static accel_status_t all_finite(const struct powersgd *s, const float *x, int64_t n,
                                 bool *finite_out, accel_error_t *err)
{
    accel_status_t st;

    s->be->sumsq(s->be, s->sumsq, &(struct span){ x, n }, 1);
    st = s->be->sync(s->be, err);
    *finite_out = st == ACCEL_OK && isfinite(*s->sumsq);
    return st;
}

/* The ranges of the flat gradient side by side in `to`, and back. */
static void pack(const struct powersgd *s, float *to, const float *gradient)
{
    for (int i = 0; i < s->ranges; to += s->range[i++].n)
        s->be->copy(s->be, to, gradient + s->range[i].at,
                    (size_t)s->range[i].n * sizeof(*to));
}

static void unpack(const struct powersgd *s, float *gradient, const float *from)
{
    for (int i = 0; i < s->ranges; from += s->range[i++].n)
        s->be->copy(s->be, gradient + s->range[i].at, from,
                    (size_t)s->range[i].n * sizeof(*from));
}

/* M += error. The error itself stays until the sums are known to be finite. */
static void take_errors(const struct powersgd *s, float *flat)
{
    for (int i = 0; s->error && i < s->matrices; i++) {
        const struct low_rank *l = &s->matrix[i];

        s->be->blend(s->be, flat + l->at, s->error + l->error_at, l->rows * l->cols, 1,
                     1);
    }
}

/* M becomes the product; the error is what that lacks. */
static void leave_errors(const struct powersgd *s, float *flat)
{
    for (int i = 0; i < s->matrices; i++) {
        const struct low_rank *l = &s->matrix[i];
        const int64_t n = l->rows * l->cols;

        if (s->error)
            s->be->copy(s->be, s->error + l->error_at, flat + l->at,
                        (size_t)n * sizeof(*flat));
        product(s, l, flat + l->at);
        if (s->error)
            s->be->blend(s->be, s->error + l->error_at, flat + l->at, n, 1, -1);
    }
}

/* The left factors and, with them, what is sent as it is. */
static accel_status_t sum_left(struct powersgd *s, float *flat,
                               const struct powersgd_peers *peers, bool *finite_out,
                               accel_error_t *err)
{
    const int64_t n = s->lefts + s->plains;
    accel_status_t st;

    for (int i = 0; i < s->matrices; i++)
        left_factor(s, &s->matrix[i], flat + s->matrix[i].at);
    if (s->plains > 0)
        pack(s, s->left + s->lefts, flat);
    st = add_up(peers, s->left, n, err);
    return st == ACCEL_OK && n > 0 ? all_finite(s, s->left, n, finite_out, err) : st;
}

static accel_status_t sum_right(struct powersgd *s, const float *flat,
                                const struct powersgd_peers *peers, bool *finite_out,
                                accel_error_t *err)
{
    accel_status_t st;

    if (s->matrices == 0)
        return ACCEL_OK;
    orthogonal_left(s);
    for (int i = 0; i < s->matrices; i++)
        right_factor(s, &s->matrix[i], flat + s->matrix[i].at);
    ACCEL_CHECK(st, add_up(peers, s->right, s->rights, err));
    s->be->scale(s->be, s->right, s->rights, 1.0f / (float)peers->ranks);
    return all_finite(s, s->right, s->rights, finite_out, err);
}

/* flat: the gradient, or the square. */
static accel_status_t reduce_flat(struct powersgd *s, float *flat, int64_t step,
                                  const struct powersgd_peers *peers, bool *finite_out,
                                  accel_error_t *err)
{
    float *plain = s->left + s->lefts;
    accel_status_t st;

    take_errors(s, flat);
    if (s->matrices > 0)
        orthogonal_right(s, step);
    st = sum_left(s, flat, peers, finite_out, err);
    if (st == ACCEL_OK && *finite_out)
        st = sum_right(s, flat, peers, finite_out, err);
    if (st != ACCEL_OK || !*finite_out)
        return st;
    leave_errors(s, flat);
    if (s->plains == 0)
        return ACCEL_OK;
    s->be->scale(s->be, plain, s->plains, 1.0f / (float)peers->ranks);
    unpack(s, flat, plain);
    return ACCEL_OK;
}

/* On all ranks, as each of them sees only its own share of the norm. */
static void make_nan(const struct powersgd *s, float *gradient)
{
    for (int i = 0; i < s->ranges; i++)
        s->be->scale(s->be, gradient + s->range[i].at, s->range[i].n, NAN);
    for (int i = 0; i < s->matrices && !s->square; i++)
        s->be->scale(s->be, gradient + s->matrix[i].at,
                     s->matrix[i].rows * s->matrix[i].cols, NAN);
}

accel_status_t powersgd_reduce(struct powersgd *s, float *gradient, int64_t step,
                               const struct powersgd_peers *peers, accel_error_t *err)
{
    float *flat = s->square ? s->square : gradient;
    bool finite = true;
    accel_status_t st;

    if (s->square) {
        s->be->zero(s->be, s->square, (size_t)s->errors * sizeof(*s->square));
        pack(s, s->square, gradient);
    }
    ACCEL_CHECK(st, reduce_flat(s, flat, step, peers, &finite, err));
    if (!finite)
        make_nan(s, gradient);
    else if (s->square)
        unpack(s, gradient, s->square);
    return ACCEL_OK;
}
