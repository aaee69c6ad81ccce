/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids out of range in a step of several micro-batches: a GPU, which tells at the end of
 * the step, names the first one in the CPU's words, with its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/cuda_run.h"

enum { BATCH = 2, SEQ = 8, MICROS = 3, SAMPLES = BATCH * MICROS, VOCAB = 128 };

#define TEXT "text.txt"

/* One step over all samples. False: it failed, as err says. */
static bool step_succeeds(const char *config, accel_error_t *err)
{
    const accel_model_config_t cfg = { .bytes = sizeof(accel_model_config_t),
                                       .model_type = "gpt2",
                                       .layers = 1,
                                       .heads = 2,
                                       .width = 16,
                                       .context = SEQ,
                                       .vocab = VOCAB };
    accel_job_t j = { sizeof(j),
                      .steps = 1,
                      .batch = BATCH,
                      .accumulate = MICROS,
                      .seed = 3,
                      .out_dir = cuda_run_dir,
                      .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                         .lr = 1e-3f } };
    accel_tensor_t *batch[2];
    char path[96];
    accel_t *run = NULL;
    accel_status_t st = cuda_run_open(&run, config, NULL, err);

    snprintf(path, sizeof(path), "%s/" TEXT, cuda_run_dir);
    if (!st)
        st = accel_dataset_open(&j.data, path, SEQ, 0, err);
    if (!st)
        j.model = accel_model_new(run, &cfg, err);
    if (!st)
        st = accel_prepare(run, &j, err);
    for (int micro = 0; micro < MICROS && !st; micro++) {
        st = accel_next(run, batch, 2, err);
        if (!st)
            st = accel_backward(run, accel_call(j.model, batch, 2), err);
        if (!st)
            st = accel_step(run, err);
    }
    accel_close(run, NULL);
    accel_dataset_close(j.data);
    return !st;
}

/* Bytes number at[0], at[1] ... of the text are no ids of the model. Returns the
 * micro-batch that is named. */
static int test_places(const int *at, int n)
{
    char text[SAMPLES * SEQ + 1];
    accel_error_t cpu = { 0 }, gpu = { 0 };
    const char *micro;

    memset(text, 'a', sizeof(text));
    for (int i = 0; i < n; i++)
        text[at[i]] = (char)(VOCAB + i);
    cuda_run_write(TEXT, text, sizeof(text));
    tap_ok(!step_succeeds(CUDA_RUN_CPU, &cpu) && cpu.code == ACCEL_EINVAL,
           "CPU: %s: %s", cpu.where, cpu.text);
    tap_ok(!step_succeeds(CUDA_RUN_GPU, &gpu), "the GPU fails, too");
    tap_is_str(gpu.text, cpu.text, "with the same text");
    tap_is_str(gpu.where, cpu.where, "of the same op");
    micro = strstr(cpu.text, ", micro-batch ");
    return micro ? (int)strtol(micro + 14, NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    int found[MICROS + 1] = { 0 };

    (void)argc;
    cuda_run_begin(argv);
    /* an id of each sample in turn, which is the target before it, too */
    for (int sample = 0; sample < SAMPLES; sample++)
        found[test_places((int[]){ sample * SEQ + 1 + sample }, 1)]++;
    for (int micro = 1; micro <= MICROS; micro++)
        tap_is_int(found[micro], BATCH, "micro-batch %d has had its samples", micro);
    /* of several the first; and the last byte, which is a target only */
    test_places((int[]){ SEQ + 6, 2 * SEQ + 2, 4 * SEQ + 4, 5 * SEQ + 1 }, 4);
    test_places((int[]){ SAMPLES * SEQ }, 1);
    cuda_run_end();
    return tap_done();
}
