/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2: learned positions, one matmul for queries, keys and values, a plain MLP, a
 * tied head. Radford et al. (2019). Parameters are named as in Hugging Face's
 * checkpoints, but linear weights are [out, in].
 */
#include "models/decoder.h"
#include "models/family.h"

LAYER_CLASS(root_class, "GPT2", decoder_forward, sizeof(struct decoder));
LAYER_CLASS(block_class, "GPT2Block", block_forward, sizeof(struct block));
LAYER_CLASS(attention_class, "GPT2Attention", block_attention_forward, 0);
LAYER_CLASS(mlp_class, "GPT2MLP", block_mlp_forward, 0);

/* Each block adds twice to the residual stream. Scaling down the projections that do
 * keeps its variance at the start. */
static const struct block_table blocks = {
    .cls = &block_class,
    .path = "h.",
    .causal = true,
    .norm = layer_layernorm,
    .norms = { "ln_1", "ln_2" },
    .residual_scaled = true,
    .attention = { "attn", &attention_class, .q = "c_attn", .out = "c_proj",
                   .qkv_bias = LAYER_BIAS, .out_bias = LAYER_BIAS },
    .mlp = { "mlp", &mlp_class, .up = "c_fc", .down = "c_proj", .bias = LAYER_BIAS },
};

static const struct decoder_table decoder = {
    .tokens = "wte", .positions = "wpe", .norm = "ln_f", .tied = true
};

/* For a width too large to multiply, hidden stays 0, which is refused. */
static void gpt2_fill(accel_model_config_t *c)
{
    if (!c->hidden && c->width <= INT32_MAX / 4)
        c->hidden = 4 * c->width;
}

/* A size has a name of its own and the general one, which transformers takes where both
 * are there. n_inner null, which is usual, means 4 x width. */
static const struct model_key keys[] = {
    MODEL_KEY("n_layer", MODEL_SIZE, layers, 12, .before = "num_hidden_layers"),
    MODEL_KEY("n_head", MODEL_SIZE, heads, 12, .before = "num_attention_heads"),
    MODEL_KEY("n_embd", MODEL_SIZE, width, 768, .before = "hidden_size"),
    /* old files have n_ctx only */
    MODEL_KEY("n_positions", MODEL_SIZE, context, 1024,
              .before = "max_position_embeddings", .after = "n_ctx"),
    MODEL_KEY("vocab_size", MODEL_SIZE, vocab, 50257),
    MODEL_KEY("n_inner", MODEL_SIZE, hidden, 0),
    MODEL_KEY("resid_pdrop", MODEL_DROPOUT, resid_dropout, 0.1),
    MODEL_KEY("embd_pdrop", MODEL_DROPOUT, embd_dropout, 0.1),
    MODEL_KEY("attn_pdrop", MODEL_DROPOUT, attn_dropout, 0.1),
    MODEL_KEY("layer_norm_epsilon", MODEL_EPS, norm_eps, 1e-5),
    MODEL_KEY("activation_function", MODEL_ACTIVATION, activation, 0,
              .word = "gelu_new"),
    /* features that change the computation and that this library lacks */
    { .key = "scale_attn_weights", .kind = MODEL_ONLY, .otherwise = true },
    { .key = "scale_attn_by_inverse_layer_idx", .kind = MODEL_ONLY },
    { .key = "add_cross_attention", .kind = MODEL_ONLY },
    { .key = "tie_word_embeddings",
      .kind = MODEL_ONLY,
      .otherwise = true,
      .written = true,
      .cure = "use a model whose head is tied to its embedding" },
    { .key = NULL },
};

/* A head takes an equal part of the width. */
static void gpt2_read(struct hf_json *j, accel_model_config_t *c)
{
    hf_json_multiple(j, "n_embd", c->width, "n_head", c->heads);
}

#define SIZES(l, h, w)                                                                 \
    {                                                                                  \
        .layers = l, .heads = h, .width = w, .context = 1024, .vocab = 50257           \
    }

/* two names for each */
static const struct model_preset presets[] = {
    { "gpt2", SIZES(12, 12, 768) },
    { "gpt2-124M", SIZES(12, 12, 768) },
    { "gpt2-medium", SIZES(24, 16, 1024) },
    { "gpt2-355M", SIZES(24, 16, 1024) },
    { "gpt2-large", SIZES(36, 20, 1280) },
    { "gpt2-774M", SIZES(36, 20, 1280) },
    { "gpt2-xl", SIZES(48, 25, 1600) },
    { "gpt2-1558M", SIZES(48, 25, 1600) },
    { .name = NULL },
};

/* Its Conv1D stores [in, out]. Older files hold the causal mask as a buffer. */
const struct model_family gpt2_family = {
    .type = "gpt2",
    .word = "gpt",
    .example = "gpt2",
    .architectures = { { "GPT2LMHeadModel" } },
    .keys = keys,
    .presets = presets,
    .names = { .prefix = "transformer.",
               .heads = { "lm_head." },
               .transposed = { ".c_attn.weight", ".c_proj.weight", ".c_fc.weight" },
               .buffers = { ".attn.bias", ".attn.masked_bias" },
               .tied = { { "lm_head.weight", "wte.weight" } } },
    .root = &root_class,
    .decoder = &decoder,
    .blocks = &blocks,
    .inputs = 2,
    .fill = gpt2_fill,
    .read = gpt2_read,
    .build = decoder_new,
};
