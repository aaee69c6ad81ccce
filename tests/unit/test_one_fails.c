/* SPDX-License-Identifier: Apache-2.0
 *
 * test_one_fails [ROUNDS [SEED]]: a function of the program fails on one rank, at one of
 * its calls: all ranks end with that rank's message, and nobody waits for the deadline.
 * A sink that fails stops nobody. Which function, rank, call and transport follow from
 * the round.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel.h"
#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

#define SAID "said by the program"
enum { MOST_RANKS = 4, WIDTH = 2, SAMPLES = 24, STEPS = 6 };

/* What fails, and how a line calls it. A gradient function and an update make numbers
 * that are none, or say that they give up. */
#define EACH_FUNCTION(F)                                                               \
    F(FETCH, "fetch of accel_next")                                                    \
    F(FETCH_EVALUATE, "fetch of accel_evaluate")                                       \
    F(FETCH_LOADER, "fetch of a loader")                                               \
    F(NEXT, "next")                                                                    \
    F(REWIND, "rewind")                                                                \
    F(INDEX, "index")                                                                  \
    F(LENGTH, "length")                                                                \
    F(COLLATE, "collate")                                                              \
    F(GRADIENT, "gradient function")                                                   \
    F(UPDATE, "update")                                                                \
    F(GRADIENT_GIVES_UP, "gradient function that gives up")                            \
    F(UPDATE_GIVES_UP, "update that gives up")                                         \
    F(FORWARD, "forward")                                                              \
    F(OP_SHAPE, "shape of an own op")                                                  \
    F(OP_FORWARD, "forward of an own op")                                              \
    F(OP_BACKWARD, "backward of an own op")                                            \
    F(PROGRAM, "the program itself, between two calls")                                \
    F(SAVE_OBJECT, "save of an object")                                                \
    F(LOAD_OBJECT, "load of an object")                                                \
    F(SAVE_HOOK, "hook before a save")                                                 \
    F(LOAD_HOOK, "hook before a load")                                                 \
    F(ATTEMPT, "attempt")                                                              \
    F(UNIT, "loss of units that is no number")                                         \
    F(SINK_OPEN, "open of a sink")                                                     \
    F(SINK_WRITE, "write of a sink")                                                   \
    F(SINK_FLUSH, "flush of a sink")

#define FUNCTION_ENUM(f, name) f,
enum function { EACH_FUNCTION(FUNCTION_ENUM) FUNCTIONS };

#define FUNCTION_NAME(f, name) name,
static const char *const names[FUNCTIONS] = { EACH_FUNCTION(FUNCTION_NAME) };

/* Shared by the ranks of a round. */
struct round {
    enum function which;
    int ranks, nodes, failing, at;
    bool dispatch;
    int prefetch;
    char config[96], dir[96];
    atomic_int struck;
    struct outcome {
        accel_status_t st;
        int64_t steps;
        char text[256];
    } outcome[MOST_RANKS];
};

static char root[64] = "/tmp/accel-fails-XXXXXX";
static struct round *now;
static accel_t *my_run;
static int my_rank;
/* the run is prepared: what fails before is a failure of accel_prepare */
static bool armed;
static atomic_int calls;

/* Is this the call that fails? */
static bool strikes(enum function which)
{
    if (!armed || which != now->which || my_rank != now->failing ||
        atomic_fetch_add(&calls, 1) + 1 != now->at)
        return false;
    now->struck = 1;
    return true;
}

/* ---- functions of the program ---------------------------------------------------- */

static int fill(void *const *dst)
{
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = 0.5f;
    return 0;
}

static int fetch(void *user, int64_t index, void *const *dst)
{
    (void)index;
    return strikes((enum function)(uintptr_t)user) ? 1 : fill(dst);
}

static int64_t stream_at;

static int stream_next(void *user, void *const *dst)
{
    (void)user;
    if (stream_at == SAMPLES)
        return 0;
    stream_at++;
    fill(dst);
    return strikes(NEXT) ? -1 : 1;
}

static int stream_rewind(void *user, int64_t epoch)
{
    (void)user, (void)epoch;
    stream_at = 0;
    return strikes(REWIND);
}

static int64_t own_index(void *user, int64_t epoch, int64_t place)
{
    (void)user, (void)epoch;
    return strikes(INDEX) ? -1 : place;
}

static int64_t own_length(void *user, int64_t index, void *const *sample)
{
    (void)user, (void)index, (void)sample;
    return strikes(LENGTH) ? -1 : WIDTH;
}

static int own_collate(void *user, accel_batch_t *batch)
{
    (void)user, (void)batch;
    return strikes(COLLATE);
}

/* Without a status of its own to return. */
static void give_up_at(enum function which)
{
    accel_error_t err;

    if (strikes(which))
        accel_give_up(my_run, accel_error_set(&err, ACCEL_EIO, SAID, NULL), &err);
}

static void own_gradient(void *user, const char *name, float *gradient, int64_t first,
                         int64_t count)
{
    (void)user, (void)name, (void)first;
    if (count > 0 && strikes(GRADIENT))
        gradient[0] = NAN;
    give_up_at(GRADIENT_GIVES_UP);
}

static void own_update(void *user, const accel_piece_t *piece)
{
    (void)user;
    for (int64_t i = 0; i < piece->count; i++)
        piece->values[i] -= piece->lr * piece->gradient[i];
    if (piece->count > 0 && strikes(UPDATE))
        piece->values[0] = NAN;
    give_up_at(UPDATE_GIVES_UP);
}

static accel_status_t say(enum function which, accel_error_t *err)
{
    return strikes(which) ? accel_error_set(err, ACCEL_EIO, SAID, NULL) : ACCEL_OK;
}

static accel_status_t save_object(void *user, accel_bytes_t *to, accel_error_t *err)
{
    accel_status_t st = say(SAVE_OBJECT, err);

    (void)user;
    return st ? st : accel_bytes_put(to, "object", 6, err);
}

static accel_status_t load_object(void *user, const accel_saved_t *from,
                                  accel_error_t *err)
{
    (void)user, (void)from;
    return say(LOAD_OBJECT, err);
}

static accel_status_t hook(void *user, const char *dir, accel_error_t *err)
{
    (void)dir;
    return say((enum function)(uintptr_t)user, err);
}

static accel_status_t attempt(void *user, int batch, accel_error_t *err)
{
    (void)user, (void)batch;
    return say(ATTEMPT, err);
}

static accel_status_t open_sink(void *user, const char *directory, int64_t first_step,
                                accel_error_t *err)
{
    (void)user, (void)directory, (void)first_step;
    return say(SINK_OPEN, err);
}

static accel_status_t write_sink(void *user, int64_t step, double time,
                                 const accel_item_t *items, int n, accel_error_t *err)
{
    (void)user, (void)step, (void)time, (void)items, (void)n;
    return say(SINK_WRITE, err);
}

static accel_status_t flush_sink(void *user, accel_error_t *err)
{
    (void)user;
    return say(SINK_FLUSH, err);
}

/* ---- a run ----------------------------------------------------------------------- */

static accel_status_t same_shape(const void *attr, const accel_array_t *in, int n,
                                 accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)n;
    *out = in[0];
    return say(OP_SHAPE, err);
}

static accel_status_t copy_forward(const void *attr, const accel_array_t *in, int n,
                                   const accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)n;
    memcpy(out->data, in[0].data, (size_t)out->elems * sizeof(float));
    return say(OP_FORWARD, err);
}

static accel_status_t copy_backward(const void *attr, const accel_array_t *in, int n,
                                    const accel_array_t *out, const accel_array_t *dout,
                                    const accel_array_t *din, accel_error_t *err)
{
    (void)attr, (void)in, (void)n;
    for (int64_t i = 0; i < out->elems; i++)
        ((float *)din[0].data)[i] += ((const float *)dout->data)[i];
    return say(OP_BACKWARD, err);
}

static accel_tensor_t *weight;

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    static const accel_op_t copy = { sizeof(copy), "copy", same_shape, copy_forward,
                                     copy_backward };
    const int64_t impossible[] = { 5, 7, 11 };
    accel_tensor_t *y = accel_linear(in[0], weight, NULL, ACCEL_ACT_NONE);

    (void)m, (void)n;
    if (strikes(FORWARD))
        y = accel_reshape(y, 3, impossible);
    return accel_mean(accel_apply(&copy, &y, 1, NULL), -1);
}

struct program {
    accel_t *run;
    accel_module_t *model;
    accel_unit_t *unit;
    accel_dataset_t *data, *apart;
    accel_loader_t *loader;
};

static accel_status_t open_data(struct program *p, accel_error_t *err)
{
    const enum function main = now->which == FETCH_EVALUATE ? FETCH_EVALUATE : FETCH;
    const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    const accel_iterable_t stream = { sizeof(stream), .next = stream_next,
                                      .rewind = stream_rewind };
    const bool iterable = now->which == NEXT || now->which == REWIND;
    accel_status_t st = accel_dataset_new(&p->data, SAMPLES * MOST_RANKS, &field, 1,
                                          fetch, (void *)(uintptr_t)main, 0.25, err);

    if (st)
        return st;
    return iterable ? accel_dataset_iterable_new(&p->apart, &stream, &field, 1, err)
                    : accel_dataset_new(&p->apart, SAMPLES, &field, 1, fetch,
                                        (void *)(uintptr_t)FETCH_LOADER, 0, err);
}

static accel_status_t open_loader(struct program *p, accel_error_t *err)
{
    accel_loader_options_t o = {
        sizeof(o), .batch = 4, .prefetch = now->prefetch, .split_batches = false,
        .dispatch_batches = now->dispatch ? ACCEL_DISPATCH_ON : ACCEL_DISPATCH_OFF
    };

    if (now->which == INDEX) {
        o.sampler = ACCEL_SAMPLER_OWN;
        o.index = own_index;
    }
    if (now->which == LENGTH) {
        o.length = own_length;
        o.pad = 1;
    }
    if (now->which == COLLATE)
        o.collate = own_collate;
    return accel_loader_new(&p->loader, p->run, "loader", p->apart, &o, err);
}

static accel_status_t build(struct program *p, accel_error_t *err)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward, 0 };
    static const accel_own_optim_t own = { sizeof(own), own_update, NULL, NULL, 0 };
    static const accel_sink_t sink = { sizeof(sink), "own", open_sink, write_sink,
                                       flush_sink,   NULL,  NULL };
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 0.01f };
    const accel_init_t init = { ACCEL_INIT_NORMAL, 0.1f };
    const accel_job_t job = { sizeof(job),    .data = p->data, .optimizer = &sgd,
                              .steps = STEPS, .batch = 2,      .out_dir = now->dir };
    const accel_loop_t loop = { sizeof(loop), .data = p->data, .steps = STEPS,
                                .batch = 2, .out_dir = now->dir };
    const int64_t dims[] = { 3, WIDTH };
    accel_job_t with_model = job;

    accel_track_sink(p->run, &sink, err);
    accel_register(p->run, "object", 1, ACCEL_STATE_PER_RANK, save_object, load_object,
                   NULL, err);
    accel_on_save(p->run, hook, (void *)(uintptr_t)SAVE_HOOK, err);
    accel_on_load(p->run, hook, (void *)(uintptr_t)LOAD_HOOK, err);
    accel_on_gradient(p->run, NULL, own_gradient, NULL, err);
    if (now->which == UNIT) {
        p->unit = accel_unit_new(p->run, "unit", err);
        accel_unit_param(p->unit, "weight", 2, dims, init, NULL, err);
        return accel_prepare(p->run, &job, err);
    }
    p->model = accel_module_new(p->run, &cls, NULL, NULL);
    weight = accel_param(p->model, "weight", 2, dims, init);
    with_model.model = p->model;
    if (now->which != UPDATE && now->which != UPDATE_GIVES_UP)
        return accel_prepare(p->run, &with_model, err);
    accel_model_add(p->run, "net", p->model, err);
    accel_optim_add_own(p->run, "own", &p->model, 1, &sgd, &own, err);
    return accel_prepare_all(p->run, &loop, err);
}

static accel_status_t open_program(struct program *p, accel_error_t *err)
{
    const accel_options_t o = { sizeof(o), .config_file = now->config, .threads = 1 };
    accel_status_t st = accel_open(&p->run, &o, err);

    my_run = p->run;
    ACCEL_TRY(st, open_data(p, err));
    ACCEL_TRY(st, build(p, err));
    return st ? st : open_loader(p, err);
}

static accel_status_t step_of_units(struct program *p, accel_error_t *err)
{
    accel_tensor_t *batch;
    float *gradient;
    accel_status_t st = accel_next(p->run, &batch, 1, err);

    ACCEL_TRY(st, accel_unit_gradient(p->unit, 0, &gradient, err));
    return st ? st : accel_finish_backward(p->run, strikes(UNIT) ? NAN : 1.0, err);
}

/* One micro-batch: of the job's data, or of the loader's. */
static accel_status_t step_of_model(struct program *p, accel_error_t *err)
{
    accel_tensor_t *batch = NULL;
    accel_status_t st;
    int got = 0;

    if (now->which == FETCH) {
        st = accel_next(p->run, &batch, 1, err);
    } else {
        st = accel_loader_next(p->loader, &batch, 1, &got, err);
        if (!st && !got)
            st = accel_loader_next(p->loader, &batch, 1, &got, err);
    }
    return st ? st : accel_backward(p->run, accel_call(p->model, &batch, 1), err);
}

static accel_status_t train_step(struct program *p, accel_error_t *err)
{
    accel_status_t st = p->unit ? step_of_units(p, err) : step_of_model(p, err);
    double loss;
    int size;

    if (!st && strikes(PROGRAM))
        st = accel_give_up(p->run, accel_error_set(err, ACCEL_EIO, SAID, NULL), err);
    ACCEL_TRY(st, accel_step(p->run, err));
    /* the call that it is part of fails */
    if (!st && now->which == UPDATE_GIVES_UP && my_rank == now->failing && now->struck)
        st = ACCEL_EBUG;
    if (!st && now->which == FETCH_EVALUATE)
        st = accel_evaluate(p->run, 0, &loss, err);
    /* not only at the next step */
    if (!st && now->which == FETCH_EVALUATE && now->struck)
        st = ACCEL_EBUG;
    if (!st && now->which == ATTEMPT)
        st = accel_find_batch_size(p->run, 2, attempt, NULL, &size, err);
    if (!st && accel_steps_done(p->run) % 2 == 0)
        st = accel_save_state(p->run, NULL, err);
    return st;
}

static int program_rank(struct boot *b, void *arg)
{
    struct outcome *out = &((struct round *)arg)->outcome[b->rank];
    struct program p = { 0 };
    accel_error_t err = { 0 };

    my_rank = b->rank;
    open_world_join(b);
    armed = now->which >= SINK_OPEN;
    out->st = open_program(&p, &err);
    armed = true;
    while (!out->st && accel_more(p.run))
        out->st = train_step(&p, &err);
    if (!out->st && (now->which == LOAD_OBJECT || now->which == LOAD_HOOK))
        out->st = accel_load_state(p.run, NULL, &err);
    out->steps = accel_steps_done(p.run);
    snprintf(out->text, sizeof(out->text), "%.250s", err.text);
    accel_close(p.run, NULL);
    accel_dataset_close(p.data);
    accel_dataset_close(p.apart);
    open_world_join(NULL);
    return 0;
}

/* ---- rounds ---------------------------------------------------------------------- */

static uint64_t state;

static int draw(int n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)((state >> 11) % (uint64_t)n);
}

#define CONFIG(type)                                                                   \
    "distributed_type: " type "\nuse_cpu: true\n"                                      \
    "accel: {checkpoint: {save: false, keep: 1}}\n"

static void make_round(struct round *r, int number)
{
    memset(r, 0, sizeof(*r));
    r->which = (enum function)(number % FUNCTIONS);
    r->ranks = 2 + draw(MOST_RANKS - 1);
    r->nodes = 1;
#ifdef HAVE_UCX
    r->nodes += draw(2) * (r->ranks % 2 == 0);
#endif
    r->failing = r->which >= SINK_OPEN ? 0 : draw(r->ranks);
    r->at = 1 + draw(4);
    r->dispatch = draw(3) == 0;
    r->prefetch = draw(3);
    snprintf(r->dir, sizeof(r->dir), "%s/%d", root, number);
    snprintf(r->config, sizeof(r->config), "%s/%d.yaml", root, number);
    run_folder_write(r->config, draw(2) ? CONFIG("FSDP") : CONFIG("MULTI_CPU"));
}

/* What a rank must have ended with. */
static bool ended_well(const struct round *r, const struct outcome *o)
{
    if (!r->struck || r->which >= SINK_OPEN)
        return o->st == ACCEL_OK && o->steps == STEPS;
    if (r->which == GRADIENT || r->which == UPDATE || r->which == UNIT)
        return o->st == ACCEL_EDIVERGED;
    if (r->which == FORWARD)
        return o->st == ACCEL_EINVAL && strstr(o->text, "5, 7, 11");
    if (r->which >= GRADIENT_GIVES_UP && r->which <= LOAD_HOOK)
        return o->st == ACCEL_EIO && strstr(o->text, SAID);
    if (r->which == ATTEMPT)
        return o->st == ACCEL_EIO;
    return o->st == ACCEL_EIO && o->text[0];
}

/* Returns how many ranks have not ended as they should. */
static int play_round(struct round *r, int number)
{
    int bad = 0, rc;

    make_round(r, number);
    now = r;
    rc = fork_world_nodes(r->ranks, r->nodes, program_rank, r, HANG_S, NULL);
    for (int i = 0; i < r->ranks; i++)
        bad += !ended_well(r, &r->outcome[i]);
    if (rc || bad)
        tap_diag(
            "round %d: %s, call %d of rank %d of %d on %d nodes, prefetch %d, dispatch "
            "%d: %s; exit %d",
            number, names[r->which], r->at, r->failing, r->ranks, r->nodes, r->prefetch,
            r->dispatch, r->struck ? "failed" : "was not called", rc);
    for (int i = 0; (rc || bad) && i < r->ranks; i++)
        tap_diag("  rank %d: %s after %lld steps: %s", i,
                 accel_status_name(r->outcome[i].st), (long long)r->outcome[i].steps,
                 r->outcome[i].text);
    return rc ? r->ranks : bad;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : FUNCTIONS, bad = 0, struck = 0;
    struct round *r = fork_shared(sizeof(*r));

    state = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
    unsetenv(ENV_CONFIG);
    run_folder_new(root);
    for (int i = 0; i < rounds; i++) {
        bad += play_round(r, i) > 0;
        struck += r->struck;
    }
    tap_is_int(bad, 0, "%d rounds: all ranks end alike, and with the reason", rounds);
    tap_ok(struck * 2 > rounds, "%d of them with a failure", struck);
    run_folder_remove(root);
    return tap_done();
}
