/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks.c and decoder.c make of the tables of gpt2, llama and bert: which op runs
 * in which module, in which order; first values; sizes that do not fit. Sums of
 * gradients and dropout masks depend on that order, so it may not change.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/device.h"
#include "nn/models/bert.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "tensor/tape.h"
#include "tests/tap.h"
#include "tests/unit/resident.h"

enum { BATCH = 2, TIME = 3, VOCAB = 7 };

struct rig {
    struct backend *be;
    struct graph g;
    struct units units;
    struct resident r;
};

static const accel_gpt2_t gpt2 = { .layers = 1,
                                   .heads = 2,
                                   .width = 8,
                                   .context = TIME,
                                   .vocab = VOCAB,
                                   .resid_dropout = 0.1f,
                                   .embd_dropout = 0.1f,
                                   .attn_dropout = 0.1f };
static const accel_llama_t llama = { .layers = 1,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .width = 16,
                                     .hidden = 12,
                                     .vocab = VOCAB,
                                     .context = TIME,
                                     .attn_dropout = 0.1f };
static const accel_bert_t bert = { .layers = 1,
                                   .heads = 2,
                                   .width = 8,
                                   .hidden = 12,
                                   .vocab = VOCAB,
                                   .context = TIME,
                                   .hidden_dropout = 0.1f,
                                   .attn_dropout = 0.1f,
                                   .head = ACCEL_BERT_MASKED_LM };

/* "op module", an entry of the tape each. */
static const char gpt2_ops[] = "embedding \n"
                               "dropout \n"
                               "layernorm h.0.ln_1\n"
                               "linear h.0.attn.c_attn\n"
                               "attention h.0.attn\n"
                               "linear h.0.attn.c_proj\n"
                               "dropout h.0.attn\n"
                               "add h.0\n"
                               "layernorm h.0.ln_2\n"
                               "linear h.0.mlp.c_fc\n"
                               "linear h.0.mlp.c_proj\n"
                               "dropout h.0.mlp\n"
                               "add h.0\n"
                               "layernorm ln_f\n"
                               "cross_entropy \n";
static const char llama_ops[] = "embedding model.embed_tokens\n"
                                "rmsnorm model.layers.0.input_layernorm\n"
                                "linear model.layers.0.self_attn.q_proj\n"
                                "rope model.layers.0.self_attn\n"
                                "linear model.layers.0.self_attn.k_proj\n"
                                "rope model.layers.0.self_attn\n"
                                "linear model.layers.0.self_attn.v_proj\n"
                                "attention model.layers.0.self_attn\n"
                                "linear model.layers.0.self_attn.o_proj\n"
                                "add model.layers.0\n"
                                "rmsnorm model.layers.0.post_attention_layernorm\n"
                                "linear model.layers.0.mlp.gate_proj\n"
                                "linear model.layers.0.mlp.up_proj\n"
                                "gated model.layers.0.mlp\n"
                                "linear model.layers.0.mlp.down_proj\n"
                                "add model.layers.0\n"
                                "rmsnorm model.norm\n"
                                "cross_entropy \n";
#define LAYER "bert.encoder.layer.0"
static const char bert_ops[] = "embedding \n"
                               "embedding bert.embeddings.token_type_embeddings\n"
                               "add \n"
                               "layernorm bert.embeddings.LayerNorm\n"
                               "dropout \n"
                               "linear " LAYER ".attention.self.value\n"
                               "linear " LAYER ".attention.self.key\n"
                               "linear " LAYER ".attention.self.query\n"
                               "attention " LAYER "\n"
                               "linear " LAYER ".attention.output.dense\n"
                               "dropout " LAYER "\n"
                               "add " LAYER "\n"
                               "layernorm " LAYER ".attention.output.LayerNorm\n"
                               "linear " LAYER ".intermediate.dense\n"
                               "linear " LAYER ".output.dense\n"
                               "dropout " LAYER "\n"
                               "add " LAYER "\n"
                               "layernorm " LAYER ".output.LayerNorm\n"
                               "linear cls.predictions.transform.dense\n"
                               "layernorm cls.predictions.transform.LayerNorm\n"
                               "cross_entropy \n";

static bool rig_open(struct rig *k, accel_error_t *err)
{
    memset(k, 0, sizeof(*k));
    return !backend_cpu_open(&k->be, 1, err) &&
           !graph_open(&k->g, k->be, ACCEL_F32, false, err);
}

/* The parameters of the model get values. */
static bool rig_prepare(struct rig *k, accel_module_t *model)
{
    if (!model || nn_units_build(model, true, NULL, &k->units, &k->g.error) ||
        resident_open(&k->r, &k->units, ACCEL_F32, 1))
        return false;
    k->g.residency = resident_residency(&k->r);
    k->g.recording = k->g.training = true;
    graph_reset(&k->g);
    k->g.draws.batch = BATCH;
    return true;
}

static void rig_close(struct rig *k, accel_module_t *model)
{
    resident_close(&k->r);
    units_free(&k->units);
    nn_module_free(model);
    graph_close(&k->g);
    backend_close(k->be);
}

/* A forward on n inputs of ones, which are ids, segments, a mask and targets alike. */
static accel_tensor_t *ones_forward(struct rig *k, accel_module_t *model, int n)
{
    accel_tensor_t *in[5] = { NULL };

    for (int i = 0; i < n; i++) {
        in[i] = graph_tensor(&k->g, ACCEL_I32, 2, (int64_t[]){ BATCH, TIME });
        for (int e = 0; in[i] && e < BATCH * TIME; e++)
            ((int32_t *)in[i]->data)[e] = 1;
    }
    return accel_call(model, in, n);
}

static void test_ops(struct rig *k, accel_module_t *model, int inputs, const char *name,
                     const char *want)
{
    char got[2048] = "";
    size_t len = 0;

    if (!tap_ok(rig_prepare(k, model) && ones_forward(k, model, inputs),
                "%s: forward: %s", name, k->g.error.text))
        return;
    for (int i = 0; i < tape_length(&k->g) && len < sizeof(got); i++)
        len += (size_t)snprintf(got + len, sizeof(got) - len, "%s %s\n",
                                tape_at(&k->g, i)->op, tape_at(&k->g, i)->path);
    tap_is_str(got, want, "%s: its ops in their modules and order", name);
    graph_reset(&k->g);
    tap_ok(!ones_forward(k, model, inputs + 1), "%s: an input too many is refused",
           name);
}

/* Of the weights that add to the residual stream, and of all others. */
static void test_first_values(accel_module_t *m)
{
    static const char *const scaled[] = { "h.0.attn.c_proj.weight",
                                          "h.0.mlp.c_proj.weight" };
    static const char *const plain[] = { "wte.weight", "wpe.weight",
                                         "h.0.attn.c_attn.weight",
                                         "h.0.mlp.c_fc.weight" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(scaled); i++)
        tap_is_close(accel_param_find(m, scaled[i])->init.scale, 0.02 / sqrt(2), 1e-6,
                     "%s begins smaller", scaled[i]);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(plain); i++)
        tap_is_close(accel_param_find(m, plain[i])->init.scale, 0.02, 1e-6, "%s",
                     plain[i]);
}

/* Each change makes a llama that cannot be built. */
static void test_refused(struct rig *k)
{
    static const struct {
        accel_llama_t cfg;
        const char *text;
    } cases[] = {
        { { .layers = 1, .heads = 4, .kv_heads = 3, .width = 16, .hidden = 8 },
          "llama: 4 heads are not a multiple of 3 key heads" },
        { { .layers = 1, .heads = 4, .width = 12, .hidden = 8 },
          "llama: rotary positions need an even head width, not 3" },
        { { .layers = 1, .heads = 2, .head_width = 1 << 30, .width = 8, .hidden = 8 },
          "llama: 2 heads of 1073741824 are too wide" },
        { { .layers = 1, .heads = 2, .width = 8, .hidden = 8 },
          "llama: invalid sizes: vocab 0, context 0" },
        { { .layers = 1, .heads = 2, .width = 8 },
          "llama: invalid sizes: layers 1, heads 2, key heads 2, head width 4, width "
          "8, hidden 0" },
    };
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        tap_ok(!llama_new(&k->g, &cases[i].cfg, &err), "no such llama");
        tap_is_str(err.text, cases[i].text, "and why");
    }
    tap_ok(!gpt2_new(&k->g, NULL, &err), "no sizes at all");
    tap_is_str(err.hint, "pass a struct accel_gpt2", "and what is wanted");
}

int main(void)
{
    accel_error_t err = { 0 };
    accel_module_t *m;
    struct rig k;

    if (!tap_ok(rig_open(&k, &err), "open: %s", err.text))
        return tap_done();
    test_refused(&k);
    m = gpt2_new(&k.g, &gpt2, &err);
    test_first_values(m);
    test_ops(&k, m, 2, "gpt2", gpt2_ops);
    rig_close(&k, m);
    rig_open(&k, &err);
    m = llama_new(&k.g, &llama, &err);
    test_ops(&k, m, 2, "llama", llama_ops);
    rig_close(&k, m);
    rig_open(&k, &err);
    m = bert_new(&k.g, &bert, &err);
    test_ops(&k, m, 4, "bert", bert_ops);
    rig_close(&k, m);
    return tap_done();
}
