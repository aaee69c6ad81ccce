/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_models.h: the modules and parameters that make up a model, and the models
 * that come with the library: GPT-2, Llama and BERT.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_MODELS_H
#define ACCEL_MODELS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- initial values -------------------------------------------------------------- */

typedef enum accel_init_kind {
    ACCEL_INIT_ZEROS = 0,
    ACCEL_INIT_ONES = 1,
    ACCEL_INIT_NORMAL = 2,   /* mean 0, standard deviation `scale` */
    ACCEL_INIT_UNIFORM = 3,  /* [-scale, scale) */
    ACCEL_INIT_CONSTANT = 4, /* `scale` */
} accel_init_kind_t;

typedef struct accel_init {
    accel_init_kind_t kind;
    float scale;
} accel_init_t;

/* ---- model: a tree of modules, forward only -------------------------------------- */

/* Called by accel_call, and by accel_prepare without values, to learn shapes and memory
 * use. Returns the output, or NULL after an error, which is already recorded. */
typedef accel_tensor_t *(*accel_forward_f)(accel_module_t *m, accel_tensor_t *const *in,
                                           int n);

typedef struct accel_class {
    const char *name; /* class name, matched by TRANSFORMER_BASED_WRAP */
    accel_forward_f forward;
    size_t state_bytes; /* zeroed data of the program per module; freed with the tree */
} accel_class_t;

/* Adds a module under `parent` (NULL: the root of a new tree; a run holds up to 16
 * trees). Names are joined with dots: "h.3.attn". The run owns the module; `cls` must
 * outlive the run. NULL on failure, which accel_prepare reports: ACCEL_EINVAL (name,
 * class). */
accel_module_t *accel_module_new(accel_t *run, const accel_class_t *cls,
                                 accel_module_t *parent, const char *name);
/* The module's state_bytes, initially zero; the program may use them until
 * accel_close. */
void *accel_module_state(accel_module_t *m);
accel_t *accel_module_run(accel_module_t *m); /* the run it belongs to */
/* Declares a parameter of shape dims[ndim] (1 to 4 sizes, each at least 1), which has
 * no data before accel_prepare. Its initial values depend only on (seed, full name,
 * element index), never on the world size. The master copy is float32; ops see it in
 * the compute dtype and accept it only where their comment says so. NULL on failure, as
 * above: ACCEL_EINVAL (name, sizes). */
accel_tensor_t *accel_param(accel_module_t *m, const char *name, int ndim,
                            const int64_t *dims, accel_init_t init);
/* Declares a tensor of shape dims[ndim] (float32, bfloat16 or int32) that is not
 * trained. It is whole on every rank, stored in checkpoints, and an input of ops like
 * an activation. From accel_prepare on it has data: zeros, ones or a constant;
 * accel_tensor_write replaces them. The program must write the same values on all
 * ranks. NULL on failure, as accel_param. */
accel_tensor_t *accel_buffer(accel_module_t *m, const char *name, accel_dtype_t dtype,
                             int ndim, const int64_t *dims, accel_init_t init);
/* Gives `param` of another module a second name under `m`, "m.name": tied weights. It
 * stays one parameter with one gradient; checkpoints store it once, under its first
 * name. Returns `param`; NULL on failure, as accel_param. */
accel_tensor_t *accel_tie(accel_module_t *m, const char *name, accel_tensor_t *param);
/* The module at `path` ("h.3.attn"; "": `root` itself, if it is the root of the tree),
 * or the parameter with that full name, first or second. NULL: there is none. */
accel_module_t *accel_module_find(accel_module_t *root, const char *path);
accel_tensor_t *accel_param_find(accel_module_t *root, const char *name);
/* on: backward runs the forward of `m` again instead of keeping its activations
 * (activation checkpointing). This saves memory, takes about a third more time, and
 * gives the same bits. Config key fsdp_activation_checkpointing turns it on for every
 * unit. Forwards must not have side effects that a second run would change. */
void accel_module_recompute(accel_module_t *m, int on);
/* Sets the compute dtype of `m` and all modules below it where it differs from the
 * run's: "fp32", "bf16", "fp16" (in runs with mixed_precision: fp16) or, for linears of
 * runs in fp8, "fp8". Parameters are gathered in that dtype. Inputs in the caller's
 * dtype are cast to it, and results in it are cast back, except a loss (one float32).
 * "+output:TYPE" casts the result to TYPE instead. "+reduce:TYPE" sends gradients in
 * TYPE where they are sharded: "fp32+output:fp32". A matching rule of
 * accel.precision.modules wins. Before accel_prepare. Errors: A0605, A0609;
 * accel_prepare refuses types that the run does not have (A0997). Not collective, but
 * must be the same on all ranks. */
accel_status_t accel_module_precision(accel_module_t *m, const char *precision,
                                      accel_error_t *err);
/* on: forwards record nothing for backward and apply no dropout, as in accel_evaluate,
 * until it is turned off. Each call of this function frees the tensors made since the
 * last accel_next. */
void accel_inference_mode(accel_t *run, int on);
/* Runs the module's forward on `in[n]` (n <= 8 for a recomputed module). Tensors that
 * the forward does not return are freed. The output lives as long as the caller's own
 * tensors, at most until accel_step or the next accel_next. NULL on failure: the
 * forward's first error. After accel_prepare it is collective: ranks must call the same
 * modules in the same order. */
accel_tensor_t *accel_call(accel_module_t *m, accel_tensor_t *const *in, int n);

/* ---- models that come with the library ------------------------------------------- */

/* Sizes are required; everything else may be 0, which means the default of the model's
 * authors (given in the comment). The readers of config.json refuse models that these
 * structs cannot describe. */
typedef struct accel_gpt2 {
    int layers, heads, width; /* width % heads == 0 */
    int context;              /* longest sequence */
    int vocab;
    int hidden;                    /* of the MLP; 0: 4 * width */
    float resid_dropout;           /* after each projection into the residual stream */
    float embd_dropout;            /* after the embeddings */
    float attn_dropout;            /* of the attention's probabilities */
    float norm_eps;                /* 0: 1e-5 */
    accel_activation_t activation; /* 0: ACCEL_ACT_GELU */
} accel_gpt2_t;

typedef struct accel_llama {
    int layers, heads;
    int kv_heads; /* heads % kv_heads == 0; 0: heads */
    int width;
    int head_width; /* 0: width / heads */
    int hidden;     /* of the gated MLP */
    int vocab;
    int context;    /* longest sequence */
    float norm_eps; /* 0: 1e-6 */
    accel_rope_t rope;
    float attn_dropout;
    accel_activation_t activation; /* of the gate; 0: ACCEL_ACT_SILU */
    int tied;                      /* 1: the head is the input embedding */
    int attention_bias, mlp_bias;  /* 1: with biases */
} accel_llama_t;

typedef enum accel_bert_head {
    ACCEL_BERT_NONE = 0,      /* the last hidden states */
    ACCEL_BERT_MASKED_LM = 1, /* tied to the word embedding */
    ACCEL_BERT_CLASSIFY = 2,  /* pooler and `labels` classes of the whole sequence */
} accel_bert_head_t;

typedef struct accel_bert {
    int layers, heads, width; /* width % heads == 0 */
    int hidden;               /* of the MLP */
    int vocab;
    int context;    /* longest sequence */
    int types;      /* of segments; 0: 2 */
    float norm_eps; /* 0: 1e-12 */
    float hidden_dropout, attn_dropout;
    float classifier_dropout;
    accel_activation_t activation; /* 0: ACCEL_ACT_GELU_ERF */
    accel_bert_head_t head;
    int labels; /* of ACCEL_BERT_CLASSIFY; 0: 2 */
} accel_bert_t;

/* Sizes of a published model by its name: "gpt2" (124M) ... "gpt2-xl"; "llama-2-7b",
 * "llama-3-8b", "llama-3.2-1b" ...; "bert-base-uncased" ... (a masked language model).
 * Dropout is 0. ACCEL_EINVAL for a name that is not in the table, with the nearest
 * one. */
accel_status_t accel_gpt2_preset(const char *name, accel_gpt2_t *out,
                                 accel_error_t *err);
accel_status_t accel_llama_preset(const char *name, accel_llama_t *out,
                                  accel_error_t *err);
accel_status_t accel_bert_preset(const char *name, accel_bert_t *out,
                                 accel_error_t *err);
/* The same from the config.json of a Hugging Face model; `path` is that file or its
 * directory. Keys that do not change the computation are ignored. An unsupported key
 * that does is refused, with its name and value. Not collective. Errors: ACCEL_ENOENT,
 * ACCEL_ECORRUPT (not JSON, a missing key, a value of the wrong type),
 * ACCEL_EUNSUPPORTED, ACCEL_EMISMATCH (another model_type). */
accel_status_t accel_gpt2_read_config(const char *path, accel_gpt2_t *out,
                                      accel_error_t *err);
accel_status_t accel_llama_read_config(const char *path, accel_llama_t *out,
                                       accel_error_t *err);
accel_status_t accel_bert_read_config(const char *path, accel_bert_t *out,
                                      accel_error_t *err);
/* Creates a GPT-2 with tied input and output embedding. Forward takes {ids, targets},
 * int32 [B, T], and returns the loss; with {ids} alone, the logits of the last
 * position, float32 [B, vocab], without a backward. Parameter names are those of
 * Hugging Face's GPT-2 ("h.0.attn.c_attn.weight"); linear weights are [out, in].
 * Like any tree, this model and those below are created before accel_prepare and owned
 * by the run. NULL on failure, also in `err`: ACCEL_EINVAL (sizes that do not fit). */
accel_module_t *accel_gpt2_new(accel_t *run, const accel_gpt2_t *cfg,
                               accel_error_t *err);
/* Creates a Llama. Forward takes {ids, targets} or {ids}, as GPT-2's. Parameter names
 * are those of Hugging Face's LlamaForCausalLM
 * ("model.layers.0.self_attn.q_proj.weight"). */
accel_module_t *accel_llama_new(accel_t *run, const accel_llama_t *cfg,
                                accel_error_t *err);
/* Creates a BERT. Forward takes {ids, types, mask, targets}, all int32, and returns the
 * loss. ids, types and mask (0: padding) are [B, T]; targets are [B, T] with negative
 * ones ignored for ACCEL_BERT_MASKED_LM, labels [B] for ACCEL_BERT_CLASSIFY. With the
 * first three it returns the logits ([B, T, vocab] or [B, labels]) or, for
 * ACCEL_BERT_NONE, the last hidden states [B, T, width]. Parameter names are those of
 * Hugging Face's BertForMaskedLM or BertForSequenceClassification; ACCEL_BERT_NONE also
 * has their prefix "bert.". */
accel_module_t *accel_bert_new(accel_t *run, const accel_bert_t *cfg,
                               accel_error_t *err);
/* The model called `name`: a published one (accel_gpt2_preset ...), or the config.json
 * in the directory `name`. Weights are random; accel_load_weights reads those in the
 * directory. */
accel_module_t *accel_model_open(accel_t *run, const char *name, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
