/* SPDX-License-Identifier: Apache-2.0
 *
 * The samples of accel_next, accel_next_samples and accel_evaluate, each to its number:
 * by rank, world, batch, micro-batch and epoch, and in lives that go on with other
 * worlds and batches, in the middle of an epoch.
 */
#include <stdio.h>
#include <string.h>

#include "accel.h"
#include "common/common.h"
#include "data/data.h"
#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

enum { SEED = 11, MOST_BATCH = 8, MOST_LIVES = 4 };

/* A life goes on where the one before it ended. */
struct life {
    int world, batch, accumulate, steps;
};

static const struct lives {
    const char *what;
    /* of these a fifth is held out; 0: the job has no data */
    int samples;
    struct life life[MOST_LIVES];
} cases[] = {
    { "one rank, three epochs", 10, { { 1, 3, 1, 9 } } },
    { "other worlds in the middle of an epoch",
      30,
      { { 3, 2, 2, 1 }, { 1, 4, 1, 2 }, { 2, 3, 3, 3 } } },
    { "an epoch smaller than a step", 5, { { 2, 4, 2, 2 }, { 3, 1, 1, 4 } } },
    { "batches change",
      50,
      { { 2, 1, 1, 3 }, { 2, 7, 1, 3 }, { 4, 2, 3, 2 }, { 1, 8, 5, 1 } } },
    { "numbers alone", 0, { { 3, 2, 2, 2 }, { 1, 5, 1, 2 }, { 2, 2, 3, 2 } } },
};

static char dir[] = "/tmp/accel-next.XXXXXX", config[96];
/* what fetch was asked for since the program cleared it */
static int64_t asked[64];
static int asked_count;

static int fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    if (asked_count < 64)
        asked[asked_count++] = index;
    *(float *)dst[0] = (float)index;
    return 0;
}

static accel_tensor_t *gain;

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_mean(accel_linear(in[0], gain, NULL, ACCEL_ACT_NONE), -1);
}

struct program {
    const struct lives *lives;
    const struct life *life;
    /* samples of all ranks before this life */
    int64_t before;
    accel_t *run;
    accel_module_t *model;
    accel_dataset_t *data;
};

static accel_status_t open_program(struct program *p, accel_error_t *err)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward, 0 };
    static const accel_field_t field = { ACCEL_F32, 1, { 1 } };
    static const int64_t dims[] = { 1, 1 };
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_job_t job = { sizeof(job),
                        .steps = 1000,
                        .batch = p->life->batch,
                        .accumulate = p->life->accumulate,
                        .seed = SEED,
                        .out_dir = dir,
                        .optimizer =
                            &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                  .kind = ACCEL_SGD, .lr = 1e-3f } };
    accel_status_t st = accel_open(&p->run, &o, err);

    if (!st && p->lives->samples)
        st = accel_dataset_new(&p->data, p->lives->samples, &field, 1, fetch, NULL, 0.2,
                               err);
    if (st)
        return st;
    p->model = accel_module_new(p->run, &cls, NULL, "");
    gain = accel_param(p->model, "gain", 2, dims, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    job.model = p->model;
    job.data = p->data;
    return accel_prepare(p->run, &job, err);
}

/* The next micro-batch, and the numbers of its samples. */
static accel_tensor_t *take(struct program *p, int64_t number_out[MOST_BATCH],
                            accel_error_t *err)
{
    static const float values[MOST_BATCH] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const int64_t dims[] = { p->life->batch, 1 };
    accel_tensor_t *batch = NULL;
    float value[MOST_BATCH];

    if (!p->data) {
        if (accel_next_samples(p->run, number_out, p->life->batch, err))
            return NULL;
        return accel_input(p->run, ACCEL_F32, 2, dims, values, err);
    }
    if (accel_next(p->run, &batch, 1, err) ||
        accel_tensor_read(batch, value, (size_t)p->life->batch, err))
        return NULL;
    for (int i = 0; i < p->life->batch; i++)
        number_out[i] = (int64_t)value[i];
    return batch;
}

/* The sample at a position of the order of the run. */
static int64_t sample_at(const struct program *p, int64_t position)
{
    const int64_t n = p->data ? accel_dataset_samples(p->data) : 1;

    return p->data ? data_permute(SEED, position / n, n, position % n) : position;
}

/* One micro-batch. One that gets no backward does not count: its samples come again. */
static int micro(struct program *p, int rank, int64_t position, bool twice)
{
    const int batch = p->life->batch;
    accel_error_t err = { 0 };
    accel_tensor_t *in = NULL;
    int64_t number[MOST_BATCH];

    for (int round = 0; round <= twice; round++) {
        in = take(p, number, &err);
        EXPECT(in, "%s: %s", p->lives->what, err.text);
        for (int i = 0; i < batch; i++)
            EXPECT(number[i] == sample_at(p, position + (int64_t)rank * batch + i),
                   "%s: rank %d at %lld: sample %d is %lld", p->lives->what, rank,
                   (long long)position, i, (long long)number[i]);
    }
    EXPECT(!accel_backward(p->run, accel_call(p->model, &in, 1), &err) &&
               !accel_step(p->run, &err),
           "%s: %s", p->lives->what, err.text);
    return 0;
}

/* The held-out samples, which are numbered behind the others. A rank beyond their end
 * repeats the first. */
static int evaluate(struct program *p, int rank)
{
    const int64_t train = accel_dataset_samples(p->data);
    const int64_t held = p->lives->samples - train, batch = p->life->batch;
    accel_error_t err = { 0 };
    double loss;
    int n = 0;

    asked_count = 0;
    EXPECT(!accel_evaluate(p->run, 0, &loss, &err), "%s", err.text);
    for (int64_t at = 0; at < held; at += batch * p->life->world)
        for (int64_t i = 0, own = at + rank * batch; i < batch; i++)
            if (own + i < held || i == 0) {
                EXPECT(n < asked_count &&
                           asked[n] == train + (own + i < held ? own + i : 0),
                       "%s: rank %d evaluates %lld", p->lives->what, rank,
                       (long long)asked[n]);
                n++;
            }
    EXPECT(n == asked_count, "%s: rank %d reads %d", p->lives->what, rank, asked_count);
    return 0;
}

static int life_rank(struct boot *b, void *arg)
{
    struct program p = *(struct program *)arg;
    const struct life *l = p.life;
    const int64_t each = (int64_t)l->batch * l->world;
    int64_t position = p.before;
    accel_error_t err = { 0 };
    accel_info_t info = { .bytes = sizeof(info) };

    EXPECT(!open_program(&p, &err), "%s: %s", p.lives->what, err.text);
    for (int s = 0; s < l->steps; s++) {
        for (int m = 0; m < l->accumulate; m++, position += each)
            if (micro(&p, b->rank, position, m == s % l->accumulate))
                return 1;
        if (p.data && s == 0 && evaluate(&p, b->rank))
            return 1;
    }
    EXPECT(!accel_info(p.run, &info, &err) && info.samples_done == position,
           "%s: %lld samples", p.lives->what, (long long)info.samples_done);
    EXPECT(!accel_save(p.run, &err), "%s: %s", p.lives->what, err.text);
    accel_close(p.run, NULL);
    accel_dataset_close(p.data);
    return 0;
}

int main(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        struct program p = { .lives = &cases[i] };

        strcpy(dir + strlen(dir) - 6, "XXXXXX");
        run_folder_make(dir, "distributed_type: MULTI_CPU\nuse_cpu: true\n", config,
                        sizeof(config));
        for (int k = 0; k < MOST_LIVES && cases[i].life[k].world; k++) {
            p.life = &cases[i].life[k];
            tap_is_int(open_world(p.life->world, 1, life_rank, &p, HANG_S), 0,
                       "%s: life %d, %d ranks", p.lives->what, k + 1, p.life->world);
            p.before += (int64_t)p.life->world * p.life->batch * p.life->accumulate *
                        p.life->steps;
        }
        run_folder_remove(dir);
    }
    return tap_done();
}
