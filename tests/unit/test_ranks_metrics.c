/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_gather_for_metrics: what one process sees, once each and in order, for every
 * kind of loader. Accelerate's rows for two processes (tests/data/ranks), also with the
 * batches of a loader of the run, then 1 to 4 ranks and 1 to 40 samples with a loader
 * that is made up here: whole batches or parts of one, filled up from the start, or
 * uneven, of ranks without a batch and of ranks that know only their own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_impl.h"
#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/world/ranks_world.h"

enum { MOST = 64 };

/* A batch of this rank, and what its loader says of it. */
struct batch {
    int index[MOST], rows;
    accel_batch_end_t end;
};

/* Gathers the batch as a tensor and as an array of one column: both must be the samples
 * got[first ...). Returns how many came. */
static int gather_batch(accel_t *run, const struct batch *b, int *got)
{
    int32_t column[MOST], all[4 * MOST];
    accel_array_t mine = { ACCEL_I32, 2, { b->rows, 1 }, b->rows, column };
    accel_array_t to = { .elems = 4 * MOST, .data = all };
    accel_error_t err = { 0 };
    accel_tensor_t *t;

    for (int i = 0; i < b->rows; i++)
        column[i] = b->index[i];
    memset(all, 0x5a, sizeof(all));
    graph_reset(&run->graph);
    t = ranks_tensor(run, ACCEL_I32, b->rows, b->index);
    t = accel_gather_for_metrics(run, t, &b->end, &err);
    if (!ranks_check(run, t && t->ndim == 1, "tensor: %s", err.text) ||
        !ranks_check(run,
                     !accel_gather_for_metrics_array(run, &mine, &b->end, &to, &err),
                     "array: %s", err.text))
        return 0;
    ranks_check(run,
                to.ndim == 2 && to.dims[1] == 1 && to.dims[0] == t->dim[0] &&
                    to.elems == t->elems,
                "both have the same rows");
    ranks_check(run, !t->elems || !memcmp(t->data, all, (size_t)t->elems * 4),
                "with the same samples");
    ranks_check(run, !b->end.counted || all[t->elems] == 0x5a5a5a5a,
                "and nothing behind those that are counted");
    for (int64_t i = 0; i < t->elems; i++)
        got[i] = all[i];
    return (int)t->elems;
}

/* ---- Accelerate's rows ----------------------------------------------------------- */

/* The numbers of part `index` of "1,2;3": at most MOST; "-": none. */
static int part_numbers(const char *text, int index, int *out)
{
    char copy[512], *rest = copy, *part = NULL;
    int n = 0;

    snprintf(copy, sizeof(copy), "%s", text);
    for (int i = 0; i <= index; i++)
        if (!(part = strsep(&rest, ";")))
            return -1;
    for (char *word; (word = strsep(&part, ",")) && n < MOST;)
        if (*word && strcmp(word, "-"))
            out[n++] = atoi(word);
    return n;
}

/* Batch k of the loader beside that of the line, and its metrics. False: it has none. */
static bool golden_batch(accel_t *run, accel_loader_t *l, char *const field[6], int k)
{
    int want[4 * MOST], all[4 * MOST], n;
    accel_error_t err = { 0 };
    accel_tensor_t *t;
    struct batch b = { 0 };
    int got = 0;

    if (!ranks_check(run, !accel_loader_next(l, &t, 1, &got, &err), "%s", err.text) ||
        !got)
        return false;
    b.rows = (int)t->dim[0];
    for (int i = 0; i < b.rows && i < MOST; i++)
        b.index[i] = ((int32_t *)t->data)[i];
    b.end = accel_loader_end(l);
    n = part_numbers(field[1 + run->boot.rank], k, want);
    ranks_check(run,
                n == b.rows && !memcmp(want, b.index, (size_t)b.rows * sizeof(*want)),
                "%s: loaded batch %d has %d samples, not %d", field[0], k, b.rows, n);
    part_numbers(field[4], k, want);
    ranks_check(run, b.end.at_end == want[0], "%s: batch %d, the end", field[0], k);
    n = part_numbers(field[5], k, want);
    ranks_check(run,
                gather_batch(run, &b, all) == n &&
                    !memcmp(all, want, (size_t)n * sizeof(*all)),
                "%s: loaded batch %d counts %d samples", field[0], k, n);
    return true;
}

/* The same line from a loader of the run. */
static void golden_loader(accel_t *run, char *const field[6])
{
    accel_loader_options_t o = { .bytes = sizeof(o) };
    struct counter c = { .fails = -1 };
    accel_error_t err = { 0 };
    accel_loader_t *l = NULL;
    accel_dataset_t *d;
    int none[MOST], batches = 0;
    char mode[16];

    if (!ranks_check(run,
                     sscanf(field[0], "%15s %d %" SCNd64 " %d", mode, &o.split_batches,
                            &c.samples, &o.batch) == 4,
                     "%s: no loader", field[0]))
        return;
    if (!strcmp(mode, "dispatch"))
        o.dispatch_batches = ACCEL_DISPATCH_ON;
    if (strcmp(mode, "iterable")) {
        o.sampler = ACCEL_SAMPLER_SEQUENTIAL;
        d = counter_numbered(&c, 1);
    } else {
        d = counter_stream(&c);
    }
    if (ranks_check(run, !accel_loader_new(&l, run, "rows", d, &o, &err), "%s",
                    err.text))
        while (golden_batch(run, l, field, batches))
            batches++;
    ranks_check(run, part_numbers(field[1 + run->boot.rank], batches, none) < 0,
                "%s: %d batches", field[0], batches);
    accel_loader_close(l);
    accel_dataset_close(d);
}

/* One line of the file, on this rank. */
static void golden_row(accel_t *run, char *line)
{
    char *field[6], *rest = line;
    int got[4 * MOST], want[4 * MOST], one[MOST], n;
    struct batch b = { 0 };

    for (int i = 0; i < 6; i++) {
        field[i] = strsep(&rest, "|");
        if (!ranks_check(run, field[i], "six fields in a row"))
            return;
        field[i] += strspn(field[i], " ");
        field[i][strcspn(field[i], "|\n")] = '\0';
        if (i)
            field[i][strcspn(field[i], " ")] = '\0';
    }
    for (int k = 0; (b.rows = part_numbers(field[1 + run->boot.rank], k, b.index)) >= 0;
         k++) {
        part_numbers(field[3], k, one);
        b.end.remainder = one[0];
        part_numbers(field[4], k, one);
        b.end.at_end = one[0];
        n = part_numbers(field[5], k, want);
        ranks_check(run,
                    gather_batch(run, &b, got) == n &&
                        !memcmp(got, want, (size_t)n * sizeof(*got)),
                    "%s: batch %d has %d samples", field[0], k, n);
    }
    golden_loader(run, field);
}

static void golden_rank(accel_t *run, void *arg)
{
    FILE *f = fopen(arg, "r");
    char line[512];
    int rows = 0;

    run->graph.evaluating = true;
    while (f && fgets(line, sizeof(line), f))
        if (line[0] != '#') {
            golden_row(run, line);
            rows++;
        }
    if (f)
        fclose(f);
    ranks_check(run, rows >= 108, "%d rows", rows);
}

/* ---- every kind of loader -------------------------------------------------------- */

enum mode { SHARD, SPLIT, UNEVEN, OWN_COUNT, JAGGED, MODES };

static const char *const mode_name[MODES] = { "shard", "split", "uneven", "own count",
                                              "jagged" };

struct loader {
    enum mode mode;
    int samples, batch, ranks, rank;
};

/* Ranks take 0 to `batch` samples in turn, each time another number, with rows behind
 * them that do not count. */
static bool jagged_next(const struct loader *l, int round, struct batch *b)
{
    int at = 0, before = 0;

    *b = (struct batch){ .end.counted = 1 };
    for (int turn = 0; turn < (round + 1) * l->ranks; turn++) {
        int take = (turn * 7 + turn / 3) % (l->batch + 1);

        if (turn == round * l->ranks)
            before = at;
        take = take < l->samples - at ? take : l->samples - at;
        for (int i = 0; turn == round * l->ranks + l->rank && i <= take; i++)
            b->index[b->rows++] = i < take ? at + i : 999;
        if (turn == round * l->ranks + l->rank)
            b->end.count = take;
        at += take;
    }
    return before < l->samples;
}

/* A round is what all ranks take together. Filled up, its places beyond the end are
 * samples from the start; uneven ones are left out. */
static bool loader_next(const struct loader *l, int round, struct batch *b)
{
    int own = l->mode == SPLIT ? l->batch / l->ranks : l->batch;
    int total = own * l->ranks, start = round * total;

    if (l->mode == JAGGED)
        return jagged_next(l, round, b);
    if (start >= l->samples)
        return false;
    *b = (struct batch){ 0 };
    for (int i = 0; i < own; i++) {
        int place = start + l->rank * own + i;

        if (place < l->samples)
            b->end.count++;
        if (place < l->samples || l->mode != UNEVEN)
            b->index[b->rows++] = place % l->samples;
    }
    b->end.counted = l->mode == UNEVEN || l->mode == OWN_COUNT;
    b->end.at_end = start + total >= l->samples;
    b->end.remainder = l->samples % total;
    return true;
}

/* The metric: how many samples, and a sum that depends on each of them. */
static double score(int sample)
{
    return 1.0 / (1 + sample) + (sample % 3 == 0);
}

static void one_loader(accel_t *run, enum mode mode, int samples, int batch)
{
    struct loader l = { mode, samples, batch, run->boot.size, run->boot.rank };
    int got[4 * MOST], seen = 0;
    double sum = 0, serial = 0;
    struct batch b;

    for (int i = 0; i < samples; i++)
        serial += score(i);
    for (int round = 0; loader_next(&l, round, &b); round++) {
        int n = gather_batch(run, &b, got);

        for (int i = 0; i < n; i++) {
            if (got[i] != seen)
                ranks_check(run, false, "%s: sample %d is number %d", mode_name[mode],
                            got[i], seen);
            sum += score(got[i]);
            seen++;
        }
    }
    ranks_check(run, seen == samples && sum == serial,
                "%s, %d samples, batch %d: %d seen, %g for %g", mode_name[mode],
                samples, batch, seen, sum, serial);
}

static void loaders_rank(accel_t *run, void *arg)
{
    (void)arg;
    for (int mode = 0; mode < MODES; mode++)
        for (int samples = 1; samples <= 40; samples++)
            for (int batch = 1; batch <= 5; batch++)
                one_loader(run, (enum mode)mode, samples,
                           mode == SPLIT ? batch * run->boot.size : batch);
}

/* ---- batches that cannot be ------------------------------------------------------ */

static void refused_rank(accel_t *run, void *arg)
{
    accel_batch_end_t end = { .at_end = 1, .remainder = 9 };
    float one = 1, all[8];
    accel_array_t mine = { ACCEL_F32, 1, { 1 }, 1, &one };
    accel_array_t to = { .elems = 8, .data = all };
    accel_error_t err = { 0 };

    (void)arg;
    ranks_check(run,
                accel_gather_for_metrics_array(run, &mine, &end, &to, &err) ==
                        ACCEL_EINVAL &&
                    err.message == 942,
                "9 samples in a row per rank: %s", err.text);
    ranks_check(run,
                !accel_gather_for_metrics_array(run, &mine, NULL, &to, &err) &&
                    to.dims[0] == run->boot.size,
                "no end: all rows");
    mine.ndim = 0;
    end.remainder = 1;
    ranks_check(run,
                accel_gather_for_metrics_array(run, &mine, &end, &to, &err) ==
                        ACCEL_EINVAL &&
                    err.message == 942 && strstr(err.text, "single number"),
                "a number: %s", err.text);
    /* One rank counts more than it has: all learn it. */
    mine.ndim = 1;
    end = (accel_batch_end_t){ .counted = 1,
                               .count = run->boot.rank == run->boot.size - 1 ? 2 : 1 };
    to.elems = 8;
    ranks_check(run,
                accel_gather_for_metrics_array(run, &mine, &end, &to, &err) ==
                        ACCEL_EINVAL &&
                    strstr(err.text, "2 samples of the batch count, but it has 1 rows"),
                "a count of one rank: %s", err.text);
    /* One rank has no room: all learn it. */
    end.count = 1;
    to.elems = run->boot.rank == run->boot.size - 1 ? run->boot.size - 1 : 8;
    ranks_check(run,
                accel_gather_for_metrics_array(run, &mine, &end, &to, &err) ==
                        ACCEL_EINVAL &&
                    strstr(err.text, "array of rank"),
                "the room of one rank: %s", err.text);
    end.count = 0;
    to.elems = 0;
    ranks_check(run,
                !accel_gather_for_metrics_array(run, &mine, &end, &to, &err) &&
                    to.dims[0] == 0,
                "no rank has a sample: %s", err.text);
}

/* Another file of rows may be named: tests/t/4147-ranks-accelerate.t makes one. */
int main(int argc, char **argv)
{
    char kept[] = DATA "/metrics_p2.txt";

    tap_is_int(ranks_world(2, false, golden_rank, argc > 1 ? argv[1] : kept), 0,
               "rows of Accelerate");
    for (int n = 1; n <= 4; n++) {
        tap_is_int(ranks_world(n, false, loaders_rank, NULL), 0,
                   "every loader on %d ranks", n);
        tap_is_int(ranks_world(n, false, refused_rank, NULL), 0, "refused on %d ranks",
                   n);
    }
    tap_is_int(ranks_world(3, true, loaders_rank, NULL), 0, "the same with debug");
    return tap_done();
}
