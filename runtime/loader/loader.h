/* SPDX-License-Identifier: Apache-2.0
 *
 * loader/: batches of a dataset for this rank, in the order of a sampler, by the rule
 * of batches. This header is for the rooms of a run: what a loader says about its last
 * batch, and its lines in checkpoints.
 */
#ifndef ACCEL_LOADER_LOADER_H
#define ACCEL_LOADER_LOADER_H

#include "comm/comm.h"
#include "common/common.h"
#include "handle/run_loaders.h"
#include "tensor/graph.h"

/* What accumulation and gather_for_metrics ask about the last batch. */
struct loader_state {
    bool at_end; /* it is the last of its epoch */
    /* samples of its step over all ranks, without those that repeat others; 0 if the
     * step is full, -1 if not known (accel_loader_remainder) */
    int64_t remainder;
    /* the same, but exact in every mode and for every step; the ranks' own samples
     * follow one another in rank order */
    int64_t step_real;
    /* samples of this rank's batch, and how many of them are its own */
    int count, real;
};

/* What a loader works with. All of it must outlive the loader. */
struct loader_place {
    struct graph *graph;
    struct comm *comm;
    int rank, ranks;
    struct loader_failure *failure;
    /* it meets the other ranks in no batch, and keeps none: a failure is noted, and its
     * batch is zeros (job_loader.c) */
    bool alone;
};

/* accel_loader_new without a run. */
accel_status_t loader_open(struct accel_loader **loader_out,
                           const struct loader_place *place, const char *name,
                           const accel_dataset_t *data, const accel_loader_options_t *o,
                           accel_error_t *err);
/* Advances to the next batch; *got_out is false at the end of the epoch. Collective as
 * accel_loader_next. */
accel_status_t loader_advance(struct accel_loader *l, bool *got_out,
                              accel_error_t *err);
/* The tensors of that batch, batch_out[fields], which the graph owns. */
accel_status_t loader_tensors(struct accel_loader *l, accel_tensor_t **batch_out,
                              accel_error_t *err);
void loader_free(struct accel_loader *l); /* NULL is fine */
/* The state after the last loader_advance. */
struct loader_state loader_state(const struct accel_loader *l);
/* A number for the first sample of the last batch: no other sample of this or another
 * epoch has it, whatever the number of ranks. */
int64_t loader_first_sample(const struct accel_loader *l);

/* Tells all ranks about a failure that one of them has noted: all return its status,
 * with its text and the rank's number. ACCEL_ESTOPPED: a stop ended the wait for a
 * sample. Collective. */
accel_status_t loader_agree(const struct loader_place *place, accel_error_t *err);

/* ---- job_loader.c ---------------------------------------------------------------- */

/* Which samples this rank takes of those that all take, and what loaders work with. */
struct loader_place run_place(accel_t *run);
/* Samples that all ranks have taken in the step in progress. */
int64_t run_step_samples(const accel_t *run);
/* The number of this rank's first sample of the next micro-batch. In each micro-batch
 * every rank takes job.batch of them, in rank order. */
int64_t run_first_sample(const accel_t *run);
/* Opens run->job_loader if the job has data. A0902: a batch is too large. */
accel_status_t job_loader_open(accel_t *run, accel_error_t *err);
/* That loader, before the run's next micro-batch; held_out: before the first batch of
 * the held-out part, where a rank beyond its end repeats the first sample. */
struct accel_loader *job_loader_at(accel_t *run, bool held_out);

/* ---- loader_blame.c -------------------------------------------------------------- */

/* If ranks made different calls, names in *e a loader that may be the reason. */
void loaders_blame(const accel_t *run, accel_error_t *e);

/* ---- loader_memory.c: for the plan ----------------------------------------------- */

/* Bytes that loaders hold: batches read ahead and tables of orders in host memory,
 * upload buffers in device memory. */
struct loader_memory {
    int64_t host, device;
};

struct loader_memory loader_memory(const struct accel_loader *l);
/* Of all loaders of the run that are open. */
struct loader_memory loaders_memory(const accel_t *run);

/* ---- loader_state.c: checkpoints ------------------------------------------------- */

/* Appends the line of this loader: its name, how many samples of its epoch all ranks
 * have taken, and what its order depends on. */
void loader_state_encode(const struct accel_loader *l, struct strbuf *text);
/* Goes to the position in the line of this loader in `text`, whatever number of ranks
 * wrote it. *found_out is false if there is no such line; then nothing changes. A0932:
 * the line is for another order. */
accel_status_t loader_state_decode(struct accel_loader *l, const char *text,
                                   bool *found_out, accel_error_t *err);
/* Checks only for A0932. */
accel_status_t loader_state_check(const struct accel_loader *l, const char *text,
                                  accel_error_t *err);

/* ---- loader_lines.c: the loaders of a run in its checkpoints --------------------- */

/* How those lines begin. */
#define LOADER_LINE_FRONT "loader."
/* Appends the lines of the run's loaders, those that wait, and the run's count of
 * samples. */
void loaders_encode(const accel_t *run, struct strbuf *text);
/* That count in `text`; false: there is none. */
bool loaders_taken(const char *text, int64_t *taken_out);
/* Not collective. Checks the lines in `text` for the loaders that are open, and keeps
 * all lines for loaders_load. A0932 as above. */
accel_status_t loaders_find(accel_t *run, const char *text, accel_error_t *err);
/* Moves the loaders to the positions that loaders_find kept. If the run is prepared, so
 * that it goes back, loaders without a line go to their start. Other lines wait. */
void loaders_load(accel_t *run);
/* Moves a loader just opened to the position waiting for its name. A0932 as above. */
accel_status_t loaders_claim(struct accel_loader *l, accel_error_t *err);
/* Moves the open loaders back to the positions in `text`, which loaders_encode wrote in
 * this attempt; a loader opened since then stays where it is. */
void loaders_back(accel_t *run, const char *text);
/* Call this when a step of the run is done. Notes the positions. */
void loaders_keep(accel_t *run);
/* Call this when no more batches will be taken. Goes back to the positions of the last
 * loaders_keep, for checkpoints. */
void loaders_recall(accel_t *run);
/* Warns, once per load, about the lines that still wait. */
void loaders_tell(accel_t *run);
/* Frees the lines. */
void loaders_forget(accel_t *run);

#endif
