/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of the optimizers of a run, through the calls of accel_objects.h: rates and
 * positions on 1 to 4 ranks, Accelerate's rows, metrics, skipped steps, functions that
 * give no rate on one rank, checkpoints, and what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/state.h"
#include "tests/tap.h"
#include "tests/world/number_run.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

static char root[64] = "/tmp/accel-schedules-XXXXXX";
static char config[96], out_dir[96];

/* In a forked rank: says what is wrong, and goes on. */
static int wrong;
#define EXPECT(good, ...)                                                              \
    do {                                                                               \
        if (!(good)) {                                                                 \
            wrong++;                                                                   \
            fprintf(stderr, "# " __VA_ARGS__);                                         \
            fputc('\n', stderr);                                                       \
        }                                                                              \
    } while (0)

static accel_status_t prepare(struct number_run *k, int accumulate)
{
    const accel_loop_t loop = { sizeof(loop), .steps = 1000, .batch = 1,
                                .accumulate = accumulate, .out_dir = out_dir };

    return accel_prepare_all(k->run, &loop, &k->err);
}

/* Runs fn on `world` ranks. */
static void on_ranks(int world, int (*fn)(struct boot *, void *), void *arg, bool save,
                     const char *what)
{
    if (number_config(config, world, 1, "FULL_SHARD", save) != 0)
        tap_skip_all("no config can be written");
    tap_is_int(fork_world(world, fn, arg, HANG_S), 0, "%d ranks: %s", world, what);
}

static int rank_end(struct number_run *k)
{
    EXPECT(k->run->status == ACCEL_OK, "%s", k->err.text);
    accel_close(k->run, NULL);
    open_world_join(NULL);
    return wrong != 0;
}

/* ---- Accelerate's rows ----------------------------------------------------------- */

struct row {
    accel_schedule_t set;
    int64_t after[6]; /* the position after each call; -1: no more */
};

static int row_main(struct boot *b, void *arg)
{
    const struct row *r = arg;
    accel_schedule_t set = r->set;
    struct number_run k;

    set.bytes = sizeof(set);
    open_world_join(b);
    number_open(&k, config);
    accel_schedule_add(k.oa, &set, &k.err);
    prepare(&k, 1);
    for (int i = 0; i < 6 && r->after[i] >= 0; i++) {
        number_micro(&k, k.a, 1);
        accel_step(k.run, &k.err);
        if (r->set.move == ACCEL_MOVE_BY_CALLS)
            accel_schedule_step(k.oa, &k.err);
        EXPECT(accel_schedule_position(k.oa) == r->after[i],
               "after call %d it is at %lld, not %lld: %s", i,
               (long long)accel_schedule_position(k.oa), (long long)r->after[i],
               k.err.text);
    }
    return rank_end(&k);
}

static void test_rows(void)
{
    static const int worlds[] = { 1, 2, 4 };
    static struct row cycle = {
        { .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 10, .move = ACCEL_MOVE_BY_RANKS },
        { 4, 8, 10, 10, 10, -1 }
    };

    for (size_t w = 0; w < ACCEL_ARRAY_SIZE(worlds); w++)
        for (int move = ACCEL_MOVE_BY_STEPS; move <= ACCEL_MOVE_BY_CALLS; move++) {
            struct row r = { .set = { .move = (accel_schedule_move_t)move } };

            for (int i = 0; i < 6; i++)
                r.after[i] = (i + 1) * (move == ACCEL_MOVE_BY_RANKS ? worlds[w] : 1);
            on_ranks(worlds[w], row_main, &r, false, "a row of Accelerate's");
        }
    on_ranks(4, row_main, &cycle, false, "one cycle stops at its steps");
}

/* ---- rates ----------------------------------------------------------------------- */

static double stairs(void *user, int64_t position)
{
    return 1 / (double)(*(int *)user + position / 2);
}

static int two = 2;
static const accel_schedule_t plan[] = {
    { sizeof(accel_schedule_t), .kind = ACCEL_SCHEDULE_COSINE, .steps = 6, .warmup = 2,
      .first = 1, .end = 0.1 },
    { sizeof(accel_schedule_t), .kind = ACCEL_SCHEDULE_OWN, .own = stairs,
      .user = &two },
    { sizeof(accel_schedule_t), .kind = ACCEL_SCHEDULE_INVERSE_SQRT, .warmup = 3 },
    { sizeof(accel_schedule_t), .kind = ACCEL_SCHEDULE_LINEAR, .steps = 7, .end = 0.5 },
};

/* Two optimizers, each with one of the plan; every second step of the second is its
 * own. */
static int rates_main(struct boot *b, void *arg)
{
    const accel_schedule_t *set = arg;
    accel_schedule_t full[2] = { schedule_defaults(set[0]), schedule_defaults(set[1]) };
    struct number_run k;
    float a = 2, w = 3;

    open_world_join(b);
    number_open(&k, config);
    accel_schedule_add(k.oa, &set[0], &k.err);
    accel_schedule_add(k.ob, &set[1], &k.err);
    prepare(&k, 1);
    for (int i = 0; i < 7; i++) {
        accel_step_info_t info = { .bytes = sizeof(info) };
        const float want[] = { (float)schedule_rate(&full[0], 1, i),
                               (float)schedule_rate(&full[1], 1, i) };

        number_begin(&k);
        EXPECT(accel_optim_lr(k.oa) == want[0], "the next rate at %d", i);
        number_push(&k, k.a, 1);
        number_push(&k, k.b, 1);
        if (i % 2)
            accel_optim_step(k.ob, NULL, &k.err);
        accel_step(k.run, &k.err);
        accel_last_step(k.run, &info, &k.err);
        a -= want[0], w -= want[1];
        EXPECT(info.lr[0] == want[0] && info.lr[1] == want[1], "rates at %d: %g %g", i,
               info.lr[0], info.lr[1]);
        number_begin(&k);
        EXPECT(fabsf(number_of(&k, k.a) - a) < 1e-5f &&
                   fabsf(number_of(&k, k.b) - w) < 1e-5f,
               "weights after %d", i);
    }
    return rank_end(&k);
}

/* ---- a function without a rate, on one rank -------------------------------------- */

static double breaks(void *user, int64_t position)
{
    return position == 2 && accel_rank(*(accel_t **)user) == 1 ? NAN : 1;
}

static int broken_main(struct boot *b, void *arg)
{
    const bool single = *(const bool *)arg;
    struct number_run k;
    accel_status_t st = ACCEL_OK;

    open_world_join(b);
    number_open(&k, config);
    accel_schedule_add(k.oa,
                       &(accel_schedule_t){ sizeof(accel_schedule_t),
                                            .kind = ACCEL_SCHEDULE_OWN, .own = breaks,
                                            .user = &k.run },
                       &k.err);
    prepare(&k, 1);
    for (int i = 0; i < 3; i++) {
        EXPECT(st == ACCEL_OK, "step %d: %s", i, k.err.text);
        number_micro(&k, k.a, 1);
        st = single ? accel_optim_step(k.oa, NULL, &k.err) : accel_step(k.run, &k.err);
        if (single && st == ACCEL_OK)
            st = accel_step(k.run, &k.err);
    }
    EXPECT(st == ACCEL_EINVAL && accel_optim_steps(k.oa) == 2, "status %d after %lld",
           (int)st, (long long)accel_optim_steps(k.oa));
    EXPECT((strstr(k.err.text, "no factor for position 2") != NULL) == (b->rank == 1),
           "rank %d says '%s'", b->rank, k.err.text);
    EXPECT(!accel_more(k.run), "the run has ended");
    accel_close(k.run, NULL);
    open_world_join(NULL);
    return wrong != 0;
}

static void test_rates(void)
{
    static bool single[] = { false, true };

    for (int world = 1; world <= 2; world++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(plan); i += 2)
            on_ranks(world, rates_main, (void *)&plan[i], false,
                     "two optimizers with schedules of their own");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(single); i++)
        on_ranks(2, broken_main, &single[i], false, "no rate on one rank ends all");
}

/* ---- one process ----------------------------------------------------------------- */

static void spoil(void *user, const char *name, float *gradient, int64_t first,
                  int64_t count)
{
    (void)first, (void)count;
    if (*(bool *)user && strcmp(name, "a/w") == 0)
        gradient[0] = NAN;
}

/* A skipped step moves neither the schedule nor the count of steps. */
static void test_skipped(void)
{
    const accel_schedule_t linear = { sizeof(linear), .kind = ACCEL_SCHEDULE_LINEAR,
                                      .steps = 4 };
    accel_step_info_t info = { .bytes = sizeof(info) };
    bool on = true;
    struct number_run k;

    number_open(&k, config);
    accel_schedule_add(k.oa, &linear, &k.err);
    accel_on_gradient(k.run, "a/*", spoil, &on, &k.err);
    accel_optim_skip(k.oa, 1, &k.err);
    tap_is_int(prepare(&k, 1), ACCEL_OK, "prepared %s", k.err.text);
    number_micro(&k, k.a, 1);
    accel_step(k.run, &k.err);
    accel_last_step(k.run, &info, &k.err);
    tap_ok(info.updated[0] == 0 && accel_schedule_position(k.oa) == 0 &&
               accel_optim_steps(k.oa) == 0,
           "a skipped step moves nothing");
    on = false;
    number_micro(&k, k.a, 1);
    accel_step(k.run, &k.err);
    accel_last_step(k.run, &info, &k.err);
    tap_ok(info.updated[0] == 1 && info.lr[0] == 1 &&
               accel_schedule_position(k.oa) == 1 && accel_optim_lr(k.oa) == 0.75f,
           "the next one does");
    accel_optim_set_lr(k.oa, 8, &k.err);
    number_micro(&k, k.a, 1);
    accel_step(k.run, &k.err);
    accel_last_step(k.run, &info, &k.err);
    tap_ok(info.lr[0] == 6, "a new lr is what the schedule is a share of");
    accel_close(k.run, NULL);
}

/* Calls of the run from its own schedule. */
static double meddle(void *user, int64_t position)
{
    struct number_run *k = user;
    const accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1,
                                .out_dir = out_dir };

    if (position != 1)
        return 1;
    tap_ok(accel_close(k->run, &k->err) == ACCEL_EINVAL &&
               strstr(k->err.text, "inside the function of a schedule") &&
               accel_step(k->run, &k->err) == ACCEL_EINVAL &&
               accel_prepare_all(k->run, &loop, &k->err) == ACCEL_EINVAL,
           "not from there: %s", k->err.text);
    tap_ok(isnan(accel_optim_lr(k->oa)), "nor its own rate");
    return 0.5;
}

static void test_inside(void)
{
    struct number_run k;
    const accel_schedule_t own = { sizeof(own), .kind = ACCEL_SCHEDULE_OWN,
                                   .own = meddle, .user = &k };

    number_open(&k, config);
    accel_schedule_add(k.oa, &own, &k.err);
    tap_is_int(prepare(&k, 1), ACCEL_OK, "prepared %s", k.err.text);
    for (int i = 0; i < 2; i++) {
        number_micro(&k, k.a, 1);
        tap_is_int(accel_step(k.run, &k.err), ACCEL_OK, "a step %s", k.err.text);
    }
    tap_ok(number_of(&k, k.a) == 0.5f, "with its rates");
    tap_is_int(accel_close(k.run, &k.err), ACCEL_OK, "closed afterwards");
}

static void test_plateau(void)
{
    const accel_schedule_t set = {
        sizeof(set),
        .kind = ACCEL_SCHEDULE_PLATEAU,
        .plateau = { .factor = 0.5, .patience = 1 },
    };
    static const double metric[] = { 5, NAN, 6, 4, 4, 4 };
    static const float lr[] = { 1, 1, 0.5f, 0.5f, 0.5f, 0.25f };
    struct number_run k;
    bool same = true;

    number_open(&k, config);
    accel_schedule_add(k.oa, &set, &k.err);
    prepare(&k, 1);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(metric); i++) {
        same = same && !accel_schedule_metric(k.oa, metric[i], &k.err) &&
               accel_optim_lr(k.oa) == lr[i];
        number_micro(&k, k.a, 1);
        same = same && !accel_step(k.run, &k.err);
    }
    tap_ok(same && accel_schedule_position(k.oa) == 6, "metrics lower the rate %s",
           k.err.text);
    accel_optim_set_lr(k.oa, 4, &k.err);
    tap_ok(accel_optim_lr(k.oa) == 1, "which they do for another lr, too");
    accel_close(k.run, NULL);
}

static void refuses(accel_status_t st, const struct number_run *k, const char *text)
{
    tap_ok(st == ACCEL_EINVAL && strstr(k->err.text, text) && k->err.hint[0],
           "refused: %s", k->err.text);
}

static void test_refused(void)
{
    const accel_schedule_t constant = { .bytes = sizeof(constant) },
                           linear = { sizeof(linear), .kind = ACCEL_SCHEDULE_LINEAR };
    const accel_schedule_t moves = { sizeof(moves), .move = (accel_schedule_move_t)3 };
    struct number_run k;

    number_open(&k, config);
    refuses(accel_schedule_add(NULL, &constant, &k.err), &k, "the optimizer is NULL");
    refuses(accel_schedule_add(k.oa, NULL, &k.err), &k, "optimizer 'oa' is NULL");
    refuses(accel_schedule_add(k.oa, &linear, &k.err), &k, "needs its number of steps");
    refuses(accel_schedule_add(k.oa, &moves, &k.err), &k, "move must be");
    tap_ok(accel_schedule_position(k.oa) == -1, "it has none by now");
    tap_is_int(accel_schedule_add(k.oa, &constant, &k.err), ACCEL_OK, "then one");
    refuses(accel_schedule_add(k.oa, &constant, &k.err), &k, "has a schedule already");
    refuses(accel_schedule_step(k.oa, &k.err), &k, "accel_schedule_step");
    prepare(&k, 1);
    refuses(accel_schedule_add(k.ob, &constant, &k.err), &k, "is prepared already");
    refuses(accel_schedule_step(k.oa, &k.err), &k, "moves with its steps");
    refuses(accel_schedule_metric(k.oa, 1, &k.err), &k, "takes no metric");
    refuses(accel_schedule_metric(k.ob, 1, &k.err), &k, "'ob' has no schedule");
    tap_ok(accel_optim_find(k.run, "ob") == k.ob && !accel_optim_find(k.run, "oc") &&
               !accel_optim_find(k.run, NULL) && !accel_optim_find(NULL, "ob"),
           "optimizers by name");
    accel_close(k.run, NULL);
}

/* ---- the short form -------------------------------------------------------------- */

/* A run whose first model is that of a job. */
static void test_job(const accel_schedule_t *set, int warmup, accel_status_t want)
{
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_schedule_t full = set ? schedule_defaults(*set) : schedule_of_job(warmup, 8);
    accel_job_t job = { sizeof(job),
                        .optimizer =
                            &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                  .kind = ACCEL_SGD, .lr = 0.5f },
                        .steps = 8,
                        .warmup = warmup,
                        .batch = 1,
                        .out_dir = out_dir,
                        .schedule = set };
    const int64_t dims[] = { 1 };
    bool same = true;
    struct number_run k = { 0 };
    accel_unit_t *u;

    accel_open(&k.run, &o, &k.err);
    u = accel_unit_new(k.run, "u", &k.err);
    accel_unit_param(u, "w", 1, dims, (accel_init_t){ ACCEL_INIT_ONES, 0 }, NULL,
                     &k.err);
    tap_is_int(accel_prepare(k.run, &job, &k.err), want, "a job: %s", k.err.text);
    k.oa = accel_optim_find(k.run, "");
    for (int i = 0; want == ACCEL_OK && i < 8; i++) {
        accel_step_info_t info = { .bytes = sizeof(info) };

        accel_next_samples(k.run, NULL, 1, &k.err);
        accel_finish_backward(k.run, 1, &k.err);
        if (i == 3)
            accel_optim_step(k.oa, NULL, &k.err);
        accel_step(k.run, &k.err);
        accel_last_step(k.run, &info, &k.err);
        same = same && info.lr[0] == (float)schedule_rate(&full, 0.5, i) &&
               info.updated[0] == 1;
    }
    tap_ok(same, "one step in each iteration, at the rate of its schedule %s",
           k.err.text);
    accel_close(k.run, NULL);
}

/* ---- checkpoints ----------------------------------------------------------------- */

struct lifetime {
    int64_t until;
    bool fresh;
    float lr[2][10], w[2]; /* by step; at the end */
    accel_schedule_kind_t kind;
};

/* A life of a run: metrics for one optimizer; calls and another lr for the other. */
static int life_main(struct boot *b, void *arg)
{
    struct lifetime *l = arg;
    const accel_schedule_t plateau = {
        sizeof(plateau),
        .kind = ACCEL_SCHEDULE_PLATEAU,
        .plateau = { .factor = 0.5, .patience = 1 },
    };
    const accel_schedule_t calls = { sizeof(calls), .kind = l->kind, .steps = 20,
                                     .move = ACCEL_MOVE_BY_CALLS };
    struct number_run k;

    open_world_join(b);
    number_open(&k, config);
    accel_schedule_add(k.oa, &plateau, &k.err);
    accel_schedule_add(k.ob, &calls, &k.err);
    if (prepare(&k, 1)) {
        EXPECT(l->kind == ACCEL_SCHEDULE_LINEAR, "prepare: %s", k.err.text);
        accel_close(k.run, NULL);
        return k.err.message == 982 ? 82 : 1;
    }
    for (int64_t i = accel_steps_done(k.run); i < l->until; i++) {
        accel_step_info_t info = { .bytes = sizeof(info) };

        number_micro(&k, k.a, 1);
        number_push(&k, k.b, 1);
        accel_step(k.run, &k.err);
        accel_last_step(k.run, &info, &k.err);
        accel_schedule_metric(k.oa, i < 2 ? 5 : 6, &k.err);
        accel_schedule_step(k.ob, &k.err);
        accel_schedule_step(k.ob, &k.err);
        if (i == 2)
            accel_optim_set_lr(k.ob, 0.3f, &k.err);
        for (int o = 0; o < 2 && b->rank == 0; o++)
            l->lr[o][i] = (float)info.lr[o];
    }
    EXPECT(!accel_save(k.run, &k.err), "saved: %s", k.err.text);
    number_begin(&k);
    l->w[0] = number_of(&k, k.a);
    l->w[1] = number_of(&k, k.b);
    EXPECT(accel_schedule_position(k.ob) == 2 * l->until, "moved by calls");
    return rank_end(&k);
}

/* Runs in shared memory, so that the parent sees what rank 0 has written. */
static struct lifetime *shared;

static void life(int world, const char *dir, int until, int status)
{
    char what[64];

    snprintf(out_dir, sizeof(out_dir), "%s/%s", root, dir);
    snprintf(what, sizeof(what), "to step %d in %s", until, dir);
    shared->until = until;
    number_config(config, world, 1, "FULL_SHARD", true);
    tap_is_int(fork_world(world, life_main, shared, HANG_S), status, "%d ranks: %s",
               world, what);
}

static void test_resume(void)
{
    struct lifetime whole;

    memset(shared, 0, sizeof(*shared));
    shared->kind = ACCEL_SCHEDULE_COSINE;
    life(2, "whole", 9, 0);
    whole = *shared;
    tap_ok(whole.lr[0][8] < 0.3f && whole.lr[1][3] < 0.3f, "rates went down: %g %g",
           (double)whole.lr[0][8], (double)whole.lr[1][3]);
    for (int world = 2; world >= 1; world--) {
        memset(shared->lr, 0, sizeof(shared->lr));
        life(2, world == 2 ? "same" : "other", 4, 0);
        life(world, world == 2 ? "same" : "other", 9, 0);
        tap_ok(!memcmp(shared->lr, whole.lr, sizeof(whole.lr)) &&
                   !memcmp(shared->w, whole.w, sizeof(whole.w)),
               "resumed on %d ranks: the same rates and weights", world);
    }
    shared->kind = ACCEL_SCHEDULE_LINEAR;
    life(1, "other", 9, 82);
}

/* The trainer's text without some of its lines. */
static void without(char *text, const char *line)
{
    for (char *at; (at = strstr(text, line)) != NULL;) {
        char *next = strchr(at, '\n') + 1;

        memmove(at, next, strlen(next) + 1);
    }
}

static void test_old(void)
{
    const accel_schedule_t by[] = {
        { sizeof(accel_schedule_t), .move = ACCEL_MOVE_BY_STEPS },
        { sizeof(accel_schedule_t), .move = ACCEL_MOVE_BY_CALLS }
    };
    struct number_run k;
    char *text;
    size_t bytes;

    number_config(config, 1, 1, "FULL_SHARD", false);
    number_open(&k, config);
    accel_schedule_add(k.oa, &by[0], &k.err);
    accel_schedule_add(k.ob, &by[1], &k.err);
    prepare(&k, 1);
    for (int i = 0; i < 3; i++) {
        number_micro(&k, k.a, 1);
        accel_step(k.run, &k.err);
    }
    accel_optim_set_lr(k.oa, 5, &k.err);
    state_encode(k.run, &text, &bytes, &k.err);
    tap_ok(strstr(text, "\nschedule_at.oa=constant position 3 last 1 ") &&
               strstr(text, "\nschedule_lr.oa=5\n") && !strstr(text, "schedule_lr.ob"),
           "a checkpoint has the schedules by name");
    k.oa->schedule.position = 7;
    tap_ok(!state_decode(k.run, text, &k.err) && accel_schedule_position(k.oa) == 3 &&
               accel_optim_lr(k.oa) == 5,
           "and gives them back");
    without(text, "schedule_");
    tap_ok(!state_decode(k.run, text, &k.err) && accel_schedule_position(k.oa) == 3 &&
               accel_schedule_position(k.ob) == 0 && accel_optim_lr(k.oa) == 1,
           "one without them: the steps of the optimizer");
    free(text);
    accel_close(k.run, NULL);
}

int main(void)
{
    const accel_schedule_t linear = { sizeof(linear), .kind = ACCEL_SCHEDULE_LINEAR,
                                      .steps = 8 };

    run_folder_new(root);
    shared = fork_shared(sizeof(*shared));
    snprintf(config, sizeof(config), "%s/run.yaml", root);
    snprintf(out_dir, sizeof(out_dir), "%s/out", root);
    test_rows();
    test_rates();
    number_config(config, 1, 1, "FULL_SHARD", false);
    test_skipped();
    test_inside();
    test_plateau();
    test_refused();
    test_job(NULL, 3, ACCEL_OK);
    test_job(&linear, 0, ACCEL_OK);
    test_job(&linear, 3, ACCEL_EINVAL);
    test_old();
    test_resume();
    run_folder_remove(root);
    return tap_done();
}
