/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's second optimizer has what the first has: each setting and call, given to one
 * of two, leaves the same numbers whichever of them it is, while the other one is idle
 * or steps with gradients of its own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/number_run.h"
#include "tests/unit/open_world.h"
#include "tests/unit/run_folder.h"

enum { STEPS = 5, SEEN = 13 };

/* What is asked of one optimizer; the other is left alone. */
enum deed {
    NOTHING,
    CLIP,
    CLIP_NORM,
    CLIP_VALUE,
    SKIP,
    RATE,
    SCHEDULE,
    ZERO,
    OWN_STEP,
    AVERAGE,
    AVERAGE_EARLY,
    AVERAGE_ALL,
    SYNC_EACH,
    LOCAL,
    DEEDS
};

static const char *const names[DEEDS] = {
    [NOTHING] = "steps",
    [CLIP] = "a limit of the norm",
    [CLIP_NORM] = "one for a step",
    [CLIP_VALUE] = "a limit of values",
    [SKIP] = "a step that is skipped",
    [RATE] = "a rate",
    [SCHEDULE] = "a schedule",
    [ZERO] = "gradients dropped",
    [OWN_STEP] = "a step of its own",
    [AVERAGE] = "an average",
    [AVERAGE_EARLY] = "an average before a step",
    [AVERAGE_ALL] = "averages of both",
    [SYNC_EACH] = "sums in every micro-batch",
    [LOCAL] = "local SGD",
};

/* One of the two, and the other one. */
struct pair {
    struct number_run k;
    accel_module_t *m, *other;
    accel_optim_t *o;
    int place; /* in the run's list */
    bool infinite;
    char dir[128];
};

struct scene {
    enum deed deed;
    int rank;
    bool both;
};

static char root[64] = "/tmp/accel-second-XXXXXX";
static char config[96];

static void poison(void *user, const char *name, float *g, int64_t first, int64_t count)
{
    const struct pair *p = user;

    (void)first;
    if (p->infinite && count && name[0] == "ab"[p->place])
        g[0] = INFINITY;
}

static void pair_open(struct pair *p, const struct scene *s, int place)
{
    static const accel_schedule_t linear = { .kind = ACCEL_SCHEDULE_LINEAR,
                                             .steps = STEPS };
    const accel_loop_t loop = { .steps = STEPS,
                                .batch = 1,
                                .accumulate = s->deed == SYNC_EACH ? 2 : 1,
                                .out_dir = p->dir };
    struct number_run *k = &p->k;

    snprintf(p->dir, sizeof(p->dir), "%s/%d-%d-%d", root, (int)s->deed, s->both, place);

    number_open(k, config);
    p->place = place;
    p->m = place ? k->b : k->a;
    p->other = place ? k->a : k->b;
    p->o = place ? k->ob : k->oa;
    if (s->deed == SCHEDULE)
        accel_schedule_add(p->o, &linear, &k->err);
    if (s->deed == AVERAGE || s->deed == AVERAGE_EARLY)
        accel_ema(k->run, p->o, &(accel_ema_t){ .decay = 0.5 }, &k->err);
    if (s->deed == AVERAGE_ALL)
        accel_ema(k->run, NULL, &(accel_ema_t){ .decay = 0.5 }, &k->err);
    if (s->deed == LOCAL)
        accel_local_sgd(k->run, 2, &k->err);
    accel_prepare_all(k->run, &loop, &k->err);
    if (s->deed == SYNC_EACH)
        accel_accumulate_rule(k->run, &(accel_accumulation_t){ .sync_each_batch = 1 },
                              &k->err);
    if (s->deed == CLIP)
        accel_optim_set_clip(p->o, 0.75f, &k->err);
    if (s->deed == SKIP) {
        accel_optim_skip(p->o, 1, &k->err);
        accel_on_gradient(k->run, NULL, poison, p, &k->err);
    }
    if (s->deed == RATE)
        accel_optim_set_lr(p->o, 0.25f, &k->err);
}

/* Between the backward and the step. */
static void pair_act(struct pair *p, enum deed deed, int step)
{
    accel_error_t *err = &p->k.err;

    if (deed == CLIP_NORM && step == 1)
        accel_clip_norm(p->o, 0.5f, NULL, err);
    if (deed == CLIP_VALUE && step == 1)
        accel_clip_value(p->o, 0.5f, err);
    if (deed == ZERO && step == 1)
        accel_zero_grad(p->o, err);
    if (deed == OWN_STEP && step == 1)
        accel_optim_step(p->o, NULL, err);
}

/* A status of the swap; what is in the place of the weights meanwhile. */
static int pair_swap(struct pair *p, double *seen_out)
{
    accel_error_t err = { 0 };
    accel_status_t st = accel_ema_swap(p->k.run, 1, &err);

    *seen_out = (double)number_of(&p->k, p->m);
    if (!st)
        accel_ema_swap(p->k.run, 0, &err);
    return (int)st;
}

/* A gradient of this rank; that of the other optimizer is twice as large. */
static void pair_micro(struct pair *p, const struct scene *s, int step)
{
    const float x = (float)(step + s->rank + 1);

    p->infinite = s->deed == SKIP && step == 2;
    number_begin(&p->k);
    number_push(&p->k, p->m, x);
    if (s->both)
        number_push(&p->k, p->other, 2 * x);
}

/* The gradient in the middle of a group: of all ranks, or of this one. */
static void note_first(void *user, const char *name, float *g, int64_t first,
                       int64_t count)
{
    (void)name;
    (void)first;
    if (count)
        *(double *)user = (double)g[0];
}

/* The norm of the gradients of both, as the log has it. */
static void read_norms(const char *dir, double seen[STEPS][SEEN])
{
    char path[160], line[1024];
    FILE *f;

    snprintf(path, sizeof(path), "%s/log.jsonl", dir);
    f = fopen(path, "r");
    for (int step = 0; f && fgets(line, sizeof(line), f);) {
        const char *at = strstr(line, "\"grad_norm\":");

        if (at && step < STEPS)
            seen[step++][12] = strtod(at + 12, NULL);
    }
    if (f)
        fclose(f);
}

/* Everything that can be seen of one optimizer. */
static void pair_life(const struct scene *s, int place, double seen[STEPS][SEEN])
{
    const int micros = s->deed == SYNC_EACH ? 2 : 1;
    const double start = place ? 3 : 2;
    struct pair p = { .infinite = false };

    pair_open(&p, s, place);
    for (int step = 0; step < STEPS; step++) {
        accel_step_info_t info = { 0 };
        double *to = seen[step];

        if (s->deed == AVERAGE_EARLY)
            to[0] = pair_swap(&p, &to[1]);
        to[1] -= s->deed == AVERAGE_EARLY ? start : 0;
        for (int i = 0; i < micros; i++) {
            pair_micro(&p, s, step);
            if (i == micros - 1)
                pair_act(&p, s->deed, step);
            accel_step(p.k.run, &p.k.err);
            if (i < micros - 1)
                shard_each_gradient(p.k.run->shard, place, note_first, to, &p.k.err);
        }
        if (s->deed == AVERAGE || s->deed == AVERAGE_ALL) {
            to[0] = pair_swap(&p, &to[1]);
            to[1] -= start;
        }
        accel_last_step(p.k.run, &info, &p.k.err);
        to[2] = (double)number_of(&p.k, p.m) - start;
        to[3] = info.lr[place];
        to[4] = isfinite(info.norm[place]) ? info.norm[place] : -1;
        to[5] = info.updated[place];
        to[6] = info.skipped[place];
        to[7] = (double)accel_optim_steps(p.o);
        to[8] = (double)accel_steps_done(p.k.run);
        to[9] = (double)accel_optim_lr(p.o);
        to[10] = (double)number_of(&p.k, p.other) - (place ? 2 : 3);
        to[11] = p.k.err.code;
    }
    accel_close(p.k.run, NULL);
    if (s->rank == 0)
        read_norms(p.dir, seen);
}

static int rank_main(struct boot *b, void *arg)
{
    struct scene s = *(const struct scene *)arg;
    double first[STEPS][SEEN] = { { 0 } }, second[STEPS][SEEN] = { { 0 } };
    int wrong = 0;

    s.rank = b->rank;
    pair_life(&s, 0, first);
    pair_life(&s, 1, second);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < SEEN; i++)
            if (!(fabs(first[step][i] - second[step][i]) < 1e-5)) {
                fprintf(stderr, "# rank %d, step %d, %d: %g and %g\n", b->rank,
                        step + 1, i, first[step][i], second[step][i]);
                wrong++;
            }
    return wrong > 0;
}

int main(void)
{
    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/pair.yaml", root);
    number_config(config, 2, 1, "NO_SHARD", false);
    for (int deed = 0; deed < DEEDS; deed++)
        for (int both = 0; both <= 1; both++) {
            struct scene s = { .deed = (enum deed)deed, .both = both };

            tap_is_int(open_world(2, 1, rank_main, &s, 60), 0, "%s, the other one %s",
                       names[deed], both ? "steps, too" : "is idle");
        }
    run_folder_remove(root);
    return tap_done();
}
