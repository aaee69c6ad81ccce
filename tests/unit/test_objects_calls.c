/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of accel_objects.h in one process: what is refused, with which words, and
 * what the loop's settings do to a model of one number.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/number_run.h"
#include "tests/world/run_folder.h"

static char dir[64] = "/tmp/accel-calls-XXXXXX";
static char config[96];

static void rig_open(struct number_run *k)
{
    if (!number_models(k, config))
        return;
    tap_ok(false, "open: %s", k->err.text);
    exit(tap_done());
}

static void rig_prepare(struct number_run *k, int accumulate)
{
    const accel_loop_t loop = { sizeof(loop), .steps = 100, .batch = 1,
                                .accumulate = accumulate, .out_dir = dir };

    tap_ok(!number_open(k, config) && !accel_prepare_all(k->run, &loop, &k->err),
           "prepared %s", k->err.text);
}

static bool says(const struct number_run *k, const char *text)
{
    bool good = k->err.code == ACCEL_EINVAL && strstr(k->err.text, text);

    if (!good)
        tap_diag("%d: %s", (int)k->err.code, k->err.text);
    return good;
}

static void is_near(float got, double want, const char *what)
{
    tap_ok(fabs((double)got - want) < 1e-5, "%s: %g", what, (double)got);
}

/* ---- what is refused ------------------------------------------------------------- */

static void test_models(void)
{
    struct number_run k;
    accel_module_t *child;

    rig_open(&k);
    child = accel_module_new(k.run, k.a->cls, k.a, "child");
    accel_model_add(k.run, "a/b", k.a, &k.err);
    tap_ok(says(&k, "model 'a/b': is no name"), "a name with a slash");
    accel_model_add(k.run, NULL, k.a, &k.err);
    tap_ok(says(&k, "model 'NULL': is no name"), "no name");
    accel_model_add(k.run, "a", NULL, &k.err);
    tap_ok(says(&k, "its module is NULL"), "no module");
    accel_model_add(k.run, "a", child, &k.err);
    tap_ok(says(&k, "no root of this run"), "a module below the root");
    tap_is_int(accel_model_add(k.run, "a", k.a, &k.err), 0, "a model");
    accel_model_add(k.run, "again", k.a, &k.err);
    tap_ok(says(&k, "model 'again': its module is a model already"), "added twice");
    accel_model_add(k.run, "a", k.b, &k.err);
    tap_ok(says(&k, "another model has that name"), "two of one name");
    accel_model_add(k.run, "", k.b, &k.err);
    tap_ok(says(&k, "only a run's one model"), "a second one without a name");
    tap_ok(accel_model_add(NULL, "a", k.a, &k.err) == ACCEL_EINVAL, "no run");
    accel_close(k.run, NULL);
}

static void test_optimizers(void)
{
    static const char *const twice[] = { "m", "m" };
    const accel_optimizer_t adamw = { .bytes = sizeof(adamw) },
                            bad = { sizeof(bad), .lr = -1 };
    const accel_own_optim_t empty = { .bytes = sizeof(empty) };
    const accel_optimizer_t narrow = { sizeof(narrow), .moments = ACCEL_MOMENTS_8BIT };
    const accel_own_optim_t own = { sizeof(own),
                                    (void (*)(void *, const accel_piece_t *))abort,
                                    NULL, NULL, 0 };
    accel_own_optim_t same = { sizeof(same),
                               (void (*)(void *, const accel_piece_t *))abort, NULL,
                               twice, 2 };
    accel_module_t *both[2];
    struct number_run k;

    rig_open(&k);
    both[0] = k.a;
    both[1] = k.b;
    accel_optim_add(k.run, "o", both, 1, &adamw, &k.err);
    tap_ok(says(&k, "a module was not added"), "a module that is no model");
    accel_model_add(k.run, "a", k.a, &k.err);
    accel_model_add(k.run, "b", k.b, &k.err);
    accel_optim_add(k.run, "o", both, 0, &adamw, &k.err);
    tap_ok(says(&k, "optimizer 'o': it has no model"), "no model");
    accel_optim_add(k.run, "o p", both, 1, &adamw, &k.err);
    tap_ok(says(&k, "optimizer 'o p': is no name"), "no name");
    accel_optim_add(k.run, "o", both, 1, NULL, &k.err);
    tap_ok(says(&k, "its settings are NULL"), "no settings");
    tap_ok(!accel_optim_add(k.run, "o", both, 1, &bad, &k.err) && says(&k, "lr"),
           "settings that cannot be");
    accel_optim_add_own(k.run, "o", both, 1, &adamw, NULL, &k.err);
    tap_ok(says(&k, "its functions are NULL"), "no functions");
    accel_optim_add_own(k.run, "o", both, 1, &adamw, &empty, &k.err);
    tap_ok(says(&k, "it needs an update"), "no update");
    accel_optim_add_own(k.run, "o", both, 1, &adamw, &same, &k.err);
    tap_ok(says(&k, "two states have the same name"), "two states of one name");
    accel_optim_add_own(k.run, "o", both, 1, &narrow, &own, &k.err);
    tap_ok(says(&k, "the state of a program's own is float32"), "8 bits of its own");
    accel_optim_add(k.run, "o", (accel_module_t *[]){ k.a, k.a }, 2, &adamw, &k.err);
    tap_ok(says(&k, "it was given a model twice"), "one model twice");
    tap_ok(accel_optim_add(k.run, "o", both, 1, &adamw, &k.err) != NULL, "one");
    accel_optim_add(k.run, "o", both + 1, 1, &adamw, &k.err);
    tap_ok(says(&k, "another optimizer has that name"), "two of one name");
    accel_optim_add(k.run, "q", both, 2, &adamw, &k.err);
    tap_ok(says(&k, "the model 'a' belongs to optimizer 'o' already"),
           "a model of two optimizers");
    tap_ok(accel_optim_add(k.run, "p", both + 1, 1, &adamw, &k.err) != NULL, "another");
    accel_optim_add(k.run, "p", both + 1, 1, &adamw, &k.err);
    tap_ok(says(&k, "another optimizer has that name"), "the second's name again");
    accel_close(k.run, NULL);
}

static void test_prepare(void)
{
    const accel_optimizer_t adamw = { .bytes = sizeof(adamw) };
    const accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1, .out_dir = dir };
    const accel_job_t job = { sizeof(job), .steps = 1, .batch = 1, .out_dir = dir };
    struct number_run k;

    rig_open(&k);
    accel_prepare_all(k.run, &loop, &k.err);
    tap_ok(says(&k, "the run has none: call accel_model_add"), "no models");
    accel_close(k.run, NULL);
    rig_open(&k);
    accel_model_add(k.run, "a", k.a, &k.err);
    accel_prepare_all(k.run, &loop, &k.err);
    tap_ok(says(&k, "the run has none: call accel_optim_add"), "no optimizers");
    accel_close(k.run, NULL);
    rig_open(&k);
    accel_model_add(k.run, "a", k.a, &k.err);
    accel_prepare(k.run, &job, &k.err);
    tap_ok(says(&k, "model 'a': call accel_prepare_all"), "a job beside objects");
    accel_close(k.run, NULL);
    rig_prepare(&k, 1);
    accel_model_add(k.run, "c", k.a, &k.err);
    tap_ok(says(&k, "added after the run was prepared"), "a late model");
    accel_optim_add(k.run, "c", &k.a, 1, &adamw, &k.err);
    tap_ok(says(&k, "added after the run was prepared"), "a late optimizer");
    accel_model_freeze(k.run, NULL, 1, &k.err);
    tap_ok(says(&k, "the module is no model"), "no model is frozen");
    accel_last_step(k.run, &(accel_step_info_t){ .bytes = sizeof(accel_step_info_t) },
                    &k.err);
    tap_ok(says(&k, "no step has been done"), "no last step");
    accel_accumulate(k.run, 0, &k.err);
    tap_ok(says(&k, "0 micro-batches"), "no micro-batches");
    accel_optim_step(NULL, NULL, &k.err);
    tap_ok(says(&k, "the optimizer is NULL"), "no optimizer");
    accel_optim_set_lr(k.oa, NAN, &k.err);
    tap_ok(says(&k, "no value for optimizer 'oa'"), "no rate");
    accel_clip_norm(k.oa, 0, NULL, &k.err);
    tap_ok(says(&k, "the norm of optimizer 'oa'"), "no limit of the norm");
    accel_clip_value(k.oa, -1, &k.err);
    tap_ok(says(&k, "the elements of optimizer 'oa'"), "no limit of elements");
    accel_save_weights(k.run, dir, "float32", 0, &k.err);
    tap_ok(says(&k, "but the run has 2"), "weights of several models");
    accel_close(k.run, NULL);
    rig_prepare(&k, 1);
    accel_prepare_all(k.run, &loop, &k.err);
    tap_ok(says(&k, "called twice"), "prepared twice");
    accel_close(k.run, NULL);
}

/* ---- what a step does ------------------------------------------------------------ */

static void test_steps(void)
{
    accel_step_info_t info = { .bytes = sizeof(info) };
    int updated = -1;
    struct number_run k;

    rig_prepare(&k, 1);
    accel_batch_begin(k.run, &k.err);
    tap_ok(accel_sync(k.run), "the only micro-batch");
    number_push(&k, k.a, 1);
    number_push(&k, k.a, 2);
    tap_ok(!accel_optim_step(k.oa, &updated, &k.err) && updated == 1, "a step");
    is_near(number_of(&k, k.a), -1, "two losses add up");
    number_push(&k, k.a, 3);
    tap_ok(!accel_step(k.run, &k.err) && accel_steps_done(k.run) == 1, "the end");
    tap_ok(!accel_last_step(k.run, &info, &k.err) && info.step == 1 &&
               info.optims == 2 && info.updated[0] == 1 && !info.updated[1] &&
               info.lr[0] == 1 && info.norm[0] == 3 && info.loss == 3 &&
               info.total_ms > 0 && info.backward_ms > 0 && info.forward_ms > 0,
           "what it did: loss %g norm %g", info.loss, info.norm[0]);
    accel_batch_begin(k.run, &k.err);
    is_near(number_of(&k, k.a), -1, "one step in an iteration");
    is_near(number_of(&k, k.b), 3, "the other model is as it was");
    accel_zero_grad(k.oa, &k.err);
    number_push(&k, k.b, 5);
    accel_zero_grad(k.ob, &k.err);
    number_push(&k, k.b, 1);
    tap_ok(!accel_step(k.run, &k.err) && accel_optim_steps(k.oa) == 1 &&
               accel_optim_steps(k.ob) == 1,
           "accel_step steps what has gradients");
    accel_batch_begin(k.run, &k.err);
    is_near(number_of(&k, k.b), 2, "dropped gradients are gone");
    accel_model_freeze(k.run, k.a, 1, &k.err);
    tap_ok(number_push(&k, k.a, 1) == ACCEL_EINVAL &&
               strstr(k.err.text, "no parameter"),
           "a frozen model records nothing: %s", k.err.text);
    accel_close(k.run, NULL);
}

static void test_clipping(void)
{
    accel_step_info_t info = { .bytes = sizeof(info) };
    double norm = 0;
    struct number_run k;

    rig_prepare(&k, 1);
    number_micro(&k, k.a, 10);
    tap_ok(!accel_clip_norm(k.oa, 2, &norm, &k.err) && norm == 10, "the norm");
    accel_optim_step(k.oa, NULL, &k.err);
    is_near(number_of(&k, k.a), 0, "clipped to 2");
    accel_step(k.run, &k.err);
    accel_last_step(k.run, &info, &k.err);
    tap_ok(info.norm[0] == 10, "the norm before clipping is told: %g", info.norm[0]);
    number_micro(&k, k.a, -7);
    tap_is_int(accel_clip_value(k.oa, 0.5f, &k.err), 0, "clip by value");
    accel_optim_step(k.oa, NULL, &k.err);
    is_near(number_of(&k, k.a), 0.5, "clipped to -0.5");
    accel_optim_set_clip(k.oa, 1, &k.err);
    accel_optim_set_lr(k.oa, 0.25f, &k.err);
    number_push(&k, k.a, 4);
    accel_optim_step(k.oa, NULL, &k.err);
    is_near(number_of(&k, k.a), 0.25, "clipped to 1, at a rate of 0.25");
    accel_close(k.run, NULL);
}

static void spoil(void *user, const char *name, float *gradient, int64_t first,
                  int64_t count)
{
    (void)first, (void)count;
    if (*(bool *)user && strcmp(name, "a/w") == 0)
        gradient[0] = NAN;
}

static void test_skip(void)
{
    int updated = -1;
    bool on = true;
    struct number_run k;

    rig_prepare(&k, 1);
    accel_on_gradient(k.run, "a/*", spoil, &on, &k.err);
    accel_optim_skip(k.oa, 1, &k.err);
    number_micro(&k, k.a, 1);
    tap_ok(!accel_optim_step(k.oa, &updated, &k.err) && !updated &&
               accel_optim_steps(k.oa) == 0,
           "no number: skipped");
    on = false;
    number_push(&k, k.a, 1);
    tap_ok(!accel_step(k.run, &k.err) && accel_optim_steps(k.oa) == 1,
           "the next is not");
    on = true;
    number_micro(&k, k.a, 1);
    tap_ok(!accel_step(k.run, &k.err) && accel_optim_steps(k.oa) == 1 &&
               accel_steps_done(k.run) == 2,
           "without a loss scale the iteration counts all the same");
    accel_batch_begin(k.run, &k.err);
    is_near(number_of(&k, k.a), 1, "and has its own gradient alone");
    accel_optim_skip(k.oa, 0, &k.err);
    number_push(&k, k.a, 1);
    tap_ok(accel_optim_step(k.oa, NULL, &k.err) == ACCEL_EDIVERGED &&
               strstr(k.err.text, "optimizer 'oa'"),
           "without the setting the run ends: %s", k.err.text);
    accel_close(k.run, NULL);
}

static void test_accumulation(void)
{
    int updated = -1;
    struct number_run k;

    rig_prepare(&k, 4);
    for (int i = 0; i < 4; i++) {
        accel_batch_begin(k.run, &k.err);
        tap_is_int(accel_sync(k.run), i == 3, "micro-batch %d", i);
        number_push(&k, k.a, 4);
        if (i == 3)
            break;
        tap_ok(!accel_optim_step(k.oa, &updated, &k.err) && !updated, "no step yet");
        accel_step(k.run, &k.err);
    }
    accel_accumulate(k.run, 2, &k.err);
    tap_ok(says(&k, "in the middle of a step"), "no other number now");
    accel_clip_norm(k.oa, 1, NULL, &k.err);
    number_push(&k, k.a, 4);
    tap_ok(!accel_step(k.run, &k.err) && accel_steps_done(k.run) == 1, "a step");
    accel_accumulate(k.run, 1, &k.err);
    accel_no_sync(k.run, 1, &k.err);
    accel_batch_begin(k.run, &k.err);
    is_near(number_of(&k, k.a), 0, "complete gradients take another backward");
    number_push(&k, k.a, 1);
    tap_ok(!accel_step(k.run, &k.err) && accel_steps_done(k.run) == 1 &&
               !accel_sync(k.run),
           "no step without synchronisation");
    accel_no_sync(k.run, 0, &k.err);
    number_micro(&k, k.a, 2);
    tap_ok(!accel_step(k.run, &k.err) && accel_steps_done(k.run) == 2, "then one");
    accel_batch_begin(k.run, &k.err);
    is_near(number_of(&k, k.a), -3, "with the gradients of both");
    accel_close(k.run, NULL);
}

/* What the program's own optimizer was called with last. */
static accel_piece_t piece;
static float piece_gradient, piece_state;

static void own_update(void *user, const accel_piece_t *p)
{
    struct number_run *k = user;

    accel_barrier(k->run, &k->err);
    tap_ok(says(k, "accel_barrier inside an update function"), "no barrier in it");
    piece = *p;
    piece_gradient = p->gradient[0];
    piece_state = p->state[0][0]++;
    p->values[0] -= p->lr * p->gradient[0];
}

static void test_own(void)
{
    static const char *const state[] = { "calls" };
    const accel_group_t half = { .match = "a/*", .lr_scale = 0.5f, .weight_decay = 2 };
    const accel_optimizer_t settings = { sizeof(settings), .lr = 1, .groups = &half,
                                         .group_count = 1 };
    const accel_loop_t loop = { sizeof(loop), .steps = 9, .batch = 1, .out_dir = dir };
    struct number_run k;
    const accel_own_optim_t own = { sizeof(own), own_update, &k, state, 1 };

    rig_open(&k);
    accel_model_add(k.run, "a", k.a, &k.err);
    k.oa = accel_optim_add_own(k.run, "oa", &k.a, 1, &settings, &own, &k.err);
    tap_ok(k.oa && !accel_prepare_all(k.run, &loop, &k.err), "prepared %s", k.err.text);
    accel_optim_set_clip(k.oa, 1, &k.err);
    for (int i = 0; i < 2; i++) {
        number_micro(&k, k.a, 4);
        tap_is_int(accel_step(k.run, &k.err), 0, "a step");
        tap_ok(!strcmp(piece.name, "a/w") && !piece.first && piece.count == 1 &&
                   piece.step == i + 1 && piece.weight_decay == 2 && piece_state == i,
               "%s: step %lld, state %g", piece.name, (long long)piece.step,
               (double)piece_state);
        is_near(piece.lr, 0.5, "the rate of its group");
        is_near(piece_gradient, 1, "clipped");
    }
    accel_batch_begin(k.run, &k.err);
    is_near(number_of(&k, k.a), 1, "two steps of one half");
    accel_close(k.run, NULL);
}

/* Two losses with a part in common: the second meets what the first has freed. */
static void test_twice(bool same)
{
    const int64_t dims[] = { 1, 1 };
    const float one = 1;
    accel_tensor_t *in, *first, *second;
    struct number_run k;

    rig_prepare(&k, 1);
    accel_batch_begin(k.run, &k.err);
    in = accel_input(k.run, ACCEL_F32, 2, dims, &one, &k.err);
    first = accel_call(k.a, &in, 1);
    second = same ? first : accel_sum(accel_mul(first, first), -1);
    tap_is_int(accel_backward(k.run, first, &k.err), 0, "one loss");
    tap_ok(accel_backward(k.run, second, &k.err) == ACCEL_EINVAL &&
               strstr(k.err.text, "another") && strstr(k.err.text, "freed"),
           "refused: %s", k.err.text);
    accel_close(k.run, NULL);
}

/* ---- what must not be called there ----------------------------------------------- */

/* Calls of the run from a function that it has called. */
static void call_back(void *user, const char *name, float *gradient, int64_t first,
                      int64_t count)
{
    struct number_run *k = user;

    (void)name, (void)gradient, (void)first, (void)count;
    accel_step(k->run, &k->err);
    tap_ok(says(k, "accel_step inside a gradient function"), "no step in a hook");
    accel_barrier(k->run, &k->err);
    tap_ok(says(k, "accel_barrier inside a gradient function"), "no barrier in a hook");
    accel_close(k->run, &k->err);
    tap_ok(says(k, "accel_close inside a gradient function"), "no end in a hook");
    accel_inference_mode(k->run, 1);
}

static accel_status_t attempt_again(void *user, int batch, accel_error_t *err)
{
    struct number_run *k = user;
    int size;

    (void)err;
    accel_find_batch_size(k->run, batch, attempt_again, k, &size, &k->err);
    tap_ok(says(k, "calls it again"), "no attempt in an attempt");
    accel_close(k->run, &k->err);
    tap_ok(says(k, "accel_close inside the attempt"), "no end in an attempt");
    return ACCEL_OK;
}

static void test_inside(void)
{
    int size = 0;
    struct number_run k;

    rig_prepare(&k, 1);
    accel_on_gradient(k.run, "a/*", call_back, &k, &k.err);
    number_micro(&k, k.a, 1);
    tap_ok(!accel_step(k.run, &k.err) && accel_more(k.run), "and the step goes on");
    tap_ok(!accel_find_batch_size(k.run, 2, attempt_again, &k, &size, &k.err) &&
               size == 2,
           "and so does the attempt");
    accel_close(k.run, NULL);
}

static accel_status_t same_shape(const void *attr, const accel_array_t *in, int n,
                                 accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)n, (void)err;
    *out = in[0];
    return ACCEL_OK;
}

static accel_status_t same_values(const void *attr, const accel_array_t *in, int n,
                                  const accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)n, (void)err;
    memcpy(out->data, in[0].data, (size_t)in[0].elems * sizeof(float));
    return ACCEL_OK;
}

/* A failure between the layout and the shards: parameters have a place, and no values. */
static void test_after_failure(void)
{
    static const accel_op_t same = { sizeof(same), "same", same_shape, same_values,
                                     NULL };
    const accel_group_t nobody = { .match = "nobody" };
    const accel_optimizer_t sgd = { sizeof(sgd), .groups = &nobody, .group_count = 1 };
    const accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1, .out_dir = dir };
    const int64_t dims[] = { 1, 1 };
    const float one = 1;
    accel_tensor_t *in;
    accel_tensor_t *w;
    struct number_run k;

    rig_open(&k);
    in = accel_input(k.run, ACCEL_F32, 2, dims, &one, &k.err);
    tap_ok(!in, "no input before");
    accel_model_add(k.run, "a", k.a, &k.err);
    accel_optim_add(k.run, "oa", &k.a, 1, &sgd, &k.err);
    tap_ok(accel_prepare_all(k.run, &loop, &k.err) && strstr(k.err.text, "nobody"),
           "not prepared: %s", k.err.text);
    tap_ok(accel_prepare_all(k.run, NULL, &k.err) && strstr(k.err.text, "nobody"),
           "nor by another call: %s", k.err.text);
    w = accel_param_find(k.a, "w");
    tap_ok(w && !accel_apply(&same, &w, 1, NULL), "an op has no values of it");
    tap_ok(!accel_call(k.a, &in, 0) && !accel_call(k.a, NULL, 1), "and not called");
    accel_close(k.run, NULL);
}

static void test_named(void)
{
    float value = 0, other = 7;
    struct number_run k;

    rig_prepare(&k, 1);
    tap_ok(!accel_param_read(k.run, "b/w", ACCEL_ALL_RANKS, &value, 1, &k.err),
           "read by its full name %s", k.err.text);
    is_near(value, 3, "the other model's");
    tap_is_int(accel_param_write(k.run, "b/w", &other, 1, &k.err), 0, "written");
    accel_batch_begin(k.run, &k.err);
    is_near(number_of(&k, k.b), 7, "and there");
    is_near(number_of(&k, k.a), 2, "and nowhere else");
    accel_close(k.run, NULL);
}

int main(void)
{
    run_folder_make(dir,
                    "distributed_type: 'NO'\nuse_cpu: true\n"
                    "accel: {checkpoint: {save: false}}\n",
                    config, sizeof(config));
    test_models();
    test_optimizers();
    test_prepare();
    test_steps();
    test_clipping();
    test_skip();
    test_accumulation();
    test_own();
    test_twice(true);
    test_twice(false);
    test_inside();
    test_after_failure();
    test_named();
    run_folder_remove(dir);
    return tap_done();
}
