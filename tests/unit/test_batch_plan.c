/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of batches: every row that was measured with Accelerate, a grid of cases
 * against a second statement of its loaders, and what holds without Accelerate: after a
 * skip, on another number of ranks, with ranks that stay away.
 */
#include <jansson.h>
#include <string.h>

#include "loader/batch_plan.h"
#include "tests/tap.h"
#include "tests/unit/accelerate_rule.h"

static struct batch_plan plan_of(const struct rule_case *c, bool dispatch)
{
    return (struct batch_plan){ .batch = c->batch,
                                .ranks = c->ranks,
                                .split = c->split,
                                .dispatch = dispatch,
                                .drop_last = c->drop_last,
                                .ends = c->even ? ENDS_EVEN : ENDS_UNEVEN };
}

/* The batches of a rank as the plan has them. */
static void plan_batches(const struct batch_plan *p, int n, int rank,
                         struct rule_batches *out)
{
    int64_t steps = plan_steps(p, n);

    out->count = 0;
    for (int64_t s = 0; s < steps; s++) {
        int64_t real = plan_step_real(p, n, s);
        struct batch_part part =
            plan_part(p, p->base + s * plan_step_batch(p), real, rank);

        for (int i = 0; i < part.count; i++)
            out->sample[out->count][i] = (int)plan_place(&part, n, i);
        out->size[out->count] = part.count;
        out->count += part.count > 0;
    }
}

static bool batches_equal(const struct rule_batches *a, const struct rule_batches *b)
{
    if (a->count != b->count)
        return false;
    for (int i = 0; i < a->count; i++)
        if (a->size[i] != b->size[i] ||
            memcmp(a->sample[i], b->sample[i], (size_t)a->size[i] * sizeof(int)) != 0)
            return false;
    return true;
}

/* ---- measured rows --------------------------------------------------------------- */

static int row_int(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    return json_is_boolean(v) ? json_is_true(v) : (int)json_integer_value(v);
}

static struct rule_case row_case(const json_t *row)
{
    return (struct rule_case){ .n = row_int(row, "n"),
                               .batch = row_int(row, "batch"),
                               .ranks = row_int(row, "procs"),
                               .split = row_int(row, "split_batches"),
                               .drop_last = row_int(row, "drop_last"),
                               .even = true };
}

/* A row has batches per rank, or (`flat`) the samples one after the other. */
static bool row_fits(const json_t *row, bool flat)
{
    struct rule_case c = row_case(row);
    struct batch_plan p = plan_of(&c, false);
    static struct rule_batches got;

    for (int rank = 0; rank < c.ranks; rank++) {
        const json_t *want =
            json_array_get(json_object_get(row, "ranks"), (size_t)rank);
        const json_t *len = json_object_get(row, "len");
        int seen = 0;

        plan_batches(&p, c.n, rank, &got);
        for (int b = 0; b < got.count; b++)
            for (int i = 0; i < got.size[b]; i++, seen++) {
                const json_t *v =
                    flat ? json_array_get(want, (size_t)seen)
                         : json_array_get(json_array_get(want, (size_t)b), (size_t)i);

                if (!json_is_integer(v) || json_integer_value(v) != got.sample[b][i])
                    return false;
            }
        if ((int)json_array_size(want) != (flat ? seen : got.count))
            return false;
        if (!flat && json_integer_value(json_array_get(len, (size_t)rank)) !=
                         plan_length(&p, c.n, rank))
            return false;
    }
    return true;
}

static void test_rows(const json_t *file, const char *key, bool flat)
{
    const json_t *rows = json_object_get(file, key);
    int wrong = 0;

    for (size_t i = 0; i < json_array_size(rows); i++)
        wrong += !row_fits(json_array_get(rows, i), flat);
    tap_ok(json_array_size(rows) > 50, "%s: %zu rows", key, json_array_size(rows));
    tap_is_int(wrong, 0, "%s: the plan has their samples and lengths", key);
}

/* ---- the grid -------------------------------------------------------------------- */

enum mode { SHARDED, ITERABLE, DISPATCHED };
static const char *const mode_names[] = { "sharded", "iterable", "dispatched" };

static bool rule_of(enum mode mode, const struct rule_case *c, int rank,
                    struct rule_batches *out)
{
    if (mode == DISPATCHED)
        return rule_dispatched(c, rank, out);
    if (mode == SHARDED)
        rule_sharded(c, rank, out);
    else
        rule_iterable(c, rank, out);
    return true;
}

/* Accelerate leaves only its sharded loaders uneven. */
static void test_grid(enum mode mode)
{
    static struct rule_batches want, got;
    int cases = 0, wrong = 0, hangs = 0;

    for (int bits = 0; bits < (mode == SHARDED ? 8 : 4); bits++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int batch = 1; batch <= 5; batch++)
                for (int n = 0; n <= 40; n++) {
                    struct rule_case c = { n,        batch,    ranks,
                                           bits & 1, bits & 2, !(bits & 4) };
                    struct batch_plan p = plan_of(&c, mode == DISPATCHED);

                    if (c.split && batch % ranks != 0)
                        continue;
                    for (int rank = 0; rank < ranks; rank++) {
                        plan_batches(&p, n, rank, &got);
                        if (!rule_of(mode, &c, rank, &want)) {
                            hangs++;
                            wrong += got.size[got.count - 1] != 1;
                            continue;
                        }
                        cases++;
                        wrong += !batches_equal(&want, &got) ||
                                 plan_length(&p, n, rank) != got.count;
                    }
                }
    tap_is_int(wrong, 0, "%s: %d cases as Accelerate has them, %d where it hangs",
               mode_names[mode], cases, hangs);
}

/* ---- what Accelerate has no rule for --------------------------------------------- */

/* Every place from the base on is real exactly once (with drop_last: at most). */
static bool each_once(const struct batch_plan *p, int n)
{
    int hits[64] = { 0 };
    int64_t steps = plan_steps(p, n), left = n > p->base ? n - p->base : 0;

    for (int64_t s = 0; s < steps; s++)
        for (int rank = 0; rank < p->ranks; rank++) {
            int64_t at = p->base + s * plan_step_batch(p);
            struct batch_part part = plan_part(p, at, plan_step_real(p, n, s), rank);

            if (part.count < part.real || (p->ends == ENDS_JOIN && part.count < 1))
                return false;
            for (int i = 0; i < part.count; i++) {
                int64_t place = plan_place(&part, n, i);

                if (place < 0 || place >= n)
                    return false;
                hits[place] += i < part.real;
            }
        }
    for (int i = 0; i < n; i++) {
        bool taken = i >= p->base &&
                     (!p->drop_last ||
                      i < p->base + left / plan_step_batch(p) * plan_step_batch(p));

        if (hits[i] != taken)
            return false;
    }
    return true;
}

static void test_once(void)
{
    int cases = 0, wrong = 0;

    for (int bits = 0; bits < 8; bits++)
        for (int ends = ENDS_EVEN; ends <= ENDS_JOIN; ends++)
            for (int ranks = 1; ranks <= 4; ranks++)
                for (int batch = 1; batch <= 5; batch++)
                    for (int n = 1; n <= 40; n++)
                        for (int base = 0; base <= n + 3; base += 3, cases++) {
                            struct batch_plan p = { .batch = batch,
                                                    .ranks = ranks,
                                                    .split = bits & 1,
                                                    .dispatch = bits & 2,
                                                    .drop_last = bits & 4,
                                                    .ends = (enum batch_ends)ends,
                                                    .base = base };

                            if (p.split && batch % ranks != 0)
                                continue;
                            wrong += !each_once(&p, n);
                        }
    tap_is_int(wrong, 0, "every place once, from any place on (%d cases)", cases);
}

/* A base that is a multiple of the step changes nothing behind it. */
static void test_skip(void)
{
    static struct rule_batches all, rest;
    int wrong = 0;

    for (int n = 0; n <= 40; n++)
        for (int skip = 0; skip <= 3; skip++)
            for (int rank = 0; rank < 3; rank++) {
                struct rule_case c = { n, 2, 3, false, false, true };
                struct batch_plan p = plan_of(&c, false);

                plan_batches(&p, n, rank, &all);
                p.base = skip * plan_step_batch(&p);
                plan_batches(&p, n, rank, &rest);
                wrong += rest.count != (all.count > skip ? all.count - skip : 0);
                for (int b = 0; b < rest.count; b++)
                    wrong += memcmp(rest.sample[b], all.sample[b + skip],
                                    2 * sizeof(int)) != 0;
            }
    tap_is_int(wrong, 0, "the batches behind a skip are those of the whole epoch");
}

static void test_remainder(void)
{
    struct batch_plan p = { .batch = 2, .ranks = 2 };

    tap_is_int(plan_remainder(&p, 10), 2, "10 samples, 4 a step: 2 are left");
    tap_is_int(plan_remainder(&p, 8), 0, "8: the last step is full");
    p.base = 4;
    tap_is_int(plan_remainder(&p, 3), 0, "nothing behind the base");
    p.drop_last = true;
    tap_is_int(plan_remainder(&p, 10), -1, "dropped");
}

int main(void)
{
    json_t *file = json_load_file(GOLDEN, 0, NULL);

    if (!tap_ok(file != NULL, "the measured rows"))
        return tap_done();
    test_rows(file, "batch_sampler_shard", false);
    test_rows(file, "iterable_dataset_shard", true);
    json_decref(file);
    test_grid(SHARDED);
    test_grid(ITERABLE);
    test_grid(DISPATCHED);
    test_once();
    test_skip();
    test_remainder();
    return tap_done();
}
