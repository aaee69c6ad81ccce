/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from a GPT-2: one forward without tape per token over the last `context` tokens.
 * Draws by counter, Philox(seed, position), so that every rank takes the same token.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <Random123/philox.h>

#include "backend/backend.h"
#include "nn/models/gpt2.h"

static double uniform(uint64_t seed, uint64_t position)
{
    philox4x32_ctr_t ctr = { { (uint32_t)position, (uint32_t)(position >> 32), 0, 0 } };
    philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    philox4x32_ctr_t r = philox4x32(ctr, key);

    return ((double)(r.v[0] >> 5) * 67108864.0 + (double)(r.v[1] >> 6)) /
           9007199254740992.0;
}

static int32_t greedy(const float *logits, int vocab)
{
    int best = 0;

    for (int i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int32_t draw(const float *logits, int vocab, float temperature, double u)
{
    double max = logits[greedy(logits, vocab)], sum = 0.0, at = 0.0;

    for (int i = 0; i < vocab; i++)
        sum += exp((logits[i] - max) / temperature);
    for (int i = 0; i < vocab; i++) {
        at += exp((logits[i] - max) / temperature);
        if (at > u * sum)
            return i;
    }
    return greedy(logits, vocab);
}

/* Logits of what follows tokens[n]. */
static accel_status_t predict(accel_module_t *model, const int32_t *tokens, int n,
                              float *logits, size_t vocab, accel_error_t *err)
{
    struct graph *g = model->g;
    accel_tensor_t *ids, *y;

    graph_reset(g);
    ids = graph_tensor(g, ACCEL_I32, 2, (int64_t[]){ 1, n });
    if (ids)
        g->backend->from_host(g->backend, ids->data, tokens,
                              (size_t)n * sizeof(*tokens));
    y = accel_call(model, &ids, 1);
    if (!y) {
        if (err)
            *err = g->error;
        return g->error.code;
    }
    return accel_tensor_read(y, logits, vocab, err);
}

static accel_status_t check(const accel_module_t *model, const int32_t *prompt, int n,
                            const int32_t *out, int count, float temperature,
                            accel_error_t *err)
{
    const accel_gpt2_t *cfg = gpt2_config(model);

    if (!cfg)
        return accel_fail(err, A0613, "pass what accel_gpt2_new returned",
                          "generate: the module is no gpt2");
    if (!prompt || n < 1 || count < 0 || (!out && count))
        return accel_fail(err, A0613, "start from at least one token",
                          "generate: prompt of %d tokens, %d to make", n, count);
    if (!(temperature >= 0.0f) || isinf(temperature))
        return accel_fail(err, A0613, "0 is greedy, 1 the model's own spread",
                          "generate: temperature %g", (double)temperature);
    for (int i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= cfg->vocab)
            return accel_fail(err, A0613,
                              "make the prompt with the tokenizer of the model",
                              "generate: prompt token %d is %d, the vocabulary ends at "
                              "%d",
                              i, prompt[i], cfg->vocab - 1);
    return ACCEL_OK;
}

accel_status_t gpt2_generate(accel_module_t *model, const int32_t *prompt, int n,
                             int32_t *out, int count, float temperature, uint64_t seed,
                             accel_error_t *err)
{
    const accel_gpt2_t *cfg = gpt2_config(model);
    accel_status_t status = check(model, prompt, n, out, count, temperature, err);
    size_t total = (size_t)(n > 0 ? n : 0) + (size_t)(count > 0 ? count : 0);
    int32_t *tokens;
    float *logits;
    bool recording, training;

    if (status)
        return status;
    tokens = malloc(total * sizeof(*tokens));
    logits = malloc((size_t)cfg->vocab * sizeof(*logits));
    if (!tokens || !logits) {
        free(tokens);
        free(logits);
        return accel_fail_nomem(err, "generated tokens", total * sizeof(*tokens));
    }
    memcpy(tokens, prompt, (size_t)n * sizeof(*tokens));
    recording = model->g->recording;
    training = model->g->training;
    model->g->recording = model->g->training = false;
    for (int i = n; !status && i < n + count; i++) {
        int first = i > cfg->context ? i - cfg->context : 0;

        status =
            predict(model, tokens + first, i - first, logits, (size_t)cfg->vocab, err);
        if (!status)
            tokens[i] = temperature > 0.0f ? draw(logits, cfg->vocab, temperature,
                                                  uniform(seed, (uint64_t)i))
                                           : greedy(logits, cfg->vocab);
    }
    model->g->recording = recording;
    model->g->training = training;
    graph_reset(model->g);
    if (!status && count)
        memcpy(out, tokens + n, (size_t)count * sizeof(*out));
    free(tokens);
    free(logits);
    return status;
}
