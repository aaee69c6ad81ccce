/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama: RMSNorm, rotary positions, grouped keys and values, a gated MLP. Touvron et
 * al., "LLaMA" (2023); the grouped heads and the scaled rotation of Llama 3 are those
 * of Hugging Face's config.json. Linear weights are [out, in].
 */
#include "models/decoder.h"
#include "models/family.h"

LAYER_CLASS(root_class, "LlamaForCausalLM", decoder_forward, sizeof(struct decoder));
LAYER_CLASS(layer_class, "LlamaDecoderLayer", block_forward, sizeof(struct block));
LAYER_CLASS(attention_class, "LlamaAttention", block_attention_forward, 0);
LAYER_CLASS(mlp_class, "LlamaMLP", block_mlp_forward, 0);

static const struct block_table blocks = {
    .cls = &layer_class,
    .path = "model.layers.",
    .causal = true,
    .norm = layer_rmsnorm,
    .norms = { "input_layernorm", "post_attention_layernorm" },
    .rotary = true,
    .attention = { "self_attn", &attention_class, .q = "q_proj", .k = "k_proj",
                   .v = "v_proj", .out = "o_proj" },
    .mlp = { "mlp", &mlp_class, .gate = "gate_proj", .up = "up_proj",
             .down = "down_proj" },
};

static const struct decoder_table decoder = { .tokens = "model.embed_tokens",
                                              .norm = "model.norm",
                                              .head = "lm_head" };

/* As many key heads as heads, no wider than width. */
static void llama_fill(accel_model_config_t *c)
{
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (!c->head_width && c->heads > 0)
        c->head_width = c->width / c->heads;
}

static const struct model_key keys[] = {
    MODEL_KEY("num_hidden_layers", MODEL_SIZE, layers, 32),
    MODEL_KEY("num_attention_heads", MODEL_SIZE, heads, 32),
    /* absent: one per head, plain multi-head attention */
    MODEL_KEY("num_key_value_heads", MODEL_SIZE, kv_heads, 0,
              .like = offsetof(accel_model_config_t, heads)),
    MODEL_KEY("hidden_size", MODEL_SIZE, width, 4096),
    MODEL_KEY("head_dim", MODEL_SIZE, head_width, 0),
    MODEL_KEY("intermediate_size", MODEL_SIZE, hidden, 11008),
    MODEL_KEY("vocab_size", MODEL_SIZE, vocab, 32000),
    MODEL_KEY("max_position_embeddings", MODEL_SIZE, context, 2048),
    MODEL_KEY("rms_norm_eps", MODEL_EPS, norm_eps, 1e-6),
    MODEL_KEY("rope_theta", MODEL_ROPE, rope, 0),
    MODEL_KEY("attention_dropout", MODEL_DROPOUT, attn_dropout, 0),
    MODEL_KEY("hidden_act", MODEL_ACTIVATION, activation, 0, .word = "silu"),
    MODEL_KEY("tie_word_embeddings", MODEL_FLAG, tied, 0),
    MODEL_KEY("attention_bias", MODEL_FLAG, attention_bias, 0),
    MODEL_KEY("mlp_bias", MODEL_FLAG, mlp_bias, 0),
    { .key = NULL },
};

/* An absent head width divides the width. */
static void llama_read(struct hf_json *j, accel_model_config_t *c)
{
    if (!c->head_width)
        hf_json_multiple(j, "hidden_size", c->width, "num_attention_heads", c->heads);
    llama_fill(c);
    hf_json_multiple(j, "num_attention_heads", c->heads, "num_key_value_heads",
                     c->kv_heads);
    hf_json_multiple(j, "head_dim", c->head_width, "the pairs of the rotation,", 2);
}

/* Generations differ in vocabulary, rotary base and scaling, and tied heads. 3.1 and
 * 3.2 stretch the 8192 positions of their first training. */
#define LLAMA_2 .vocab = 32000, .rope = { .theta = 10000 }
#define LLAMA_3 .vocab = 128256, .rope = { .theta = 500000 }
#define STRETCHED(by)                                                                  \
    .vocab = 128256, .rope = { .theta = 500000,                                        \
                               .kind = ACCEL_ROPE_LLAMA3,                              \
                               .factor = by,                                           \
                               .low_freq_factor = 1,                                   \
                               .high_freq_factor = 4,                                  \
                               .original_context = 8192 }
#define LLAMA_31 STRETCHED(8)
#define LLAMA_32 STRETCHED(32), .tied = 1
#define SIZES(generation, l, h, kv, w, i, c)                                           \
    {                                                                                  \
        generation, .layers = l, .heads = h, .kv_heads = kv, .width = w,               \
                    .head_width = w / h, .hidden = i, .context = c, .norm_eps = 1e-5f  \
    }

static const struct model_preset presets[] = {
    { "tinyllama-1.1b", SIZES(LLAMA_2, 22, 32, 4, 2048, 5632, 2048) },
    { "llama-2-7b", SIZES(LLAMA_2, 32, 32, 32, 4096, 11008, 4096) },
    { "llama-2-13b", SIZES(LLAMA_2, 40, 40, 40, 5120, 13824, 4096) },
    { "llama-2-70b", SIZES(LLAMA_2, 80, 64, 8, 8192, 28672, 4096) },
    { "llama-3-8b", SIZES(LLAMA_3, 32, 32, 8, 4096, 14336, 8192) },
    { "llama-3-70b", SIZES(LLAMA_3, 80, 64, 8, 8192, 28672, 8192) },
    { "llama-3.1-8b", SIZES(LLAMA_31, 32, 32, 8, 4096, 14336, 131072) },
    { "llama-3.1-70b", SIZES(LLAMA_31, 80, 64, 8, 8192, 28672, 131072) },
    { "llama-3.1-405b", SIZES(LLAMA_31, 126, 128, 8, 16384, 53248, 131072) },
    { "llama-3.2-1b", SIZES(LLAMA_32, 16, 32, 8, 2048, 8192, 131072) },
    { "llama-3.2-3b", SIZES(LLAMA_32, 28, 24, 8, 3072, 8192, 131072) },
    { .name = NULL },
};

/* Where the head is not tied, lm_head is a parameter and the pair does not count. */
const struct model_family llama_family = {
    .type = "llama",
    .word = "llama",
    .example = "llama-3-8b",
    .architectures = { { "LlamaForCausalLM" } },
    .keys = keys,
    .presets = presets,
    .names = { .prefix = "model.",
               .heads = { "lm_head." },
               .buffers = { ".rotary_emb.inv_freq" },
               .tied = { { "lm_head.weight", "embed_tokens.weight" } } },
    .root = &root_class,
    .decoder = &decoder,
    .blocks = &blocks,
    .inputs = 2,
    .fill = llama_fill,
    .read = llama_read,
    .build = decoder_new,
};
