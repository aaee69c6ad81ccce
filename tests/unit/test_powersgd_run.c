/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD in whole runs, against the same in plain C: layer by layer and as one
 * square, on one to four ranks; clipped, after exact steps, with a gradient that is not
 * finite; saved and resumed; what a step sends; and what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "powersgd/powersgd_impl.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { STOP = 4, MOST = 4 };

#define RATE 0.1f

struct outcome {
    struct net_values values;
    /* elements that each step has sent, and the sums that a checkpoint counts */
    int64_t sent[NET_STEPS], sums;
    struct plan plan;
    struct shard_memory memory;
};

struct scene {
    int world;
    bool compressed, batched, cold;
    /* each step has its micro-batch twice, with a sum after each */
    bool sync_each;
    int64_t start;
    float clip;
    int until;
    /* rank 1 has a gradient that is not finite in this step; 0: none */
    int infinite;
    /* the step after which a run saves; 0: none */
    int save;
    char dir[128];
    struct outcome *out; /* shared */
};

static char root[64] = "/tmp/accel-psgd-XXXXXX";
static int64_t sent;

/* Counts what is float32: loss, norm and signals are not. */
accel_status_t __real_comm_all_reduce(struct comm *c, void *buf, size_t n,
                                      accel_dtype_t t, enum comm_op op,
                                      accel_error_t *err);
accel_status_t __wrap_comm_all_reduce(struct comm *c, void *buf, size_t n,
                                      accel_dtype_t t, enum comm_op op,
                                      accel_error_t *err);
accel_status_t __wrap_comm_all_reduce(struct comm *c, void *buf, size_t n,
                                      accel_dtype_t t, enum comm_op op,
                                      accel_error_t *err)
{
    sent += t == ACCEL_F32 ? (int64_t)n : 0;
    return __real_comm_all_reduce(c, buf, n, t, op, err);
}

/* 5 x 3 is worth a rank of 1 here. */
static accel_powersgd_t rule_of(const struct scene *p)
{
    return (accel_powersgd_t){ sizeof(accel_powersgd_t), .start = p->start,
                               .least = 1.5, .batched = p->batched, .cold = p->cold };
}

static accel_status_t powersgd_run_open(struct net_run *k, const struct scene *p,
                                        accel_error_t *err)
{
    const accel_accumulation_t each = { sizeof(each), .every = 2,
                                        .sync_each_batch = 1 };
    const accel_powersgd_t rule = rule_of(p);
    accel_status_t st = run_net_open(k, p->dir, RATE, err);

    if (!st && p->compressed)
        st = accel_powersgd(k->run, &rule, err);
    ACCEL_TRY(st, accel_optim_set_clip(k->optim, p->clip, err));
    ACCEL_TRY(st, accel_optim_skip(k->optim, 1, err));
    ACCEL_TRY(st, run_net_prepare(k, p->dir, err));
    return st || !p->sync_each ? st : accel_accumulate_rule(k->run, &each, err);
}

/* One gradient of a rank becomes infinite before it is summed; unit 0 has none. */
static accel_status_t poison(accel_t *run, accel_error_t *err)
{
    const struct residency *r = &run->graph.residency;
    float *g = NULL;
    accel_status_t st = r->grad(r->user, 1, &g, err);

    if (!st)
        g[0] = INFINITY;
    return st;
}

static accel_status_t train_step(const struct net_run *k, int step,
                                 const struct scene *p, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < 1 + p->sync_each && !st; i++) {
        st = accel_batch_begin(k->run, err);
        ACCEL_TRY(st, run_net_push(k->run, k->net, step, 1, err));
        if (!st && step && step == p->infinite && accel_rank(k->run) == 1)
            st = poison(k->run, err);
        ACCEL_TRY(st, accel_step(k->run, err));
    }
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    struct net_run k = { 0 };
    struct net_values mine;
    accel_status_t st = powersgd_run_open(&k, p, &err);

    for (int64_t s = accel_steps_done(k.run); !st && s < p->until; s++) {
        sent = 0;
        st = train_step(&k, (int)s, p, &err);
        if (b->rank == 0 && s < NET_STEPS)
            p->out->sent[s] = sent;
        if (!st && s + 1 == p->save)
            st = accel_save(k.run, &err);
    }
    if (!st && b->rank == 0) {
        p->out->sums = shard_sums(k.run->shard, 0);
        p->out->plan = k.run->plan;
        shard_memory(k.run->shard, &p->out->memory);
    }
    ACCEL_TRY(st, run_net_read(k.run, &mine, &err));
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    if (!st && b->rank == 0)
        p->out->values = mine;
    accel_close(k.run, NULL);
    return st != ACCEL_OK;
}

static struct outcome train(struct scene p, const char *dir, int until)
{
    const struct net_world w = { p.world, 1, "NO_SHARD", NULL };

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    p.until = until;
    p.out = fork_shared(sizeof(*p.out));
    run_net_life(p.dir, &w, rank_main, &p);
    return *p.out;
}

/* ---- the same in plain C --------------------------------------------------------- */

struct twin {
    float w[NET_NUMBERS], velocity[NET_NUMBERS];
    float grad[MOST][NET_NUMBERS], error[MOST][NET_NUMBERS];
    /* the right factor, of 5 rows at most */
    float right[5];
};

/* Rank 1: the right factor is a direction, the left one is what all ranks see in it. */
static void compress(struct twin *t, const struct scene *p, int sum)
{
    const int rows = 5, cols = p->batched ? 5 : 3;
    float left[5] = { 0 };

    if (p->cold || sum == 0 || sum == p->start)
        memset(t->right, 0, sizeof(t->right));
    if (orthogonalize(t->right, cols, 1) > 0) {
        draw_columns(t->right, cols, 1, NET_SEED, (uint64_t)sum << 24);
        orthogonalize(t->right, cols, 1);
    }
    for (int r = 0; r < p->world; r++)
        for (int i = 0; i < rows * cols; i++) {
            t->error[r][i] += t->grad[r][i];
            left[i / cols] += t->error[r][i] * t->right[i % cols];
        }
    orthogonalize(left, rows, 1);
    memset(t->right, 0, sizeof(t->right));
    for (int r = 0; r < p->world; r++)
        for (int i = 0; i < rows * cols; i++)
            t->right[i % cols] += t->error[r][i] * left[i / cols] / (float)p->world;
    for (int r = 0; r < p->world; r++)
        for (int i = 0; i < rows * cols; i++) {
            t->grad[r][i] = left[i / cols] * t->right[i % cols];
            t->error[r][i] -= t->grad[r][i];
        }
    run_net_mean(t->grad, p->world, rows * cols, NET_NUMBERS);
}

/* The first half of the gradient is summed, and again with the second. */
static void compress_twice(struct twin *t, const struct scene *p, int step)
{
    float half[MOST][NET_NUMBERS];

    for (int r = 0; r < p->world; r++)
        for (int i = 0; i < NET_NUMBERS; i++)
            half[r][i] = t->grad[r][i] /= 2;
    compress(t, p, 2 * step);
    for (int r = 0; r < p->world; r++)
        for (int i = 0; i < NET_NUMBERS; i++)
            t->grad[r][i] += half[r][i];
    compress(t, p, 2 * step + 1);
}

static struct net_values expected(const struct net_values *start, const struct scene *p)
{
    struct twin t = { 0 };
    struct net_values out;

    memcpy(t.w, start, sizeof(t.w));
    for (int s = 0; s < NET_STEPS; s++) {
        for (int r = 0; r < p->world; r++)
            run_net_gradient(t.w, s, r, NET_SAMPLES / p->world, t.grad[r]);
        if (s && s == p->infinite)
            continue;
        if (p->sync_each)
            compress_twice(&t, p, s);
        else if (s < p->start)
            run_net_mean(t.grad, p->world, 0, NET_NUMBERS);
        else
            compress(&t, p, s);
        run_net_update(t.w, t.grad[0], t.velocity, RATE, p->clip);
        if (s + 1 == p->save)
            run_net_mean(t.error, p->world, 0, NET_NUMBERS);
    }
    memcpy(&out, t.w, sizeof(out));
    return out;
}

/* ---- tests ----------------------------------------------------------------------- */

static void test_training(void)
{
    static const struct scene plan[] = {
        { .world = 1, .start = -1 },
        { .world = 2, .start = -1 },
        { .world = 4, .start = -1, .save = 3 },
        { .world = 4, .start = 2, .clip = 0.2f },
        { .world = 2, .start = -1, .batched = true, .save = 3 },
        { .world = 4, .start = 3, .batched = true },
        { .world = 2, .start = -1, .infinite = 2 },
        { .world = 2, .start = -1, .batched = true, .infinite = 2 },
        { .world = 2, .start = -1, .cold = true },
        { .world = 2, .start = -1, .sync_each = true },
    };
    const struct outcome start = train((struct scene){ .world = 2 }, "start", 0);
    const struct outcome usual =
        train((struct scene){ .world = 2 }, "usual", NET_STEPS);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(plan); i++) {
        struct scene p = plan[i];
        const struct net_values want = expected(&start.values, &p);
        struct outcome o;
        char name[32];

        p.compressed = true;
        snprintf(name, sizeof(name), "rule-%zu", i);
        o = train(p, name, NET_STEPS);
        tap_ok(run_net_distance(&o.values, &want) < 2e-5f,
               "%s: as in plain C, within %g", name,
               (double)run_net_distance(&o.values, &want));
        tap_ok(run_net_distance(&o.values, &usual.values) > 1e-4f,
               "%s: not as with exact sums", name);
        tap_is_int(o.sums, NET_STEPS * (1 + p.sync_each), "%s: sums", name);
        tap_ok(o.plan.reduce_bytes == (int64_t)o.memory.powersgd &&
                   o.plan.checkpoint_bytes ==
                       4 * (2 * NET_NUMBERS + (p.batched ? 25 : 15) +
                            (p.cold      ? 0
                             : p.batched ? 5
                                         : 3)),
               "%s: %zu bytes, as planned, and %lld in checkpoints", name,
               o.memory.powersgd, (long long)o.plan.checkpoint_bytes);
        /* each rank sends its part of a sum to the others, and gets theirs */
        tap_is_int(o.plan.wire_bytes_per_step,
                   4 * 2 * (p.batched ? 10 : 18) * (p.world - 1) / p.world,
                   "%s: bytes on the wire, as planned", name);
        /* the last step is followed by a save */
        if (p.world > 1)
            tap_is_int(o.sent[NET_STEPS - 2],
                       (p.batched ? 5 + 5 : 5 + 3 + 10) * (1 + p.sync_each),
                       "%s: only the factors are sent", name);
    }
}

/* Steps before the first compressed one have the bits of a run without PowerSGD. */
static void test_exact(void)
{
    const struct outcome a = train((struct scene){ .world = 2 }, "plain", NET_STEPS);
    const struct outcome b =
        train((struct scene){ .world = 2, .compressed = true, .start = 100 }, "late",
              NET_STEPS);

    tap_ok(memcmp(&a.values, &b.values, sizeof(a.values)) == 0 &&
               a.sent[2] == b.sent[2],
           "exact steps are those without");
}

static void test_resume(bool batched)
{
    const struct scene two = {
        .world = 2, .compressed = true, .batched = batched, .start = 1, .save = STOP
    };
    struct scene four = two, other = two;
    char name[3][32];
    struct outcome whole, o;
    accel_error_t err = { 0 };
    struct net_run k = { 0 };

    for (int i = 0; i < 3; i++)
        snprintf(name[i], sizeof(name[i]), "resume-%d-%d", i, batched);
    whole = train(two, name[0], NET_STEPS);
    train(two, name[1], STOP);
    o = train(two, name[1], NET_STEPS);
    tap_ok(!memcmp(&o.values, &whole.values, sizeof(o.values)) && o.sums == whole.sums,
           "resumed with the same bits%s", batched ? ", one square" : "");
    four.world = 4;
    train(two, name[2], STOP);
    o = train(four, name[2], NET_STEPS);
    tap_ok(o.sums == NET_STEPS && run_net_distance(&o.values, &whole.values) < 1e-4f,
           "resumed by 4 ranks, %g away",
           (double)run_net_distance(&o.values, &whole.values));
    other.batched = !batched;
    snprintf(other.dir, sizeof(other.dir), "%s/%s", root, name[1]);
    other.world = 1;
    run_net_config(other.dir, "NO_SHARD", 1, 1, NULL);
    tap_ok(powersgd_run_open(&k, &other, &err) == ACCEL_EMISMATCH &&
               run_net_says(&err, A0991, "batched"),
           "not with another rule");
    accel_close(k.run, NULL);
}

/* Not prepared yet. */
static struct net_run opened(const char *dir, const char *strategy, const char *more)
{
    struct net_run k = { 0 };
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", root, dir);
    run_net_config(path, strategy, 1, 1, more);
    run_net_open(&k, path, RATE, NULL);
    return k;
}

static void test_refused(void)
{
    const accel_powersgd_t rule = { .bytes = sizeof(rule) },
                           bad = { sizeof(bad), .rank = -1 };
    struct scene p = { .world = 1, .compressed = true };
    accel_error_t err = { 0 };
    struct net_run k = opened("sharded", "FULL_SHARD", NULL);

    tap_ok(accel_powersgd(k.run, &rule, &err) &&
               run_net_says(&err, A0989, "FULL_SHARD"),
           "shards");
    accel_close(k.run, NULL);
    k = opened("narrow", "NO_SHARD", "accel: {precision: {reduce: bf16}}\n");
    tap_ok(accel_powersgd(k.run, &rule, &err) &&
               run_net_says(&err, A0990, "another dtype"),
           "a narrow wire");
    accel_close(k.run, NULL);
    k = opened("copies", "NO_SHARD", NULL);
    tap_ok(accel_powersgd(NULL, &rule, &err) == ACCEL_EINVAL, "no run");
    tap_ok(accel_powersgd(k.run, NULL, &err) && run_net_says(&err, A0990, "NULL"),
           "no rule");
    tap_ok(accel_powersgd(k.run, &bad, &err) && run_net_says(&err, A0985, "rank"),
           "rank -1");
    accel_close(k.run, NULL);
    k = (struct net_run){ 0 };
    snprintf(p.dir, sizeof(p.dir), "%s/copies", root);
    tap_is_int(powersgd_run_open(&k, &p, &err), 0, "open %s", err.text);
    tap_ok(accel_powersgd(k.run, &rule, &err) &&
               run_net_says(&err, A0990, "prepared already"),
           "after the run was prepared");
    accel_close(k.run, NULL);
    k = opened("local", "NO_SHARD", NULL);
    accel_powersgd(k.run, &rule, &err);
    accel_local_sgd(k.run, 2, &err);
    tap_ok(run_net_prepare(&k, root, &err) &&
               run_net_says(&err, A0990, "accel_local_sgd"),
           "local SGD");
    accel_close(k.run, NULL);
}

int main(void)
{
    run_folder_new(root);
    test_training();
    test_exact();
    test_resume(false);
    test_resume(true);
    test_refused();
    run_folder_remove(root);
    return tap_done();
}
