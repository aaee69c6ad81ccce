/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_models.h, and what programs do with models: building, setting up,
 * training.
 */
#include <string.h>

#include "tests/fuzz/calls_world.h"

/* ---- a model of the program ------------------------------------------------------ */

struct small_net {
    accel_tensor_t *weight, *bias;
};

/* The mean of act(x w + b), or its distance from a second input. */
static accel_tensor_t *small_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    const struct small_net *s = accel_module_state(m);
    accel_tensor_t *y;

    calls_inside(calls_now);
    y = accel_linear(n > 0 ? in[0] : NULL, s->weight, s->bias, ACCEL_ACT_TANH);
    if (n > 1)
        return accel_mse(y, in[1]);
    calls_inside(calls_now);
    return accel_mean(y, -1);
}

static const accel_class_t small_class = { sizeof(small_class), "Small", small_forward,
                                           sizeof(struct small_net) };

accel_module_t *calls_tree(struct world *w)
{
    const accel_init_t init = { ACCEL_INIT_UNIFORM, 0.5f };
    const int64_t dims[] = { 2, 2 };
    struct small_net *s;
    accel_module_t *m;

    calls_say(w, "accel_module_new");
    m = accel_module_new(w->now->run, &small_class, NULL, NULL);
    calls_made(w, "accel_module_new", false, m);
    if (!m)
        return NULL;
    s = accel_module_state(m);
    s->weight = accel_param(m, "weight", 2, dims, init);
    s->bias = accel_param(m, "bias", 1, dims, init);
    if (calls_once_in(w, 3))
        accel_buffer(m, "seen", ACCEL_F32, 1, dims,
                     (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    KEEP(w, param, s->weight);
    KEEP(w, module, m);
    return m;
}

/* ---- what programs do ------------------------------------------------------------ */

static void set_up_job(struct world *w)
{
    const accel_job_t job = {
        sizeof(job),
        .model = w->now->model = calls_tree(w),
        .data = calls_once_in(w, 2) ? calls_samples(w) : NULL,
        .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t), .lr = 0.01f },
        .steps = 40,
        .batch = 2,
        .accumulate = 1 + calls_once_in(w, 4),
        .out_dir = w->now->dir
    };

    calls_rules(w);
    if (CALL(w, false, accel_prepare(w->now->run, &job, calls_error(w))))
        w->now->prepared = true;
}

static void own_update(void *user, const accel_piece_t *piece)
{
    (void)user;
    for (int64_t i = 0; i < piece->count; i++) {
        piece->state[0][i] += 1;
        piece->values[i] -= piece->lr * piece->gradient[i];
    }
    if (calls_now->ranks == 1)
        calls_inside(calls_now);
}

static void set_up_objects(struct world *w)
{
    static const char *const state[] = { "calls" };
    static const accel_own_optim_t own = { sizeof(own), own_update, NULL, state, 1 };
    const accel_optimizer_t settings = { sizeof(settings), .lr = 0.01f };
    const accel_loop_t loop = { sizeof(loop), .steps = 40, .batch = 2,
                                .accumulate = 1 + calls_once_in(w, 4),
                                .out_dir = w->now->dir };
    accel_module_t *a = calls_tree(w), *b = calls_tree(w);
    accel_t *run = w->now->run;

    w->now->model = a;
    CALL(w, false, accel_model_add(run, "a", a, calls_error(w)));
    CALL(w, false, accel_model_add(run, "b", b, calls_error(w)));
    w->now->optim[0] = accel_optim_add(run, "oa", &a, 1, &settings, calls_error(w));
    if (calls_once_in(w, 2))
        w->now->optim[1] =
            accel_optim_add_own(run, "ob", &b, 1, &settings, &own, calls_error(w));
    calls_rules(w);
    if (CALL(w, false, accel_prepare_all(run, &loop, calls_error(w))))
        w->now->prepared = true;
}

static void set_up_units(struct world *w)
{
    const accel_job_t job = {
        sizeof(job),
        .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t), .lr = 0.01f },
        .steps = 40,
        .batch = 2,
        .accumulate = 1 + calls_once_in(w, 4),
        .out_dir = w->now->dir
    };
    const int64_t dims[] = { 3, 2 };

    for (int i = 0; i < 3; i++) {
        accel_unit_t *u = accel_unit_new(
            w->now->run, (const char *[]){ "", "u", "v" }[i], calls_error(w));

        w->now->unit[i] = u;
        CALL(w, false,
             accel_unit_param(u, "weight", 2, dims,
                              (accel_init_t){ ACCEL_INIT_NORMAL, 1 }, NULL,
                              calls_error(w)));
    }
    calls_rules(w);
    if (CALL(w, false, accel_prepare(w->now->run, &job, calls_error(w))))
        w->now->prepared = true;
}

/* A model of the library, which can generate. */
static void set_up_text(struct world *w)
{
    const accel_model_config_t gpt2 = { .bytes = sizeof(accel_model_config_t),
                                        .model_type = "gpt2",
                                        .layers = 1,
                                        .heads = 2,
                                        .width = 8,
                                        .context = 8,
                                        .vocab = 16,
                                        .resid_dropout = 0.1f };
    accel_module_t *m = accel_model_new(w->now->run, &gpt2, calls_error(w));
    const accel_job_t job = {
        sizeof(job),
        .model = m,
        .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t), .lr = 0.01f },
        .steps = 40,
        .batch = 2,
        .out_dir = w->now->dir
    };

    for (int i = 0; i < CALLS_SLOTS; i++)
        w->now->module[i] = m;
    w->now->model = m;
    calls_rules(w);
    if (CALL(w, false, accel_prepare(w->now->run, &job, calls_error(w))))
        w->now->prepared = true;
}

void calls_set_up(struct world *w)
{
    switch (calls_random(w, 4)) {
    case 3:
        set_up_text(w);
        break;
    case 0:
        set_up_job(w);
        break;
    case 1:
        set_up_objects(w);
        break;
    default:
        set_up_units(w);
    }
    if (calls_once_in(w, 3))
        calls_weights(w);
}

void calls_begin(struct world *w)
{
    if (!w->now->prepared || w->inside)
        return;
    CALL(w, false, accel_batch_begin(w->now->run, calls_error(w)));
    for (int i = 0; i < CALLS_TENSORS; i++)
        w->now->tensor[i] = NULL;
    calls_values(w, 2);
    calls_values(w, 1 + (int64_t)calls_random(w, 3));
    calls_ids(w);
}

static void train_units(struct world *w)
{
    CALL(w, false, accel_next_samples(w->now->run, NULL, 2, calls_error(w)));
    for (int i = 0; i < 3; i++) {
        accel_unit_t *u = w->now->unit[i];
        float *gradient = NULL;

        CALL(w, false, accel_unit_want(u, calls_error(w)));
        (void)accel_unit_values(u, 0);
        if (CALL(w, false, accel_unit_gradient(u, 0, &gradient, calls_error(w))) &&
            gradient)
            gradient[0] += 0.5f;
        accel_unit_done(u);
    }
    CALL(w, false, accel_finish_backward(w->now->run, 1.5, calls_error(w)));
}

/* One micro-batch as it should be, and the end of its step. Refused where the run is
 * another one or has failed. */
void calls_train(struct world *w)
{
    accel_module_t *m = calls_once_in(w, 12)
                            ? w->now->module[calls_random(w, CALLS_SLOTS)]
                            : w->now->model;
    accel_t *run = w->now->run;
    accel_tensor_t *in[2], *loss;

    if (!w->now->prepared || w->inside)
        return;
    if (w->now->unit[2]) {
        train_units(w);
    } else {
        if (!CALL(w, false, accel_batch_begin(run, calls_error(w))) || !m)
            return;
        in[0] = calls_values(w, 2);
        in[1] = NULL;
        if (accel_module_find(m, "h.0"))
            in[0] = in[1] = calls_ids(w);
        calls_say(w, "accel_call of a model");
        loss = accel_call(m, in, in[1] ? 2 : 1);
        CALL(w, false, accel_backward(run, loss, calls_error(w)));
    }
    if (calls_once_in(w, 12))
        return;
    CALL(w, false, accel_step(run, calls_error(w)));
}

void calls_settle(struct world *w)
{
    const int64_t before = accel_steps_done(w->now->run);

    for (int i = 0; i < 3 && accel_steps_done(w->now->run) == before; i++)
        calls_train(w);
}

/* ---- single calls ---------------------------------------------------------------- */

static void call_module(struct world *w)
{
    static const accel_class_t empty = { sizeof(empty), NULL, NULL, 0 };
    bool bad = false, none = false;
    accel_t *run = calls_run(w, &bad);
    accel_module_t *parent = calls_once_in(w, 2) ? NULL : PICK(w, module, &none), *m;
    const accel_class_t *cls = &small_class;

    bad = bad || (none && parent);
    if (calls_once_in(w, 10)) {
        bad = true;
        cls = calls_once_in(w, 2) ? &empty : NULL;
    }
    calls_say(w, "accel_module_new");
    m = accel_module_new(run, cls, parent, calls_name(w));
    calls_made(w, "accel_module_new", bad, m);
    if (parent == NULL)
        KEEP(w, module, m);
    (void)accel_module_run(m);
}

static void call_param(struct world *w)
{
    bool none = false;
    int64_t dims[5];
    accel_module_t *m = PICK(w, module, &none);
    int ndim = (int)calls_number(w);
    bool bad = !m || ndim < 1 || ndim > 4;
    accel_tensor_t *t;

    for (int i = 0; i < 5; i++) {
        dims[i] = calls_number(w);
        bad = bad || (i < ndim && dims[i] < 1);
        if (dims[i] > 8) /* larger ones may be made, and would take long */
            dims[i] = 8;
    }
    if (!calls_once_in(w, 3))
        return;
    calls_say(w, "accel_param");
    switch (calls_random(w, 3)) {
    case 0:
        t = accel_param(
            m, calls_name(w), ndim, dims,
            (accel_init_t){ (accel_init_kind_t)calls_number(w), (float)calls_real(w) });
        break;
    case 1:
        t = accel_buffer(m, calls_name(w), (accel_dtype_t)calls_number(w), ndim, dims,
                         (accel_init_t){ ACCEL_INIT_ONES, 0 });
        break;
    default:
        bad = !m;
        t = accel_tie(m, calls_name(w), PICK(w, param, &bad));
    }
    calls_made(w, "accel_param, buffer or tie", bad, t);
    KEEP(w, param, t);
}

static void call_precision(struct world *w, accel_module_t *m)
{
    static const char *const words[] = {
        "fp32",           "bf16", "fp16", "fp8", "", "fp32+output:fp32",
        "bf16+reduce:fp", "fp8+", NULL
    };

    CALL(w, !m, accel_module_precision(m, words[calls_random(w, 9)], calls_error(w)));
}

static void call_find(struct world *w)
{
    bool none = false;
    accel_module_t *m = PICK(w, module, &none);

    (void)accel_module_find(m, calls_name(w));
    (void)accel_param_find(m, calls_name(w));
    (void)accel_module_state(m);
    if (calls_once_in(w, 4))
        accel_module_recompute(m, (int)calls_random(w, 2));
    if (calls_once_in(w, 8))
        call_precision(w, m);
}

static void call_inference(struct world *w)
{
    bool none = false;
    accel_t *run = calls_run(w, &none);

    calls_say(w, "accel_inference_mode");
    accel_inference_mode(run, calls_once_in(w, 3));
}

static void call_call(struct world *w)
{
    bool bad = false, none = false, foreign = false;
    accel_module_t *m = PICK(w, module, &foreign);
    accel_tensor_t *in[9], *t;
    struct side *now = w->now;
    int n = 1 + (int)calls_random(w, 2);

    for (int i = 0; i < 9; i++)
        in[i] = PICK(w, tensor, &none);
    if (calls_once_in(w, 30))
        n = calls_once_in(w, 2) ? -1 : 9;
    /* the forward belongs to the run of its model */
    if (foreign && m)
        w->now = &w->side[now == w->side];
    bad = !m || !w->now->prepared;
    calls_say(w, "accel_call");
    t = accel_call(m, calls_once_in(w, 30) ? NULL : in, n);
    w->now = now;
    w->asked = false;
    calls_made(w, "accel_call", bad, t);
    KEEP(w, tensor, t);
}

static void call_ready_made(struct world *w)
{
    /* a million of them would only take long */
    const int layers = (int)(calls_number(w) & 3);
    const accel_model_config_t gpt2 = { .bytes = sizeof(accel_model_config_t),
                                        .model_type = "gpt2",
                                        .layers = layers,
                                        .heads = (int)calls_number(w),
                                        .width = 8,
                                        .context = 8,
                                        .vocab = 16,
                                        .embd_dropout = (float)calls_real(w) };
    const accel_model_config_t llama = { .bytes = sizeof(accel_model_config_t),
                                         .model_type = "llama",
                                         .layers = 1,
                                         .heads = (int)calls_number(w),
                                         .width = 8,
                                         .hidden = (int)calls_number(w),
                                         .vocab = 16,
                                         .context = 8 };
    const accel_model_config_t bert = { .bytes = sizeof(accel_model_config_t),
                                        .model_type = "bert",
                                        .layers = 1,
                                        .heads = 2,
                                        .width = (int)calls_number(w),
                                        .hidden = 8,
                                        .vocab = 16,
                                        .context = 8,
                                        .head = (accel_model_head_t)calls_number(w) };
    const accel_model_config_t *const any[] = { &gpt2, &llama, &bert };
    bool bad = false;
    accel_t *run = calls_run(w, &bad);
    accel_module_t *m = NULL;

    if (!calls_once_in(w, 4))
        return;
    calls_say(w, "a model that comes with the library");
    switch (calls_random(w, 2)) {
    case 0:
        m = accel_model_new(run, calls_once_in(w, 20) ? NULL : any[calls_random(w, 3)],
                            calls_error(w));
        break;
    default:
        bad = true;
        m = accel_model_open(run, calls_name(w), calls_error(w));
    }
    calls_made(w, "a model that comes with the library", bad, m);
    KEEP(w, module, m);
}

static void call_presets(struct world *w)
{
    accel_model_config_t c = { .bytes = calls_once_in(w, 20) ? 0 : sizeof(c),
                               .model_type = calls_once_in(w, 2) ? "bert" : NULL };

    CALL(w, true, accel_model_config(calls_name(w), &c, calls_error(w)));
    CALL(w, true, accel_model_config("gpt2", NULL, calls_error(w)));
    CALL(w, true, accel_model_config("/nonexistent", &c, calls_error(w)));
    CALL(w, true, accel_model_config(NULL, &c, calls_error(w)));
}

const struct calls_action calls_of_models[] = {
    { call_module, 2, false },     { call_param, 2, false }, { call_find, 2, false },
    { call_inference, 1, false },  { call_call, 8, false },  { call_presets, 1, true },
    { call_ready_made, 1, false }, { NULL, 0, false },
};
