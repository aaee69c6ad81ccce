/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama: RMSNorm, rotary positions, grouped keys and values, a gated MLP. Touvron et
 * al., "LLaMA" (2023); the grouped heads and the scaled rotation of Llama 3 are those
 * of Hugging Face's config.json. Linear weights are [out, in].
 */
#include "models/llama.h"

#include "models/decoder.h"

/* State of the root; cfg has its defaults filled in. */
struct llama {
    struct decoder decoder;
    accel_llama_t cfg;
};

static const accel_class_t root_class = { "LlamaForCausalLM", decoder_forward,
                                          sizeof(struct llama) };
static const accel_class_t layer_class = { "LlamaDecoderLayer", block_forward,
                                           sizeof(struct block) };
static const accel_class_t attention_class = { "LlamaAttention",
                                               block_attention_forward, 0 };
static const accel_class_t mlp_class = { "LlamaMLP", block_mlp_forward, 0 };

/* Replaces the zeros of the config: as many key heads as heads, no wider than width. */
static accel_llama_t llama_defaults(accel_llama_t c)
{
    if (!c.kv_heads)
        c.kv_heads = c.heads;
    if (!c.head_width && c.heads > 0)
        c.head_width = c.width / c.heads;
    if (!(c.norm_eps > 0))
        c.norm_eps = 1e-6f;
    if (c.activation == ACCEL_ACT_NONE)
        c.activation = ACCEL_ACT_SILU;
    return c;
}

static struct block_table llama_blocks(const accel_llama_t *c)
{
    enum layer_bias bias = c->attention_bias ? LAYER_BIAS : LAYER_PLAIN;

    return (struct block_table){
        .cls = &layer_class,
        .path = "model.layers.",
        .layers = c->layers,
        .width = c->width,
        .hidden = c->hidden,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_width = c->head_width,
        .causal = true,
        .norm = layer_rmsnorm,
        .norms = { "input_layernorm", "post_attention_layernorm" },
        .norm_eps = c->norm_eps,
        .rotary = true,
        .rope = c->rope,
        .attn_dropout = c->attn_dropout,
        .attention = { "self_attn", &attention_class, .q = "q_proj", .k = "k_proj",
                       .v = "v_proj", .out = "o_proj", .qkv_bias = bias,
                       .out_bias = bias },
        .mlp = { "mlp", &mlp_class, .gate = "gate_proj", .up = "up_proj",
                 .down = "down_proj", .bias = c->mlp_bias ? LAYER_BIAS : LAYER_PLAIN,
                 .act = c->activation },
    };
}

accel_module_t *llama_new(struct graph *g, const accel_llama_t *cfg, accel_error_t *err)
{
    struct decoder_table decoder = { .model = "llama",
                                     .tokens = "model.embed_tokens",
                                     .norm = "model.norm",
                                     .head = "lm_head" };
    struct block_table blocks;
    accel_module_t *m;
    accel_llama_t c;

    if (!cfg)
        return layer_unsized(decoder.model, err);
    c = llama_defaults(*cfg);
    decoder.vocab = c.vocab;
    decoder.context = c.context;
    decoder.tied = c.tied;
    blocks = llama_blocks(&c);
    m = decoder_new(g, &root_class, &decoder, &blocks, err);
    if (m)
        ((struct llama *)accel_module_state(m))->cfg = c;
    return m;
}

const accel_llama_t *llama_config(const accel_module_t *model)
{
    if (!model || model->cls != &root_class)
        return NULL;
    return &((const struct llama *)model->state)->cfg;
}
