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
    size_t bytes;     /* sizeof(accel_class_t) */
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

/* What a model computes besides its blocks. */
typedef enum accel_model_head {
    ACCEL_HEAD_BASE = 0, /* GPT-2, Llama: the next token; BERT: last hidden states */
    ACCEL_HEAD_MASKED_LM = 1, /* BERT: masked words, tied to the word embedding */
    ACCEL_HEAD_CLASSIFY = 2,  /* BERT: pooler and `labels` classes of the sequence */
} accel_model_head_t;

/* A model of the library: its family and sizes. layers, heads, width, vocab, context
 * and, except for GPT-2, hidden are required. All else may be 0: the default of the
 * model's authors (in the comment). A member that the family does not have must be 0;
 * where not all families have one, the comment names those that do. */
typedef struct accel_model_config {
    size_t bytes;           /* sizeof(accel_model_config_t); 0 is refused */
    const char *model_type; /* the family: "gpt2", "llama" or "bert"; static */
    int layers, heads, width;
    int kv_heads;   /* Llama; heads % kv_heads == 0; 0: heads */
    int head_width; /* Llama; 0: width / heads */
    int hidden;     /* of the MLP; 0: GPT-2 has 4 * width */
    int vocab;
    int context;                   /* longest sequence */
    float norm_eps;                /* 0: GPT-2 1e-5, Llama 1e-6, BERT 1e-12 */
    accel_activation_t activation; /* 0: GPT-2 GELU, Llama SILU, BERT GELU_ERF */
    accel_rope_t rope;             /* Llama */
    float resid_dropout;      /* GPT-2, BERT: after each projection into the residual
                               * stream; BERT: after the embeddings, too */
    float embd_dropout;       /* GPT-2: after the embeddings */
    float attn_dropout;       /* of the attention's probabilities */
    float classifier_dropout; /* BERT */
    int tied;                 /* Llama; 1: the head is the input embedding */
    int attention_bias, mlp_bias; /* Llama; 1: with biases */
    int types;                    /* BERT: of segments; 0: 2 */
    int labels;                   /* BERT: of ACCEL_HEAD_CLASSIFY; 0: 2 */
    accel_model_head_t head;      /* BERT */
} accel_model_config_t;

/* The config of a model by `name`: a published one, "gpt2" (124M) ... "gpt2-xl";
 * "llama-2-7b", "llama-3-8b", "llama-3.2-1b" ...; "bert-base-uncased" ... (a masked
 * language model), without dropout. If `name` contains a '/' or is a file or directory,
 * it is read from the config.json of a Hugging Face model there. Keys that do not
 * change the computation are ignored; an unsupported one that does is refused, with its
 * name and value. The caller sets config->bytes, and in config->model_type the family
 * to accept, NULL: any; all else is overwritten. Not collective. Errors: ACCEL_EINVAL
 * (bytes; a name or family that is not known, with the nearest name), ACCEL_ENOENT,
 * ACCEL_ECORRUPT (not JSON, a missing key, a value of the wrong type),
 * ACCEL_EUNSUPPORTED, ACCEL_EMISMATCH (another family). */
accel_status_t accel_model_config(const char *name, accel_model_config_t *config,
                                  accel_error_t *err);
/* Creates a model of `config`, which is copied, with random weights. Parameters have
 * the names of the Hugging Face class; linear weights are [out, in]. Like any tree, it
 * is created before accel_prepare and owned by the run. NULL on failure, also in `err`:
 * ACCEL_EINVAL (sizes that do not fit). Forwards take int32 tensors:
 *   GPT-2, Llama  {ids, targets}, [B, T] each, and return the loss; with {ids} alone,
 *     the logits of the last position, float32 [B, vocab], and no backward. Names are
 *     those of GPT2Model ("h.0.attn.c_attn.weight"), with a head tied to the embedding,
 *     or of LlamaForCausalLM ("model.layers.0.self_attn.q_proj.weight").
 *   BERT  {ids, types, mask, targets}, and returns the loss. ids, types and mask (0:
 *     padding) are [B, T]; targets are [B, T] with negative ones ignored for
 *     ACCEL_HEAD_MASKED_LM, labels [B] for ACCEL_HEAD_CLASSIFY. With the first three it
 *     returns the logits ([B, T, vocab] or [B, labels]) or, for ACCEL_HEAD_BASE, the
 *     last hidden states [B, T, width]. Names are those of BertForMaskedLM or
 *     BertForSequenceClassification; ACCEL_HEAD_BASE also has their prefix "bert.". */
accel_module_t *accel_model_new(accel_t *run, const accel_model_config_t *config,
                                accel_error_t *err);
/* Both in one: the model called `name`. accel_load_weights reads the weights in a
 * directory. */
accel_module_t *accel_model_open(accel_t *run, const char *name, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
