/* SPDX-License-Identifier: Apache-2.0
 *
 * One reduction: M += error; P = sum of M Q over the ranks, orthonormal; Q = mean of
 * M^T P; M = P Q^T, and the error is what that leaves out of the rank's own M. Products
 * are the backend's; only the factors, which are small, visit the host.
 */
#include "powersgd/orthogonal.h"
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

/* Begins with new draws, or with the factors of the step before. A column that came out
 * as zero, because a gradient had fewer directions, is drawn anew: it would stay zero
 * for ever. */
static void orthogonal_right(struct powersgd *s, int64_t step)
{
    const struct backend *be = s->be;

    if (s->warm)
        be->to_host(be, s->host, s->right, ACCEL_F32, s->rights);
    for (int i = 0; i < s->matrices; i++) {
        const struct low_rank *l = &s->matrix[i];
        const uint64_t stream = (uint64_t)step << 24 | (uint64_t)i;
        float *q = s->host + l->right_at;

        for (int64_t k = 0; k < l->cols * l->rank && !s->warm; k++)
            q[k] = 0;
        if (orthogonalize(q, l->cols, l->rank) > 0) {
            draw_columns(q, l->cols, l->rank, s->rule.seed, stream);
            orthogonalize(q, l->cols, l->rank);
        }
    }
    be->from_host(be, s->right, s->host, (size_t)s->rights * sizeof(*s->right));
    s->warm = !s->rule.cold;
}

/* Adds up x[n] over the ranks. */
static accel_status_t add_up(const struct powersgd_peers *peers, float *x, int64_t n,
                             accel_error_t *err)
{
    return n > 0 ? peers->all_reduce(peers->user, x, n, err) : ACCEL_OK;
}

/* The means of the ranges that are sent as they are. */
static accel_status_t reduce_plain(const struct powersgd *s, float *gradient,
                                   const struct powersgd_peers *peers,
                                   accel_error_t *err)
{
    const struct backend *be = s->be;
    accel_status_t st;
    int64_t at = 0;

    for (int i = 0; i < s->plains; at += s->plain[i++].n)
        be->copy(be, s->sent + at, gradient + s->plain[i].at,
                 (size_t)s->plain[i].n * sizeof(*gradient));
    st = add_up(peers, s->sent, s->sent_plain, err);
    if (st != ACCEL_OK)
        return st;
    be->scale(be, s->sent, s->sent_plain, 1.0f / (float)peers->ranks);
    at = 0;
    for (int i = 0; i < s->plains; at += s->plain[i++].n)
        be->copy(be, gradient + s->plain[i].at, s->sent + at,
                 (size_t)s->plain[i].n * sizeof(*gradient));
    return ACCEL_OK;
}

/* M += error, and a copy of it in the error's place. */
static void take_errors(const struct powersgd *s, float *flat)
{
    for (int i = 0; s->error && i < s->matrices; i++) {
        const struct low_rank *l = &s->matrix[i];
        const int64_t n = l->rows * l->cols;

        s->be->blend(s->be, flat + l->at, s->error + l->error_at, n, 1, 1);
        s->be->copy(s->be, s->error + l->error_at, flat + l->at,
                    (size_t)n * sizeof(*flat));
    }
}

/* M becomes the product; the error keeps what it lacks. */
static void leave_errors(const struct powersgd *s, float *flat)
{
    for (int i = 0; i < s->matrices; i++) {
        const struct low_rank *l = &s->matrix[i];

        product(s, l, flat + l->at);
        if (s->error)
            s->be->blend(s->be, s->error + l->error_at, flat + l->at, l->rows * l->cols,
                         1, -1);
    }
}

static accel_status_t reduce_matrices(struct powersgd *s, float *flat, int64_t step,
                                      const struct powersgd_peers *peers,
                                      accel_error_t *err)
{
    accel_status_t st;

    take_errors(s, flat);
    orthogonal_right(s, step);
    for (int i = 0; i < s->matrices; i++)
        left_factor(s, &s->matrix[i], flat + s->matrix[i].at);
    st = add_up(peers, s->left, s->lefts, err);
    if (st != ACCEL_OK)
        return st;
    orthogonal_left(s);
    for (int i = 0; i < s->matrices; i++)
        right_factor(s, &s->matrix[i], flat + s->matrix[i].at);
    st = add_up(peers, s->right, s->rights, err);
    if (st != ACCEL_OK)
        return st;
    s->be->scale(s->be, s->right, s->rights, 1.0f / (float)peers->ranks);
    leave_errors(s, flat);
    return ACCEL_OK;
}

accel_status_t powersgd_reduce(struct powersgd *s, float *gradient, int64_t step,
                               const struct powersgd_peers *peers, accel_error_t *err)
{
    const struct backend *be = s->be;
    const size_t bytes = (size_t)s->total * sizeof(*gradient);
    accel_status_t st;

    if (step < s->rule.start) {
        st = add_up(peers, gradient, s->total, err);
        if (st == ACCEL_OK)
            be->scale(be, gradient, s->total, 1.0f / (float)peers->ranks);
        return st;
    }
    st = reduce_plain(s, gradient, peers, err);
    if (st != ACCEL_OK || s->matrices == 0)
        return st;
    if (!s->square)
        return reduce_matrices(s, gradient, step, peers, err);
    be->zero(be, s->square, (size_t)s->errors * sizeof(*s->square));
    be->copy(be, s->square, gradient, bytes);
    st = reduce_matrices(s, s->square, step, peers, err);
    if (st == ACCEL_OK)
        be->copy(be, gradient, s->square, bytes);
    return st;
}
