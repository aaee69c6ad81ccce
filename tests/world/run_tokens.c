/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of tokens that follow each other, by rank.
 */
#include "tests/world/run_tokens.h"

#include <math.h>

#include "common/common.h"

accel_tensor_t *run_tokens_loss(accel_t *run, accel_module_t *model, int samples,
                                int number, accel_error_t *err)
{
    const int batch = samples / accel_world_size(run);
    const int64_t dims[] = { batch, TOKENS_SEQ };
    int32_t ids[TOKENS_SAMPLES * TOKENS_SEQ], next[TOKENS_SAMPLES * TOKENS_SEQ];
    accel_tensor_t *in[2];

    for (int i = 0; i < batch * TOKENS_SEQ; i++) {
        const int sample = accel_rank(run) * batch + i / TOKENS_SEQ + number * samples;
        const int step = 1 + sample % 3, at = i % TOKENS_SEQ;

        ids[i] = (sample * 5 + at * step) % TOKENS_VOCAB;
        next[i] = (sample * 5 + (at + 1) * step) % TOKENS_VOCAB;
    }
    in[0] = accel_input(run, ACCEL_I32, 2, dims, ids, err);
    in[1] = accel_input(run, ACCEL_I32, 2, dims, next, err);
    return accel_call(model, in, 2);
}

accel_status_t run_tokens_evaluate(accel_t *run, accel_module_t *model, int samples,
                                   double *loss_out, accel_error_t *err)
{
    float value = NAN;
    accel_status_t st;

    accel_inference_mode(run, 1);
    st =
        accel_tensor_read(run_tokens_loss(run, model, samples, 0, err), &value, 1, err);
    accel_inference_mode(run, 0);
    *loss_out = (double)value;
    return st;
}

accel_status_t run_tokens_step(accel_t *run, accel_module_t *model, int samples,
                               int number, accel_error_t *err)
{
    accel_status_t st = accel_batch_begin(run, err);

    ACCEL_TRY(st, accel_backward(run, run_tokens_loss(run, model, samples, number, err),
                                 err));
    ACCEL_TRY(st, accel_step(run, err));
    return st;
}

accel_module_t *run_tokens_llama(accel_t *run, int hidden, accel_error_t *err)
{
    const accel_model_config_t llama = { .bytes = sizeof(llama),
                                         .model_type = "llama",
                                         .layers = 2,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .width = 32,
                                         .hidden = hidden,
                                         .context = TOKENS_SEQ,
                                         .vocab = TOKENS_VOCAB };

    return accel_model_new(run, &llama, err);
}
