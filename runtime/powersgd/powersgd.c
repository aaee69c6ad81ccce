/* SPDX-License-Identifier: Apache-2.0
 *
 * Which gradients are compressed, and the memory for it.
 */
#include "powersgd/powersgd_impl.h"

#include <math.h>
#include <stdlib.h>

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static accel_status_t rule_refuse(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0985, "see struct accel_powersgd for the defaults", "%s",
                      what);
}

accel_status_t powersgd_check(const accel_powersgd_t *r, accel_error_t *err)
{
    if (r->rank < 0)
        return rule_refuse(err, "the rank of PowerSGD must be positive");
    if (!(r->least >= 0) || isinf(r->least))
        return rule_refuse(err, "the least compression of PowerSGD must be finite and "
                                "not negative");
    return ACCEL_OK;
}

static accel_status_t shapes_check(const struct powersgd_shape *shapes, int count,
                                   accel_error_t *err)
{
    for (int i = 0; i < count; i++)
        if (shapes[i].rows < 1 || shapes[i].cols < 1)
            return rule_refuse(err, "PowerSGD needs gradients with elements");
    return ACCEL_OK;
}

accel_powersgd_t powersgd_rule(const accel_powersgd_t *rule)
{
    accel_powersgd_t r = *rule;

    r.rank = r.rank == 0 ? 1 : r.rank;
    r.start = r.start == 0 ? 1000 : r.start;
    r.least = r.least == 0 ? 2 : r.least;
    return r;
}

/* torch's _should_compress */
static bool worth_it(const struct powersgd *s, const struct powersgd_shape *shape)
{
    const int64_t rank = least_of(s->rule.rank, least_of(shape->rows, shape->cols));

    return (double)((shape->rows + shape->cols) * rank) * s->rule.least <
           (double)shape->rows * (double)shape->cols;
}

static void add_matrix(struct powersgd *s, int shape, int64_t rows, int64_t cols,
                       int64_t at)
{
    const int64_t rank = least_of(s->rule.rank, least_of(rows, cols));

    s->matrix[s->matrices++] = (struct low_rank){ .rows = rows,
                                                  .cols = cols,
                                                  .rank = rank,
                                                  .shape = shape,
                                                  .at = at,
                                                  .error_at = s->errors,
                                                  .left_at = s->lefts,
                                                  .right_at = s->rights };
    s->errors += rows * cols;
    s->lefts += rows * rank;
    s->rights += cols * rank;
}

/* Neighbours become one range. */
static void add_range(struct powersgd *s, int64_t at, int64_t n)
{
    struct flat_range *last = s->ranges > 0 ? &s->range[s->ranges - 1] : NULL;

    if (last && last->at + last->n == at)
        last->n += n;
    else
        s->range[s->ranges++] = (struct flat_range){ at, n };
}

static void lay_out(struct powersgd *s, const struct powersgd_shape *shapes, int count)
{
    int64_t at = 0, side;

    for (int i = 0; i < count; i++) {
        const int64_t n = shapes[i].rows * shapes[i].cols;

        if (!s->rule.batched && worth_it(s, &shapes[i]))
            add_matrix(s, i, shapes[i].rows, shapes[i].cols, at);
        else
            add_range(s, at, n);
        s->total += n;
        at += n + shapes[i].gap;
    }
    for (int i = 0; i < s->ranges && !s->rule.batched; i++)
        s->plains += s->range[i].n;
    if (!s->rule.batched || s->total == 0)
        return;
    side = (int64_t)ceil(sqrt((double)s->total));
    add_matrix(s, 0, side, side, 0);
}

static accel_status_t array_new(const struct powersgd *s, int64_t n, float **array_out,
                                accel_error_t *err)
{
    void *memory = NULL;
    accel_status_t st = ACCEL_OK;

    if (n > 0)
        st = s->be->alloc(s->be, MEMORY_REDUCE, (size_t)n * sizeof(**array_out),
                          &memory, err);
    *array_out = memory;
    return st;
}

static accel_status_t arrays_new(struct powersgd *s, accel_error_t *err)
{
    const int64_t longer = s->lefts > s->rights ? s->lefts : s->rights;
    accel_status_t st = ACCEL_OK;

    if (!s->rule.no_feedback)
        st = array_new(s, s->errors, &s->error, err);
    ACCEL_TRY(st, array_new(s, s->lefts + s->plains, &s->left, err));
    ACCEL_TRY(st, array_new(s, s->rights, &s->right, err));
    if (st == ACCEL_OK && s->rule.batched)
        st = array_new(s, s->errors, &s->square, err);
    if (st != ACCEL_OK)
        return st;
    s->host = calloc((size_t)longer + 1, sizeof(*s->host));
    s->sumsq = s->be->host_alloc(s->be, sizeof(*s->sumsq));
    return s->host && s->sumsq ? ACCEL_OK
                               : accel_fail_nomem(err, "the factors of PowerSGD",
                                                  (size_t)longer * sizeof(*s->host));
}

accel_status_t powersgd_open(struct powersgd **powersgd_out, const struct backend *be,
                             const accel_powersgd_t *rule, uint64_t seed,
                             const struct powersgd_shape *shapes, int count,
                             accel_error_t *err)
{
    const size_t entries = (size_t)(count > 0 ? count : 0) + 1;
    accel_status_t st;
    struct powersgd *s;

    ACCEL_CHECK(st, powersgd_check(rule, err));
    ACCEL_CHECK(st, shapes_check(shapes, count, err));
    s = calloc(1, sizeof(*s));
    if (!s)
        return accel_fail_nomem(err, "PowerSGD", sizeof(*s));
    s->be = be;
    s->rule = powersgd_rule(rule);
    s->seed = seed;
    s->matrix = calloc(entries, sizeof(*s->matrix));
    s->range = calloc(entries, sizeof(*s->range));
    if (!s->matrix || !s->range) {
        powersgd_close(s);
        return accel_fail_nomem(err, "PowerSGD", entries * sizeof(*s->matrix));
    }
    lay_out(s, shapes, count);
    if (be)
        st = arrays_new(s, err);
    if (st != ACCEL_OK) {
        powersgd_close(s);
        return st;
    }
    *powersgd_out = s;
    return ACCEL_OK;
}

void powersgd_close(struct powersgd *s)
{
    if (!s)
        return;
    if (s->be) {
        s->be->free(s->be, s->error);
        s->be->free(s->be, s->left);
        s->be->free(s->be, s->right);
        s->be->free(s->be, s->square);
    }
    if (s->sumsq)
        s->be->host_free(s->be, s->sumsq, sizeof(*s->sumsq));
    free(s->host);
    free(s->matrix);
    free(s->range);
    free(s);
}

bool powersgd_exact(const struct powersgd *s, int64_t step)
{
    return step < s->rule.start;
}

struct powersgd_sizes powersgd_sizes(const struct powersgd *s)
{
    const int64_t errors = s->rule.no_feedback ? 0 : s->errors;
    const int64_t square = s->rule.batched ? s->errors : 0;

    return (struct powersgd_sizes){
        .total = s->total,
        .sent = s->lefts + s->rights + s->plains,
        .state = errors + (s->rule.cold ? 0 : s->rights),
        .memory = errors + s->lefts + s->plains + s->rights + square,
    };
}

struct powersgd_state powersgd_state_of(struct powersgd *s)
{
    return (struct powersgd_state){
        .error = s->error,
        .errors = s->error ? s->errors : 0,
        .right = s->rule.cold ? NULL : s->right,
        .rights = s->rule.cold ? 0 : s->rights,
    };
}

bool powersgd_part(const struct powersgd *s, int i, struct powersgd_part *part_out)
{
    const struct low_rank *l = &s->matrix[i];

    if (i >= s->matrices)
        return false;
    *part_out = (struct powersgd_part){
        .shape = l->shape,
        .rows = l->rows,
        .cols = l->cols,
        .rank = l->rank,
        .error = s->error ? s->error + l->error_at : NULL,
        .right = s->right && !s->rule.cold ? s->right + l->right_at : NULL,
    };
    return true;
}
