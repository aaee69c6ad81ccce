/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_track.h: trackers, which keep a run's numbers, texts and histograms in files
 * or pass them to the program; and helpers: facts of the run, seeds, timed regions, a
 * batch size that fits into memory, releasing memory.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_TRACK_H
#define ACCEL_TRACK_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- trackers -----------------------------------------------------------------------
 * Measurements of a run have a name and a step and go to every sink: to files in the
 * formats of the config's accel.track (or, if it is not set, of accel_track_files), and
 * to the program's own sinks. Rank 0 writes; on other ranks the calls only check their
 * arguments. A sink that fails never stops a run: a warning says when the failure
 * begins and when it ends.
 *
 * accel_step tracks train/loss, train/lr, train/grad_norm, train/step_ms,
 * train/tokens_per_s (or train/samples_per_s) and train/mem_peak_bytes; with a GPU also
 * train/gpu_peak_bytes, and after an evaluation eval/loss.
 *
 * Files are in OUT/track: track.jsonl and track.csv with one line per item, and
 * TensorBoard's event files, a new one for each attempt of a job. A resumed run
 * continues them: items of repeated steps are removed; in event files they are
 * superseded. All items are on disk before a checkpoint commits. */

/* What an item is. */
typedef enum accel_item_kind {
    ACCEL_ITEM_SCALAR = 0,    /* value */
    ACCEL_ITEM_TEXT = 1,      /* text */
    ACCEL_ITEM_HISTOGRAM = 2, /* values[count] */
} accel_item_kind_t;

/* One measurement: { .name = "eval/accuracy", .value = 0.93 }. */
typedef struct accel_item {
    /* 1 .. 255 bytes. A character other than a-z, A-Z, 0-9, '_', '-', '.' and '/' is
     * written as '_'; a leading '/' is dropped; '/' separates groups. */
    const char *name;
    accel_item_kind_t kind;
    double value;     /* SCALAR */
    const char *text; /* TEXT: UTF-8; TensorBoard shows it as Markdown */
    /* HISTOGRAM: in host memory. Files get count, minimum, maximum, sum, sum of squares
     * and 30 equal buckets of the finite values */
    const float *values;
    int64_t count;
} accel_item_t;

/* Passes items[n] to every sink. `step` counts like accel_steps_done; 0 is before the
 * first step. Arguments are read during the call only. After accel_prepare, also inside
 * a forward. Errors: ACCEL_EINVAL (invalid step, name, text or values; a run that is
 * not prepared). */
accel_status_t accel_track(accel_t *run, int64_t step, const accel_item_t *items, int n,
                           accel_error_t *err);

/* Chooses the formats of the files: a list such as "jsonl,tensorboard" of jsonl, csv
 * and tensorboard, or "none". The config's accel.track wins. Before accel_prepare.
 * Errors: ACCEL_EINVAL (another word, a run that is prepared). */
accel_status_t accel_track_files(accel_t *run, const char *formats, accel_error_t *err);

/* A sink of the program, called on rank 0 by the thread that calls the library. All
 * fields except `name` and `write` may be NULL. A function that fails fills `err`, for
 * instance with accel_error_set, and returns a status; the run goes on. */
typedef struct accel_sink {
    size_t bytes;
    const char *name; /* for messages; copied */
    /* Before the first write. `directory` is OUT/track, which may not exist. Items of
     * first_step and later steps that an earlier attempt wrote there are superseded; 0:
     * all. After a failure it is called again before each checkpoint. */
    accel_status_t (*open)(void *user, const char *directory, int64_t first_step,
                           accel_error_t *err);
    /* items[n] of one call of accel_track, with names and texts as they are written;
     * `time` in seconds since 1970. */
    accel_status_t (*write)(void *user, int64_t step, double time,
                            const accel_item_t *items, int n, accel_error_t *err);
    /* All writes must be durable on return: a checkpoint is about to commit. */
    accel_status_t (*flush)(void *user, accel_error_t *err);
    /* Called by accel_close, also for a sink that could not be opened. */
    void (*close)(void *user);
    void *user; /* must outlive the run */
} accel_sink_t;

/* Adds a sink of the program, at most 8; copied. Before or after accel_prepare; it gets
 * the items from then on. Errors: ACCEL_EINVAL (no name or write, a ninth). */
accel_status_t accel_track_sink(accel_t *run, const accel_sink_t *sink,
                                accel_error_t *err);

/* ---- helpers --------------------------------------------------------------------- */

/* Facts of a run. Texts belong to the run and are valid until accel_close. */
typedef struct accel_info {
    size_t bytes;
    const char *version;  /* accel_version() */
    const char *run_name; /* of accel_options */
    int rank, world_size;
    int local_rank, local_size; /* on this node */
    int node, nodes;
    const char *host;
    const char *device; /* "cpu" or "cuda" */
    const char *isa;    /* the CPU's instructions, or the GPU and its driver */
    const char *bus_id; /* PCI address of the GPU; "": none */
    int threads;
    const char *compute;       /* dtype of activations, "bfloat16" */
    const char *reduce;        /* dtype of gradients between ranks */
    const char *sharding;      /* "FULL_SHARD"; "NO_SHARD": whole copies */
    const char *config_source; /* "file", "srun" or "built-in" */
    const char *config_path;   /* "" unless it is a file */
    const char *config_set; /* keys that accel_options.set sets, "debug accel.track" */
    int restarts;           /* earlier attempts of this job */
    /* Set by accel_prepare; before it "" and 0. */
    const char *out_dir, *checkpoint_dir;
    int64_t steps_done, samples_done; /* samples of all ranks */
    int resumed;                      /* from a checkpoint */
} accel_info_t;
/* Fills *info_out. After accel_open. Errors: ACCEL_EINVAL. */
accel_status_t accel_info(const accel_t *run, accel_info_t *info_out,
                          accel_error_t *err);

/* Flag of accel_seed: a different value on each rank. Without it all ranks get the
 * same. */
#define ACCEL_SEED_PER_RANK 1u
/* A seed for one purpose of the program ("augment") and one use of it, index 0, 1, ...,
 * so that a new use changes no other. P(key, stream, index) is the first 64 bits of
 * Philox4x32-10 with `key` for the counter {index, stream} (64 bits each, low words
 * first), and H(name) = XXH3_64bits_withSeed(name, 1):
 *   seed = P(job.seed, H(purpose), index)
 *   per rank: P(seed, H("rank"), rank)
 * After accel_prepare. Errors: ACCEL_EINVAL (not prepared, no purpose, unknown
 * flag). */
accel_status_t accel_seed(const accel_t *run, const char *purpose, int64_t index,
                          unsigned flags, uint64_t *seed_out, accel_error_t *err);

/* Begins and ends a named region of the program's time, such as "augment"; regions
 * nest. NVIDIA's profilers (nsys) show them as NVTX ranges. Each step tracks
 * region/NAME_ms, the wall time on rank 0 (inner ones as region/OUTER/NAME_ms), and
 * logs it when accel.log_level is debug. On a GPU that is the time to queue work, not
 * to do it. Not collective. Errors: ACCEL_EINVAL (no name or more than 63 bytes; more
 * than 16 deep, or 239 bytes with the regions around it; more than 64 different ones;
 * the end of a region other than the innermost). */
accel_status_t accel_region_begin(accel_t *run, const char *name, accel_error_t *err);
accel_status_t accel_region_end(accel_t *run, const char *name, accel_error_t *err);

/* Tries `batch` samples per rank: usually a forward and backward of a micro-batch of
 * that size (accel_next_samples, accel_input, accel_call, accel_backward), but no
 * accel_step. Out of memory is ACCEL_ENOMEM. */
typedef accel_status_t (*accel_attempt_f)(void *user, int batch, accel_error_t *err);
/* Finds a batch size that fits: calls `attempt` with `first`, and with half of it
 * (rounded down) again as long as any rank runs out of memory. *batch_out gets the size
 * that fits, the same on all ranks. After each attempt, including the last, the run is
 * as before: tensors of the micro-batch are freed, gradients are zero, loaders are back
 * at their positions, running out of memory is no failure of the run, and a GPU works
 * again. Parameters, optimizer state and the order of samples are not touched. The
 * program must undo anything else that an attempt changes. Between steps only.
 * Collective. Errors: ACCEL_ENOMEM (not even 1 fits; the run goes on), ACCEL_EINVAL
 * (also an attempt that steps), those of `attempt`; ACCEL_EPEER where a rank ran out of
 * memory while others waited for it. */
accel_status_t accel_find_batch_size(accel_t *run, int first, accel_attempt_f attempt,
                                     void *user, int *batch_out, accel_error_t *err);

/* Returns to the system the memory that the run keeps for the next micro-batch: that of
 * activations and, on a GPU, of freed scratch buffers. The next micro-batch allocates
 * it again. Frees the tensors of the micro-batch. Parameters, gradients, optimizer
 * state, the buffers of gathers and reductions, and the workspace stay: their addresses
 * are in use, and accel_prepare has planned them. Between steps only; not collective.
 * *bytes_out (may be NULL): the bytes on this rank. Errors: ACCEL_EINVAL. */
accel_status_t accel_free_memory(accel_t *run, int64_t *bytes_out, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
