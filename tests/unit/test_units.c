/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of a program's own and programs that feed themselves, on one rank: initial
 * values, every misuse an error and no crash, groups, the exact sample after a resume,
 * the end of an evaluation, checkpoints of another optimizer.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optim/schedule.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "handle/run.h"

static char dir[64] = "/tmp/accel-units.XXXXXX";
static char config[96];
static accel_error_t err; /* of the last call on the last run */

static void refused(accel_status_t st, const char *what)
{
    tap_is_int(st, ACCEL_EINVAL, "%s: %s", what, err.text);
}

static accel_t *open_run(void)
{
    accel_options_t o = { sizeof(o), .config_file = config, .run_name = "units",
                          .threads = 1 };
    accel_t *run = NULL;

    memset(&err, 0, sizeof(err));
    if (accel_open(&run, &o, &err))
        tap_ok(false, "open: %s", err.text);
    return run;
}

/* Of the last job_of. */
static accel_optimizer_t trained;

static accel_job_t job_of(const char *name, int64_t steps)
{
    static char out[128];
    accel_job_t j = { sizeof(j), .optimizer = &trained, .steps = steps, .batch = 4,
                      .seed = 3 };

    snprintf(out, sizeof(out), "%s/%s", dir, name);
    j.out_dir = out;
    trained = (accel_optimizer_t){ sizeof(trained), .kind = ACCEL_SGD, .lr = 0.5f };
    return j;
}

static const float start[6] = { 1, 2, 3, 4, 5, 6 };
static const int64_t six[] = { 2, 3 }, one[] = { 1 };
static const accel_init_t zeros = { ACCEL_INIT_ZEROS, 0 };

/* With two units: "a" with six given values and a bias of 0.25, "b" with one. */
static accel_t *open_units(accel_unit_t *u[2])
{
    accel_t *run = open_run();

    u[0] = accel_unit_new(run, "a", &err);
    u[1] = accel_unit_new(run, "b", &err);
    if (accel_unit_param(u[0], "weight", 2, six, zeros, start, &err) ||
        accel_unit_param(u[0], "bias", 1, one,
                         (accel_init_t){ ACCEL_INIT_CONSTANT, 0.25f }, NULL, &err) ||
        accel_unit_param(u[1], "weight", 1, one, zeros, NULL, &err))
        tap_ok(false, "declare: %s", err.text);
    return run;
}

/* A step whose gradient is 1 everywhere; returns the first sample's number, or -1. */
static int64_t step(accel_t *run, accel_unit_t *u[2])
{
    int64_t index[4] = { -1 };
    float *g;

    if (accel_next_samples(run, index, 4, &err))
        goto fail;
    for (int k = 0; k < 2; k++) {
        if (accel_unit_gradient(u[k], 0, &g, &err))
            goto fail;
        for (int i = 0; g && i < (k ? 1 : 6); i++)
            g[i] += 1;
    }
    if (accel_finish_backward(run, 1.0, &err) || accel_step(run, &err))
        goto fail;
    return index[0];
fail:
    tap_ok(false, "step: %s", err.text);
    return -1;
}

static void test_values(void)
{
    accel_job_t j = job_of("values", 2);
    accel_unit_t *u[2];
    accel_t *run = open_units(u);
    const float *v;

    tap_ok(!accel_prepare(run, &j, &err), "units without a model (%s)", err.text);
    tap_ok(!accel_unit_want(u[0], &err) && (v = accel_unit_values(u[0], 0)) &&
               !memcmp(v, start, sizeof(start)),
           "the program's initial values");
    v = accel_unit_values(u[0], 1);
    tap_ok(v && v[0] == 0.25f && accel_unit_dtype(u[0]) == ACCEL_F32, "and a constant");
    accel_unit_want(u[0], &err);
    accel_unit_done(u[0]);
    tap_ok(accel_unit_values(u[0], 1) == v, "wanted twice, it stays after one done");
    accel_unit_done(u[0]);
    tap_is_int(step(run, u), 0, "a step");
    accel_unit_want(u[0], &err);
    v = accel_unit_values(u[0], 0);
    tap_ok(v && fabsf((6 - v[5]) - (1 - v[0])) < 1e-6f && v[0] < 0.9f,
           "SGD took the rate from each: %g", v ? (double)v[0] : 0);
    accel_unit_done(u[0]);
    tap_is_int(step(run, u), 4, "samples are counted");
    tap_ok(!accel_more(run), "finished");
    tap_is_int(accel_close(run, &err), ACCEL_OK, "closed");
}

static void test_declarations(void)
{
    accel_job_t j = job_of("declare", 1);
    const int64_t bad[] = { 0 };
    accel_unit_t *u[2];
    accel_t *run = open_run();

    tap_ok(accel_prepare(run, &j, &err) == ACCEL_EINVAL && strstr(err.text, "units"),
           "neither a model nor units: %s", err.text);
    accel_close(run, NULL);
    run = open_units(u);
    tap_ok(!accel_unit_new(run, "a", &err) && err.code == ACCEL_EINVAL &&
               !accel_unit_new(run, "x/y", &err) && !accel_unit_new(run, NULL, &err),
           "a unit's name is its own: %s", err.text);
    refused(accel_unit_param(u[0], "bias", 1, one, zeros, NULL, &err),
            "and so is a parameter's");
    tap_is_int(accel_unit_param(u[0], "", 1, one, zeros, NULL, &err), ACCEL_EINVAL,
               "no name");
    refused(accel_unit_param(u[0], "c", 1, bad, zeros, NULL, &err), "a size of 0");
    refused(accel_unit_param(u[0], "c", 9, six, zeros, NULL, &err), "nine dimensions");
    tap_is_int(accel_unit_param(NULL, "c", 1, one, zeros, NULL, &err), ACCEL_EINVAL,
               "no unit");
    tap_ok(accel_unit_want(u[0], &err) == ACCEL_EINVAL, "not prepared: %s", err.text);
    tap_ok(!accel_prepare(run, &j, &err), "all that changed nothing (%s)", err.text);
    tap_ok(!accel_unit_new(run, "late", &err) &&
               accel_unit_param(u[0], "late", 1, one, zeros, NULL, &err) ==
                   ACCEL_EINVAL,
           "nothing after accel_prepare: %s", err.text);
    accel_close(run, NULL);
}

/* Misuse that the program may go on after. */
static void test_misuse(void)
{
    accel_job_t j = job_of("misuse", 9);
    accel_tensor_t *t[2];
    accel_unit_t *u[3];
    accel_t *run = open_units(u);
    int64_t index[4];
    float *g;

    u[2] = accel_unit_new(run, "c", &err);
    accel_unit_param(u[2], "weight", 1, one, zeros, NULL, &err);
    accel_prepare(run, &j, &err);
    refused(accel_unit_gradient(u[0], 0, &g, &err), "a gradient without a micro-batch");
    refused(accel_finish_backward(run, 0, &err), "nor its end");
    refused(accel_next(run, t, 2, &err), "no data");
    refused(accel_next_samples(run, index, 5, &err), "another number of samples");
    tap_is_int(accel_next_samples(run, index, 4, &err), ACCEL_OK, "a micro-batch");
    tap_ok(index[3] == 3, "of four samples");
    refused(accel_step(run, &err), "no step before its backward");
    refused(accel_unit_gradient(u[0], 2, &g, &err), "no parameter 2");
    refused(accel_unit_gradient(u[0], 0, NULL, &err), "nowhere to");
    tap_ok(!accel_unit_want(u[0], &err) && !accel_unit_want(u[1], &err), "two units");
    refused(accel_unit_want(u[2], &err), "and no third");
    accel_unit_done(u[1]);
    tap_is_int(accel_unit_want(u[2], &err), ACCEL_OK, "but after a done");
    accel_unit_done(u[2]);
    accel_unit_done(u[0]);
    tap_is_int(accel_finish_backward(run, 1, &err), ACCEL_OK, "all is well");
    tap_is_int(accel_step(run, &err), ACCEL_OK, "with a gradient of zeros");
    refused(accel_evaluate(run, 0, &(double){ 0 }, &err), "no model to evaluate");
    accel_unit_done(NULL);
    tap_ok(!accel_unit_values(NULL, 0) && accel_unit_dtype(NULL) == ACCEL_F32,
           "NULL is no crash");
    accel_close(run, NULL);
}

enum wrong { VALUES_UNWANTED, VALUES_BEYOND, DONE_TWICE, NOT_DONE };

/* Misuse that ends the run, with the unit's name. */
static void test_fatal(enum wrong wrong, const char *what)
{
    accel_job_t j = job_of("fatal", 9);
    accel_unit_t *u[2];
    accel_t *run = open_units(u);
    accel_status_t st;

    accel_prepare(run, &j, &err);
    accel_next_samples(run, NULL, 4, &err);
    if (wrong != VALUES_UNWANTED)
        accel_unit_want(u[0], &err);
    if (wrong == VALUES_UNWANTED || wrong == VALUES_BEYOND)
        tap_ok(!accel_unit_values(u[0], wrong == VALUES_BEYOND ? 2 : 0), "NULL");
    if (wrong == VALUES_BEYOND || wrong == DONE_TWICE)
        accel_unit_done(u[0]);
    if (wrong == DONE_TWICE)
        accel_unit_done(u[0]);
    st = accel_finish_backward(run, 1, &err);
    tap_ok(st == ACCEL_EINVAL && !strcmp(err.where, "a") && err.hint[0], "%s: %s", what,
           err.text);
    tap_is_int(accel_close(run, NULL), ACCEL_EINVAL, "and the run ends with it");
}

static void test_resume(void)
{
    static const accel_group_t frozen = { .match = "a.*", .frozen = 1 };
    static const accel_group_t typo = { .match = "c.*", .lr_scale = 2 };
    static const accel_group_t all = { .match = "*", .frozen = 1 };
    accel_job_t j = job_of("resume", 2);
    accel_unit_t *u[2];
    accel_t *run = open_units(u);
    const float *v;
    float *g, last;

    accel_prepare(run, &j, &err);
    step(run, u);
    step(run, u);
    accel_unit_want(u[0], &err);
    v = accel_unit_values(u[0], 0);
    last = v ? v[0] : 0;
    accel_unit_done(u[0]);
    accel_close(run, NULL);
    run = open_units(u);
    j.steps = 4;
    tap_ok(!accel_prepare(run, &j, &err) && accel_steps_done(run) == 2, "resumed");
    tap_is_int(step(run, u), 8, "at the exact sample");
    accel_unit_want(u[0], &err);
    v = accel_unit_values(u[0], 0);
    tap_ok(v && v[0] < last - 0.1f, "with the values of step 2, and a third step: %g",
           v ? (double)v[0] : 0);
    accel_unit_done(u[0]);
    step(run, u);
    accel_close(run, NULL);

    for (int k = 0; k < 5; k++) {
        static const char *const says[] = { "sgd", "sgd", "different parameters",
                                            "matches no", "all parameters" };
        const accel_group_t *group[] = { NULL, NULL, &frozen, &typo, &all };

        j = job_of("resume", 6);
        if (k == 0)
            trained = (accel_optimizer_t){ sizeof(trained), .lr = 0.1f };
        if (k == 1)
            trained.momentum = 0.5f;
        trained.groups = group[k];
        trained.group_count = group[k] != NULL;
        run = open_units(u);
        tap_ok(accel_prepare(run, &j, &err) ==
                       (k < 3 ? ACCEL_EMISMATCH : ACCEL_EINVAL) &&
                   strstr(err.text, says[k]) && err.hint[0],
               "refused: %s", err.text);
        accel_close(run, NULL);
    }
    j = job_of("frozen", 1);
    trained.groups = &frozen;
    trained.group_count = 1;
    run = open_units(u);
    tap_ok(!accel_prepare(run, &j, &err), "a frozen unit");
    accel_next_samples(run, NULL, 4, &err);
    g = &(float){ 0 };
    tap_ok(!accel_unit_gradient(u[0], 0, &g, &err) && !g, "has no gradient");
    tap_ok(!accel_unit_gradient(u[1], 0, &g, &err) && g, "the other has");
    g[0] = 1;
    tap_ok(!accel_finish_backward(run, 1, &err) && !accel_step(run, &err), "a step");
    accel_unit_want(u[0], &err);
    accel_unit_want(u[1], &err);
    tap_ok(!memcmp(accel_unit_values(u[0], 0), start, sizeof(start)) &&
               *(const float *)accel_unit_values(u[1], 0) < -0.01f,
           "changes the one and not the other");
    accel_close(run, NULL);
}

/* Of two groups the first that matches counts; the rest has the job's own values. */
static void test_groups(void)
{
    static const accel_group_t groups[] = {
        { .match = "a.weight", .lr_scale = 2, .weight_decay = 0.25f },
        { .match = "a.*", .lr_scale = 3, .weight_decay = 0.5f },
    };
    accel_job_t j = job_of("groups", 1);
    accel_unit_t *u[2];
    accel_t *run = open_units(u);
    accel_tensor_t **a, **b;

    trained.weight_decay = 0.125f;
    trained.groups = groups;
    trained.group_count = 2;
    tap_is_int(accel_prepare(run, &j, &err), ACCEL_OK, "two groups %s", err.text);
    a = run->units.unit[0].param;
    b = run->units.unit[1].param;
    tap_ok(a[0]->param->lr_scale == 2 && a[1]->param->lr_scale == 3 &&
               b[0]->param->lr_scale == 1,
           "each with its rate");
    tap_ok(a[0]->param->weight_decay == 0.25f && a[1]->param->weight_decay == 0.5f,
           "and weight decay");
    accel_close(run, NULL);
}

/* Two parameters side by side, without a gap, whose groups differ in the rate alone. */
static void test_group_rates(void)
{
    static const accel_group_t groups[] = {
        { .match = "g.weight", .lr_scale = 2, .weight_decay = -1 },
        { .match = "g.bias", .lr_scale = 3, .weight_decay = -1 },
    };
    const int64_t line[] = { 16 };
    accel_job_t j = job_of("rates", 2);
    accel_t *run = open_run();
    accel_unit_t *u = accel_unit_new(run, "g", &err);
    float by[2] = { 0 }, *g;

    trained.groups = groups;
    trained.group_count = 2;
    accel_unit_param(u, "weight", 1, line, zeros, NULL, &err);
    accel_unit_param(u, "bias", 1, line, zeros, NULL, &err);
    tap_ok(!accel_prepare(run, &j, &err) && !accel_next_samples(run, NULL, 4, &err),
           "a unit of two groups %s", err.text);
    for (int k = 0; k < 2 && !accel_unit_gradient(u, k, &g, &err); k++)
        for (int i = 0; g && i < 16; i++)
            g[i] += 1;
    tap_ok(!accel_finish_backward(run, 1.0, &err) && !accel_step(run, &err) &&
               !accel_unit_want(u, &err),
           "a step %s", err.text);
    for (int k = 0; k < 2; k++)
        by[k] = ((const float *)accel_unit_values(u, k))[15];
    accel_unit_done(u);
    tap_ok(by[0] < 0 && fabsf(by[1] / by[0] - 1.5f) < 1e-6f,
           "each at its own rate: %g and %g", (double)by[0], (double)by[1]);
    accel_close(run, NULL);
}

/* ---- any fields ------------------------------------------------------------------ */

static int fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    *(float *)dst[0] = (float)index;
    *(uint8_t *)dst[1] = (uint8_t)(index % 200);
    *(uint8_t *)dst[2] = (uint8_t)(200 - index % 200);
    return 0;
}

static accel_status_t scalar_shape(const void *attr, const accel_array_t *in, int n,
                                   accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)n, (void)err;
    *out = in[0];
    out->ndim = 1;
    out->dims[0] = 1;
    return ACCEL_OK;
}

/* The mean of the first field plus the parameter. */
static accel_status_t mean_forward(const void *attr, const accel_array_t *in, int n,
                                   const accel_array_t *out, accel_error_t *err)
{
    double sum = 0;

    (void)attr, (void)n, (void)err;
    for (int64_t i = 0; i < in[0].elems; i++)
        sum += ((const float *)in[0].data)[i];
    *(float *)out->data =
        (float)(sum / (double)in[0].elems) + *(const float *)in[1].data;
    return ACCEL_OK;
}

static accel_status_t mean_backward(const void *attr, const accel_array_t *in, int n,
                                    const accel_array_t *out, const accel_array_t *dout,
                                    const accel_array_t *din, accel_error_t *err)
{
    (void)attr, (void)in, (void)n, (void)out, (void)err;
    if (din[1].data)
        *(float *)din[1].data += *(const float *)dout->data;
    return ACCEL_OK;
}

static const accel_op_t mean_op = { sizeof(mean_op), .name = "mean_of_field",
                                    .shape = scalar_shape, .forward = mean_forward,
                                    .backward = mean_backward };
static accel_tensor_t *offset;

static accel_tensor_t *mean_model(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *both[] = { in[0], offset };

    (void)m;
    return n == 3 ? accel_apply(&mean_op, both, 2, NULL) : NULL;
}

static const accel_class_t mean_class = { .bytes = sizeof(mean_class),
                                          .name = "Mean",
                                          .forward = mean_model };

static void test_fields(void)
{
    const accel_field_t fields[] = { { ACCEL_F32, 1, { 1 } },
                                     { ACCEL_U8, 0, { 0 } },
                                     { ACCEL_U8, 0, { 0 } } };
    accel_job_t j = job_of("fields", 2);
    accel_tensor_t *batch[4], *t;
    accel_t *run = open_run();
    const int64_t two[] = { 1, 2 };
    float got[4], label[4], other[4];
    const int64_t *dims;
    double loss = 0;

    accel_dataset_new(&j.data, 100, fields, 3, fetch, NULL, 0.1, &err);
    j.model = accel_module_new(run, &mean_class, NULL, "");
    offset = accel_param(j.model, "offset", 1, one, zeros);
    tap_ok(!accel_prepare(run, &j, &err), "a model of any fields (%s)", err.text);
    run->background.copying = true; /* as a device does for a checkpoint */
    accel_evaluate(run, 0, &loss, &err);
    tap_ok(!run->background.copying,
           "a copy under way is waited for before evaluation");
    tap_ok(fabs(loss - 94.5) < 1e-9,
           "evaluation weighs the last, smaller micro-batch: %g", loss);
    accel_evaluate(run, 1, &loss, &err);
    tap_ok(fabs(loss - 91.5) < 1e-9, "of one micro-batch, when asked: %g", loss);
    refused(accel_next(run, batch, 4, &err), "not four tensors");
    refused(accel_next_samples(run, NULL, 4, &err), "it has data");
    tap_ok(!accel_next(run, batch, 3, &err) &&
               accel_tensor_shape(batch[0], &dims) == 2 && dims[0] == 4 &&
               accel_tensor_shape(batch[1], &dims) == 1 &&
               accel_tensor_dtype(batch[1]) == ACCEL_U8,
           "three tensors");
    tap_ok(!accel_tensor_read(batch[0], got, 4, &err) &&
               !accel_tensor_read(batch[1], label, 4, &err) &&
               !accel_tensor_read(batch[2], other, 4, &err) && got[2] == label[2] &&
               other[2] == 200 - got[2] && got[0] < 90 && got[0] != got[1],
           "of the same, shuffled samples: %g %g", (double)got[0], (double)got[1]);
    for (int i = 0; i < 4; i++)
        tap_is_int((int64_t)got[i], data_permute(3, 0, 90, i),
                   "in the order of the seed");
    t = accel_input(run, ACCEL_F32, 2, two, start, &err);
    tap_ok(t && !accel_tensor_read(t, got, 2, &err) && got[1] == 2,
           "a tensor of its own");
    tap_ok(!accel_input(run, ACCEL_F32, 2, two, NULL, &err) && err.code == ACCEL_EINVAL,
           "without values: %s", err.text);
    accel_next(run, batch, 3, &err);
    tap_ok(!accel_input(run, ACCEL_F8E5M2, 2, two, start, &err) &&
               strstr(err.text, "dtype e5m2"),
           "of a dtype of the wire: %s", err.text);
    accel_close(run, NULL);
    accel_dataset_close(j.data);
}

static int fetch_nothing(void *user, int64_t index, void *const *dst)
{
    (void)user, (void)index, (void)dst;
    return 0;
}

static void test_too_large(void)
{
    const accel_field_t field = { ACCEL_F32, 1, { 1000 } };
    accel_job_t j = job_of("large", 1);
    accel_t *run = open_run();

    accel_dataset_new(&j.data, 100, &field, 1, fetch_nothing, NULL, 0, &err);
    j.model = accel_module_new(run, &mean_class, NULL, "");
    j.batch = 1 << 20;
    tap_ok(accel_prepare(run, &j, &err) == ACCEL_EINVAL &&
               strstr(err.text, "1048576 samples of 4000 bytes"),
           "a micro-batch of 4 GB: %s", err.text);
    accel_close(run, NULL);
    accel_dataset_close(j.data);
}

static void add_one(void *user, const char *name, float *gradient, int64_t first,
                    int64_t count)
{
    int64_t *seen = user;

    (void)first;
    *seen += count;
    for (int64_t i = 0; i < count; i++)
        gradient[i] += strcmp(name, "b.weight") == 0;
}

/* Functions on gradients: whom they see, and how many there may be. */
static void test_hooks(void)
{
    accel_job_t j = job_of("hooks", 1);
    accel_unit_t *u[2];
    accel_t *run = open_units(u);
    int64_t all = 0, some = 0;

    accel_prepare(run, &j, &err);
    tap_ok(!accel_on_gradient(run, NULL, add_one, &all, &err) &&
               !accel_on_gradient(run, "b.*", add_one, &some, &err),
           "one for all, one for some %s", err.text);
    step(run, u);
    tap_ok(all == 8 && some == 1, "%lld and %lld elements", (long long)all,
           (long long)some);
    for (int i = 2; i < RUN_MAX_HOOKS; i++)
        accel_on_gradient(run, "c", add_one, &some, &err);
    refused(accel_on_gradient(run, "c", add_one, &some, &err), "one too many");
    accel_close(run, NULL);
}

/* Jobs that make no sense, each in one value. */
static void test_jobs(void)
{
    static const struct {
        const char *text;
        int64_t steps, warmup;
        int batch, accumulate;
        float clip;
    } cases[] = {
        { "steps must", 0, 0, 1, 1, 0 },
        { "steps must", -1, 0, 1, 1, 0 },
        { "batch must", 1, 0, 0, 1, 0 },
        { "batch must", 1, 0, (1 << 20) + 1, 1, 0 },
        { "accumulate must", 1, 0, 1, -1, 0 },
        { "accumulate must", 1, 0, 1, (1 << 20) + 1, 0 },
        { "warmup", 1, -1, 1, 1, 0 },
        { "clip must", 1, 0, 1, 1, -1 },
        { "clip must", 1, 0, 1, 1, NAN },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_job_t j = job_of("jobs", cases[i].steps);
        accel_unit_t *u[2];
        accel_t *run = open_units(u);

        j.warmup = cases[i].warmup;
        j.batch = cases[i].batch;
        j.accumulate = cases[i].accumulate;
        j.clip = cases[i].clip;
        tap_ok(accel_prepare(run, &j, &err) == ACCEL_EINVAL &&
                   strstr(err.text, cases[i].text),
               "refused: %s", err.text);
        tap_ok(accel_step(run, NULL) == ACCEL_EINVAL, "and the run with it");
        accel_close(run, NULL);
    }
}

/* A second accel_prepare, and a loss that is no number. */
static void test_end(void)
{
    accel_job_t j = job_of("end", 3);
    accel_unit_t *u[2];
    accel_t *run = open_units(u);
    float *first, *second;

    accel_prepare(run, &j, &err);
    tap_ok(accel_prepare(run, &j, &err) == ACCEL_EINVAL && strstr(err.text, "twice"),
           "prepared twice: %s", err.text);
    tap_ok(accel_next_samples(run, NULL, 4, &err) == ACCEL_EINVAL &&
               strstr(err.text, "twice"),
           "the first failure is told again: %s", err.text);
    accel_close(run, NULL);
    run = open_units(u);
    accel_prepare(run, &j, &err);
    accel_next_samples(run, NULL, 4, &err);
    tap_ok(!accel_unit_gradient(u[0], 0, &first, &err) &&
               !accel_unit_gradient(u[0], 1, &second, &err) && second - first >= 6,
           "each parameter has a gradient of its own");
    accel_finish_backward(run, NAN, &err);
    tap_ok(accel_step(run, &err) == ACCEL_EDIVERGED && accel_steps_done(run) == 0,
           "a loss that is no number: %s", err.text);
    accel_close(run, NULL);
}

/* Two micro-batches a step: their samples, what is drawn for them, and the mean of
 * their losses. */
static void test_accumulation(void)
{
    const accel_schedule_t schedule = schedule_of_job(2, 2);
    accel_job_t j = job_of("accumulate", 2);
    accel_unit_t *u[2];
    accel_t *run = open_units(u);
    int64_t index[4] = { -1 };
    char path[160], line[512] = "", *rate;
    FILE *f;

    j.accumulate = 2;
    j.warmup = 2;
    accel_prepare(run, &j, &err);
    refused(accel_next_samples(run, index, 3, &err), "three of four samples");
    for (int i = 0; i < 4; i++) {
        tap_ok(!accel_next_samples(run, index, 4, &err) && index[0] == 4 * i &&
                   index[3] == 4 * i + 3 && run->graph.draws.first_sample == 4 * i,
               "micro-batch %d begins with sample %lld", i, (long long)index[0]);
        tap_ok(!accel_finish_backward(run, 1 + i % 2, &err), "its backward");
        if (i % 2 == 0)
            refused(accel_save(run, &err), "nor between two of one step");
        tap_ok(!accel_step(run, &err) && accel_steps_done(run) == (i + 1) / 2,
               "%lld steps", (long long)accel_steps_done(run));
    }
    accel_close(run, NULL);
    snprintf(path, sizeof(path), "%s/log.jsonl", j.out_dir);
    f = fopen(path, "r");
    tap_ok(f && fgets(line, sizeof(line), f) && strstr(line, "\"loss\":1.5,"),
           "the loss of a step is their mean: %.30s", line);
    /* Steps 0 and 1 have the same rate, so the second line must be looked at, too. */
    for (int step = 1; step <= 2; step++) {
        rate = strstr(line, "\"lr\":");
        tap_is_close(rate ? strtod(rate + 5, NULL) : 0,
                     (float)schedule_rate(&schedule, 0.5f, step - 1), 1e-9,
                     "its rate is that of step %d", step);
        tap_ok(step == 2 || (f && fgets(line, sizeof(line), f)), "a line per step");
    }
    if (f)
        fclose(f);
}

/* A config for more processes than there are. */
static void test_size(void)
{
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_t *run = NULL;

    run_folder_write(config, "distributed_type: MULTI_CPU\nnum_processes: 2\n");
    tap_ok(accel_open(&run, &o, &err) != ACCEL_OK && !run &&
               strstr(err.text, "the config says 2, but 1 process was started"),
           "two processes are asked for: %s", err.text);
}

int main(void)
{
    run_folder_make(dir, "distributed_type: 'NO'\nuse_cpu: true\n", config,
                    sizeof(config));
    test_values();
    test_declarations();
    test_misuse();
    test_fatal(VALUES_UNWANTED, "values of a unit that is not wanted");
    test_fatal(VALUES_BEYOND, "values that it does not have");
    test_fatal(DONE_TWICE, "done once too often");
    test_fatal(NOT_DONE, "forgotten done");
    test_resume();
    test_groups();
    test_group_rates();
    test_hooks();
    test_jobs();
    test_end();
    test_fields();
    test_too_large();
    test_accumulation();
    test_size();
    run_folder_remove(dir);
    return tap_done();
}
