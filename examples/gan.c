/* SPDX-License-Identifier: Apache-2.0
 * gan: two models and two optimizers in turn (Goodfellow et al. 2014). The generator
 * learns to make points of a square out of noise.
 *     srun --accel-config=fsdp.yaml ./gan [STEPS [RATE [OUT]]] */
#include "points.h"

enum { NOISE = 8, WIDE = 32, BATCH = 64 };

static accel_t *run;
static accel_module_t *generator, *critic;
static accel_optim_t *makes, *judges;

/* Binary cross-entropy of what the critic says of this rank's samples: 1 is real. */
static accel_tensor_t *score(accel_tensor_t *x, int batch, float want)
{
    float host[BATCH];

    for (int i = 0; i < batch; i++)
        host[i] = want;
    return accel_binary_cross_entropy(
        accel_call(critic, &x, 1),
        accel_input(run, ACCEL_F32, 2, (int64_t[]){ batch, 1 }, host, NULL));
}

/* The generator is frozen while the critic learns, and the other way round; gradients
 * flow through the critic all the same. */
static accel_status_t gan_step(accel_error_t *err)
{
    int batch = BATCH / accel_world_size(run);
    uint64_t sample =
        (uint64_t)accel_steps_done(run) * BATCH + (uint64_t)(accel_rank(run) * batch);
    accel_tensor_t *noise, *fake;
    accel_status_t st = accel_batch_begin(run, err);

    noise = points_input(run, batch, NOISE, sample * NOISE);
    st = st ? st : accel_model_freeze(run, generator, 1, err);
    fake = accel_call(generator, &noise, 1);
    st = st ? st
            : accel_backward(
                  run,
                  score(points_input(run, batch, 2, sample * 2 + (1u << 30)), batch, 1),
                  err);
    st = st ? st : accel_backward(run, score(fake, batch, 0), err);
    st = st ? st : accel_optim_step(judges, NULL, err);
    st = st ? st : accel_model_freeze(run, generator, 0, err);
    st = st ? st : accel_model_freeze(run, critic, 1, err);
    fake = accel_call(generator, &noise, 1);
    st = st ? st : accel_backward(run, score(fake, batch, 1), err);
    st = st ? st : accel_optim_step(makes, NULL, err);
    st = st ? st : accel_model_freeze(run, critic, 0, err);
    return st ? st : accel_step(run, err);
}

int main(int argc, char **argv)
{
    accel_options_t options = { .bytes = sizeof(options),
                                .run_name = "gan",
                                .log = accel_log_stderr };
    accel_optimizer_t adamw = { .bytes = sizeof(adamw), .beta1 = 0.5f, .beta2 = 0.9f };
    accel_loop_t loop = { .bytes = sizeof(loop),
                          .steps = argc > 1 ? atoi(argv[1]) : 500,
                          .seed = 1 };
    float rate = argc > 2 ? strtof(argv[2], NULL) : 2e-3f;
    accel_error_t err = { 0 };

    loop.out_dir = argc > 3 ? argv[3] : "out";
    if (accel_open(&run, &options, &err))
        return accel_report(&err);
    loop.batch = BATCH / accel_world_size(run);
    generator = points_net(run, NOISE, WIDE, 2);
    critic = points_net(run, 2, WIDE, 1);
    if (!accel_model_add(run, "generator", generator, &err) &&
        !accel_model_add(run, "critic", critic, &err) &&
        (makes = accel_optim_add(run, "makes", &generator, 1, &adamw, &err)) &&
        (judges = accel_optim_add(run, "judges", &critic, 1, &adamw, &err)) &&
        !accel_prepare_all(run, &loop, &err)) {
        accel_optim_set_lr(makes, rate, &err);
        accel_optim_set_lr(judges, rate, &err);
        while (accel_more(run) && !gan_step(&err))
            ;
    }
    accel_close(run, &err);
    return accel_report(&err);
}
