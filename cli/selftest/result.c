/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the checks of the self-test, agrees on each outcome with all ranks, prints them.
 * In: functions. Out: table or JSON, coded errors with rank and host, one exit code.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/selftest/selftest.h"

/* What a rank that failed sends to rank 0. */
struct finding {
    int rank;
    char host[64];
    accel_error_t error;
};

/* The error as rank 0 shows it: "rank R on HOST" in front of its own place. */
static void place_finding(const struct finding *f, accel_error_t *out)
{
    *out = f->error;
    snprintf(out->where, sizeof(out->where), "rank %d on %s%s%.180s", f->rank, f->host,
             f->error.where[0] ? ": " : "", f->error.where);
}

/* Rank 0 keeps the finding of the lowest rank with a text: a rank without
 * one only noticed that another failed. `all` holds the findings of failed
 * ranks back to back. */
static void keep_first(struct check *c, const void *all, const size_t *sizes, int size)
{
    const struct finding *f = all;

    for (int r = 0; r < size; r++) {
        if (!sizes[r])
            continue;
        if (!c->error.code || (!c->error.text[0] && f->error.text[0]))
            place_finding(f, &c->error);
        f++;
    }
}

/* Makes outcome and time of a check the same on all ranks: the highest status and the
 * slowest time. The reasons travel to rank 0 only where some rank failed. */
static accel_status_t selftest_agree(struct selftest *t, struct check *c,
                                     accel_status_t *check_st,
                                     const accel_error_t *mine, accel_error_t *err)
{
    const struct boot *b = &t->run->boot;
    struct finding f = { .rank = b->rank, .error = *mine };
    /* One reduction for both: a status is a small integer, exact as a double. */
    double v[2] = { (double)*check_st, c->ms };
    size_t *sizes = calloc((size_t)b->size, sizeof(*sizes));
    void *all = NULL;
    accel_status_t st;

    if (!sizes)
        return accel_fail_nomem(err, "the findings", (size_t)b->size * sizeof(*sizes));
    snprintf(f.host, sizeof(f.host), "%s", b->host);
    st = comm_all_reduce(t->run->comm, v, 2, ACCEL_F64, COMM_MAX, err);
    if (st == ACCEL_OK && v[0] > 0)
        st = comm_gather(t->run->comm, &f, *check_st == ACCEL_OK ? 0 : sizeof(f), 0,
                         &all, sizes, err);
    if (st == ACCEL_OK && all)
        keep_first(c, all, sizes, b->size);
    if (st == ACCEL_OK) {
        *check_st = (accel_status_t)v[0];
        c->ms = v[1];
    }
    free(all);
    free(sizes);
    return st;
}

/* Ranks that cannot agree have lost each other: each keeps its own error from then on
 * and skips what is left. */
void selftest_check(struct selftest *t, const char *name, selftest_f fn)
{
    struct check *c = &t->check[t->checks++];
    accel_error_t mine = { 0 }, err = { 0 };
    accel_status_t st;
    int64_t start = clock_ns();

    *c = (struct check){ .name = name };
    if (t->broken) {
        c->verdict = VERDICT_SKIPPED;
        snprintf(c->found, sizeof(c->found),
                 "the ranks lost contact in an earlier check");
        return;
    }
    /* What this rank finds stays with it until all ranks are through the check. */
    st = fn(t, c, &mine);
    if (c->ms <= 0)
        c->ms = (double)(clock_ns() - start) / 1e6;
    if (selftest_agree(t, c, &st, &mine, &err) != ACCEL_OK) {
        /* A rank that knows the cause says it, the others what they noticed. */
        struct finding f = { .rank = t->run->boot.rank,
                             .error = mine.text[0] ? mine : err };

        snprintf(f.host, sizeof(f.host), "%s", t->run->boot.host);
        place_finding(&f, &c->error);
        t->broken = true;
        st = c->error.code;
    }
    if (st == ACCEL_OK)
        return;
    c->verdict = VERDICT_FAIL;
    if (t->status == ACCEL_OK)
        t->status = st;
}

/* Time and rate are left empty where they say nothing: a skipped check has no time, and
 * a failed one no rate. */
static void add_check_row(struct cli_table *table, const struct check *c)
{
    static const char *const words[] = { "ok", "fail", "skipped" };
    char ms[32] = "", rate[32] = "";

    if (c->verdict != VERDICT_SKIPPED)
        snprintf(ms, sizeof(ms), "%.3f", c->ms);
    if (c->verdict == VERDICT_OK && c->gb_per_s > 0)
        snprintf(rate, sizeof(rate), "%.2f", c->gb_per_s);
    cli_table_row(table, (const char *[]){ c->name, words[c->verdict], ms, rate,
                                           c->verdict == VERDICT_FAIL ? c->error.text
                                                                      : c->found });
}

static int print_checks(const struct selftest *t, bool json)
{
    static const char *const columns[] = { "CHECK",     "RESULT", "#MS",
                                           "#GB_PER_S", "FOUND",  NULL };
    struct cli_table *table = cli_table_new("checks", columns);

    if (!table)
        return cli_no_memory("the table");
    for (int i = 0; i < t->checks; i++)
        add_check_row(table, &t->check[i]);
    return cli_table_print(table, json);
}

/* stdout is rank 0's alone, so that scripts read one table whatever
 * the number of ranks. */
int selftest_report(struct selftest *t, bool json)
{
    int rank = t->run->boot.rank, code = accel_exit_code(t->status), printed = 0;

    if (rank == 0)
        printed = print_checks(t, json);
    for (int i = 0; i < t->checks; i++)
        if (t->check[i].verdict == VERDICT_FAIL && (rank == 0 || t->broken) &&
            t->check[i].error.text[0])
            cli_fail(&t->check[i].error);
    fflush(NULL);
    /* srun ends all ranks when the first one exits badly: rank 0 prints
     * before any of them may. */
    if (!t->broken)
        comm_barrier(t->run->comm, NULL);
    return code ? code : printed;
}
