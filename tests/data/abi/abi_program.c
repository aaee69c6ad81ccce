/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as one wrote it for the first release: abi_program CONFIG OUT. It fills a struct of
 * each kind and has one filled. A test builds it with headers of that and of later releases.
 */
#include <accel.h>
#include <stdio.h>
#include <string.h>

static accel_tensor_t *weight;
static int items;

/* Sample i: a number and its double. */
static int fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    *(float *)dst[0] = (float)(index % 8);
    *(float *)dst[1] = 2 * *(float *)dst[0];
    return 0;
}

static accel_tensor_t *forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_mse(accel_linear(in[0], weight, NULL, ACCEL_ACT_NONE), in[1]);
}

static accel_status_t write_items(void *user, int64_t step, double time,
                                  const accel_item_t *item, int n, accel_error_t *err)
{
    (void)user, (void)step, (void)time, (void)item, (void)err;
    items += n;
    return ACCEL_OK;
}

int main(int argc, char **argv)
{
    static const accel_field_t number = { ACCEL_F32, 1, { 1 } };
    const accel_field_t fields[] = { number, number };
    const int64_t dims[] = { 1, 1 };
    accel_class_t net = { .bytes = sizeof(net), .name = "Net", .forward = forward };
    accel_options_t options = { .bytes = sizeof options, .config_file = argv[1] };
    accel_group_t group = { .match = "*", .weight_decay = -1 };
    accel_optimizer_t sgd = { .bytes = sizeof sgd,
                              .kind = ACCEL_SGD,
                              .lr = 0.01f,
                              .groups = &group,
                              .group_count = 1 };
    accel_schedule_t constant = { .bytes = sizeof constant };
    accel_ema_t ema = { .bytes = sizeof ema, .decay = 0.5 };
    accel_sink_t sink = { .bytes = sizeof sink, .name = "own", .write = write_items };
    accel_loader_options_t order = { .bytes = sizeof order, .batch = 4, .seed = 5 };
    accel_job_t job = { .bytes = sizeof job,
                        .optimizer = &sgd,
                        .schedule = &constant,
                        .steps = 6,
                        .batch = 4,
                        .out_dir = argv[2] };
    accel_step_info_t last = { .bytes = sizeof last };
    accel_info_t info = { .bytes = sizeof info };
    accel_dataset_t *data = NULL;
    accel_loader_t *loader = NULL;
    accel_error_t err = { 0 };
    accel_tensor_t *batch[2];
    accel_t *run = NULL;
    int got;

#ifdef NO_SIZE
    job.bytes = 0;
#endif
#ifdef LATER /* a header in which the job has one more member */
    job.later = LATER;
    last.later = 7;
#endif
    if (argc < 3 || accel_dataset_new(&data, 32, fields, 2, fetch, NULL, 0, &err) ||
        accel_open(&run, &options, &err))
        return accel_report(&err);
    job.model = accel_module_new(run, &net, NULL, "");
    weight =
        accel_param(job.model, "weight", 2, dims, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    if (accel_ema(run, NULL, &ema, &err) || accel_track_sink(run, &sink, &err) ||
        accel_prepare(run, &job, &err) ||
        accel_loader_new(&loader, run, "train", data, &order, &err))
        return accel_close(run, NULL), accel_report(&err);
    while (accel_more(run) && !err.code)
        if (!accel_loader_next(loader, batch, 2, &got, &err) && got &&
            !accel_backward(run, accel_call(job.model, batch, 2), &err))
            accel_step(run, &err);
    if (!accel_last_step(run, &last, &err) && !accel_info(run, &info, &err))
        printf("step %d loss %.4f optims %d lr %.2f world %d items %d\n",
               (int)last.step, last.loss, last.optims, last.lr[0], info.world_size,
               items);
#ifdef LATER
    printf("later %d\n", (int)last.later);
#endif
    accel_close(run, &err);
    accel_dataset_close(data);
    return accel_report(&err);
}
