/* SPDX-License-Identifier: Apache-2.0
 *
 * accel.h: the one public header of libaccel, in the order a program calls it.
 *
 *   accel_open -> build modules -> accel_prepare -> { accel_next, accel_call,
 *   accel_backward, accel_step } while accel_more -> accel_close
 *
 * What is sharded, in which precision, how often a checkpoint is written and what
 * happens on preemption is said by the config file (srun --accel-config=FILE), not here.
 *
 * Rules that hold for every function unless its comment says otherwise:
 *  - Functions return accel_status_t and fill the caller-owned `err` (may be NULL).
 *    Outputs are set only on success.
 *  - Functions that return a tensor return NULL on failure; the handle keeps the first
 *    error, every later op on a NULL tensor returns NULL, and accel_backward reports it.
 *    A forward function therefore needs no checks of its own. The error's `where` has the
 *    path of the module and the op, its `text` the shapes or dtypes that do not fit.
 *  - The library never prints on its own account (see accel_log_f), exits or aborts.
 *  - One thread owns a handle. Only accel_should_stop may be called from elsewhere.
 *  - What the library returns belongs to the run and goes with accel_close, unless there is a
 *    function that frees it. What must stay after the call that it is passed to is said.
 *  - A call out of place (before accel_prepare, in a forward, without a run) is ACCEL_EINVAL.
 *  - "Collective" means: every rank must call it, in the same order. Other calls are local;
 *    those that build, feed or change the run are made alike on all ranks all the same.
 *  - Any call may return ACCEL_ENOMEM, a collective one ACCEL_EPEER: not said each time.
 */
#ifndef ACCEL_H
#define ACCEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library hides every symbol but those declared here. */
#pragma GCC visibility push(default)

/* ---- status and errors ------------------------------------------------------------ */

/* Values are fixed for ever. accel_exit_code() maps each to one process exit code. */
typedef enum accel_status {
    ACCEL_OK = 0,
    ACCEL_EUSAGE = 1,        /* wrong command line or argument           exit 64 */
    ACCEL_ECONFIG = 2,       /* bad config file or value                 exit 65 */
    ACCEL_ENOENT = 3,        /* an input file is missing                 exit 66 */
    ACCEL_EUNAVAIL = 4,      /* no PMIx server, peer, GPU ...            exit 69 */
    ACCEL_EBUG = 5,          /* a defect of ours                         exit 70 */
    ACCEL_EOS = 6,           /* the operating system refused             exit 71 */
    ACCEL_ECREATE = 7,       /* cannot create an output                  exit 73 */
    ACCEL_EIO = 8,           /* read or write failed, disk full          exit 74 */
    ACCEL_EPEER = 9,         /* a peer died or missed a deadline         exit 76 */
    ACCEL_EPERM = 10,        /* permission or trust                      exit 77 */
    ACCEL_EPOLICY = 11,      /* the site forbids it                      exit 78 */
    ACCEL_ERESUME = 12,      /* state is saved, run me again             exit 85 */
    ACCEL_EINVAL = 13,       /* bad argument to a function               exit 64 */
    ACCEL_ENOMEM = 14,       /* out of memory                            exit 71 */
    ACCEL_EUNSUPPORTED = 15, /* known, but not supported yet             exit 65 */
    ACCEL_ECORRUPT = 16,     /* stored data is damaged                   exit 74 */
    ACCEL_EMISMATCH = 17,    /* world size, shape or run do not fit      exit 65 */
    ACCEL_EDIVERGED = 18,    /* loss or gradients are not finite         exit 1  */
    ACCEL_ESTOPPED = 19,     /* state is saved, not run again by itself  exit 75 */
} accel_status_t;

/* Caller-owned. All strings are NUL-terminated. When all ranks fail together for a reason
 * that one of them knows, `text` is empty on the others: they have nothing to add. */
typedef struct accel_error {
    accel_status_t code;
    int message;     /* N of the code A0N, see `accel explain`; 0: none */
    char where[256]; /* file:line:col, file + tensor, or module path and op */
    char text[768];  /* what happened, one sentence */
    char hint[384];  /* how to cure it */
} accel_error_t;

/* Exit code (sysexits, 85 for ACCEL_ERESUME) of a status. */
int accel_exit_code(accel_status_t status);
/* Name of a status, "ACCEL_ECONFIG"; never NULL, static. */
const char *accel_status_name(accel_status_t status);
/* "error[A0301]: WHERE: TEXT" and, in a second line, "  cure: HINT" into buf of `len`
 * bytes; what is empty is left out. 1536 bytes hold every error. */
void accel_error_format(const accel_error_t *err, char *buf, size_t len);
/* For functions that the library calls (own ops, datasets): fills `err` (may be NULL) with a
 * sentence and a cure (may be NULL) and returns `status`. */
accel_status_t accel_error_set(accel_error_t *err, accel_status_t status,
                               const char *text, const char *hint);
/* "MAJOR.MINOR.PATCH" of the library in use; static. */
const char *accel_version(void);

/* ---- opening ---------------------------------------------------------------------- */

typedef struct accel accel_t;               /* the run: one per process */
typedef struct accel_tensor accel_tensor_t; /* contiguous; owned by the run */
typedef struct accel_module accel_module_t; /* a named node of the model tree */

typedef enum accel_dtype {
    ACCEL_F32 = 0,
    ACCEL_BF16 = 1,
    ACCEL_I32 = 2,
    ACCEL_U16 = 3,
    ACCEL_U8 = 4,
    ACCEL_F64 = 5,
    ACCEL_I64 = 6,
    ACCEL_F16 = 7, /* from here on: for gradients between ranks, no arrays of them */
    ACCEL_F8E4M3 = 8,
    ACCEL_F8E5M2 = 9,
} accel_dtype_t;

typedef enum accel_log_level {
    ACCEL_LOG_ERROR = 0,
    ACCEL_LOG_WARN = 1,
    ACCEL_LOG_INFO = 2,
    ACCEL_LOG_DEBUG = 3,
} accel_log_level_t;
/* Receives one line without newline. Called on the thread that called the library. */
typedef void (*accel_log_f)(void *user, accel_log_level_t level, const char *line);
typedef struct accel_options {
    const char *config_file; /* NULL: $ACCEL_CONFIG, or the config srun resolved */
    const char *run_name;    /* identifies the run in checkpoints; NULL: "run" */
    accel_log_f log;         /* NULL: silent */
    void *log_user;
    int threads; /* compute threads of this rank; 0: the task's cores */
} accel_options_t;

/* Starts the run: finds the other ranks (PMIx under srun or mpirun, else one process),
 * binds to this task's cores, connects the collectives, installs preemption handlers (not
 * over the program's own) and, until accel_close, raises the soft limit of open files.
 * Collective. `options` may be NULL. Errors: ACCEL_ECONFIG, ACCEL_EUNAVAIL, ACCEL_EPEER,
 * ACCEL_EMISMATCH (config and step disagree about the number of processes). */
accel_status_t accel_open(accel_t **run_out, const accel_options_t *options,
                          accel_error_t *err);

/* Who this process is; without a run: the only rank of one. */
int accel_rank(const accel_t *run); /* 0 .. world-1 */
int accel_world_size(const accel_t *run);
int accel_local_rank(const accel_t *run); /* among the ranks of this node */
int accel_is_main(const accel_t *run);    /* rank 0 */
/* 1 after SIGTERM, SIGUSR1, the time-limit warning or, while it trains, Ctrl-C. Any thread. */
int accel_should_stop(const accel_t *run);

/* ---- model: a tree of modules, forward only ---------------------------------------- */

/* Called by accel_call, and by accel_prepare without values, to learn shapes and memory.
 * Returns the output, or NULL (an error is already recorded). */
typedef accel_tensor_t *(*accel_forward_f)(accel_module_t *m, accel_tensor_t *const *in,
                                           int n);

typedef struct accel_class {
    const char *name; /* class name, matched by TRANSFORMER_BASED_WRAP */
    accel_forward_f forward;
    size_t state_bytes; /* zeroed user data per module, freed with the tree */
} accel_class_t;

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

/* Adds a module under `parent` (NULL: the root of a new tree; a run holds 16). Names are
 * joined with dots: "h.3.attn". `cls` must stay as long as the run, which owns the module.
 * NULL on failure, which accel_prepare reports: ACCEL_EINVAL (name, class). */
accel_module_t *accel_module_new(accel_t *run, const accel_class_t *cls,
                                 accel_module_t *parent, const char *name);
/* The state_bytes of its class, zeroed at first; the program's to use until accel_close. */
void *accel_module_state(accel_module_t *m);
accel_t *accel_module_run(accel_module_t *m); /* the run that it was made in */
/* Declares a parameter of shape dims[ndim], 1 to 4 sizes of at least 1; it has no data before
 * accel_prepare. The values depend on (seed, full name, element index) only, never on the
 * world size. It is kept in float32; ops see it in the compute dtype and take it only where
 * their comment says so. NULL on failure, as above: ACCEL_EINVAL (name, sizes). */
accel_tensor_t *accel_param(accel_module_t *m, const char *name, int ndim,
                            const int64_t *dims, accel_init_t init);
/* Declares a tensor of dims[ndim] (float32, bfloat16 or int32) that is not trained: whole on
 * every rank, stored in checkpoints, an input of ops like an activation. It has data from
 * accel_prepare on: zeros, ones or a constant; accel_tensor_write gives it others. Whoever
 * writes it sees to it that all ranks write the same. NULL on failure, as accel_param. */
accel_tensor_t *accel_buffer(accel_module_t *m, const char *name, accel_dtype_t dtype,
                             int ndim, const int64_t *dims, accel_init_t init);
/* Gives `param` of another module a second name under `m`, "m.name": tied weights. It stays
 * one parameter with one gradient; checkpoints hold it once, under its first name. Returns
 * `param`; NULL on failure, as accel_param. */
accel_tensor_t *accel_tie(accel_module_t *m, const char *name, accel_tensor_t *param);
/* The module at `path` ("h.3.attn"; "": `root` itself, when it is the root of the tree) or
 * the parameter with that full name, first or second. NULL: there is none. */
accel_module_t *accel_module_find(accel_module_t *root, const char *path);
accel_tensor_t *accel_param_find(accel_module_t *root, const char *name);
/* on: backward runs the forward of `m` again instead of keeping what it made (activation
 * checkpointing): less memory, about a third more time, the same bits. Config key
 * fsdp_activation_checkpointing turns it on for every unit. Forwards must not have side
 * effects that a second run would change. */
void accel_module_recompute(accel_module_t *m, int on);
/* on: forwards record nothing and drop nothing, as in accel_evaluate, until it is off. Every
 * call begins anew: tensors made since the last accel_next are over. */
void accel_eval(accel_t *run, int on);
/* Runs the module's forward on `in[n]` (n <= 8 where it is recomputed). What that made and
 * does not return is gone then; the output lives as long as what the caller makes, at the
 * outermost until accel_step or the next accel_next. NULL on failure: the forward's first
 * error. Collective after accel_prepare: ranks must call the same modules in the same order. */
accel_tensor_t *accel_call(accel_module_t *m, accel_tensor_t *const *in, int n);

/* ---- ops: coarse and fused; each records its own backward ---------------------------
 * Activations have the compute dtype of the run (float32 or bfloat16); arithmetic inside
 * an op is float32. [..., C] means any leading shape, 1 to 4 sizes in all; any size may be 0.
 * table, positions, weight, bias and gain are parameters; all other tensors are activations:
 * what an op, accel_next or accel_input returned, or a buffer. Where there are no parameters
 * x may be float32 or bfloat16 whatever the compute dtype (attention and rope: no). The result
 * is a new tensor of the dtype of x, if nothing else is said, and lives as accel_call says.
 * NULL on failure: ACCEL_EINVAL (shapes, dtypes, options, a tensor whose module returned or
 * whose step is over). Ops with parameters are collective: they gather them. */

typedef enum accel_activation {
    ACCEL_ACT_NONE = 0,
    ACCEL_ACT_GELU = 1,     /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    ACCEL_ACT_GELU_ERF = 2, /* x Phi(x) */
    ACCEL_ACT_SILU = 3,     /* x sigmoid(x) */
    ACCEL_ACT_RELU = 4,
    ACCEL_ACT_RELU2 = 5, /* relu(x)^2 */
    ACCEL_ACT_TANH = 6,
} accel_activation_t;

/* ids int32 [B, T], table [V, C], positions [P, C] with P >= T or NULL -> [B, T, C] in the
 * compute dtype: table[ids[b, t]] + positions[t]. An id outside of [0, V) is ACCEL_EINVAL. */
accel_tensor_t *accel_embedding(accel_tensor_t *ids, accel_tensor_t *table,
                                accel_tensor_t *positions);
/* x [..., C], gain [C], bias [C] or NULL, eps >= 0 -> [..., C];
 * (x - mean) / sqrt(var + eps) * gain + bias, var over C, not C - 1 (Ba et al. 2016). */
accel_tensor_t *accel_layernorm(accel_tensor_t *x, accel_tensor_t *gain,
                                accel_tensor_t *bias, float eps);
/* x [..., C], gain [C] -> [..., C]; x / sqrt(mean of x^2 + eps) * gain. */
accel_tensor_t *accel_rmsnorm(accel_tensor_t *x, accel_tensor_t *gain, float eps);
/* x [..., I], weight [O, I], bias [O] or NULL -> act(x weight^T + bias) [..., O]. */
accel_tensor_t *accel_linear(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, accel_activation_t act);
/* Keys and values of past positions, for generation: what was computed for a position is
 * not computed again. Used with recording off (accel_eval); one cache serves one sequence
 * per sample of its batch. In the compute dtype, on the run's device. */
typedef struct accel_kv accel_kv_t;
/* A cache for `layers` attention layers and `capacity` positions. The caller frees it, before
 * accel_close. NULL and `err` on failure: ACCEL_EINVAL (a size below 1). */
accel_kv_t *accel_kv_new(accel_t *run, int layers, int batch, int capacity,
                         int kv_heads, int head_width, accel_error_t *err);
/* Positions that it holds, and can hold; 0 without a cache. */
int accel_kv_length(const accel_kv_t *kv);
int accel_kv_capacity(const accel_kv_t *kv);
/* The forward of T new positions is over in every layer: they count from now on. */
accel_status_t accel_kv_advance(accel_kv_t *kv, int positions, accel_error_t *err);
/* Forgets all but the first `length` positions. Both: ACCEL_EINVAL (not as many). */
accel_status_t accel_kv_trim(accel_kv_t *kv, int length, accel_error_t *err);
void accel_kv_free(accel_kv_t *kv); /* NULL is fine */

typedef struct accel_attention {
    int heads;
    int kv_heads;            /* heads % kv_heads == 0; 0: heads */
    int causal;              /* 1: query t sees keys 0 .. S - T + t */
    accel_tensor_t *lengths; /* int32 [B]: keys from there on are padding; NULL: none */
    accel_tensor_t *mask;    /* int32 [B, S]: keys at 0 are padding; NULL: none */
    float scale;             /* of the scores; 0: 1 / sqrt(D) */
    float dropout;           /* of the probabilities, in training; 0: none */
    accel_kv_t *cache;       /* NULL: none */
    int layer;               /* in the cache, from 0 */
} accel_attention_t;

/* softmax(scale q k^T) v per head: q [B, T, heads * D], k and v [B, S, kv_heads * D] ->
 * [B, T, heads * D]; or k and v NULL and q the three side by side,
 * [B, T, (heads + 2 kv_heads) * D]. Query head h reads key head h / (heads / kv_heads).
 * A query that sees no key gives zeros. With a cache: k and v are of the T new positions,
 * which are appended, and S counts those in the cache too (so does mask). Nothing of size
 * T x S is stored. Vaswani et al. 2017, shared heads Ainslie et al. 2023. */
accel_tensor_t *accel_attention(accel_tensor_t *q, accel_tensor_t *k, accel_tensor_t *v,
                                const accel_attention_t *o);
/* act(x), the shape of x. ACCEL_ACT_NONE: x itself. */
accel_tensor_t *accel_activate(accel_tensor_t *x, accel_activation_t act);
/* act(gate) * up, same shape and dtype. With ACCEL_ACT_SILU: SwiGLU. */
accel_tensor_t *accel_gated(accel_tensor_t *gate, accel_tensor_t *up,
                            accel_activation_t act);
/* x + y and x * y, same shape and dtype. */
accel_tensor_t *accel_add(accel_tensor_t *x, accel_tensor_t *y);
accel_tensor_t *accel_mul(accel_tensor_t *x, accel_tensor_t *y);
/* In training each element is 0 with probability p in [0, 1), else x / (1 - p); in
 * evaluation, and with p = 0, it is x itself. The samples must be in the first dimension:
 * the mask follows from the run's seed, the sample's number and how many random ops the
 * forward had before: the same for any number of ranks and threads. */
accel_tensor_t *accel_dropout(accel_tensor_t *x, float p);
/* x with other sizes, as many elements, in the same order; one of dims[ndim] may be -1 and
 * follows from the others. Any dtype. Shares the data of x: nothing is copied. */
accel_tensor_t *accel_reshape(accel_tensor_t *x, int ndim, const int64_t *dims);
/* Elements begin .. begin + count - 1 of dimension `dim` (the first is 0). Any dtype. Shares
 * the data of x when the sizes before `dim` are 1, else copies. */
accel_tensor_t *accel_slice(accel_tensor_t *x, int dim, int64_t begin, int64_t count);
/* x with two dimensions swapped. Any dtype. One copy, as tensors are contiguous; none when
 * the order of the elements does not change. */
accel_tensor_t *accel_transpose(accel_tensor_t *x, int dim0, int dim1);
/* x as float32 or bfloat16; x of any dtype (its gradient, if it has one, in its own). x
 * itself when it has that dtype. */
accel_tensor_t *accel_cast(accel_tensor_t *x, accel_dtype_t dtype);
/* exp(x) / sum of exp(x) over the last dimension, the shape of x. */
accel_tensor_t *accel_softmax(accel_tensor_t *x);
/* Sum and mean over dimension `dim` (the first is 0), which disappears: [2, 3, 4] over 1 ->
 * [2, 4]; a single dimension becomes [1]. dim -1: over all elements -> one float32. The mean
 * of nothing is 0. */
accel_tensor_t *accel_sum(accel_tensor_t *x, int dim);
accel_tensor_t *accel_mean(accel_tensor_t *x, int dim);
/* Mean of (x - y)^2 as one float32, same shape; 0 for no elements. */
accel_tensor_t *accel_mse(accel_tensor_t *x, accel_tensor_t *y);
/* x [B, C, H, W], weight [O, C, kh, kw], bias [O] or NULL -> act(conv + bias)
 * [B, O, (H + 2 pad - kh) / stride + 1, (W + 2 pad - kw) / stride + 1], with `pad` zeros on
 * every side of x; the weight is not mirrored, as in all of deep learning. */
accel_tensor_t *accel_conv2d(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, int stride, int pad,
                             accel_activation_t act);
/* x [B, C, H, W] -> the largest of each size x size window,
 * [B, C, (H - size) / stride + 1, (W - size) / stride + 1]. */
accel_tensor_t *accel_maxpool2d(accel_tensor_t *x, int size, int stride);
typedef struct accel_cross_entropy {
    const int32_t
        *ignore_index;     /* one more target that counts for nothing; NULL: none */
    float label_smoothing; /* s, 0 .. 1: part of the target spread over all V */
} accel_cross_entropy_t;

/* Fused head and loss: x [..., C], weight [V, C], bias [V] or NULL, targets int32 [...] ->
 * mean of -log softmax(x weight^T + bias)[target] as one float32; or weight and bias NULL
 * and x the logits themselves, [..., V]. Targets < 0 are ignored; with none left the mean is
 * 0. `o` (NULL: defaults) is read during the call. With label smoothing the loss of a row
 * is (1 - s) times that plus s times the mean of -log softmax over all V. The logits of the
 * whole batch are never stored. */
accel_tensor_t *accel_cross_entropy(accel_tensor_t *x, accel_tensor_t *weight,
                                    accel_tensor_t *bias, accel_tensor_t *targets,
                                    const accel_cross_entropy_t *o);
typedef enum accel_rope_kind {
    ACCEL_ROPE_PLAIN = 0,
    ACCEL_ROPE_LINEAR = 1, /* positions divided by `factor` */
    ACCEL_ROPE_LLAMA3 = 2, /* low frequencies divided by `factor`, a band in between */
} accel_rope_kind_t;

typedef struct accel_rope {
    float theta; /* base of the frequencies; 0: 10000 */
    accel_rope_kind_t kind;
    float factor;                            /* LINEAR, LLAMA3 */
    float low_freq_factor, high_freq_factor; /* LLAMA3 */
    int original_context;                    /* LLAMA3 */
} accel_rope_t;

/* Rotary positions: x [B, T, heads * D], D even and at most 512 -> the same shape. Turns each
 * pair (i, i + D / 2) by the angle of its position, which is the cache's length (NULL: 0)
 * plus t, times theta^(-2i / D); Su et al. 2021, with the pairs and the scaling of
 * frequencies of Hugging Face's Llama. `rope` NULL: the plain ones at theta 10000. */
accel_tensor_t *accel_rope(accel_tensor_t *x, int heads, const accel_rope_t *rope,
                           const accel_kv_t *cache);
/* What an own op sees of a tensor: contiguous, in the memory of the run's device (on the
 * CPU: host memory), valid during the call only. */
typedef struct accel_array {
    accel_dtype_t dtype;
    int ndim;
    int64_t dims[4];
    int64_t elems;
    void *data;
} accel_array_t;

/* An op of the program's own, as a static table. Functions return ACCEL_OK, or a status and
 * a text in `err` (accel_error_set), which becomes the step's error at the op's module path.
 * `in` has the n inputs; parameters come in the compute dtype. Data is in the memory of the
 * run's device: on a GPU the functions put kernels on the stream of accel_stream. */
typedef struct accel_op {
    const char *name;
    /* From dtype and dims of in[n] (data is NULL) to those of *out (elems is computed). */
    accel_status_t (*shape)(const void *attr, const accel_array_t *in, int n,
                            accel_array_t *out, accel_error_t *err);
    /* Writes all of out->data. */
    accel_status_t (*forward)(const void *attr, const accel_array_t *in, int n,
                              const accel_array_t *out, accel_error_t *err);
    /* Adds to din[i].data the derivative of the loss by in[i]; NULL data: not wanted. It
     * has in[i]'s shape; float32 for parameters, else in[i]'s dtype. `dout` has out's shape
     * and dtype. NULL function: the op has no derivative, its output needs no gradient. */
    accel_status_t (*backward)(const void *attr, const accel_array_t *in, int n,
                               const accel_array_t *out, const accel_array_t *dout,
                               const accel_array_t *din, accel_error_t *err);
} accel_op_t;

/* Runs an own op on in[n], 1 <= n <= 7, any tensors and parameters of at most two units; the
 * result is in the compute dtype unless op->shape sets another. `op` and `attr` must stay
 * until accel_step. */
accel_tensor_t *accel_apply(const accel_op_t *op, accel_tensor_t *const *in, int n,
                            const void *attr);
/* Number of dimensions and the sizes (valid as long as the tensor); 0 for NULL. */
int accel_tensor_shape(const accel_tensor_t *t, const int64_t **dims_out);
accel_dtype_t accel_tensor_dtype(const accel_tensor_t *t);
/* Copies the values, widened to float32, into host[elems]; `elems` must be the number of
 * elements. Errors: ACCEL_EINVAL (a parameter: use accel_save; a tensor that is over; another
 * size), and what a device has to tell of earlier work. */
accel_status_t accel_tensor_read(const accel_tensor_t *t, float *host, size_t elems,
                                 accel_error_t *err);
/* Copies `bytes` bytes, the whole tensor in its own dtype, from host memory into a buffer or
 * an activation of this step. Errors: ACCEL_EINVAL (a parameter, no memory yet or no more,
 * another size). */
accel_status_t accel_tensor_write(accel_tensor_t *t, const void *host, size_t bytes,
                                  accel_error_t *err);

/* ---- models that come with the library ---------------------------------------------- */

/* Sizes are required; everything else may be 0, which is the value of the model's authors
 * (written behind it). What the structs cannot say is not supported, and refused by the
 * readers of config.json. */
typedef struct accel_gpt2 {
    int layers, heads, width; /* width % heads == 0 */
    int context;              /* longest sequence */
    int vocab;
    int hidden;                    /* of the MLP; 0: 4 * width */
    float resid_dropout;           /* behind each projection into the residual stream */
    float embd_dropout;            /* behind the embeddings */
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
 * Dropout is 0. ACCEL_EINVAL for a name that is not in the table, with the nearest one. */
accel_status_t accel_gpt2_preset(const char *name, accel_gpt2_t *out,
                                 accel_error_t *err);
accel_status_t accel_llama_preset(const char *name, accel_llama_t *out,
                                  accel_error_t *err);
accel_status_t accel_bert_preset(const char *name, accel_bert_t *out,
                                 accel_error_t *err);
/* The same from the config.json of a Hugging Face model: `path` is that file or its
 * directory. Keys that do not change the computation are ignored; one that does and is
 * not supported is refused with its name and value. Not collective.
 * Errors: ACCEL_ENOENT, ACCEL_ECORRUPT (no JSON, a key missing, a value of a wrong type),
 * ACCEL_EUNSUPPORTED, ACCEL_EMISMATCH (another model_type). */
accel_status_t accel_gpt2_read_config(const char *path, accel_gpt2_t *out,
                                      accel_error_t *err);
accel_status_t accel_llama_read_config(const char *path, accel_llama_t *out,
                                       accel_error_t *err);
accel_status_t accel_bert_read_config(const char *path, accel_bert_t *out,
                                      accel_error_t *err);
/* The models below are trees like any other, made before accel_prepare and owned by the run.
 * NULL on failure, also in `err`: ACCEL_EINVAL (sizes that do not fit).
 * GPT-2 with tied input and output embedding; forward takes {ids, targets}, int32 [B, T], and
 * returns the loss; with {ids} alone, the logits of the last position, float32 [B, vocab],
 * without a backward. Parameter names are those of Hugging Face's GPT-2
 * ("h.0.attn.c_attn.weight"); linear weights are [out, in]. */
accel_module_t *accel_gpt2_new(accel_t *run, const accel_gpt2_t *cfg,
                               accel_error_t *err);
/* Llama: forward takes {ids, targets} or {ids} as GPT-2's. Parameter names are those of
 * Hugging Face's LlamaForCausalLM ("model.layers.0.self_attn.q_proj.weight"). */
accel_module_t *accel_llama_new(accel_t *run, const accel_llama_t *cfg,
                                accel_error_t *err);
/* BERT: forward takes {ids, types, mask, targets}, int32 [B, T] (mask 0: padding; targets
 * [B, T] with negative ones ignored for ACCEL_BERT_MASKED_LM, labels [B] for
 * ACCEL_BERT_CLASSIFY) and returns the loss; with the first three, the logits ([B, T, vocab]
 * or [B, labels]) or for ACCEL_BERT_NONE the last hidden states [B, T, width]. Parameter
 * names are those of Hugging Face's BertForMaskedLM or BertForSequenceClassification. */
accel_module_t *accel_bert_new(accel_t *run, const accel_bert_t *cfg,
                               accel_error_t *err);
/* The model that `name` means: a published one (accel_gpt2_preset ...), or the config.json in
 * the directory `name`. Random weights; accel_load_weights reads those beside it. */
accel_module_t *accel_model_open(accel_t *run, const char *name, accel_error_t *err);
/* How generated tokens are drawn. All zero: always the likeliest. */
typedef struct accel_sampling {
    float temperature; /* 1: the model's own spread; 0: always the likeliest */
    int top_k;         /* only among the k likeliest; 0: all */
    float top_p;       /* then only the likeliest that together reach p; 0 or 1: all */
    uint64_t seed;     /* the draw at a position depends on both only */
    const int32_t *stop; /* [stop_count] tokens that end the text, as its last */
    int stop_count;
    /* Called after each token; other than 0 ends the text. Every rank calls its own and
     * must decide alike. NULL: none. */
    int (*token)(void *user, int32_t token);
    void *user;
} accel_sampling_t;

/* Continues prompt[n] by up to `count` tokens into out[count]; after an early end the rest of
 * out is -1. `model` is one that comes with the library, prepared. Each token costs one
 * forward of one position, with a cache of keys and values. The model sees at most its
 * context: of a longer prompt the end, and when the context is full, its newer half is
 * read once more and the older one forgotten. `sampling` may be NULL (all zero). Between
 * steps only: the tensors of the micro-batch are gone afterwards. Same tokens on every
 * rank. Collective. */
accel_status_t accel_generate(accel_module_t *model, const int32_t *prompt, int n,
                              int32_t *out, int count, const accel_sampling_t *sampling,
                              accel_error_t *err);

/* ---- units: bring your own compute ---------------------------------------------------
 * The second way in, for programs with a forward and backward of their own: named parameters
 * in units (what is gathered together), between accel_open and accel_prepare, and a job whose
 * model is NULL. Sharding, precision, optimizer, checkpoints and preemption are those of
 * modules; a checkpoint of the one goes on in the other where names and shapes are equal.
 * A micro-batch:
 *   accel_next or accel_next_samples;
 *   for each unit in any order: accel_unit_want, accel_unit_values, accel_unit_done;
 *   the same for the backward, with accel_unit_grad;
 *   accel_units_backward; accel_step.
 * Pointers are of the run's device: on a GPU device memory, which kernels read and write on
 * the stream of accel_stream; on CPUs the host's. */

/* The cudaStream_t that the run computes on; NULL on CPUs. Values of a wanted unit are there
 * for what is put on it after accel_unit_want, gradients are complete with what is on it at
 * the next call; whoever has streams of his own orders them by events. */
void *accel_stream(const accel_t *run);

typedef struct accel_unit accel_unit_t;
/* A unit of the run; `name` becomes the front of its parameters' full names ("" for none).
 * Owned by the run. NULL on failure, also in `err`. */
accel_unit_t *accel_unit_new(accel_t *run, const char *name, accel_error_t *err);
/* Declares parameter "unit.name" of shape dims[ndim]; they are numbered 0, 1, ... in the
 * order of declaration. Initial values: those of `init`, or, where `values` is not NULL,
 * values[elems], the same on all ranks; it is read by accel_prepare (each rank copies its
 * range) and must be there until then. */
accel_status_t accel_unit_param(accel_unit_t *unit, const char *name, int ndim,
                                const int64_t *dims, accel_init_t init,
                                const float *values, accel_error_t *err);
/* Gives the unit's full parameters until accel_unit_done; may be nested. At most two
 * different units at a time. Collective: ranks must want the same units in the same order.
 * Errors: ACCEL_EINVAL (a third unit, not prepared), ACCEL_EPEER. */
accel_status_t accel_unit_want(accel_unit_t *unit, accel_error_t *err);
void accel_unit_done(accel_unit_t *unit);
/* Parameter `index` of a wanted unit, row-major, in accel_unit_dtype; read only. NULL where
 * the unit is not wanted or has no such parameter, which accel_units_backward reports. */
const void *accel_unit_values(const accel_unit_t *unit, int index);
accel_dtype_t accel_unit_dtype(const accel_unit_t *unit); /* float32 or bfloat16 */
/* The full gradient of parameter `index` in this micro-batch, float32, to add to; *out is
 * NULL for a frozen one. Valid until another unit's gradient is asked for, which may reduce
 * this one, or accel_units_backward. Collective like accel_unit_want.
 * Errors: ACCEL_EINVAL (no micro-batch, no such parameter), ACCEL_EPEER. */
accel_status_t accel_unit_grad(accel_unit_t *unit, int index, float **out,
                               accel_error_t *err);
/* Ends the micro-batch: `loss` is the mean over its samples, and the gradients are its
 * derivatives. On the last micro-batch of a step they are reduced. All units must be done.
 * Collective. */
accel_status_t accel_units_backward(accel_t *run, double loss, accel_error_t *err);

/* ---- data --------------------------------------------------------------------------- */

typedef struct accel_dataset accel_dataset_t;
/* Opens PATH (a file, or a directory whose regular files are taken in name order). Files
 * ending in .bin are token files, as `accel tokenize` writes them (256 int32 header words:
 * magic 20240520, version 1, token count; then uint16 tokens; or magic 20240801, version 7
 * and uint32 tokens); all others are read as bytes (vocabulary 256).
 * The last `holdout` fraction (0 .. 0.5) is kept for accel_evaluate.
 * A sample is `seq` inputs and `seq` targets (the inputs shifted by one): two int32 fields.
 * Errors: ACCEL_ENOENT, ACCEL_EIO, ACCEL_ECORRUPT, ACCEL_EINVAL (less than one sample). */
accel_status_t accel_dataset_open(accel_dataset_t **out, const char *path, int seq,
                                  double holdout, accel_error_t *err);
/* Training samples per epoch; largest token + 1, 0 where there are no tokens. */
int64_t accel_dataset_samples(const accel_dataset_t *d);
int accel_dataset_vocab(const accel_dataset_t *d);
void accel_dataset_close(accel_dataset_t *d); /* NULL is fine */

/* One part of a sample: an image, a label, a row of token ids. */
typedef struct accel_field {
    accel_dtype_t dtype;
    int ndim; /* 0 (one number) .. 3 */
    int64_t dims[3];
} accel_field_t;

/* Writes sample `index` into dst[i], one array per field. Called by accel_next and
 * accel_evaluate on the thread that calls them. The same index must give the same bytes
 * whenever and on whichever rank it is asked: that makes a resumed run exact. Returns 0, or
 * anything else where the sample cannot be had, which ends the run. */
typedef int (*accel_fetch_f)(void *user, int64_t index, void *const *dst);
/* A dataset of `samples` samples of n fields (1 .. 8), drawn by `fetch`. The last `holdout`
 * fraction (0 .. 0.5) is kept for accel_evaluate. Copies `fields`; `user` must outlive the
 * dataset. Errors: ACCEL_EINVAL, ACCEL_ENOMEM. */
accel_status_t accel_dataset_new(accel_dataset_t **out, int64_t samples,
                                 const accel_field_t *fields, int n,
                                 accel_fetch_f fetch, void *user, double holdout,
                                 accel_error_t *err);

/* ---- tokenizers ---------------------------------------------------------------------- */

typedef struct accel_tokenizer accel_tokenizer_t;
/* Opens a byte-level BPE tokenizer that cuts words as GPT-2 or Llama-3 does. `path` is
 * tokenizer.json, or a directory with tokenizer.json or with vocab.json and merges.txt
 * (GPT-2's; "<|endoftext|>" of that vocabulary is then a special token). The ids are those
 * of the tokenizers library; what accel does not support is an error, not left out. Any
 * thread may use the handle at any time. Not collective.
 * Errors: ACCEL_ENOENT, ACCEL_EPERM, ACCEL_EIO, ACCEL_ECORRUPT (damaged), ACCEL_EUNSUPPORTED
 * (another model, normalizer or expression; the text names the place in the file). */
accel_status_t accel_tokenizer_open(accel_tokenizer_t **out, const char *path,
                                    accel_error_t *err);
void accel_tokenizer_close(accel_tokenizer_t *t); /* NULL is fine */
/* Largest id + 1, added tokens included: the vocabulary that a model needs. */
int accel_tokenizer_vocab(const accel_tokenizer_t *t);
/* Id of the token with this text ("<|endoftext|>", "the", " the"), or -1. */
int32_t accel_tokenizer_id(const accel_tokenizer_t *t, const char *token);
/* Flag of accel_tokenize: with the tokens that the file's template puts around a text, such
 * as Llama-3's <|begin_of_text|>. */
#define ACCEL_TOKENIZE_FRAME 1u

/* Ids of text[bytes]: the first `cap` into ids (may be NULL when cap is 0), the number of all
 * into *count_out, so that a first call can ask for the size. Special tokens in the text
 * become their ids. Any bytes are a text: such as are no UTF-8 are kept, each as a symbol,
 * and accel_detokenize gives them back.
 * Errors: ACCEL_EINVAL, ACCEL_ENOMEM. */
accel_status_t accel_tokenize(const accel_tokenizer_t *t, const void *text,
                              size_t bytes, unsigned flags, int32_t *ids, size_t cap,
                              size_t *count_out, accel_error_t *err);
/* Bytes of ids[count]: the first `cap` into text (may be NULL when cap is 0, gets no NUL),
 * the number of all into *bytes_out. The bytes of a list are those of its parts one after
 * the other; a part may end inside a character. accel_detokenize of accel_tokenize is the
 * text again, but for a space that the tokenizer puts before it and whitespace that an
 * added token takes (both are in the file).
 * Errors: ACCEL_EINVAL (an id that is no token). */
accel_status_t accel_detokenize(const accel_tokenizer_t *t, const int32_t *ids,
                                size_t count, void *text, size_t cap, size_t *bytes_out,
                                accel_error_t *err);
/* How many of text[bytes] can be shown now: all but the beginning of a UTF-8 character at
 * the end that more bytes may complete. */
size_t accel_utf8_whole(const void *text, size_t bytes);

/* ---- the run ------------------------------------------------------------------------- */

typedef enum accel_optimizer_kind {
    ACCEL_ADAMW = 0, /* formulas: see struct accel_optimizer */
    ACCEL_SGD = 1,
    ACCEL_LION = 2,
} accel_optimizer_kind_t;

/* What holds for the parameters whose full name matches the glob ("*.bias", "h.[0-3].*",
 * fnmatch(3)); the first group that matches counts. A group that matches nothing is an
 * error. */
typedef struct accel_group {
    const char *match;
    float lr_scale;     /* factor on the learning rate; 0: 1 */
    float weight_decay; /* < 0: the optimizer's; else on all that match */
    int frozen;         /* not trained: no gradient, no optimizer state; still saved */
} accel_group_t;

/* Zeros stand for the defaults in the order {ADAMW, SGD, LION}. Arithmetic is float32. */
/* With gradient g, clipped; r = lr * schedule * lr_scale; w: weight_decay; step t from 1:
 * ADAMW: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = (1 - r w) p - r (m / (1 - b1^t)) /
 *        (sqrt(v / (1 - b2^t)) + eps)                        (Loshchilov and Hutter 2019)
 * SGD:   g = g + w p; m = momentum m + g; p = p - r m, nesterov: r (g + momentum m)  (torch)
 * LION:  p = (1 - r w) p - r sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g (Chen et al. 2023) */
typedef struct accel_optimizer {
    accel_optimizer_kind_t kind;
    float lr;                    /* 3e-4, 1e-2, 1e-4 */
    float beta1, beta2;          /* 0.9, 0.95 (ADAMW); 0.9, 0.99 (LION) */
    float eps;                   /* 1e-8 (ADAMW) */
    float momentum;              /* SGD; 0: none, and no state for it */
    int nesterov;                /* SGD with momentum */
    float weight_decay;          /* on parameters with two or more dimensions only */
    const accel_group_t *groups; /* read by accel_prepare only */
    int group_count;
} accel_optimizer_t;

typedef struct accel_job {
    /* Its forward takes the fields of the data and returns the loss, the mean over the samples
     * of its inputs. NULL: the run's units. */
    accel_module_t *model;
    accel_dataset_t *data; /* must outlive the run; NULL: fed by accel_next_samples */
    accel_optimizer_t optimizer;
    int64_t steps;       /* optimizer steps in the whole run */
    int64_t warmup;      /* linear warm-up steps, then cosine to lr / 10 */
    float clip;          /* gradients: times clip / (norm + 1e-6) above it; 0: none */
    int batch;           /* samples per rank and micro-batch */
    int accumulate;      /* micro-batches per step; 0: 1 */
    uint64_t seed;       /* initial values and sample order */
    const char *out_dir; /* log and default checkpoint directory; NULL: "out" */
    int log_every;       /* steps between progress lines; 0: about 20 a run */
    int64_t eval_every;  /* steps between evaluations; 0: never */
} accel_job_t;

/* Wraps the model into units, shards and initialises the parameters, prints the plan
 * (log level info, rank 0) and, when the checkpoint directory holds a complete checkpoint
 * of the same run, goes on from the newest one. `job` is copied. After a failure the run can
 * only be closed. Collective. Errors: ACCEL_EINVAL (job, or what went wrong when the model was
 * built or its forward ran for the plan), ACCEL_ECONFIG (classes to wrap), ACCEL_EMISMATCH
 * (checkpoint of another run, ranks that differ), ACCEL_ECORRUPT (no checkpoint is intact),
 * ACCEL_ECREATE, ACCEL_EIO. */
accel_status_t accel_prepare(accel_t *run, const accel_job_t *job, accel_error_t *err);
/* Fills the parameters from weights in Hugging Face's format, in place of their initial
 * values: `path` is a .safetensors file, an index of shards, or a directory with either.
 * After accel_prepare and before the first step; a run that goes on from a checkpoint
 * reads nothing. Each rank reads what it keeps. Tensors are found by the model's names,
 * with or without the base model's prefix, and turned where they are stored [in, out]. All
 * parameters must be there, but for the heads of bert; tensors that the model does not use
 * are listed in a warning. Collective.
 * Errors: ACCEL_ENOENT, ACCEL_EIO, ACCEL_ECORRUPT (see accel_safetensors.h), ACCEL_EMISMATCH
 * (parameter missing, another shape, a tied head of its own), ACCEL_EUNSUPPORTED (dtype). */
accel_status_t accel_load_weights(accel_t *run, const char *path, accel_error_t *err);
/* Writes the parameters as they are now into directory `dir`, which must hold no weights,
 * in `dtype` ("float32", "bfloat16" or "float16"), in files of at most shard_bytes (0: one
 * file), with a config.json for the models of the library. Rank 0 writes; no rank holds
 * more than a slice of a parameter. A failure leaves the run as it was, unless a peer was
 * lost. Collective. Errors: ACCEL_ECREATE, ACCEL_EIO, ACCEL_EINVAL, ACCEL_EPEER. */
accel_status_t accel_save_weights(accel_t *run, const char *dir, const char *dtype,
                                  int64_t shard_bytes, accel_error_t *err);
/* 1 while there is a micro-batch to do; 0 when the run is finished, failed or was told to
 * stop and is saved. */
int accel_more(const accel_t *run);
int64_t accel_steps_done(const accel_t *run); /* also those of earlier lives */
/* The next micro-batch of this rank: one tensor per field of the job's data, [batch, dims
 * of the field ...], n of them. float32 and bfloat16 fields arrive as activations of the
 * run's compute dtype, others as they are. Owned by the run, valid until accel_step or the
 * next accel_next. Errors: ACCEL_EINVAL (another n, a job without data), ACCEL_EIO (also
 * where the fetch function fails). */
accel_status_t accel_next(accel_t *run, accel_tensor_t **batch, int n,
                          accel_error_t *err);
/* The same for a job without data: begins the micro-batch and says which samples are this
 * rank's, index[count], count = job.batch (index may be NULL). Numbers count up from 0 over
 * the whole run and all ranks, without shuffling; after a resume they go on where the
 * checkpoint was written. The program feeds them with accel_input.
 * Errors: ACCEL_EINVAL (another count, a job with data). */
accel_status_t accel_next_samples(accel_t *run, int64_t *index, int count,
                                  accel_error_t *err);
/* A tensor of this micro-batch with the program's own values, host[elems], row-major, of
 * `dtype`; copied. float32 and bfloat16 become an activation of the run's compute dtype.
 * Valid until accel_step or the next accel_next; in a forward, where it may be called too, as
 * what an op returns. NULL on failure, also in `err`: ACCEL_EINVAL (sizes, dtype, NULL). */
accel_tensor_t *accel_input(accel_t *run, accel_dtype_t dtype, int ndim,
                            const int64_t *dims, const void *host, accel_error_t *err);
/* Backward of `loss`, one float32 (NULL: reports the error of the forward), gradients
 * accumulated and, on the last micro-batch of a step, reduced over the ranks: the mean over
 * ranks and micro-batches. A failure ends the run. Collective. Errors: those of the forward's
 * ops and of own ops, ACCEL_EINVAL (no loss of this micro-batch). */
accel_status_t accel_backward(accel_t *run, accel_tensor_t *loss, accel_error_t *err);
/* Called by accel_step, before clipping, with each piece of a reduced gradient that this rank
 * holds: elements [first, first + count) of parameter `name`, float32, in host memory (on a
 * GPU a copy, which is taken back), valid during the call. May change them; where parameters
 * are not sharded, every rank holds all and must change them alike. */
typedef void (*accel_gradient_f)(void *user, const char *name, float *gradient,
                                 int64_t first, int64_t count);
/* Adds such a function for the parameters whose full name matches the glob pattern `match`
 * ("h.*.bias"; NULL: all). At most 8, called in the order they were added, from the next
 * accel_step on; `user` must outlive the run. ACCEL_EINVAL (no function, a ninth). */
accel_status_t accel_on_gradient(accel_t *run, const char *match, accel_gradient_f fn,
                                 void *user, accel_error_t *err);
/* After the last micro-batch of a step: clips, updates the parameters, logs, saves when
 * due and, when any rank was told to stop, saves and returns ACCEL_ERESUME. Between
 * micro-batches it does nothing; after accel_next, before the backward, it is an error.
 * Collective. Errors: ACCEL_EDIVERGED (loss or norm not finite; nothing is updated),
 * ACCEL_ERESUME, ACCEL_ESTOPPED, ACCEL_EINVAL, ACCEL_EIO (log; a last save that fails). */
accel_status_t accel_step(accel_t *run, accel_error_t *err);
/* Mean loss over the held-out part (at most `batches` micro-batches per rank, 0: all);
 * the last micro-batch may hold fewer samples than job.batch. No gradients. Not between
 * accel_next and accel_backward: the tensors of the micro-batch are gone afterwards. NaN where
 * a rank was told to stop. Collective. Errors: ACCEL_EINVAL (no held-out samples, no model),
 * those of the forward. */
accel_status_t accel_evaluate(accel_t *run, int batches, double *loss_out,
                              accel_error_t *err);
/* Writes a checkpoint of the current step now; nothing when the config says
 * accel.checkpoint.save: false. Collective. Errors: ACCEL_EINVAL (in the middle of a step),
 * ACCEL_ECREATE, ACCEL_EIO, ACCEL_EUNAVAIL (another run took the directory). */
accel_status_t accel_save(accel_t *run, accel_error_t *err);
/* Ends the run on this rank and frees everything the handle owns. Returns the first
 * failure of the run (ACCEL_ERESUME when it was told to stop and is saved), so that
 *     return accel_exit_code(accel_close(run, &err));
 * gives every rank the right exit code. NULL is fine. Collective. */
accel_status_t accel_close(accel_t *run, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
