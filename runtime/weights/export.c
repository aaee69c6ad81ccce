/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_save_weights, accel_model_save: the master weights of all ranks into Hugging
 * Face files. Rank 0 writes. One slice of a parameter travels at a time, so that no
 * rank ever holds the whole model.
 */
#include <stdlib.h>
#include <string.h>

#include "models/huggingface/hf_config.h"
#include "training/local_sgd.h"
#include "backend/device.h"
#include "weights/weights.h"

/* elements gathered at a time: 16 MiB of float32 on rank 0 */
#define SLICE_ELEMS (4 << 20)

/* One call on this rank. */
struct export
{
    accel_t *run;
    /* NULL: the run's units */
    const struct run_model *model;
    const struct hf_names *names;
    struct weight_part *part;
    size_t parts;
    /* rank 0's; NULL elsewhere */
    accel_safetensors_writer_t *out;
    /* host memory: this rank's part of a slice, with a device; rank 0's whole slice */
    float *stage, *slice;
};

/* names of dtypes in accel.h and in safetensors files */
static const struct {
    const char *name, *stored;
} dtypes[] = { { "float32", "F32" }, { "bfloat16", "BF16" }, { "float16", "F16" } };

/* *stored_out: static text */
static accel_status_t stored_name(const char *dtype, const char **stored_out,
                                  accel_error_t *err)
{
    for (size_t i = 0; dtype && i < ACCEL_ARRAY_SIZE(dtypes); i++)
        if (strcmp(dtypes[i].name, dtype) == 0) {
            *stored_out = dtypes[i].stored;
            return ACCEL_OK;
        }
    return accel_fail(err, A0815, "use float32, bfloat16 or float16",
                      "weights cannot be written as '%.40s'", dtype ? dtype : "");
}

/* Rank 0: lays out the files, with Hugging Face names and shapes. */
static accel_status_t export_begin(struct export *x, const char *dir,
                                   const char *stored, int64_t shard_bytes,
                                   accel_error_t *err)
{
    accel_safetensors_entry_t *entry = calloc(x->parts + 1, sizeof(*entry));
    char(*name)[512] = calloc(x->parts + 1, sizeof(*name));
    accel_status_t st = ACCEL_OK;

    if (!entry || !name)
        st = accel_fail_nomem(err, "the list of parameters",
                              x->parts * (sizeof(*entry) + sizeof(*name)));
    for (size_t i = 0; i < x->parts && !st; i++) {
        const accel_tensor_t *p = x->part[i].param;
        bool transposed = hf_is_transposed(x->names, p->name);

        /* name 0 is the one to write */
        hf_name(x->names, p->name, 0, name[i], sizeof(name[i]));
        entry[i] = (accel_safetensors_entry_t){ .name = name[i], .ndim = p->ndim };
        for (int d = 0; d < p->ndim; d++)
            entry[i].shape[d] = p->dim[transposed ? p->ndim - 1 - d : d];
    }
    ACCEL_TRY(st, accel_safetensors_create(&x->out, dir, stored, entry, x->parts,
                                           shard_bytes, err));
    free(entry);
    free(name);
    return st;
}

/* Collective. Elements [first, first + count) of part i from all ranks to rank 0's
 * file. A failure of the file is kept in *bad, so that all ranks still go through the
 * same collectives. */
static accel_status_t slice(struct export *x, size_t i, int64_t first, int64_t count,
                            accel_status_t *bad, accel_error_t *why, accel_error_t *err)
{
    const struct weight_part *p = &x->part[i];
    bool transposed = hf_is_transposed(x->names, p->param->name);
    accel_status_t st =
        weight_gather(x->run, p, 0, first, count, x->stage, x->slice, err);

    /* after a failed write the rest is gathered and dropped */
    if (!st && x->out && !*bad)
        *bad = (transposed
                    ? accel_safetensors_write_transposed
                    : accel_safetensors_write)(x->out, i, first, count, x->slice, why);
    return st;
}

/* Elements of a parameter that travel at a time: whole rows, since
 * write_transposed takes no less. */
static int64_t slice_elems(const accel_tensor_t *p)
{
    int64_t row = p->elems / p->dim[0];

    return row < SLICE_ELEMS ? SLICE_ELEMS / row * row : row;
}

/* Host memory for the largest slice, where it is needed. */
static accel_status_t open_slices(struct export *x, accel_error_t *err)
{
    const bool staged = weights_are_staged(x->run), first = x->run->boot.rank == 0;
    int64_t most = 1;
    size_t bytes;

    for (size_t i = 0; i < x->parts; i++)
        if (slice_elems(x->part[i].param) > most)
            most = slice_elems(x->part[i].param);
    bytes = (size_t)most * sizeof(*x->stage);
    if (staged)
        x->stage = malloc(bytes);
    if (first)
        x->slice = malloc(bytes);
    if ((staged && !x->stage) || (first && !x->slice))
        return accel_fail_nomem(err, "weights on their way to a file", bytes);
    return ACCEL_OK;
}

/* All parameters; after each the ranks agree, so that a full disk on rank 0
 * ends the export for all. */
static accel_status_t write_all(struct export *x, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK, bad = ACCEL_OK;
    accel_error_t why = { 0 };

    for (size_t i = 0; i < x->parts && !st; i++) {
        const accel_tensor_t *p = x->part[i].param;
        int64_t most = slice_elems(p);

        /* a failed collective ends the loop at once, a failed
         * file after the parameter */
        for (int64_t at = 0; at < p->elems && !st; at += most)
            st = slice(x, i, at, p->elems - at < most ? p->elems - at : most, &bad,
                       &why, err);
        if (!st) {
            st = run_agree(x->run, bad, &why);
            if (st)
                *err = why;
        }
    }
    return st;
}

/* Rank 0 commits; the ranks agree on whether that worked. Collective. */
static accel_status_t export_finish(struct export *x, const char *dtype,
                                    accel_error_t *err)
{
    char *text = NULL;
    accel_status_t st = ACCEL_OK;

    if (x->out) {
        st = hf_config_text(x->model ? x->model->root : NULL, dtype, &text, err);
        ACCEL_TRY(st, accel_safetensors_commit(x->out, text ? "config.json" : NULL,
                                               text, err));
        free(text);
    }
    return run_agree(x->run, st, err);
}

/* Collective. Nothing is visible in `dir` until the commit; on failure writer_close
 * removes what was written. */
static accel_status_t export_model(accel_t *run, const struct run_model *model,
                                   const char *dir, const char *dtype,
                                   int64_t shard_bytes, accel_error_t *err)
{
    const accel_module_t *root = model ? model->root : NULL;
    struct export x = { .run = run, .model = model, .names = hf_names_of(root) };
    int64_t start = clock_ns();
    const char *stored = NULL;
    accel_status_t st = stored_name(dtype, &stored, err);

    ACCEL_TRY(st, local_sgd_meet(run, false, err));
    ACCEL_TRY(st, weight_parts(run, model, false, &x.part, &x.parts, err));
    ACCEL_TRY(st, open_slices(&x, err));
    if (!st && run->boot.rank == 0)
        st = export_begin(&x, dir, stored, shard_bytes, err);
    /* every rank must have its memory, and rank 0 its files */
    st = run_agree(run, st, err);
    ACCEL_TRY(st, write_all(&x, err));
    ACCEL_TRY(st, export_finish(&x, dtype, err));
    if (!st && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "%zu parameters written to %s as %s in %.2f s", x.parts, dir, dtype,
                   (double)(clock_ns() - start) / 1e9);
    accel_safetensors_writer_close(x.out);
    free(x.part);
    free(x.stage);
    free(x.slice);
    return st;
}

/* A failure of the files leaves the run as it was, and it may go on. Only the loss of a
 * peer is the run's error. */
static accel_status_t save_weights(accel_t *run, const struct run_model *model,
                                   const char *call, const char *dir, const char *dtype,
                                   int64_t shard_bytes, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    if (!dir || !*dir)
        return accel_fail(err, A0902, "pass a directory",
                          "%s: the directory is NULL or empty", call);
    st = export_model(run, model, dir, dtype, shard_bytes, &e);
    /* the ranks are no longer together: the run cannot go on */
    if (st == ACCEL_EPEER)
        return run_report(run, st, &e, err);
    if (st != ACCEL_OK && err)
        *err = e;
    return st;
}

accel_status_t accel_save_weights(accel_t *run, const char *dir, const char *dtype,
                                  int64_t shard_bytes, accel_error_t *err)
{
    static const char call[] = "accel_save_weights";
    const struct run_model *model;
    accel_status_t st = run_ready(run, call, err);

    ACCEL_TRY(st,
              models_only(run, call, "call accel_model_save for each", &model, err));
    return st ? st : save_weights(run, model, call, dir, dtype, shard_bytes, err);
}

accel_status_t accel_model_save(accel_t *run, accel_module_t *root, const char *dir,
                                const char *dtype, int64_t shard_bytes,
                                accel_error_t *err)
{
    static const char call[] = "accel_model_save";
    const struct run_model *model;
    accel_status_t st = run_ready(run, call, err);

    ACCEL_TRY(st, models_given(run, root, call, &model, err));
    return st ? st : save_weights(run, model, call, dir, dtype, shard_bytes, err);
}
