/* SPDX-License-Identifier: Apache-2.0
 *
 * accel.h: the public interface of libaccel, in the order in which a program calls it.
 *
 *     accel_dataset_open(&job.data, "book.txt", 128, 0, &err);
 *     accel_open(&run, &options, &err);
 *     job.model = accel_model_open(run, "gpt2", &err);
 *     accel_prepare(run, &job, &err);
 *     while (accel_more(run))
 *         if (accel_next(run, batch, 2, &err) ||
 *             accel_backward(run, accel_call(job.model, batch, 2), &err) ||
 *             accel_step(run, &err))
 *             break;
 *     accel_close(run, &err);
 *     return accel_report(&err);
 *
 * A complete program is examples/minimal.c. The config file (srun --accel-config=FILE)
 * says what is sharded, in which precision, how often a checkpoint is written and what
 * happens on preemption; none of that is in the program.
 *
 * This header has the run: status, open, data, prepare, the training loop, save and
 * close. It includes its companions: accel_ops.h (tensors and ops), accel_models.h
 * (modules and ready-made models), accel_units.h (your own forward and backward),
 * accel_text.h (tokenizers and generation), accel_loaders.h (iterable datasets and
 * loaders), accel_objects.h (several models and optimizers, a loop of your own,
 * schedules), accel_ranks.h (between ranks), accel_state.h (checkpoints and weights in
 * the program's hands) and accel_track.h (trackers and helpers).
 *
 * Unless a function's comment says otherwise:
 *  - Functions return accel_status_t and fill the caller's `err` (may be NULL). Outputs
 *    are set only on success.
 *  - Functions that return a tensor return NULL on failure. The run keeps the first
 *    error, every op on a NULL tensor returns NULL, and accel_backward reports the
 *    error. A forward function therefore needs no checks. The error's `where` is the
 *    module path and the op; its `text` has the shapes or dtypes that do not fit.
 *  - The library never exits or aborts, and prints only through the logger it is given.
 *  - Types that this header defines in full are filled in by the program; zero means
 *    the default. Types that are only declared are handles of the library.
 *  - A struct that begins with `bytes` may get members at its end in later releases.
 *    The program says how large it knows it, also where the library fills it:
 *        accel_job_t job = { .bytes = sizeof job, .steps = 1000 };
 *    A wrong size is ACCEL_EINVAL (A0913). A program that was built for a later release
 *    runs with this one unless it sets what this one lacks: ACCEL_EUNSUPPORTED (A0914).
 *    All other structs stay as they are.
 *  - One thread owns a run. Only accel_should_stop may be called from other threads.
 *  - What the library returns belongs to the run and is freed by accel_close, unless
 *    there is a function that frees it. Arguments that must outlive the call are
 *    marked.
 *  - A call out of order (before accel_prepare, inside a forward, without a run)
 *    returns ACCEL_EINVAL. So does a call that trains, saves or needs other ranks, when
 *    a function of the program that the library has called makes it (fetch, hook,
 *    update, sink, schedule).
 *  - "Collective" means that every rank must make the call, in the same order. Other
 *    calls are local. Calls that build or change the run must nevertheless be the same
 *    on all ranks.
 *  - Any call may return ACCEL_ENOMEM, and any collective call ACCEL_EPEER.
 */
#ifndef ACCEL_H
#define ACCEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports only what is declared here. */
#pragma GCC visibility push(default)

/* ---- status and errors ----------------------------------------------------------- */

/* The values never change. accel_exit_code() maps each to one process exit code. */
typedef enum accel_status {
    ACCEL_OK = 0,
    ACCEL_EUSAGE = 1,        /* wrong command line or argument           exit 64 */
    ACCEL_ECONFIG = 2,       /* bad config file or value                 exit 65 */
    ACCEL_ENOENT = 3,        /* an input file is missing                 exit 66 */
    ACCEL_EUNAVAIL = 4,      /* no PMIx server, peer, GPU ...            exit 69 */
    ACCEL_EBUG = 5,          /* a bug in accel                           exit 70 */
    ACCEL_ESYSTEM = 6,       /* the operating system refused             exit 71 */
    ACCEL_ECREATE = 7,       /* cannot create an output                  exit 73 */
    ACCEL_EIO = 8,           /* read or write failed, disk full          exit 74 */
    ACCEL_EPEER = 9,         /* a peer died or missed a deadline         exit 76 */
    ACCEL_EPERM = 10,        /* permission or trust                      exit 77 */
    ACCEL_EPOLICY = 11,      /* the site forbids it                      exit 78 */
    ACCEL_ERESUME = 12,      /* state is saved: run it again             exit 85 */
    ACCEL_EINVAL = 13,       /* bad argument to a function               exit 64 */
    ACCEL_ENOMEM = 14,       /* out of memory                            exit 71 */
    ACCEL_EUNSUPPORTED = 15, /* known, but not supported yet             exit 65 */
    ACCEL_ECORRUPT = 16,     /* stored data is damaged                   exit 74 */
    ACCEL_EMISMATCH = 17,    /* world size, shape or run do not fit      exit 65 */
    ACCEL_EDIVERGED = 18,    /* loss or gradients are not finite         exit 1  */
    ACCEL_ESTOPPED = 19,     /* state is saved, no automatic restart     exit 75 */
} accel_status_t;

/* Owned by the caller. All strings are NUL-terminated. When all ranks fail together for
 * a reason that only one of them knows, `text` is empty on the others. */
typedef struct accel_error {
    accel_status_t code;
    int message;     /* 301 for A0301, see `accel explain`; 0: none */
    char where[256]; /* file:line:col, file + tensor, or module path and op */
    char text[768];  /* what happened, one sentence */
    char hint[384];  /* how to cure it */
} accel_error_t;

/* Exit code (sysexits, 85 for ACCEL_ERESUME) of a status. */
int accel_exit_code(accel_status_t status);
/* Name of a status, "ACCEL_ECONFIG"; never NULL, static. */
const char *accel_status_name(accel_status_t status);
/* "error[A0301]: WHERE: TEXT" and, in a second line, "  cure: HINT" into buf of `len`
 * bytes; empty parts are left out. 1536 bytes hold any error. */
void accel_error_format(const accel_error_t *err, char *buf, size_t len);
/* For callbacks of the program (own ops, datasets): fills `err` (may be NULL) with a
 * sentence and a cure (may be NULL) and returns `status`. */
accel_status_t accel_error_set(accel_error_t *err, accel_status_t status,
                               const char *text, const char *hint);
/* Prints `err` to stderr unless its text is empty, and returns its exit code, so that
 * main can end with
 *     return accel_report(&err);
 * A run that was told to stop is no error: rank 0 prints what is saved and what comes
 * next, and the text of the other ranks is empty. */
int accel_report(const accel_error_t *err);

/* "MAJOR.MINOR.PATCH" of the library in use; static. */
const char *accel_version(void);
/* Grows whenever a declaration of this header or its companions changes. A program that
 * needs what came with a version compares accel_api_version() with it: the library may
 * be newer than the headers. */
#define ACCEL_API_VERSION 3
int accel_api_version(void);

/* ---- opening --------------------------------------------------------------------- */

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
    ACCEL_F16 = 7,
    ACCEL_F8E4M3 = 8, /* this and the next: gradients on the wire, and checkpoints */
    ACCEL_F8E5M2 = 9,
    ACCEL_I8 = 10,
} accel_dtype_t;

typedef enum accel_log_level {
    ACCEL_LOG_ERROR = 0,
    ACCEL_LOG_WARN = 1,
    ACCEL_LOG_INFO = 2,
    ACCEL_LOG_DEBUG = 3,
} accel_log_level_t;
/* Receives one line without newline, on the thread that called the library. */
typedef void (*accel_log_f)(void *user, accel_log_level_t level, const char *line);
/* A ready-made logger: writes each line to stderr. */
void accel_log_stderr(void *user, accel_log_level_t level, const char *line);

typedef struct accel_options {
    size_t bytes;
    const char *config_file; /* NULL: the config that srun resolved, or $ACCEL_CONFIG */
    const char *run_name;    /* identifies the run in checkpoints; NULL: "run" */
    accel_log_f log;         /* NULL: silent */
    void *log_user;
    int threads; /* compute threads of this rank; 0: one per core of the task */
    /* Config keys that the program sets, one "KEY=VALUE" each, such as
     * "accel.checkpoint.keep=3"; NULL ends the list. NULL: none. The user's files,
     * variables and flags override them (doc/configuration.md). */
    const char *const *set;
} accel_options_t;

/* Starts the run: finds the other ranks (by PMIx under srun or mpirun; otherwise the
 * run has one rank), binds to this task's cores, connects the collectives and installs
 * preemption handlers, unless the program has its own. Raises the soft limit on open
 * files until accel_close. Collective. `options` may be NULL. Errors: ACCEL_ECONFIG,
 * ACCEL_EUSAGE (unknown key in `set`), ACCEL_EINVAL (a key that must be set before the
 * program starts), ACCEL_EPOLICY (a key that the site locks), ACCEL_EUNAVAIL,
 * ACCEL_EPEER, ACCEL_EMISMATCH (config and job step disagree on the number of
 * processes, or ranks set different keys). */
accel_status_t accel_open(accel_t **run_out, const accel_options_t *options,
                          accel_error_t *err);

/* Who this process is. With run NULL: rank 0 of 1. */
int accel_rank(const accel_t *run); /* 0 .. world-1 */
int accel_world_size(const accel_t *run);
int accel_local_rank(const accel_t *run); /* among the ranks of this node */
int accel_is_main(const accel_t *run);    /* rank 0 */
/* Whether the run is to stop: 1 after SIGTERM, the warning signal or, during training,
 * Ctrl-C. May be called from any thread. */
int accel_should_stop(const accel_t *run);

/* ---- data ------------------------------------------------------------------------ */

typedef struct accel_dataset accel_dataset_t;
/* Opens `path`: a file, or a directory whose regular files are read in name order.
 * Files ending in .bin are token files, as `accel tokenize` writes them: 256 int32
 * header words (magic 20240520, version 1, token count), then uint16 tokens; or magic
 * 20240801, version 7 and uint32 tokens. All others are read as bytes (vocabulary 256).
 * The last `holdout` fraction (0 .. 0.5) is kept for accel_evaluate. A sample is `seq`
 * inputs and `seq` targets (the inputs shifted by one): two int32 fields. Errors:
 * ACCEL_ENOENT, ACCEL_EIO, ACCEL_ECORRUPT, ACCEL_EINVAL (less than one sample). */
accel_status_t accel_dataset_open(accel_dataset_t **out, const char *path, int seq,
                                  double holdout, accel_error_t *err);
/* Training samples per epoch; largest token + 1, or 0 if the data has no tokens. */
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
 * accel_evaluate on their caller's thread, and by loaders. An index must always give
 * the same bytes, on every rank, so that a resumed run is exact. Returns 0; any other
 * value means that the sample cannot be read, and ends the run. */
typedef int (*accel_fetch_f)(void *user, int64_t index, void *const *dst);
/* A dataset of `samples` samples with n fields each (1 .. 8), read by `fetch`. The last
 * `holdout` fraction (0 .. 0.5) is kept for accel_evaluate. `fields` is copied; `user`
 * must outlive the dataset. Errors: ACCEL_EINVAL, ACCEL_ENOMEM. */
accel_status_t accel_dataset_new(accel_dataset_t **out, int64_t samples,
                                 const accel_field_t *fields, int n,
                                 accel_fetch_f fetch, void *user, double holdout,
                                 accel_error_t *err);

/* ---- the run --------------------------------------------------------------------- */

typedef enum accel_optimizer_kind {
    ACCEL_ADAMW = 0, /* formulas: see struct accel_optimizer */
    ACCEL_SGD = 1,
    ACCEL_LION = 2,
} accel_optimizer_kind_t;

/* Settings for the parameters whose full name matches the glob `match` ("*.bias",
 * "h.[0-3].*", fnmatch(3)). The first matching group applies. A group that matches
 * nothing is an error. */
typedef struct accel_group {
    const char *match;
    float lr_scale;     /* factor on the learning rate; 0: 1 */
    float weight_decay; /* < 0: the optimizer's; else for all that match */
    int frozen;         /* not trained: no gradient, no optimizer state; still saved */
} accel_group_t;

/* Storage of the optimizer state: exp_avg and exp_avg_sq of ADAMW, exp_avg of LION.
 * 8BIT: one byte per element and a 2-byte scale per 16 elements. A step dequantises
 * them, computes in float32 and rounds stochastically, with the same random numbers for
 * any number of ranks. FP8: the same, but exp_avg in e4m3, exp_avg_sq in float16, and a
 * 1-byte scale per 32 elements. */
typedef enum accel_moments {
    ACCEL_MOMENTS_FLOAT32 = 0,
    ACCEL_MOMENTS_8BIT = 1,
    ACCEL_MOMENTS_FP8 = 2,
} accel_moments_t;

/* Zeros stand for the defaults, in the order {ADAMW, SGD, LION}. Arithmetic is float32.
 * With g the clipped gradient, r = lr * schedule * lr_scale, w = weight_decay, steps t
 * from 1:
 * ADAMW: m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 *        p = (1 - r w) p - r (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
 *        (Loshchilov and Hutter 2019)
 * SGD:   g = g + w p;  m = momentum m + g;  p = p - r m;
 *        with nesterov: p = p - r (g + momentum m)  (as in torch)
 * LION:  p = (1 - r w) p - r sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g
 *        (Chen et al. 2023) */
typedef struct accel_optimizer {
    size_t bytes;
    accel_optimizer_kind_t kind;
    float lr;                    /* 3e-4, 1e-2, 1e-4 */
    float beta1, beta2;          /* 0.9, 0.95 (ADAMW); 0.9, 0.99 (LION) */
    float eps;                   /* 1e-8 (ADAMW) */
    float momentum;              /* SGD; 0: none, and no state */
    int nesterov;                /* SGD with momentum */
    float weight_decay;          /* on parameters with two or more dimensions only */
    const accel_group_t *groups; /* read by accel_prepare only */
    int group_count;
    /* not for SGD; a user's accel.precision.moments wins */
    accel_moments_t moments;
} accel_optimizer_t;

typedef struct accel_job {
    size_t bytes;
    /* Its forward takes the fields of the data and returns the loss, the mean over the
     * samples of its inputs. NULL: the program's own units. */
    accel_module_t *model;
    accel_dataset_t *data; /* must outlive the run; NULL: accel_next_samples, loaders */
    const accel_optimizer_t *optimizer; /* NULL: AdamW with its defaults */
    int64_t steps;       /* optimizer steps in the whole run; see accel_scaler */
    int64_t warmup;      /* linear warm-up steps, then cosine to lr / 10 */
    float clip;          /* above this norm: times clip / (norm + 1e-6); 0: none */
    int batch;           /* samples per rank and micro-batch */
    int accumulate;      /* micro-batches per step; 0: 1 */
    uint64_t seed;       /* initial values and sample order */
    const char *out_dir; /* log and default checkpoint directory; NULL: "out" */
    int log_every;       /* steps between progress lines; 0: about 20 a run */
    int64_t eval_every;  /* steps between evaluations; 0: never */
    /* Instead of warm-up and cosine; `warmup` must be 0. See accel_objects.h.
     * Copied. */
    const struct accel_schedule *schedule;
} accel_job_t;

/* Wraps the model into units, shards and initialises the parameters, and prints the
 * plan (log level info, rank 0). When the checkpoint directory holds a complete
 * checkpoint of the same run, resumes from the newest one. `job` is copied. After a
 * failure the run can only be closed. Collective. Errors: ACCEL_EINVAL (job, or a
 * failure while the model was built or its forward ran for the plan), ACCEL_ECONFIG
 * (classes to wrap), ACCEL_EMISMATCH (checkpoint of another run, ranks that differ),
 * ACCEL_ECORRUPT (no checkpoint is intact), ACCEL_ECREATE, ACCEL_EIO, ACCEL_EUNAVAIL
 * (another run uses the directory), ACCEL_ERESUME or ACCEL_ESTOPPED (told to stop while
 * a tool uses it), ACCEL_ESTOPPED (too many restarts). */
accel_status_t accel_prepare(accel_t *run, const accel_job_t *job, accel_error_t *err);
/* Fills the parameters from weights in Hugging Face's format, replacing their initial
 * values. `path` is a .safetensors file, an index of shards, or a directory with
 * either. Call it after accel_prepare and before the first step; a resumed run reads
 * nothing. Each rank reads only the part that it keeps. Tensors are found by the
 * model's names, with or without the base model's prefix, and transposed where they are
 * stored [in, out]. All parameters except the heads of BERT must be present; a warning
 * lists tensors that the model does not use. In a run of several models:
 * accel_model_load. Collective. Errors: ACCEL_ENOENT, ACCEL_EIO, ACCEL_ECORRUPT (see
 * accel_safetensors.h), ACCEL_EMISMATCH (parameter missing, another shape, a tied head
 * with other values), ACCEL_EUNSUPPORTED (dtype), ACCEL_EINVAL. */
accel_status_t accel_load_weights(accel_t *run, const char *path, accel_error_t *err);
/* Writes the current parameters into directory `dir`, which must hold no weights, in
 * `dtype` ("float32", "bfloat16" or "float16"), in files of at most shard_bytes (0: one
 * file). Models of the library get a config.json. Rank 0 writes; no rank holds more
 * than a slice of a parameter. A failure leaves the run unchanged, unless a peer was
 * lost. Collective. Errors: ACCEL_ECREATE, ACCEL_EIO, ACCEL_EINVAL, ACCEL_EPEER. */
accel_status_t accel_save_weights(accel_t *run, const char *dir, const char *dtype,
                                  int64_t shard_bytes, accel_error_t *err);
/* 1 while there is a micro-batch to do; 0 when the run is finished, has failed, or was
 * told to stop and its state is saved. */
int accel_more(const accel_t *run);
int64_t accel_steps_done(const accel_t *run); /* including those before a resume */
/* The next micro-batch of this rank: n tensors, one per field of the job's data,
 * [batch, dims of the field ...]. Fields of a float dtype become activations in the
 * run's compute dtype; others are unchanged. The tensors belong to the run and are
 * valid until accel_step or the next accel_next. With several ranks, a micro-batch
 * that one rank cannot read is zeros there; the next accel_step, or accel_evaluate,
 * then ends the run on all ranks with that rank's message. Errors: ACCEL_EINVAL (wrong
 * n, a job without data), ACCEL_EIO (also when the fetch function fails). */
accel_status_t accel_next(accel_t *run, accel_tensor_t **batch, int n,
                          accel_error_t *err);
/* The same for a job without data: begins the micro-batch and says which samples are
 * this rank's, index[count], count = job.batch (index may be NULL). Numbers count up
 * from 0 over the whole run and all ranks, without shuffling; a resumed run continues
 * them from its checkpoint. The program passes the samples' values to accel_input.
 * Errors: ACCEL_EINVAL (wrong count, a job with data). */
accel_status_t accel_next_samples(accel_t *run, int64_t *index, int count,
                                  accel_error_t *err);
/* A tensor of this micro-batch with the program's own values: host[elems], row-major,
 * of `dtype`; copied. Values of a float dtype become an activation in the compute
 * dtype. Valid until accel_step or the next accel_next. It may also be called in a
 * forward; its result then lives as long as that of an op. NULL on failure, also in
 * `err`: ACCEL_EINVAL (sizes, dtype, NULL). */
accel_tensor_t *accel_input(accel_t *run, accel_dtype_t dtype, int ndim,
                            const int64_t *dims, const void *host, accel_error_t *err);
/* Runs the backward of `loss` (one float32; NULL: reports the error of the forward) and
 * accumulates the gradients. On the last micro-batch of a step it reduces them to the
 * mean over ranks and micro-batches. A failure ends the run. Collective. Errors: those
 * of the forward's ops and of own ops, ACCEL_EINVAL (not a loss of this
 * micro-batch). */
accel_status_t accel_backward(accel_t *run, accel_tensor_t *loss, accel_error_t *err);
/* Called by accel_step, before clipping, for each piece of a reduced gradient that this
 * rank holds: elements [first, first + count) of parameter `name`, float32, in host
 * memory (on a GPU a copy, which is written back), valid during the call. The function
 * may change them. Where parameters are not sharded, every rank holds all elements and
 * must make the same changes. */
typedef void (*accel_gradient_f)(void *user, const char *name, float *gradient,
                                 int64_t first, int64_t count);
/* Adds such a function for the parameters whose full name matches the glob `match`
 * ("h.*.bias"; NULL: all). At most 8, called in the order they were added, from the
 * next accel_step on. `user` must outlive the run. ACCEL_EINVAL (no function, a
 * ninth). */
accel_status_t accel_on_gradient(accel_t *run, const char *match, accel_gradient_f fn,
                                 void *user, accel_error_t *err);
/* Ends a step, after its last micro-batch: clips, updates the parameters, logs, and
 * saves when due. If any rank was told to stop, saves and returns ACCEL_ERESUME. After
 * an earlier micro-batch it does nothing; between accel_next and accel_backward it is
 * an error. Collective. Errors: ACCEL_EDIVERGED (loss or norm not finite; nothing is
 * updated), ACCEL_ERESUME, ACCEL_ESTOPPED, ACCEL_EINVAL, ACCEL_EIO (log; a failed final
 * save). */
accel_status_t accel_step(accel_t *run, accel_error_t *err);
/* Mean loss of the run's only model over the held-out samples (at most `batches`
 * micro-batches per rank, 0: all); the last micro-batch may hold fewer samples than
 * job.batch. With several models: accel_model_evaluate. Computes no gradients. Frees
 * the tensors of the micro-batch, so it may not be called between accel_next and
 * accel_backward. The loss is NaN when a rank was told to stop. Collective. Errors:
 * ACCEL_EINVAL (no held-out samples, not exactly one model), those of the forward. */
accel_status_t accel_evaluate(accel_t *run, int batches, double *loss_out,
                              accel_error_t *err);
/* Writes a checkpoint of the current step now. Does nothing when the config has
 * accel.checkpoint.save: false. Collective. Errors: ACCEL_EINVAL (in the middle of a
 * step), ACCEL_ECREATE, ACCEL_EIO, ACCEL_EUNAVAIL (another run took the directory). */
accel_status_t accel_save(accel_t *run, accel_error_t *err);
/* Ends the run on this rank and frees everything the handle owns. Returns the first
 * failure of the run (ACCEL_ERESUME when it was told to stop and its state is saved),
 * so that
 *     return accel_exit_code(accel_close(run, &err));
 * gives every rank the right exit code. NULL is fine. From a function of the program
 * that the library has called it is refused and frees nothing. Collective. */
accel_status_t accel_close(accel_t *run, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

/* In this order: models use the types of ops. */
#include "accel_ops.h"
#include "accel_models.h"
#include "accel_text.h"
#include "accel_units.h"
#include "accel_loaders.h"
#include "accel_objects.h"
#include "accel_ranks.h"
#include "accel_state.h"
#include "accel_track.h"

#endif
