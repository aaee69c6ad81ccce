/* SPDX-License-Identifier: Apache-2.0
 *
 * A stop while a function of the program waits for a sample: the run ends, between two
 * steps with the state of the last one saved, and the next life goes on with the sample
 * that did not come. Each wait is seconds long: all cases run at once.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel.h"
#include "common/common.h"
#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

enum { SAMPLES = 40, BATCH = 2, WAITS_AT = 2, STEPS = 9 };

enum function { FETCH, FETCH_EVALUATE, FETCH_LOADER, FETCH_VALID, NEXT, REWIND };

#define SAVED "state of step 2 is saved"
/* where the end of an epoch shows only behind its last batch */
#define EARLIER "state of step 1 is saved"
#define INSIDE  "step 2 is not saved: a sample did not come in the middle of step 3"

static const struct wait_case {
    const char *what;
    enum function which;
    int ranks, waiting, prefetch, every;
    accel_dispatch_t dispatch;
    const char *says;
    /* FAILS, ENDS: what the function says at once, as if its source had been ended,
     * too; LIES: it calls a sample whole that did not come */
    enum { WAITS, FAILS, ENDS, LIES } then;
} cases[] = {
    { "fetch of accel_next", FETCH, 1, 0, 0, 1, 0, SAVED, WAITS },
    { "of one rank of two", FETCH, 2, 1, 0, 1, 0, INSIDE, WAITS },
    { "of an evaluation", FETCH_EVALUATE, 1, 0, 0, 1, 0, "state of step 3 is saved",
      WAITS },
    { "of a loader", FETCH_LOADER, 1, 0, 0, 1, 0, SAVED, WAITS },
    { "read ahead", FETCH_LOADER, 1, 0, 2, 1, 0, SAVED, WAITS },
    { "inside a step", FETCH_LOADER, 1, 0, 2, 2, 0,
      "step 1 is not saved: a sample did not come in the middle of step 2", WAITS },
    { "one rank of two", FETCH_LOADER, 2, 1, 1, 1, 0, INSIDE, WAITS },
    { "a validation loader", FETCH_VALID, 1, 0, 2, 1, 0, SAVED, WAITS },
    { "next", NEXT, 1, 0, 0, 1, 0, SAVED, WAITS },
    { "next, read ahead", NEXT, 1, 0, 3, 1, 0, SAVED, WAITS },
    { "next, sent to two ranks", NEXT, 2, 0, 1, 1, 0, SAVED, WAITS },
    { "next, read by two ranks", NEXT, 2, 1, 1, 1, ACCEL_DISPATCH_OFF, EARLIER, WAITS },
    { "fetch, which fails", FETCH, 1, 0, 0, 1, 0, SAVED, FAILS },
    { "fetch of a loader, which fails", FETCH_LOADER, 1, 0, 0, 1, 0, SAVED, FAILS },
    { "fetch, which takes no notice", FETCH, 1, 0, 0, 1, 0, SAVED, LIES },
    { "fetch of a loader, which takes no notice", FETCH_LOADER, 1, 0, 0, 1, 0, SAVED,
      LIES },
    { "next, which ends", NEXT, 1, 0, 0, 1, 0, SAVED, ENDS },
    { "rewind", REWIND, 1, 0, 1, 1, 0, SAVED, WAITS },
};

static const struct wait_case *now;
static char dir[] = "/tmp/accel-wait.XXXXXX", config[96];
static int my_rank, never[2];
static pthread_t main_thread;
/* this life waits; an evaluation is under way */
static bool waits, evaluating;

/* For a byte that nobody writes. The signal has come before where a thread reads
 * ahead. */
static int stall(void)
{
    char c;

    if (pthread_equal(pthread_self(), main_thread))
        raise(SIGTERM);
    if (now->then == FAILS || now->then == ENDS)
        return now->then == FAILS ? -1 : 0;
    return read(never[0], &c, 1) == 1 || now->then == LIES ? 0 : -1;
}

static bool stalls(enum function which, int64_t place)
{
    return waits && which == now->which && my_rank == now->waiting && place >= 0;
}

/* The micro-batch whose samples do not come: the first of a step, or the second. */
static int stalls_at(void)
{
    return WAITS_AT + (now->every > 1);
}

/* Samples that all ranks take before it. */
static int64_t before(void)
{
    return (int64_t)stalls_at() * BATCH * now->ranks;
}

/* Whoever waits for the end of the epoch waits a micro-batch earlier. */
static bool waits_earlier(void)
{
    return strcmp(now->says, EARLIER) == 0;
}

static int waits_at(void)
{
    return stalls_at() - waits_earlier();
}

static int give(int64_t index, void *const *dst)
{
    *(float *)dst[0] = (float)index;
    return 0;
}

/* The job's order is a permutation: by calls. That accel_prepare calls it is seen by
 * `waits`. */
static int fetch(void *user, int64_t index, void *const *dst)
{
    static int64_t calls;
    const bool held = now->which == FETCH_EVALUATE;

    (void)user;
    calls += waits && !evaluating;
    if (held ? evaluating && stalls(FETCH_EVALUATE, 0)
             : stalls(FETCH, calls - WAITS_AT * BATCH - 1))
        return stall();
    return give(index, dst);
}

static int fetch_apart(void *user, int64_t index, void *const *dst)
{
    (void)user;
    return stalls(FETCH_LOADER, index - before()) ? stall() : give(index, dst);
}

static int fetch_valid(void *user, int64_t index, void *const *dst)
{
    (void)user;
    return stalls(FETCH_VALID, index - BATCH) ? stall() : give(index, dst);
}

static int64_t stream_at, stream_end;

static int stream_next(void *user, void *const *dst)
{
    (void)user;
    if (stream_at == stream_end)
        return 0;
    if (stalls(NEXT, stream_at - before()))
        return stall();
    return give(stream_at++, dst) == 0;
}

static int stream_rewind(void *user, int64_t epoch)
{
    (void)user;
    if (stalls(REWIND, epoch - 1))
        return stall();
    stream_at = 0;
    return 0;
}

struct net {
    accel_tensor_t *gain;
};

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct net *net = accel_module_state(m);

    (void)n;
    return accel_mean(accel_linear(in[0], net->gain, NULL, ACCEL_ACT_NONE), -1);
}

struct life {
    accel_t *run;
    accel_module_t *model;
    accel_dataset_t *data, *apart, *held;
    accel_loader_t *loader, *valid;
    /* the first sample of this life's first batch, of its first validation */
    float first[BATCH], first_valid[BATCH];
};

static accel_status_t life_open(struct life *l, accel_error_t *err)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward,
                                       sizeof(struct net) };
    static const accel_field_t field = { ACCEL_F32, 1, { 1 } };
    const accel_iterable_t stream = {
        sizeof(stream), .next = stream_next, .rewind = stream_rewind,
        .samples = waits_earlier() || now->then == ENDS ? 0 : stream_end
    };
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    const accel_loader_options_t options = {
        sizeof(options),
        .batch = BATCH,
        .sampler = now->which < NEXT ? ACCEL_SAMPLER_SEQUENTIAL : 0,
        .prefetch = now->prefetch,
        .dispatch_batches = now->dispatch,
    };
    const int64_t dims[] = { 1, 1 };
    accel_job_t job = { sizeof(job),
                        .steps = STEPS,
                        .batch = BATCH,
                        .accumulate = now->every,
                        .out_dir = dir,
                        .optimizer =
                            &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                  .kind = ACCEL_SGD, .lr = 1e-3f } };
    accel_status_t st;

    ACCEL_CHECK(st, accel_open(&l->run, &o, err));
    ACCEL_CHECK(
        st, accel_dataset_new(&l->data, SAMPLES, &field, 1, fetch, NULL, 0.25, err));
    ACCEL_CHECK(st, now->which < NEXT ? accel_dataset_new(&l->apart, SAMPLES, &field, 1,
                                                          fetch_apart, NULL, 0, err)
                                      : accel_dataset_iterable_new(&l->apart, &stream,
                                                                   &field, 1, err));
    ACCEL_CHECK(
        st, accel_dataset_new(&l->held, SAMPLES, &field, 1, fetch_valid, NULL, 0, err));
    l->model = accel_module_new(l->run, &cls, NULL, "");
    ((struct net *)accel_module_state(l->model))->gain =
        accel_param(l->model, "gain", 2, dims, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    job.model = l->model;
    job.data = now->which < FETCH_LOADER ? l->data : NULL;
    st = accel_prepare(l->run, &job, err);
    if (!job.data)
        ACCEL_TRY(st, accel_loader_new(&l->loader, l->run, "loader", l->apart, &options,
                                       err));
    if (now->which == FETCH_VALID)
        ACCEL_TRY(st,
                  accel_loader_new(&l->valid, l->run, "valid", l->held, &options, err));
    return st;
}

static accel_status_t life_batch(struct life *l, accel_tensor_t **batch,
                                 accel_error_t *err)
{
    accel_status_t st;
    int got = 0;

    if (!l->loader)
        return accel_next(l->run, batch, 1, err);
    st = accel_loader_next(l->loader, batch, 1, &got, err);
    return st || got ? st : accel_loader_next(l->loader, batch, 1, &got, err);
}

/* All batches of the validation loader. */
static accel_status_t life_validate(struct life *l, accel_error_t *err)
{
    accel_tensor_t *batch;
    accel_status_t st = ACCEL_OK;
    int got = 1;

    accel_inference_mode(l->run, 1);
    for (int i = 0; !st && got; i++) {
        st = accel_loader_next(l->valid, &batch, 1, &got, err);
        if (!st && got && i == 0)
            st = accel_tensor_read(batch, l->first_valid, BATCH, err);
    }
    accel_inference_mode(l->run, 0);
    return st;
}

static accel_status_t life_micro(struct life *l, int micro, accel_error_t *err)
{
    accel_tensor_t *batch;
    accel_status_t st;
    double loss = 0;

    if (waits && micro == waits_at() && now->prefetch > 0 && my_rank == now->waiting)
        raise(SIGTERM);
    if (waits && micro == WAITS_AT && now->which == FETCH_EVALUATE) {
        evaluating = true;
        st = accel_evaluate(l->run, 0, &loss, err);
        evaluating = false;
        if (st || !isnan(loss))
            return st ? st : ACCEL_EBUG;
    }
    if (l->valid && micro == (waits ? WAITS_AT : 0))
        ACCEL_CHECK(st, life_validate(l, err));
    ACCEL_CHECK(st, life_batch(l, &batch, err));
    if (micro == 0)
        ACCEL_CHECK(st, accel_tensor_read(batch, l->first, BATCH, err));
    ACCEL_CHECK(st, accel_backward(l->run, accel_call(l->model, &batch, 1), err));
    return accel_step(l->run, err);
}

/* One life. Returns its status, with how it ended in *err. */
static accel_status_t live(struct life *l, int micros, accel_error_t *err)
{
    accel_status_t st = life_open(l, err);

    /* nothing waits in accel_prepare */
    waits = micros == 0;
    for (int i = 0; !st && accel_more(l->run) && (!micros || i < micros); i++)
        st = life_micro(l, i, err);
    waits = false;
    accel_close(l->run, NULL);
    accel_dataset_close(l->data);
    accel_dataset_close(l->apart);
    accel_dataset_close(l->held);
    return st;
}

static int case_rank(struct boot *b, void *arg)
{
    struct life one = { 0 }, two = { 0 };
    accel_error_t err = { 0 };
    /* of the next life: no step is saved, or an epoch begins */
    const int first = now->every > 1 || now->which == REWIND ? 0 : waits_at() * BATCH;

    (void)arg;
    my_rank = b->rank;
    main_thread = pthread_self();
    stream_end = now->which == REWIND ? WAITS_AT * BATCH : SAMPLES;
    EXPECT(live(&one, 0, &err) == ACCEL_ERESUME, "%s: %s", now->what, err.text);
    /* rank 0 says it for all */
    EXPECT(b->rank > 0 ? !err.text[0] : strstr(err.text, now->says) != NULL, "%s: '%s'",
           now->what, err.text);
    if (b->size > 1 || now->which < FETCH_LOADER)
        return 0;
    EXPECT(live(&two, 1, &err) == ACCEL_OK, "%s: %s", now->what, err.text);
    EXPECT(two.first[0] == (float)first, "%s: the next life begins with %g", now->what,
           (double)two.first[0]);
    EXPECT(two.first_valid[0] == 0, "%s: its validation begins with %g", now->what,
           (double)two.first_valid[0]);
    return 0;
}

/* In a process of its own, with a directory of its own. */
static int play(const struct wait_case *c)
{
    char command[64];
    int rc;

    now = c;
    run_folder_make(dir,
                    "distributed_type: MULTI_CPU\nuse_cpu: true\n"
                    "accel:\n  checkpoint: {keep: 1}\n",
                    config, sizeof(config));
    rc = pipe(never) ? 1 : open_world(c->ranks, 1, case_rank, NULL, HANG_S);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return rc || system(command) ? 1 : 0;
}

int main(void)
{
    pid_t pid[ACCEL_ARRAY_SIZE(cases)];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        fflush(NULL);
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(play(&cases[i]) ? 1 : 0);
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        int status = 1;

        waitpid(pid[i], &status, 0);
        tap_is_int(status, 0, "%s: the stop ends the wait", cases[i].what);
    }
    return tap_done();
}
