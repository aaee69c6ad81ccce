/* SPDX-License-Identifier: Apache-2.0
 * distill: a small student learns what a large teacher answers, and from labels (Hinton
 * et al. 2015). The teacher has no optimizer: it is sharded with the rest, and frozen.
 * TEACHER is a .safetensors file with its weights.
 *     srun --accel-config=fsdp.yaml ./distill [STEPS [RATE [OUT [TEACHER]]]] */
#include "points.h"

enum { IN = 8, OUT = 4, BATCH = 64 };
#define TEMPERATURE 2.0f

static accel_t *run;
static accel_module_t *teacher, *student;

/* This rank's classes, from number `first` on. */
static accel_tensor_t *classes(int batch, uint64_t first)
{
    int32_t host[BATCH];

    for (int i = 0; i < batch; i++)
        host[i] = (int32_t)((points_draw(first + (uint64_t)i) + 1) * OUT / 2);
    return accel_input(run, ACCEL_I32, 1, (int64_t[]){ batch }, host, NULL);
}

/* Cross-entropy with what the teacher thinks likely, both at the same temperature. */
static accel_tensor_t *soft_loss(accel_tensor_t *answer, accel_tensor_t *taught)
{
    const float cool = 1 / TEMPERATURE;
    accel_tensor_t *likely = accel_softmax(accel_scale(taught, cool));

    return accel_scale(accel_soft_cross_entropy(accel_scale(answer, cool), likely),
                       TEMPERATURE * TEMPERATURE);
}

/* One loss for the teacher's answers and one for the labels, whose gradients add up. */
static accel_status_t distill_step(accel_error_t *err)
{
    int batch = BATCH / accel_world_size(run);
    uint64_t sample =
        (uint64_t)accel_steps_done(run) * BATCH + (uint64_t)(accel_rank(run) * batch);
    accel_tensor_t *x, *labels, *soft, *hard;
    accel_status_t st = accel_batch_begin(run, err);

    x = points_input(run, batch, IN, sample * IN);
    labels = classes(batch, sample + (1u << 30));
    soft = soft_loss(accel_call(student, &x, 1), accel_call(teacher, &x, 1));
    hard = accel_cross_entropy(accel_call(student, &x, 1), NULL, NULL, labels, NULL);
    st = st ? st : accel_backward(run, soft, err);
    st = st ? st : accel_backward(run, hard, err);
    return st ? st : accel_step(run, err);
}

int main(int argc, char **argv)
{
    accel_options_t options = { .bytes = sizeof(options),
                                .run_name = "distill",
                                .log = accel_log_stderr };
    float rate = argc > 2 ? strtof(argv[2], NULL) : 5e-3f;
    accel_optimizer_t adamw = { .bytes = sizeof(adamw), .kind = ACCEL_ADAMW };
    accel_loop_t loop = { .bytes = sizeof(loop),
                          .steps = argc > 1 ? atoi(argv[1]) : 500,
                          .seed = 1 };
    accel_optim_t *learns;
    accel_error_t err = { 0 };

    loop.out_dir = argc > 3 ? argv[3] : "out";
    if (accel_open(&run, &options, &err))
        return accel_report(&err);
    loop.batch = BATCH / accel_world_size(run);
    teacher = points_net(run, IN, 64, OUT);
    student = points_net(run, IN, 16, OUT);
    if (!accel_model_add(run, "teacher", teacher, &err) &&
        !accel_model_add(run, "student", student, &err) &&
        (learns = accel_optim_add(run, "learns", &student, 1, &adamw, &err)) &&
        !accel_prepare_all(run, &loop, &err) &&
        (argc < 5 || !accel_model_load(run, teacher, argv[4], &err))) {
        accel_optim_set_lr(learns, rate, &err);
        while (accel_more(run) && !distill_step(&err))
            ;
    }
    accel_close(run, &err);
    return accel_report(&err);
}
