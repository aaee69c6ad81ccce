/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation: greedy tokens with the cache equal those of whole forwards, also beyond
 * the context; draws by temperature, top-k and top-p have exactly the shares they
 * should; ends, callbacks and misuse.
 */
#include <math.h>
#include <string.h>

#include "numbers/rng.h"
#include "models/causal.h"
#include "models/model_config.h"
#include "tests/tap.h"
#include "tests/world/module_rig.h"

static const accel_model_config_t small = { .model_type = "gpt2",
                                            .layers = 2,
                                            .heads = 3,
                                            .width = 48,
                                            .context = 24,
                                            .vocab = 97 };

static bool rig_open(struct module_rig *k, const accel_model_config_t *cfg,
                     accel_dtype_t compute, int threads)
{
    if (!module_rig_open(k, compute, threads))
        return false;
    k->model = model_new(&k->g, cfg, NULL);
    if (!module_rig_fill(k, true, "GPT2Block"))
        return false;
    /* Far from the initial values, where all tokens are about alike. */
    for (int u = 0; u < k->units.count; u++)
        for (int64_t i = 0; i < k->units.unit[u].elems; i++)
            k->r.master[u][i] *= 6.0f;
    resident_refresh(&k->r);
    return true;
}

/* The likeliest token after tokens[n], by one forward without a cache. */
static int32_t whole_forward(struct module_rig *k, const int32_t *tokens, int n)
{
    accel_tensor_t *ids, *y;
    float logits[97];
    int best = 0;

    graph_reset(&k->g);
    k->g.recording = false;
    ids = graph_tensor(&k->g, ACCEL_I32, 2, (int64_t[]){ 1, n });
    memcpy(ids->data, tokens, (size_t)n * sizeof(*tokens));
    y = accel_call(k->model, &ids, 1);
    k->g.recording = true;
    if (!y || accel_tensor_read(y, logits, 97, NULL))
        return -1;
    for (int i = 1; i < 97; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void test_greedy(accel_dtype_t compute, int threads)
{
    enum { PROMPT = 5, COUNT = 60 };
    int32_t tokens[PROMPT + COUNT] = { 3, 1, 4, 15, 92 }, out[COUNT];
    int first = 0, same = 0, distinct = 0;
    accel_error_t err = { 0 };
    struct module_rig k;

    if (!tap_ok(rig_open(&k, &small, compute, threads), "open"))
        return;
    for (int n = PROMPT; n < PROMPT + COUNT; n++) {
        if (n - first > small.context) /* the rule of accel_generate */
            first = n - (small.context + 1) / 2;
        tokens[n] = whole_forward(&k, tokens + first, n - first);
    }
    tap_is_int(accel_generate(k.model, tokens, PROMPT, out, COUNT, NULL, &err), 0,
               "%s, %d threads: generate %s", accel_dtype_name(compute), threads,
               err.text);
    for (int i = 0; i < COUNT; i++) {
        same += out[i] == tokens[PROMPT + i];
        distinct += i > 0 && out[i] != out[i - 1];
    }
    tap_is_int(same, COUNT, "greedy with the cache as without, past the context twice");
    tap_ok(distinct > COUNT / 4, "the text is not one token (%d changes)", distinct);
    tap_is_int(accel_generate(k.model, tokens, PROMPT + COUNT, out, 1, NULL, &err), 0,
               "a prompt longer than the context");
    tap_is_int(
        out[0],
        whole_forward(&k, tokens + PROMPT + COUNT - small.context, small.context),
        "of it the end counts");
    tap_is_int(k.r.faults, 0, "residency protocol");
    tap_ok(k.g.recording && k.g.training, "recording is as it was");
    module_rig_close(&k);
}

static void test_context_of_one(void)
{
    accel_model_config_t cfg = small;
    int32_t out[5];
    accel_error_t err = { 0 };
    struct module_rig k;

    cfg.context = 1;
    if (!tap_ok(rig_open(&k, &cfg, ACCEL_F32, 1), "open"))
        return;
    tap_is_int(accel_generate(k.model, (int32_t[]){ 7 }, 1, out, 5, NULL, &err), 0,
               "a context of one position");
    tap_is_int(out[1], whole_forward(&k, out, 1), "each token follows from the last");
    module_rig_close(&k);
}

/* How often each token comes out when u goes evenly over [0, 1). */
static void shares(const float *logits, int vocab, const accel_sampling_t *o,
                   double *share)
{
    enum { DRAWS = 20000 };
    int32_t rank[16];

    for (int i = 0; i < vocab; i++)
        share[i] = 0;
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = causal_draw(logits, vocab, o, (i + 0.5) / DRAWS, rank);

        if (token >= 0 && token < vocab)
            share[token] += 1.0 / DRAWS;
    }
}

static const struct draw_case {
    const char *what;
    float temperature;
    int top_k;
    float top_p;
    double share[6];
} draws[] = {
    /* probabilities 0.4 0.05 0.3 0.15 0.1 0 */
    { "temperature 1", 1, 0, 0, { 0.4, 0.05, 0.3, 0.15, 0.1, 0 } },
    { "top_p 1 is all", 1, 0, 1, { 0.4, 0.05, 0.3, 0.15, 0.1, 0 } },
    { "top_k 9 is all", 1, 9, 0, { 0.4, 0.05, 0.3, 0.15, 0.1, 0 } },
    { "greedy", 0, 0, 0, { 1, 0, 0, 0, 0, 0 } },
    { "top_k 1", 1, 1, 0, { 1, 0, 0, 0, 0, 0 } },
    { "top_k 2", 1, 2, 0, { 4. / 7, 0, 3. / 7, 0, 0, 0 } },
    { "top_k 4", 1, 4, 0, { 8. / 19, 0, 6. / 19, 3. / 19, 2. / 19, 0 } },
    { "top_p 0.3", 1, 0, 0.3f, { 1, 0, 0, 0, 0, 0 } },
    { "top_p 0.5", 1, 0, 0.5f, { 4. / 7, 0, 3. / 7, 0, 0, 0 } },
    { "top_p 0.8", 1, 0, 0.8f, { 8. / 17, 0, 6. / 17, 3. / 17, 0, 0 } },
    { "top_p 0.9 of top_k 3", 1, 3, 0.9f, { 8. / 17, 0, 6. / 17, 3. / 17, 0, 0 } },
    { "top_p 0.5 of top_k 3", 1, 3, 0.5f, { 4. / 7, 0, 3. / 7, 0, 0, 0 } },
    { "temperature 0.5, top_k 2", 0.5f, 2, 0, { 16. / 25, 0, 9. / 25, 0, 0, 0 } },
};

static void test_draws(void)
{
    static const accel_sampling_t greedy = { .bytes = sizeof(greedy) },
                                  any = { sizeof(any), .temperature = 1 },
                                  three = { sizeof(three), .temperature = 1,
                                            .top_k = 3 },
                                  nearly_all = { sizeof(nearly_all), .temperature = 1,
                                                 .top_p = 0.99f };
    const float p[6] = { 0.4f, 0.05f, 0.3f, 0.15f, 0.1f, 0 };
    float logits[6];
    double share[6];
    int32_t rank[6];

    for (int i = 0; i < 6; i++)
        logits[i] = logf(p[i]) + 3.0f; /* the last one: minus infinity */
    for (size_t c = 0; c < ACCEL_ARRAY_SIZE(draws); c++) {
        const accel_sampling_t o = { sizeof(o), .temperature = draws[c].temperature,
                                     .top_k = draws[c].top_k, .top_p = draws[c].top_p };
        double far = 0;

        shares(logits, 6, &o, share);
        for (int i = 0; i < 6; i++)
            far = fmax(far, fabs(share[i] - draws[c].share[i]));
        tap_ok(far < 1.1e-4, "%s: shares, off by %.1e", draws[c].what, far);
    }
    for (int i = 0; i < 6; i++)
        logits[i] = 2.0f;
    shares(logits, 6, &three, share);
    tap_ok(fabs(share[0] - 1 / 3.) < 1e-3 && fabs(share[2] - 1 / 3.) < 1e-3 &&
               share[3] == 0,
           "of equal tokens the first ones are kept");
    shares(logits, 6, &nearly_all, share);
    tap_ok(fabs(share[0] - 1 / 6.) < 1e-3 && fabs(share[5] - 1 / 6.) < 1e-3,
           "and all of them for the last hundredth");
    logits[0] = -INFINITY;
    tap_is_int(causal_draw(logits, 6, &any, 0.0, rank), 1,
               "the smallest number draws no token that is impossible");
    logits[4] = NAN;
    tap_is_int(causal_draw(logits, 6, &greedy, 0.5, rank), -1,
               "no token from a logit that is no number");
    for (int i = 0; i < 6; i++)
        logits[i] = -INFINITY;
    tap_is_int(causal_draw(logits, 6, &greedy, 0.5, rank), -1,
               "nor where nothing is possible");
}

struct seen {
    int32_t token[40];
    int count, end;
};

static int see(void *user, int32_t token)
{
    struct seen *s = user;

    s->token[s->count++] = token;
    return s->count == s->end;
}

static void test_ends(void)
{
    const int32_t prompt[3] = { 1, 2, 3 };
    struct seen seen = { .end = 4 };
    accel_sampling_t o = { sizeof(o), .temperature = 1.0f, .seed = 7 };
    int32_t a[40], b[40];
    accel_error_t err = { 0 };
    struct module_rig k;
    int at = 0;

    if (!tap_ok(rig_open(&k, &small, ACCEL_F32, 2), "open"))
        return;
    tap_is_int(accel_generate(k.model, prompt, 3, a, 40, &o, &err), 0, "generate");
    accel_generate(k.model, prompt, 3, b, 40, &o, &err);
    tap_ok(!memcmp(a, b, sizeof(a)), "same seed, same tokens");
    o.seed = 8;
    accel_generate(k.model, prompt, 3, b, 40, &o, &err);
    tap_ok(memcmp(a, b, sizeof(a)) != 0, "other seed, other tokens");
    o.seed = 7;
    o.token = see;
    o.user = &seen;
    accel_generate(k.model, prompt, 3, b, 40, &o, &err);
    tap_ok(seen.count == 4 && !memcmp(seen.token, a, 4 * sizeof(*a)) &&
               !memcmp(b, a, 4 * sizeof(*a)) && b[4] == -1 && b[39] == -1,
           "the callback sees each token and ends the text");
    o.token = NULL;
    o.stop = &a[11];
    o.stop_count = 1;
    while (a[at] != a[11])
        at++;
    accel_generate(k.model, prompt, 3, b, 40, &o, &err);
    tap_ok(b[at] == a[11] && b[at + 1] == -1 && b[39] == -1,
           "a stop token ends the text and is its last");
    seen = (struct seen){ .end = 40 };
    o.token = see;
    o.user = &seen;
    o.stop = (int32_t[]){ a[11], 1000 };
    o.stop_count = 2;
    accel_generate(k.model, prompt, 3, b, 40, &o, &err);
    tap_ok(b[at] == a[11] && b[at + 1] == -1 && seen.count == at + 1,
           "so does one of two, and the callback sees it");
    tap_ok(k.g.recording && k.g.training, "recording and training are as they were");
    tap_is_int(accel_generate(k.model, prompt, 3, b, 0, &o, &err), 0, "no token");
    tap_is_int((long long)k.r.faults, 0, "residency protocol");
    module_rig_close(&k);
}

/* Where all tokens are alike, the number that is drawn is the token: of (seed,
 * position). */
static void test_numbers(void)
{
    const accel_sampling_t o = { sizeof(o), .temperature = 1.0f, .seed = 7 };
    const int32_t prompt[2] = { 1, 2 };
    accel_error_t err = { 0 };
    int32_t out[40];
    int wrong = 0;
    struct module_rig k;

    if (!tap_ok(rig_open(&k, &small, ACCEL_F32, 1), "open"))
        return;
    for (int u = 0; u < k.units.count; u++)
        memset(k.r.master[u], 0, (size_t)k.units.unit[u].elems * sizeof(float));
    resident_refresh(&k.r);
    tap_is_int(accel_generate(k.model, prompt, 2, out, 40, &o, &err), 0, "generate");
    for (int i = 0; i < 40; i++) {
        uint32_t r[4];

        rng_block(o.seed, 0, (uint64_t)(2 + i), r);
        wrong += out[i] != (int)((double)r[0] * 0x1p-32 * small.vocab);
    }
    tap_is_int(wrong, 0, "every position has a number of its own");
    module_rig_close(&k);
}

/* What it says of n tokens of a prompt, of a module and of sampling. */
static void refused(struct module_rig *k, accel_module_t *m, const int32_t *prompt,
                    int n, accel_sampling_t o, const char *text)
{
    accel_error_t err = { 0 };
    int32_t out[9] = { 55 };

    o.bytes = sizeof(o);
    tap_ok(accel_generate(m, prompt, n, out, 9, &o, &err) == ACCEL_EINVAL &&
               strstr(err.text, text) && out[0] == 55 && k->g.recording,
           "refused: %s", err.text);
}

static void test_misuse(void)
{
    static const struct {
        accel_sampling_t o;
        const char *text;
    } rows[] = {
        { { .temperature = -1 }, "temperature -1" },
        { { .temperature = NAN }, "temperature" },
        { { .temperature = INFINITY }, "temperature" },
        { { .top_p = NAN }, "top_p" },
        { { .top_p = 1.5f }, "top_p 1.5" },
        { { .top_k = -1 }, "top_k -1" },
        { { .stop_count = -1 }, "invalid stop_count -1" },
        { { .stop_count = 1 }, "stop is NULL" },
    };
    const accel_sampling_t plain = { .bytes = 0 };
    const int32_t prompt[2] = { 96, 97 };
    accel_error_t err = { 0 };
    int32_t out[2];
    struct module_rig k;

    if (!tap_ok(rig_open(&k, &small, ACCEL_F32, 1), "open"))
        return;
    k.g.depth++;
    refused(&k, k.model, prompt, 1, plain, "inside the forward");
    k.g.depth--;
    refused(&k, k.model, prompt, 0, plain, "prompt of 0 tokens");
    refused(&k, k.model, NULL, 1, plain, "prompt of 1 tokens");
    refused(&k, k.model, prompt, 2, plain, "prompt token 1 is 97");
    refused(&k, k.model, (int32_t[]){ 0, -1 }, 2, plain, "prompt token 1 is -1");
    refused(&k, k.model->child, prompt, 1, plain, "not a causal model");
    refused(&k, NULL, prompt, 1, plain, "not a causal model");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        refused(&k, k.model, prompt, 1, rows[i].o, rows[i].text);
    for (int u = 0; u < k.units.count; u++)
        for (int64_t i = 0; i < k.units.unit[u].elems; i++)
            k.r.master[u][i] = NAN;
    resident_refresh(&k.r);
    tap_is_int(accel_generate(k.model, prompt, 1, out, 2, NULL, &err), ACCEL_EDIVERGED,
               "weights that are no numbers: %s", err.text);
    tap_ok(k.g.recording && k.g.training, "recording and training are as they were");
    module_rig_close(&k);
}

int main(void)
{
    test_greedy(ACCEL_F32, 2);
    test_greedy(ACCEL_F32, 3);
    test_greedy(ACCEL_BF16, 2);
    test_greedy(ACCEL_F16, 2);
    test_context_of_one();
    test_draws();
    test_ends();
    test_numbers();
    test_misuse();
    return tap_done();
}
