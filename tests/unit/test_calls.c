/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls without a run, from inside of a forward, or with what is no loss: an error
 * each, never a crash. And a forward that brings values of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

enum { BATCH = 2, WIDTH = 4 };

enum inside { NOTHING, NEXT, BACKWARD, STEP, EVALUATE, SAVE, EVAL, VECTOR, INPUT };

static const int64_t dims[] = { BATCH, WIDTH };
static const accel_init_t ones = { ACCEL_INIT_ONES, 0 };

struct net {
    accel_tensor_t *gain;
    enum inside does;
    accel_error_t err;
};

/* Calls that begin or end a micro-batch. */
static accel_status_t call_inside(accel_t *run, enum inside what, accel_error_t *err)
{
    accel_tensor_t *batch[1];
    double loss;

    switch (what) {
    case NEXT:
        return accel_next(run, batch, 1, err);
    case BACKWARD:
        return accel_backward(run, NULL, err);
    case STEP:
        return accel_step(run, err);
    case EVALUATE:
        return accel_evaluate(run, 0, &loss, err);
    case SAVE:
        return accel_save(run, err);
    case EVAL:
        accel_inference_mode(run, 1);
        return ACCEL_EINVAL;
    default:
        return ACCEL_OK;
    }
}

static accel_tensor_t *calls_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    static const float twos[] = { 2, 2, 2, 2, 2, 2, 2, 2 };
    struct net *net = accel_module_state(m);
    accel_tensor_t *y = accel_rmsnorm(in[0], net->gain, 1e-5f);

    (void)n;
    if (net->does == INPUT)
        y = accel_mul(
            y, accel_input(accel_module_run(m), ACCEL_F32, 2, dims, twos, &net->err));
    call_inside(accel_module_run(m), net->does, &net->err);
    return net->does == VECTOR ? y : accel_mean(y, -1);
}

static int fetch(void *user, int64_t index, void *const *dst)
{
    (void)user, (void)index;
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = 3;
    return 0;
}

struct rig {
    char dir[64], config[96];
    accel_job_t job;
    accel_t *run;
    struct net *net;
};

static void rig_open(struct rig *k, enum inside in_the_plan)
{
    static const accel_class_t cls = { sizeof(cls), "Net", calls_forward,
                                       sizeof(struct net) };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    accel_options_t o = { sizeof(o), .config_file = k->config, .threads = 1 };
    accel_error_t err = { 0 };

    k->job = (accel_job_t){ sizeof(accel_job_t), .steps = 1, .batch = BATCH, .seed = 1,
                            .out_dir = k->dir };
    if (accel_dataset_new(&k->job.data, 64, &field, 1, fetch, NULL, 0.25, &err) ||
        accel_open(&k->run, &o, &err)) {
        tap_ok(false, "open: %s", err.text);
        exit(tap_done());
    }
    k->job.model = accel_module_new(k->run, &cls, NULL, "");
    k->net = accel_module_state(k->job.model);
    k->net->gain = accel_param(k->job.model, "gain", 1, &dims[1], ones);
    k->net->does = in_the_plan;
    tap_ok(!accel_prepare(k->run, &k->job, &err), "prepared %s", err.text);
}

static void rig_close(struct rig *k)
{
    accel_close(k->run, NULL);
    accel_dataset_close(k->job.data);
}

/* The call is refused; those that return a status leave the micro-batch as it is. */
static void test_inside(struct rig *k)
{
    static const struct {
        enum inside what;
        const char *text;
    } c[] = {
        { NEXT, "accel_next inside the forward" },
        { BACKWARD, "accel_backward inside the forward" },
        { STEP, "accel_step inside the forward" },
        { EVALUATE, "accel_evaluate inside the forward" },
        { SAVE, "accel_save inside the forward" },
    };
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };

    rig_open(k, NOTHING);
    accel_next(k->run, batch, 1, &err);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        k->net->does = c[i].what;
        tap_ok(accel_call(k->job.model, batch, 1) && k->net->err.code == ACCEL_EINVAL &&
                   strstr(k->net->err.text, c[i].text),
               "refused: %s", k->net->err.text);
    }
    k->net->does = NOTHING;
    tap_ok(!accel_backward(k->run, accel_call(k->job.model, batch, 1), &err) &&
               !accel_step(k->run, &err) && accel_steps_done(k->run) == 1,
           "and the step goes on: %s", err.text);
    rig_close(k);
}

/* A forward or a loss that ends the run. */
static void test_fatal(struct rig *k, enum inside what, const char *text)
{
    accel_tensor_t *batch[1];
    accel_error_t err = { 0 };

    rig_open(k, NOTHING);
    accel_next(k->run, batch, 1, &err);
    k->net->does = what;
    tap_ok(accel_backward(k->run, accel_call(k->job.model, batch, 1), &err) ==
                   ACCEL_EINVAL &&
               strstr(err.text, text),
           "%s", err.text);
    rig_close(k);
}

/* accel_prepare runs the forward for its plan, without values. */
static void test_input(struct rig *k)
{
    accel_tensor_t *batch[1], *y;
    accel_error_t err = { 0 };
    float loss = 0;

    rig_open(k, INPUT);
    accel_next(k->run, batch, 1, &err);
    y = accel_call(k->job.model, batch, 1);
    tap_ok(!accel_tensor_read(y, &loss, 1, &err) && loss > 1.99f && loss < 2.01f,
           "accel_input in a forward: %g, %s", (double)loss, err.text);
    rig_close(k);
}

static void test_no_run(void)
{
    accel_tensor_t *t[1];
    int64_t index[1];
    accel_error_t err = { 0 };
    double loss;
    const accel_status_t st[] = {
        accel_prepare(NULL, &(accel_job_t){ .bytes = sizeof(accel_job_t) }, NULL),
        accel_next(NULL, t, 1, NULL),
        accel_next_samples(NULL, index, 1, NULL),
        accel_backward(NULL, NULL, NULL),
        accel_finish_backward(NULL, 0, NULL),
        accel_step(NULL, NULL),
        accel_evaluate(NULL, 0, &loss, NULL),
        accel_save(NULL, NULL),
        accel_load_weights(NULL, "x", NULL),
        accel_save_weights(NULL, "x", "float32", 0, NULL),
        accel_on_gradient(NULL, NULL, NULL, NULL, NULL),
        accel_find_batch_size(NULL, 1, NULL, NULL, NULL, NULL),
        accel_free_memory(NULL, NULL, NULL),
        accel_info(NULL, NULL, NULL),
        accel_model_load(NULL, NULL, "x", NULL),
        accel_model_save(NULL, NULL, "x", "float32", 0, NULL),
        accel_region_begin(NULL, "x", NULL),
        accel_region_end(NULL, "x", NULL),
        accel_seed(NULL, "x", 0, 0, NULL, NULL),
        accel_track(NULL, 0, NULL, 0, NULL),
        accel_track_files(NULL, "csv", NULL),
        accel_track_sink(NULL, NULL, NULL),
        accel_param_read(NULL, "x", 0, NULL, 0, NULL),
        accel_param_write(NULL, "x", NULL, 0, NULL),
        accel_register(NULL, "x", 0, ACCEL_STATE_COMMON, NULL, NULL, NULL, NULL),
        accel_on_save(NULL, NULL, NULL, NULL),
        accel_on_load(NULL, NULL, NULL, NULL),
        accel_save_state(NULL, NULL, NULL),
        accel_load_state(NULL, NULL, NULL),
        accel_load_part(NULL, "x", NULL, NULL, NULL),
    };
    const void *const made[] = {
        accel_module_new(NULL, NULL, NULL, ""),
        accel_input(NULL, ACCEL_F32, 1, dims, dims, NULL),
        accel_kv_new(NULL, 1, 1, 1, 1, 1, NULL),
        accel_model_new(NULL, NULL, NULL),
        accel_unit_new(NULL, "u", NULL),
        accel_stream(NULL),
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(st); i++)
        tap_is_int(st[i], ACCEL_EINVAL, "call %zu without a run", i);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(made); i++)
        tap_ok(!made[i], "nothing is made without a run (%zu)", i);
    accel_inference_mode(NULL, 1);
    tap_ok(!accel_more(NULL) && !accel_steps_done(NULL) && !accel_rank(NULL) &&
               accel_world_size(NULL) == 1 && !accel_local_rank(NULL) &&
               accel_is_main(NULL) && !accel_close(NULL, NULL),
           "and the rest is no crash");
    tap_ok(!accel_model_open(NULL, "gpt2", &err) &&
               strstr(err.text, "accel_model_open: the run is NULL"),
           "%s", err.text);
}

int main(void)
{
    struct rig k = { .dir = "/tmp/accel-calls.XXXXXX" };

    run_folder_make(k.dir,
                    "distributed_type: 'NO'\nuse_cpu: true\n"
                    "accel: {checkpoint: {save: false}}\n",
                    k.config, sizeof(k.config));
    test_no_run();
    test_inside(&k);
    test_fatal(&k, EVAL, "accel_inference_mode inside the forward");
    test_fatal(&k, VECTOR, "one float32, not float32 [2, 4]");
    test_input(&k);
    run_folder_remove(k.dir);
    return tap_done();
}
