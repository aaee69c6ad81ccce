/* SPDX-License-Identifier: Apache-2.0
 *
 * A run that tracks: tracker OUT STEPS. Trains one vector for STEPS steps, resuming from
 * OUT, and tracks a number, a text and a histogram at each. At the end it tracks two
 * steps that no checkpoint knows, as a life that is killed later would.
 */
#include <stdio.h>
#include <stdlib.h>

#include <accel.h>

enum { WIDTH = 4, BATCH = 2 };

static accel_tensor_t *gain;

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_mean(accel_rmsnorm(in[0], gain, 1e-5f), -1);
}

static int net_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = (float)((index + i) % 7);
    return 0;
}

static accel_status_t track(accel_t *run, int64_t step, accel_error_t *err)
{
    float values[100];
    char text[64];
    const accel_item_t items[] = {
        { .name = "own/square", .value = (double)(step * step) },
        { .name = "own/note", .kind = ACCEL_ITEM_TEXT, .text = text },
        { .name = "own/spread",
          .kind = ACCEL_ITEM_HISTOGRAM,
          .values = values,
          .count = 100 },
    };

    snprintf(text, sizeof(text), "step **%lld**", (long long)step);
    for (int i = 0; i < 100; i++)
        values[i] = (float)(i * (step + 1));
    return accel_track(run, step, items, 3, err);
}

int main(int argc, char **argv)
{
    static const accel_class_t net = { sizeof(net), "Net", net_forward, 0 };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    const accel_options_t options = { sizeof(options), .run_name = "tracker",
                                      .log = accel_log_stderr, .threads = 1 };
    const accel_init_t ones = { ACCEL_INIT_ONES, 0 };
    const int64_t width = WIDTH;
    accel_job_t job = { sizeof(job), .batch = BATCH, .seed = 1 };
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    if (argc != 3)
        return 64;
    job.out_dir = argv[1];
    job.steps = strtoll(argv[2], NULL, 10);
    if (accel_dataset_new(&job.data, 64, &field, 1, net_fetch, NULL, 0, &err) ||
        accel_open(&run, &options, &err) ||
        accel_track_files(run, "tensorboard,jsonl,csv", &err))
        return accel_report(&err);
    job.model = accel_module_new(run, &net, NULL, "");
    gain = accel_param(job.model, "gain", 1, &width, ones);
    accel_prepare(run, &job, &err);
    while (accel_more(run) && !accel_next(run, batch, 1, &err) &&
           !accel_backward(run, accel_call(job.model, batch, 1), &err) &&
           !accel_step(run, &err))
        track(run, accel_steps_done(run), &err);
    for (int beyond = 1; !err.code && beyond <= 2; beyond++)
        track(run, accel_steps_done(run) + beyond, &err);
    accel_close(run, &err);
    accel_dataset_close(job.data);
    return accel_report(&err);
}
