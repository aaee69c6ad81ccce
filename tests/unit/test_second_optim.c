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
#include "tests/world/number_run.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

/* Of a step: SEEN numbers, among them a code of failed calls and the norm of the log. */
enum { STEPS = 5, FAILED = 11, NORM = 12, SEEN = 13 };

/* What is asked of one optimizer; the other is left alone. */
enum deed {
    NOTHING,
    MOMENTUM,
    CONFIG_CLIP,
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

static const char *const deeds[DEEDS] = {
    [NOTHING] = "steps",
    [MOMENTUM] = "settings",
    [CONFIG_CLIP] = "the limit of the config",
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
static char config[96], clipped[96];

static void poison(void *user, const char *name, float *g, int64_t first, int64_t count)
{
    const struct pair *p = user;

    (void)first;
    if (p->infinite && count && name[0] == "ab"[p->place])
        g[0] = INFINITY;
}

/* The models in the order of their names, each with an optimizer. */
static void pair_objects(struct pair *p, const struct scene *s, int place)
{
    static const char *const names[] = { "oa", "ob" };
    struct number_run *k = &p->k;

    number_models(k, s->deed == CONFIG_CLIP ? clipped : config);
    p->place = place;
    p->m = place ? k->b : k->a;
    p->other = place ? k->a : k->b;
    accel_model_add(k->run, "a", k->a, &k->err);
    accel_model_add(k->run, "b", k->b, &k->err);
    for (int i = 0; i < 2; i++) {
        const accel_optimizer_t o = { sizeof(o), .kind = ACCEL_SGD, .lr = 1,
                                      .momentum = s->deed == MOMENTUM && i == place
                                                      ? 0.5f
                                                      : 0 };

        accel_optim_add(k->run, names[i], i ? &k->b : &k->a, 1, &o, &k->err);
    }
    p->o = accel_optim_find(k->run, names[place]);
}

static void pair_open(struct pair *p, const struct scene *s, int place)
{
    static const accel_schedule_t linear = { sizeof(linear),
                                             .kind = ACCEL_SCHEDULE_LINEAR,
                                             .steps = STEPS };
    const accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = 1,
                                .accumulate = s->deed == SYNC_EACH ? 2 : 1,
                                .out_dir = p->dir };
    struct number_run *k = &p->k;

    snprintf(p->dir, sizeof(p->dir), "%s/%d-%d-%d", root, (int)s->deed, s->both, place);
    pair_objects(p, s, place);
    if (s->deed == SCHEDULE)
        accel_schedule_add(p->o, &linear, &k->err);
    if (s->deed == AVERAGE || s->deed == AVERAGE_EARLY)
        accel_ema(k->run, p->o, &(accel_ema_t){ sizeof(accel_ema_t), .decay = 0.5 },
                  &k->err);
    if (s->deed == AVERAGE_ALL)
        accel_ema(k->run, NULL, &(accel_ema_t){ sizeof(accel_ema_t), .decay = 0.5 },
                  &k->err);
    if (s->deed == LOCAL)
        accel_local_sgd(k->run, 2, &k->err);
    accel_prepare_all(k->run, &loop, &k->err);
    if (s->deed == SYNC_EACH)
        accel_accumulate_rule(k->run,
                              &(accel_accumulation_t){ sizeof(accel_accumulation_t),
                                                       .sync_each_batch = 1 },
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
            seen[step++][NORM] = strtod(at + 12, NULL);
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
        accel_step_info_t info = { .bytes = sizeof(info) };
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
        to[FAILED] = p.k.err.code;
    }
    accel_close(p.k.run, NULL);
    if (s->rank == 0)
        read_norms(p.dir, seen);
}

/* Where the two lives differ, and where a call of either failed. */
static int count_wrong(double first[STEPS][SEEN], double second[STEPS][SEEN])
{
    int wrong = 0;

    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < SEEN; i++)
            if (!(fabs(first[step][i] - second[step][i]) < 1e-5)) {
                fprintf(stderr, "# step %d, %d: %g and %g\n", step + 1, i,
                        first[step][i], second[step][i]);
                wrong++;
            }
        wrong += first[step][FAILED] != 0;
    }
    return wrong;
}

/* Numbers of wrong values by deed, without and with steps of the other one; of the deeds
 * of those ranks. */
struct found {
    int world;
    int wrong[DEEDS][2];
};

/* What has to do with other ranks takes two; the waits of more would take long. */
static int ranks_of(int deed)
{
    return deed == CLIP || deed == AVERAGE || deed == SYNC_EACH || deed == LOCAL ? 2
                                                                                 : 1;
}

static int rank_main(struct boot *b, void *arg)
{
    struct found *found = arg;

    for (int deed = 0; deed < DEEDS; deed++)
        for (int both = 0; both <= 1 && ranks_of(deed) == found->world; both++) {
            const struct scene s = { (enum deed)deed, b->rank, both };
            double first[STEPS][SEEN] = { { 0 } }, second[STEPS][SEEN] = { { 0 } };

            pair_life(&s, 0, first);
            pair_life(&s, 1, second);
            found->wrong[deed][both] += count_wrong(first, second);
        }
    return 0;
}

int main(void)
{
    struct found *found = fork_shared(sizeof(*found));

    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/pair.yaml", root);
    snprintf(clipped, sizeof(clipped), "%s/clipped.yaml", root);
    run_folder_write(clipped,
                     "distributed_type: DEEPSPEED\nnum_processes: 1\nuse_cpu: true\n"
                     "deepspeed_config: {zero_stage: 2, gradient_clipping: 0.75}\n"
                     "accel: {checkpoint: {save: false}}\n");
    for (found->world = 1; found->world <= 2; found->world++) {
        number_config(config, found->world, 1, "NO_SHARD", false);
        tap_is_int(open_world(found->world, 1, rank_main, found, HANG_S), 0, "%d ranks",
                   found->world);
    }
    for (int deed = 0; deed < DEEDS; deed++)
        for (int both = 0; both <= 1; both++)
            tap_is_int(found->wrong[deed][both], 0, "%s, the other one %s", deeds[deed],
                       both ? "steps, too" : "is idle");
    run_folder_remove(root);
    return tap_done();
}
