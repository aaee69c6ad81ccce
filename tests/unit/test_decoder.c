/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks.c and decoder.c make of the tables of gpt2, llama and bert: which op runs
 * in which module, in which order; first values; sizes that do not fit. Sums of
 * gradients and dropout masks depend on that order, so it may not change.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/model_config.h"
#include "tensor/tape.h"
#include "tests/tap.h"
#include "tests/world/module_rig.h"

enum { BATCH = 2, TIME = 3, VOCAB = 7 };

static const accel_model_config_t gpt2 = { .model_type = "gpt2",
                                           .layers = 1,
                                           .heads = 2,
                                           .width = 8,
                                           .context = TIME,
                                           .vocab = VOCAB,
                                           .resid_dropout = 0.1f,
                                           .embd_dropout = 0.1f,
                                           .attn_dropout = 0.1f };
static const accel_model_config_t llama = { .model_type = "llama",
                                            .layers = 1,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .width = 16,
                                            .hidden = 12,
                                            .vocab = VOCAB,
                                            .context = TIME,
                                            .attn_dropout = 0.1f };
static const accel_model_config_t bert = { .model_type = "bert",
                                           .layers = 1,
                                           .heads = 2,
                                           .width = 8,
                                           .hidden = 12,
                                           .vocab = VOCAB,
                                           .context = TIME,
                                           .resid_dropout = 0.1f,
                                           .attn_dropout = 0.1f,
                                           .head = ACCEL_HEAD_MASKED_LM };

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

/* What a device is told of the op at work, for failures that it reports late; "-": it
 * belongs to no module, whose names may go. */
static char marks[4096];

static void note_mark(const struct backend *be, const struct backend_mark *mark)
{
    const size_t len = strlen(marks);

    (void)be;
    if (mark)
        snprintf(marks + len, sizeof(marks) - len, "%s%s %s\n",
                 mark->backward ? "back " : "", mark->op, mark->path);
    else
        snprintf(marks + len, sizeof(marks) - len, "-");
}

/* Is each line of `ops` among the marks? Ops that do nothing are told, too. */
static bool told_in_order(const char *ops)
{
    const char *at = marks;

    for (size_t n; *ops && at; ops += n) {
        n = strcspn(ops, "\n") + 1;
        while (at && strncmp(at, ops, n))
            at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    }
    return at != NULL;
}

/* The device notes what it is told. */
static bool rig_open(struct module_rig *k)
{
    if (!module_rig_open(k, ACCEL_F32, 1))
        return false;
    k->be->mark = note_mark;
    return true;
}

/* The parameters of the model get values. */
static bool rig_prepare(struct module_rig *k)
{
    if (!module_rig_fill(k, true, NULL))
        return false;
    k->g.recording = k->g.training = true;
    graph_reset(&k->g);
    k->g.draws.batch = BATCH;
    return true;
}

static void rig_close(struct module_rig *k)
{
    marks[0] = '\0';
    module_rig_close(k);
    tap_is_str(marks, "-", "a graph that is closed is told to the device");
}

/* A forward on n inputs of ones, which are ids, segments, a mask and targets alike. */
static accel_tensor_t *ones_forward(struct module_rig *k, int n)
{
    accel_tensor_t *in[5] = { NULL };

    for (int i = 0; i < n; i++) {
        in[i] = graph_tensor(&k->g, ACCEL_I32, 2, (int64_t[]){ BATCH, TIME });
        for (int e = 0; in[i] && e < BATCH * TIME; e++)
            ((int32_t *)in[i]->data)[e] = 1;
    }
    return accel_call(k->model, in, n);
}

static void test_ops(struct module_rig *k, int inputs, const char *name,
                     const char *want)
{
    char got[2048] = "";
    accel_tensor_t *loss = NULL;
    accel_error_t err = { 0 };
    size_t len = 0;

    if (rig_prepare(k)) {
        marks[0] = '\0';
        loss = ones_forward(k, inputs);
    }
    if (!tap_ok(loss != NULL, "%s: forward: %s", name, k->g.error.text))
        return;
    tap_ok(told_in_order(want), "%s: the device is told each of its ops", name);
    for (int i = 0; i < tape_length(&k->g) && len < sizeof(got); i++)
        len += (size_t)snprintf(got + len, sizeof(got) - len, "%s %s\n",
                                tape_at(&k->g, i)->op, tape_at(&k->g, i)->path);
    tap_is_str(got, want, "%s: its ops in their modules and order", name);
    marks[0] = '\0';
    graph_backward(&k->g, loss, 1, &err);
    tap_ok(!strncmp(marks, "back cross_entropy \n", 20) && !strchr(marks, '-'),
           "%s: and each of the backward's", name);
    marks[0] = '\0';
    graph_reset(&k->g);
    tap_is_str(marks, "-", "%s: and that the micro-batch is over", name);
    tap_ok(!ones_forward(k, inputs + 1), "%s: an input too many is refused", name);
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

/* Each change makes a model that cannot be built. */
static void test_refused(struct module_rig *k)
{
    static const struct {
        accel_model_config_t cfg;
        const char *text;
    } cases[] = {
#define LLAMA(...) { .model_type = "llama", .layers = 1, __VA_ARGS__ }
        { LLAMA(.heads = 4, .kv_heads = 3, .width = 16, .hidden = 8),
          "llama: 4 heads are not a multiple of 3 key heads" },
        { LLAMA(.heads = 4, .width = 12, .hidden = 8),
          "llama: rotary positions need an even head width, not 3" },
        { LLAMA(.heads = 2, .head_width = 1 << 30, .width = 8, .hidden = 8),
          "llama: 2 heads of 1073741824 are too wide" },
        { LLAMA(.heads = 2, .width = 8, .hidden = 8),
          "llama: invalid sizes: vocab 0, context 0" },
        { LLAMA(.heads = 2, .width = 8),
          "llama: invalid sizes: layers 1, heads 2, key heads 2, head width 4, width "
          "8, hidden 0" },
        { LLAMA(.embd_dropout = 0.5f),
          "llama: embd_dropout is set, which the family does not have" },
        { LLAMA(.labels = 2), "llama: labels is set, which the family does not have" },
        { { .model_type = "gpt2", .rope = { .factor = 2, .kind = ACCEL_ROPE_LINEAR } },
          "gpt2: rope.kind is set, which the family does not have" },
        { { .model_type = "bert", .kv_heads = 1 },
          "bert: kv_heads is set, which the family does not have" },
        { { .model_type = "bert", .head = (accel_model_head_t)3 },
          "bert: the family has no head 3" },
        { LLAMA(.head = ACCEL_HEAD_CLASSIFY), "llama: the family has no head 2" },
        { { .model_type = "t5" }, "accel does not support the model_type 't5'" },
        { { .layers = 1 }, "accel does not support the model_type ''" },
    };
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        tap_ok(!model_new(&k->g, &cases[i].cfg, &err), "no such model");
        tap_is_str(err.text, cases[i].text, "and why");
    }
    tap_is_str(err.hint, "use a gpt2, llama or bert model", "which types there are");
}

/* Every size of every model that is not at least 1 is refused alone; 0 may stand for a
 * default. */
static void test_each_size(struct module_rig *k)
{
    static const struct {
        const accel_model_config_t *cfg;
        const char *name;
        size_t at;
        bool zero; /* is refused, too */
    } rows[] = {
#define SIZE(model, name, zero)                                                        \
    &model, #name, offsetof(accel_model_config_t, name), zero
        { SIZE(gpt2, layers, true) },     { SIZE(gpt2, heads, true) },
        { SIZE(gpt2, width, true) },      { SIZE(gpt2, context, true) },
        { SIZE(gpt2, vocab, true) },      { SIZE(gpt2, hidden, false) },
        { SIZE(llama, layers, true) },    { SIZE(llama, heads, true) },
        { SIZE(llama, kv_heads, false) }, { SIZE(llama, width, true) },
        { SIZE(llama, hidden, true) },    { SIZE(llama, vocab, true) },
        { SIZE(llama, context, true) },   { SIZE(llama, head_width, false) },
        { SIZE(bert, layers, true) },     { SIZE(bert, heads, true) },
        { SIZE(bert, width, true) },      { SIZE(bert, hidden, true) },
        { SIZE(bert, vocab, true) },      { SIZE(bert, context, true) },
        { SIZE(bert, types, false) },     { SIZE(bert, labels, false) },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        for (int value = -1; value <= 1; value++) {
            const bool is_llama = rows[i].cfg == &llama;
            const bool refused = value < 0 || (value == 0 && rows[i].zero);
            accel_model_config_t c = *rows[i].cfg;
            accel_error_t err = { 0 };
            accel_module_t *m;

            /* 1: which fits everywhere but for a head of rotary positions */
            if (value == 1 && is_llama && strstr(rows[i].name, "width"))
                continue;
            memcpy((char *)&c + rows[i].at, &value, sizeof(value));
            if (value == 1 && !strcmp(rows[i].name, "width"))
                c.heads = 1;
            if (value == 1 && !strcmp(rows[i].name, "heads") && is_llama)
                c.kv_heads = 1;
            m = model_new(&k->g, &c, &err);
            tap_ok(refused ? !m && err.code == ACCEL_EINVAL : m && !err.code,
                   "%s, %s %d: %s", c.model_type, rows[i].name, value, err.text);
            nn_module_free(m);
        }
}

int main(void)
{
    static const struct {
        const accel_model_config_t *cfg;
        int inputs;
        const char *ops;
    } models[] = { { &gpt2, 2, gpt2_ops },
                   { &llama, 2, llama_ops },
                   { &bert, 4, bert_ops } };
    struct module_rig k;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(models); i++) {
        if (!tap_ok(rig_open(&k), "open"))
            return tap_done();
        if (i == 0) {
            test_refused(&k);
            test_each_size(&k);
        }
        k.model = model_new(&k.g, models[i].cfg, NULL);
        if (i == 0)
            test_first_values(k.model);
        if (i == 2)
            tap_is_int(accel_param_find(k.model,
                                        "bert.embeddings.token_type_embeddings.weight")
                           ->dim[0],
                       2, "token types, where no number is given");
        test_ops(&k, models[i].inputs, models[i].cfg->model_type, models[i].ops);
        rig_close(&k);
    }
    return tap_done();
}
