/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders on 1 to 4 ranks, with and without threads: the batches of Accelerate's
 * loaders, what a loader says about them, failures of one rank, and places in
 * checkpoints at another number of ranks.
 */
#include <string.h>

#include "loader/loader.h"
#include "data/data.h"
#include "tests/tap.h"
#include "tests/unit/accelerate_rule.h"
#include "tests/world/loader_world.h"

enum { ROOM = 64 };
enum mode { SHARDED, STREAM, DISPATCHED, DISPATCHED_STREAM, MODES };

static bool is_stream(enum mode m)
{
    return m == STREAM || m == DISPATCHED_STREAM;
}

static accel_loader_options_t options_of(enum mode m, const struct rule_case *c)
{
    return (accel_loader_options_t){
        .batch = c->batch,
        .sampler = is_stream(m) ? ACCEL_SAMPLER_KEYED : ACCEL_SAMPLER_SEQUENTIAL,
        .drop_last = c->drop_last,
        .uneven = !c->even,
        .split_batches = c->split,
        .dispatch_batches = m == DISPATCHED || m == DISPATCHED_STREAM
                                ? ACCEL_DISPATCH_ON
                                : ACCEL_DISPATCH_OFF
    };
}

static accel_dataset_t *dataset_of(enum mode m, struct counter *c, int threads)
{
    return is_stream(m) ? counter_stream(c) : counter_numbered(c, threads);
}

/* ---- the rule -------------------------------------------------------------------- */

/* One epoch against the rule, and what the loader says of each batch. */
static int compare_epoch(struct loader_rig *r, struct accel_loader *l,
                         const struct rule_case *c, const struct rule_batches *want)
{
    int64_t step = c->split ? c->batch : c->batch * c->ranks;
    accel_error_t err = { 0 };
    int got[ROOM], count;

    for (int b = 0; b < want->count; b++) {
        struct loader_state s;

        count = loader_batch(r, l, got, ROOM, &err);
        s = loader_state(l);
        EXPECT(count == want->size[b], "batch %d of %d: %d samples, not %d %s", b,
               want->count, count, want->size[b], err.text);
        EXPECT(memcmp(got, want->sample[b], (size_t)count * sizeof(int)) == 0,
               "batch %d of %d samples: %d, not %d", b, c->n, got[0],
               want->sample[b][0]);
        EXPECT(s.at_end == (b + 1 == want->count), "batch %d of %d: at_end %d", b,
               want->count, s.at_end);
        for (int i = 0; i < s.real; i++)
            EXPECT(got[i] >= b * step, "sample %d of batch %d is not real", i, b);
        if (c->drop_last)
            EXPECT(s.remainder == -1, "%d samples, a dropped step: remainder %lld",
                   c->n, (long long)s.remainder);
        else if (s.at_end && c->even)
            EXPECT(s.remainder == c->n % step && s.step_real == (c->n - 1) % step + 1,
                   "%d samples: remainder %lld of %lld", c->n, (long long)s.remainder,
                   (long long)step);
    }
    count = loader_batch(r, l, got, ROOM, &err);
    EXPECT(count == -2, "behind the last batch: %d %s", count, err.text);
    return 0;
}

/* Threads for every second case; for streams one. A case runs for two epochs. */
static int run_case(struct loader_rig *r, enum mode m, const struct rule_case *c,
                    int number)
{
    static struct rule_batches want;
    struct counter counter = { .samples = c->n,
                               .fails = -1,
                               .announced = number % 3 == 0 };
    accel_loader_options_t o = options_of(m, c);
    accel_dataset_t *d = dataset_of(m, &counter, 4);
    struct accel_loader *l = NULL;
    accel_error_t err = { 0 };
    int bad = 0;

    o.prefetch = number % 2 ? 1 + number % 5 : 0;
    o.threads = number % 2 && !is_stream(m) ? 1 + number % 4 : 0;
    EXPECT(d && !loader_open(&l, &r->place, "data", d, &o, &err), "%s", err.text);
    if (m == SHARDED)
        rule_sharded(c, r->place.rank, &want);
    else if (m == STREAM)
        rule_iterable(c, r->place.rank, &want);
    else
        rule_dispatched(c, r->place.rank, &want);
    for (int epoch = 0; epoch < 2 && !bad; epoch++) {
        bad = accel_loader_epoch(l) != epoch;
        bad |= compare_epoch(r, l, c, &want);
    }
    if (bad)
        fprintf(stderr,
                "# mode %d n %d batch %d rank %d of %d split %d drop %d even %d\n", m,
                c->n, c->batch, r->place.rank, c->ranks, c->split, c->drop_last,
                c->even);
    loader_free(l);
    accel_dataset_close(d);
    return bad;
}

/* With one rank the last batch stays short, as accelerate.prepare leaves it. Cases in
 * which Accelerate hangs are not its rule's. */
static int all_cases(struct boot *b, void *arg)
{
    const int sizes[] = { 1, 2, 3, 5, 8, 11, 24 };
    enum mode m = *(enum mode *)arg;
    struct loader_rig r;
    int number = 0;

    if (loader_rig_open(&r, b, ACCEL_F32))
        return 1;
    for (int bits = 0; bits < (m == SHARDED ? 8 : 4); bits++)
        for (int batch = 1; batch <= 4; batch += TAP_SANITIZED ? 2 : 1)
            for (size_t i = 0; i < ACCEL_ARRAY_SIZE(sizes); i++) {
                struct rule_case c = { sizes[i], batch,    b->size,
                                       bits & 1, bits & 2, !(bits & 4) };

                c.even = c.even && b->size > 1;
                if ((c.split && batch % b->size != 0) ||
                    (m >= DISPATCHED && sizes[i] < b->size) ||
                    (m != SHARDED && b->size == 1))
                    continue;
                if (run_case(&r, m, &c, number++))
                    return 1;
            }
    loader_rig_close(&r);
    return 0;
}

static void test_rule(void)
{
    static const char *const name[] = { "sharded", "stream of every rank", "dispatched",
                                        "dispatched stream" };

    for (enum mode m = SHARDED; m < MODES; m++)
        for (int ranks = 1; ranks <= 4; ranks++)
            tap_is_int(fork_world(ranks, all_cases, &m, HANG_S), 0, "%s on %d rank(s)",
                       name[m], ranks);
}

/* ---- failures -------------------------------------------------------------------- */

struct failing {
    enum mode mode;
    int64_t sample;
    int round;
};

/* The rank that reads the sample fails. All ranks end with its message after the same
 * number of batches: in the first at once, else at the end of the epoch. */
static int failing_rank(struct boot *b, void *arg)
{
    const struct failing *f = arg;
    struct counter counter = { .samples = 24, .fails = f->sample };
    struct rule_case c = { 24, 2, b->size, false, false, true };
    accel_loader_options_t o = options_of(f->mode, &c);
    accel_dataset_t *d = dataset_of(f->mode, &counter, 2);
    struct accel_loader *l = NULL;
    accel_error_t err = { 0 };
    struct loader_rig r;
    int got[ROOM], batches = 0, count;
    char want[32];

    if (loader_rig_open(&r, b, ACCEL_F32))
        return 1;
    o.prefetch = f->round % 3;
    o.threads = o.prefetch && !is_stream(f->mode) ? 1 + f->round % 2 : 0;
    EXPECT(!loader_open(&l, &r.place, "data", d, &o, &err), "%s", err.text);
    while ((count = loader_batch(&r, l, got, ROOM, &err)) > 0)
        batches++;
    snprintf(want, sizeof(want), "sample %lld", (long long)f->sample);
    EXPECT(count == -1 && err.code == ACCEL_EIO, "ended with %d: %s", count, err.text);
    EXPECT(strstr(err.text, is_stream(f->mode) ? "next returned 7" : want) &&
               strncmp(err.where, "rank ", 5) == 0,
           "the message is '%s' at '%s'", err.text, err.where);
    EXPECT(f->mode != SHARDED || batches == (f->sample < 6 ? 0 : 4),
           "%d batches before it", batches);
    EXPECT(f->mode != DISPATCHED || batches == f->sample / 6, "%d batches", batches);
    loader_free(l);
    accel_dataset_close(d);
    loader_rig_close(&r);
    return 0;
}

static void test_failures(void)
{
    const int rounds = TAP_SANITIZED ? 12 : 100;
    int bad = 0;

    for (int round = 0; round < rounds; round++) {
        struct failing f = { (enum mode)(round % MODES), round * 7 % 24, round };

        bad += fork_world(3, failing_rank, &f, HANG_S) != 0;
    }
    tap_is_int(bad, 0, "one rank cannot have its sample: all end, %d times", rounds);
}

/* ---- checkpoints ----------------------------------------------------------------- */

struct shared {
    char text[512];
    int hits[64];
    enum mode mode;
    int batches; /* to take before the checkpoint; -1: to the end of the epoch */
};

/* Takes batches, counts their real samples, and rank 0 writes or all read the state. */
static int resumed_rank(struct boot *b, void *arg)
{
    struct shared *s = arg;
    struct counter counter = { .samples = 23, .fails = -1 };
    struct rule_case c = { 23, 2, b->size, false, false, true };
    accel_loader_options_t o = options_of(s->mode, &c);
    accel_dataset_t *d = dataset_of(s->mode, &counter, 1);
    struct strbuf text = { 0 };
    struct accel_loader *l = NULL;
    accel_error_t err = { 0 };
    struct loader_rig r;
    int got[ROOM], count = 0;
    bool found;

    if (loader_rig_open(&r, b, ACCEL_F32))
        return 1;
    if (!is_stream(s->mode))
        o.sampler = ACCEL_SAMPLER_TORCH;
    o.prefetch = 2;
    EXPECT(!loader_open(&l, &r.place, "data", d, &o, &err), "%s", err.text);
    EXPECT(!loader_state_decode(l, s->text, &found, &err), "%s", err.text);
    EXPECT(found == (s->text[0] != '\0'), "found %d", found);
    for (int i = 0; i != s->batches; i++) {
        count = loader_batch(&r, l, got, ROOM, &err);
        if (count < 0)
            break;
        for (int k = 0; k < loader_state(l).real; k++)
            __atomic_fetch_add(&s->hits[got[k]], 1, __ATOMIC_RELAXED);
    }
    EXPECT(count == (s->batches < 0 ? -2 : count) && count != -1, "%s", err.text);
    loader_state_encode(l, &text);
    EXPECT(!comm_barrier(r.comm, &err), "%s", err.text);
    if (b->rank == 0)
        snprintf(s->text, sizeof(s->text), "step=3\n%s", text.s);
    strbuf_free(&text);
    loader_free(l);
    accel_dataset_close(d);
    loader_rig_close(&r);
    return 0;
}

static void test_resume(void)
{
    struct shared *s = fork_shared(sizeof(*s));
    int bad = 0, cases = 0;

    for (enum mode m = SHARDED; m < MODES; m++)
        for (int from = 1; from <= 3; from++)
            for (int to = 1; to <= 4; to += 3)
                for (int batches = 0; batches <= 3;
                     batches += 1 + TAP_SANITIZED, cases++) {
                    *s = (struct shared){ .mode = m, .batches = batches };
                    bad += fork_world(from, resumed_rank, s, HANG_S) != 0;
                    s->batches = -1;
                    bad += fork_world(to, resumed_rank, s, HANG_S) != 0;
                    for (int i = 0; i < 23; i++)
                        bad += s->hits[i] != 1;
                    bad += strstr(s->text, "epoch=1 taken=0 over=0") == NULL;
                }
    tap_is_int(bad, 0, "each sample once after a change of the ranks (%d cases)",
               cases);
}

/* ---- one rank -------------------------------------------------------------------- */

static struct loader_rig one;

static struct accel_loader *open_one(accel_dataset_t *d, accel_loader_options_t o,
                                     accel_error_t *err)
{
    struct accel_loader *l = NULL;

    return loader_open(&l, &one.place, "one", d, &o, err) ? NULL : l;
}

#define PLACE(loader, epoch, taken, places, seed)                                      \
    "loader." loader "=epoch=" epoch " taken=" taken " over=0 places=" places          \
    " sampler=keyed seed=" seed " held_out=0 bucket=0"

static void test_state_refused(void)
{
    struct counter c = { .samples = 10, .fails = -1 };
    accel_dataset_t *d = counter_numbered(&c, 1);
    accel_error_t err = { 0 };
    struct accel_loader *l =
        open_one(d, (accel_loader_options_t){ .batch = 2, .seed = 5 }, &err);
    static const struct {
        const char *text;
        accel_status_t st;
        bool found;
    } t[] = {
        { PLACE("two", "0", "4", "10", "5") "\n", ACCEL_OK, false },
        { PLACE("one", "2", "4", "10", "5"), ACCEL_OK, true },
        { PLACE("one", "2", "4", "10", "6") "\n", ACCEL_EMISMATCH, true },
        { PLACE("one", "2", "4", "11", "5") "\n", ACCEL_EMISMATCH, true },
        { "loader.one=epoch=-2 taken=4 over=0 places=10 sampler=keyed seed=5\n",
          ACCEL_EMISMATCH, true },
        { PLACE("one", "3", "11", "10", "5") "\n", ACCEL_EMISMATCH, true },
        { "loader.one=epoch=2\n", ACCEL_EMISMATCH, true },
        { "loader.one=\n", ACCEL_EMISMATCH, true },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        bool found;
        accel_status_t st = loader_state_decode(l, t[i].text, &found, &err);

        tap_ok(st == t[i].st && found == t[i].found, "line %zu: status %d, found %d", i,
               st, found);
    }
    tap_is_int(accel_loader_epoch(l), 2, "the place is that of the one good line");
    loader_free(l);
    accel_dataset_close(d);
}

static void test_options(void)
{
    struct counter c = { .samples = 10, .fails = -1 };
    accel_dataset_t *d = counter_numbered(&c, 2), *s = counter_stream(&c);
    static const double some[10] = { 0, 1 }, none[10] = { 0 }, less[10] = { -1 };
    const struct {
        bool stream;
        accel_loader_options_t o; /* batches of 1, but for the first row's */
        const char *text;
    } t[] = {
#define WEIGHTED .sampler = ACCEL_SAMPLER_WEIGHTED
        { 0, { .batch = 0 }, "batch must be" },
        { 0, { .join = 1 }, "join is for" },
        { 0, { .prefetch = -1 }, "prefetch must be" },
        { 0, { .threads = 1 }, "threads read ahead" },
        { 0, { .threads = 3, .prefetch = 1 }, "more threads than" },
        { 0, { .sampler = ACCEL_SAMPLER_OWN }, "needs an index" },
        { 0, { .sampler = (accel_sampler_t)9 }, "unknown sampler" },
        { 0, { .samples = 3 }, "samples per epoch" },
        { 0, { WEIGHTED }, "needs weights" },
        { 0, { WEIGHTED, .weights = none }, "above 0" },
        { 0, { WEIGHTED, .weights = less }, "not negative" },
        { 0,
          { WEIGHTED, .weights = some, .once = 1, .samples = 2 },
          "without replacement" },
        { 0, { .bucket = 4 }, "buckets need" },
        { 0, { .pad = 1 }, "need a length" },
        { 0, { .held_out = 1 }, "no held-out" },
        { 1, { .held_out = 1 }, "no held-out part" },
        { 1, { .bucket = 4 }, "its own order" },
        { 1, { .threads = 2, .prefetch = 1 }, "more threads than" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        accel_error_t err = { 0 };
        accel_loader_options_t o = t[i].o;
        struct accel_loader *l;

        o.batch = i > 0;
        l = open_one(t[i].stream ? s : d, o, &err);
        tap_ok(!l && err.code == ACCEL_EINVAL && strstr(err.text, t[i].text),
               "refused: %s", err.text);
        loader_free(l);
    }
    accel_dataset_close(d);
    accel_dataset_close(s);
}

/* The numbers of Accelerate's seedable sampler with data_seed 42, as measured, and
 * torch's of a seed whose bits, but for the first, are all 1. */
static void test_torch_order(void)
{
    static const int ones[10] = { 1, 9, 7, 4, 0, 5, 6, 8, 3, 2 };
    static const int want[3][10] = { { 2, 6, 1, 8, 4, 5, 0, 9, 3, 7 },
                                     { 8, 4, 9, 0, 5, 1, 6, 7, 2, 3 },
                                     { 2, 6, 3, 8, 7, 9, 1, 4, 5, 0 } };
    struct counter c = { .samples = 10, .fails = -1 };
    accel_dataset_t *d = counter_numbered(&c, 1);
    accel_loader_options_t o = { .batch = 10,
                                 .sampler = ACCEL_SAMPLER_TORCH,
                                 .seed = 42 };
    accel_error_t err = { 0 };
    struct accel_loader *l = open_one(d, o, &err);
    int got[ROOM];

    for (int epoch = 0; epoch < 3; epoch++) {
        loader_batch(&one, l, got, ROOM, &err);
        tap_ok(memcmp(got, want[epoch], sizeof(want[epoch])) == 0,
               "torch's order of epoch %d", epoch);
        loader_batch(&one, l, got, ROOM, &err);
    }
    accel_loader_set_epoch(l, 1, &err);
    loader_batch(&one, l, got, ROOM, &err);
    tap_ok(memcmp(got, want[1], sizeof(want[1])) == 0, "and again, when it is set");
    loader_free(l);
    o.seed = 0x7fffffff;
    l = open_one(d, o, &err);
    loader_batch(&one, l, got, ROOM, &err);
    tap_ok(memcmp(got, ones, sizeof(ones)) == 0, "of a seed of ones");
    loader_free(l);
    accel_dataset_close(d);
}

/* Skips inside of an epoch count from where it is, and end with it. */
static void test_skip(void)
{
    struct counter c = { .samples = 10, .fails = -1 };
    accel_dataset_t *d = counter_numbered(&c, 1);
    accel_loader_options_t o = { .batch = 2,
                                 .sampler = ACCEL_SAMPLER_SEQUENTIAL,
                                 .prefetch = 3 };
    accel_error_t err = { 0 };
    struct accel_loader *l = open_one(d, o, &err);
    int got[ROOM] = { 0 };

    tap_is_int(accel_loader_length(l), 5, "five batches");
    loader_batch(&one, l, got, ROOM, &err);
    accel_loader_skip(l, 2, &err);
    loader_batch(&one, l, got, ROOM, &err);
    tap_is_int(got[0], 6, "the fourth batch after a skip of two");
    accel_loader_skip(l, 20, &err);
    tap_is_int(loader_batch(&one, l, got, ROOM, &err), -2, "a skip to the end");
    tap_is_int(loader_batch(&one, l, got, ROOM, &err), 2, "then the next epoch");
    tap_is_int(accel_loader_epoch(l), 1, "which is 1");
    tap_is_int(accel_loader_skip(l, -1, &err), ACCEL_EINVAL, "no skip backwards");
    tap_is_int(accel_loader_set_epoch(l, -1, &err), ACCEL_EINVAL, "no epoch before 0");
    loader_free(l);
    accel_dataset_close(d);
}

static void test_short_stream(void)
{
    struct counter c = { .samples = 5, .fails = -1, .announced = true };
    accel_dataset_t *d = counter_stream(&c);
    accel_error_t err = { 0 };
    struct accel_loader *l = open_one(d, (accel_loader_options_t){ .batch = 2 }, &err);
    int got[ROOM];

    c.samples = 3;
    loader_batch(&one, l, got, ROOM, &err);
    tap_is_int(loader_batch(&one, l, got, ROOM, &err), -1,
               "an epoch that is too short");
    tap_ok(err.code == ACCEL_EMISMATCH && strstr(err.text, "ended after 3"), "%s",
           err.text);
    one.failure.failed = false;
    loader_free(l);
    accel_dataset_close(d);
}

/* Several threads fetch at once, and the batches come in their order. */
static void test_threads(void)
{
    struct counter c = { .samples = 64, .fails = -1, .sleep_us = 2000 };
    accel_dataset_t *d = counter_numbered(&c, 4);
    accel_loader_options_t o = {
        .batch = 1, .sampler = ACCEL_SAMPLER_SEQUENTIAL, .prefetch = 8, .threads = 4
    };
    accel_error_t err = { 0 };
    struct accel_loader *l = open_one(d, o, &err);
    int got[ROOM], wrong = 0;

    for (int i = 0; i < 64; i++)
        wrong += loader_batch(&one, l, got, ROOM, &err) != 1 || got[0] != i;
    tap_is_int(wrong, 0, "64 batches in their order");
    tap_ok(c.most > 1 && c.most <= 4, "fetched by %d threads at once", c.most);
    loader_free(l);
    accel_dataset_close(d);
}

int main(void)
{
    test_rule();
    test_failures();
    test_resume();
    if (loader_rig_open(&one, NULL, ACCEL_F32))
        return 1;
    test_state_refused();
    test_options();
    test_torch_order();
    test_skip();
    test_short_stream();
    test_threads();
    loader_rig_close(&one);
    return tap_done();
}
