/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2: learned positions, one matmul for queries, keys and values, a plain MLP, a
 * tied head. Radford et al. (2019). Parameters are named as in Hugging Face's
 * checkpoints, but linear weights are [out, in].
 */
#include "models/gpt2.h"

#include <math.h>

#include "models/decoder.h"

/* State of the root; cfg has its defaults filled in. */
struct gpt2 {
    struct decoder decoder;
    accel_gpt2_t cfg;
};

static const accel_class_t root_class = { "GPT2", decoder_forward,
                                          sizeof(struct gpt2) };
static const accel_class_t block_class = { "GPT2Block", block_forward,
                                           sizeof(struct block) };
static const accel_class_t attention_class = { "GPT2Attention", block_attention_forward,
                                               0 };
static const accel_class_t mlp_class = { "GPT2MLP", block_mlp_forward, 0 };

/* Replaces the zeros of the config. For a width too large to multiply, hidden stays
 * 0, which is refused. */
static accel_gpt2_t gpt2_defaults(accel_gpt2_t c)
{
    if (!c.hidden && c.width <= INT32_MAX / 4)
        c.hidden = 4 * c.width;
    if (!(c.norm_eps > 0))
        c.norm_eps = 1e-5f;
    if (c.activation == ACCEL_ACT_NONE)
        c.activation = ACCEL_ACT_GELU;
    return c;
}

/* Each block adds twice to the residual stream. Scaling down the projections that do
 * keeps its variance at the start. */
static struct block_table gpt2_blocks(const accel_gpt2_t *c)
{
    return (struct block_table){
        .cls = &block_class,
        .path = "h.",
        .layers = c->layers,
        .width = c->width,
        .hidden = c->hidden,
        .heads = c->heads,
        .causal = true,
        .norm = layer_layernorm,
        .norms = { "ln_1", "ln_2" },
        .norm_eps = c->norm_eps,
        .attn_dropout = c->attn_dropout,
        .resid_dropout = c->resid_dropout,
        .residual_deviation = LAYER_DEVIATION / sqrtf(2.0f * (float)c->layers),
        .attention = { "attn", &attention_class, .q = "c_attn", .out = "c_proj",
                       .qkv_bias = LAYER_BIAS, .out_bias = LAYER_BIAS },
        .mlp = { "mlp", &mlp_class, .up = "c_fc", .down = "c_proj", .bias = LAYER_BIAS,
                 .act = c->activation },
    };
}

accel_module_t *gpt2_new(struct graph *g, const accel_gpt2_t *cfg, accel_error_t *err)
{
    struct decoder_table decoder = { .model = "gpt2",
                                     .tokens = "wte",
                                     .positions = "wpe",
                                     .norm = "ln_f",
                                     .tied = true };
    struct block_table blocks;
    accel_module_t *m;
    accel_gpt2_t c;

    if (!cfg)
        return layer_unsized(decoder.model, err);
    c = gpt2_defaults(*cfg);
    decoder.vocab = c.vocab;
    decoder.context = c.context;
    decoder.embd_dropout = c.embd_dropout;
    blocks = gpt2_blocks(&c);
    m = decoder_new(g, &root_class, &decoder, &blocks, err);
    if (m)
        ((struct gpt2 *)accel_module_state(m))->cfg = c;
    return m;
}

const accel_gpt2_t *gpt2_config(const accel_module_t *model)
{
    if (!model || model->cls != &root_class)
        return NULL;
    return &((const struct gpt2 *)model->state)->cfg;
}
