/* SPDX-License-Identifier: Apache-2.0
 *
 * several STEPS OUT: a run of two models with an optimizer each, and three registered
 * objects: one that is common to all ranks, one of each rank, and one of each rank that
 * only as many ranks take. In: the config of the environment. Out: checkpoints and a
 * log below OUT; at the end each rank says what its objects have counted.
 */
#include <stdbool.h>
#include <string.h>

#include "examples/points.h"

enum { BATCH = 8, OBJECTS = 3 };

/* Counts steps by `by`. A checkpoint has its number. */
struct counter {
    int64_t by, sum;
    bool own; /* of this rank */
};

static accel_t *run;

static accel_status_t save(void *user, accel_bytes_t *to, accel_error_t *err)
{
    const struct counter *c = user;

    return accel_bytes_put(to, &c->sum, sizeof(c->sum), err);
}

static accel_status_t load(void *user, const accel_saved_t *from, accel_error_t *err)
{
    struct counter *c = user;
    size_t bytes = 0;
    const void *at = accel_saved_bytes(from, c->own ? accel_rank(run) : 0, &bytes);

    if (!at || bytes != sizeof(c->sum) ||
        accel_saved_ranks(from) != (c->own ? accel_world_size(run) : 1))
        return accel_error_set(err, ACCEL_ECORRUPT, "", "a counter is not there");
    memcpy(&c->sum, at, sizeof(c->sum));
    return ACCEL_OK;
}

static accel_status_t register_all(struct counter *c, accel_error_t *err)
{
    static const char *const name[] = { "common", "own", "same-ranks" };
    static const accel_state_kind_t kind[] = { ACCEL_STATE_COMMON, ACCEL_STATE_PER_RANK,
                                               ACCEL_STATE_SAME_RANKS };
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < OBJECTS && !st; i++) {
        c[i].own = kind[i] != ACCEL_STATE_COMMON;
        c[i].by = c[i].own ? i + 10 * accel_rank(run) : 1;
        st = accel_register(run, name[i], i + 1, kind[i], save, load, &c[i], err);
    }
    return st;
}

/* A model learns to say 0.5. */
static accel_status_t learn(accel_module_t *m, accel_optim_t *o, int in, int out,
                            accel_error_t *err)
{
    const int batch = BATCH / accel_world_size(run);
    const uint64_t sample =
        (uint64_t)accel_steps_done(run) * BATCH + (uint64_t)(accel_rank(run) * batch);
    float host[2 * BATCH];
    accel_tensor_t *x, *want;
    accel_status_t st;

    for (int i = 0; i < 2 * BATCH; i++)
        host[i] = 0.5f;
    x = points_input(run, batch, in, sample * (uint64_t)in);
    want = accel_input(run, ACCEL_F32, 2, (int64_t[]){ batch, out }, host, NULL);
    st = accel_backward(run, accel_mse(accel_call(m, &x, 1), want), err);
    return st ? st : accel_optim_step(o, NULL, err);
}

int main(int argc, char **argv)
{
    accel_options_t options = { sizeof(options), .run_name = "several",
                                .log = accel_log_stderr };
    accel_optimizer_t adamw = { sizeof(adamw), .lr = 1e-2f },
                      sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1e-2f,
                              .momentum = 0.9f };
    accel_loop_t loop = { sizeof(loop), .steps = argc > 1 ? atoi(argv[1]) : 8,
                          .seed = 1 };
    struct counter c[OBJECTS] = { { 0 } };
    accel_module_t *a, *b;
    accel_optim_t *oa, *ob;
    accel_error_t err = { 0 };

    loop.out_dir = argc > 2 ? argv[2] : "out";
    if (accel_open(&run, &options, &err))
        return accel_report(&err);
    loop.batch = BATCH / accel_world_size(run);
    a = points_net(run, 4, 8, 1);
    b = points_net(run, 3, 6, 2);
    if (!accel_model_add(run, "first", a, &err) &&
        !accel_model_add(run, "second", b, &err) &&
        (oa = accel_optim_add(run, "adam", &a, 1, &adamw, &err)) &&
        (ob = accel_optim_add(run, "descent", &b, 1, &sgd, &err)) &&
        !register_all(c, &err) && !accel_prepare_all(run, &loop, &err)) {
        while (accel_more(run) && !accel_batch_begin(run, &err) &&
               !learn(a, oa, 4, 1, &err) && !learn(b, ob, 3, 2, &err)) {
            for (int i = 0; i < OBJECTS; i++)
                c[i].sum += c[i].by * (accel_steps_done(run) + 1);
            if (accel_step(run, &err))
                break;
        }
        if (!err.code)
            printf("rank %d: %lld, %lld, %lld\n", accel_rank(run), (long long)c[0].sum,
                   (long long)c[1].sum, (long long)c[2].sum);
    }
    accel_close(run, &err);
    return accel_report(&err);
}
