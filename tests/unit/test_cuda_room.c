/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits that are kept because there is room, on the stand-in: where the memory that
 * others are found to hold leaves too little, they are not, the plan fits, and the step
 * has the same bits.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/unit/cuda_counts.h"
#include "tests/world/cuda_device.h"
#include "tests/world/cuda_run.h"

/* A chunk of 512 rows and one of 64, which takes 32 MiB: a step of the arena. */
enum { BATCH = 72, SEQ = 8, WIDTH = 2, VOCAB = 131072, TOKENS = 256 };

#define MEMORY ((int64_t)2 << 30)
#define CHUNK  ((int64_t)32 << 20)

static void (*fake_reset)(void);

struct net {
    accel_tensor_t *table, *head;
};

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct net *net = accel_module_state(m);

    (void)n;
    return accel_cross_entropy(accel_embedding(in[0], net->table, NULL), net->head,
                               NULL, in[1], NULL);
}

static const accel_class_t net_class = { sizeof(net_class), "Net", net_forward,
                                         sizeof(struct net) };

/* What a run showed. */
struct seen {
    /* of the step, and the parameters that it left */
    float loss, values[(TOKENS + VOCAB) * WIDTH];
    uint64_t products;
    size_t room;
    int64_t planned;
};

static accel_module_t *net_new(accel_t *run)
{
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 0.5f };
    accel_module_t *m = accel_module_new(run, &net_class, NULL, "");
    struct net *net = accel_module_state(m);

    net->table = accel_param(m, "table", 2, (int64_t[]){ TOKENS, WIDTH }, normal);
    net->head = accel_param(m, "head", 2, (int64_t[]){ VOCAB, WIDTH }, normal);
    return m;
}

static accel_status_t one_step(accel_t *run, const accel_job_t *j, struct seen *out,
                               accel_error_t *err)
{
    const struct fakecuda_counts before = counted(NULL);
    const struct residency *r = &run->graph.residency;
    accel_tensor_t *batch[2], *loss = NULL;
    accel_status_t st = accel_next(run, batch, 2, err);
    void *values;

    if (!st)
        loss = accel_call(j->model, batch, 2);
    if (!st)
        st = accel_backward(run, loss, err);
    if (!st)
        st = accel_tensor_read(loss, &out->loss, 1, err);
    if (!st)
        st = accel_step(run, err);
    out->products = counted(&before).matmuls;
    if (!st)
        st = r->want(r->user, 0, &values, err);
    if (st)
        return st;
    run->backend->to_host(run->backend, out->values, values, ACCEL_BF16,
                          (TOKENS + VOCAB) * WIDTH);
    r->done(r->user, 0);
    return run->backend->sync(run->backend, err);
}

/* Others hold `taken` bytes of the device. */
static void run_beside(int64_t taken, struct seen *out)
{
    accel_job_t j = { sizeof(j),
                      .steps = 1,
                      .batch = BATCH,
                      .accumulate = 1,
                      .seed = 3,
                      .out_dir = cuda_run_dir,
                      .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                         .lr = 1e-2f } };
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    char text[96];
    accel_status_t st;

    snprintf(text, sizeof(text), "%lld", (long long)taken);
    setenv("FAKE_CUDA_TAKEN", text, 1);
    fake_reset();
    st = cuda_run_open(&run, CUDA_RUN_GPU, NULL, &err);
    snprintf(text, sizeof(text), "%s/text.txt", cuda_run_dir);
    if (!st)
        st = accel_dataset_open(&j.data, text, SEQ, 0, &err);
    if (!st)
        j.model = net_new(run);
    if (!st)
        st = accel_prepare(run, &j, &err);
    if (!st) {
        out->room = run->graph.logits_room;
        out->planned = run->plan.total_bytes;
        st = one_step(run, &j, out, &err);
    }
    tap_ok(!st, "%lld MiB are taken: a step %s %s", (long long)taken >> 20, err.where,
           err.text);
    accel_close(run, NULL);
    accel_dataset_close(j.data);
}

int main(int argc, char **argv)
{
    static struct seen kept, without;
    char text[BATCH * SEQ + 1], memory[32];

    (void)argc;
    cuda_run_begin(argv);
    if (!cuda_stand_in("fakecuda_reset", &fake_reset))
        tap_skip_all("only the stand-in's memory can be taken");
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i * i % 23);
    cuda_run_write("text.txt", text, sizeof(text));
    snprintf(memory, sizeof(memory), "%lld", (long long)MEMORY);
    setenv("FAKE_CUDA_MEMORY", memory, 1);
    run_beside(0, &kept);
    tap_ok(kept.room >= (size_t)CHUNK, "there is room for a second chunk of logits");
    /* half a chunk more than would leave room for it */
    run_beside(MEMORY - kept.planned + CHUNK / 2, &without);
    tap_is_int((long long)without.room, 0, "then there is none");
    tap_is_int((long long)without.planned, (long long)(MEMORY - CHUNK / 2),
               "and the plan is without it");
    is_count(without.products - kept.products, 1, "one product more in the step");
    tap_ok(kept.loss > 0 && kept.loss == without.loss &&
               !memcmp(kept.values, without.values, sizeof(kept.values)),
           "the same bits, loss %.9g", (double)kept.loss);
    cuda_run_end();
    return tap_done();
}
