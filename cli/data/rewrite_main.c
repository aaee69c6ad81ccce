/* SPDX-License-Identifier: Apache-2.0
 *
 * accel-rewrite: writes checkpoints from other data, for `accel ckpt split`, `merge`,
 * `import`, `index`, `prune` and `repair`. A program of its own, so that `accel` starts
 * without the HDF5 library.
 *
 *     accel-rewrite --json|--text WHAT, of which WHAT is
 *         split DIR OUT FILES    the checkpoint DIR, cut over FILES files
 *         import FILE OUT FILES [PREFIX [ENDING ...]]
 *                                safetensors as the weights of step 0: names lose the
 *                                prefix, matrices with an ending are stored transposed
 *         index DIR              index.h5 in the checkpoint DIR
 *     accel-rewrite prune|repair DIR KEEP EVERY BEST METRIC LARGER FLAGS
 *                         tidies DIR; FLAGS: n for a dry run, j for JSON
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel_safetensors.h"
#include "checkpoint/ckpt_tools.h"
#include "cli/data/ckpt_cmd.h"

/* Where the tensors come from: one of c and weights. */
struct source {
    accel_ckpt_t *c;
    accel_safetensors_t *weights;
    accel_ckpt_box_t *tensor;
    size_t count;
    /* of imported tensors: their names, which have a prefix, where they come from, and
     * how the files name and store them */
    char (*name)[512];
    const accel_safetensors_tensor_t **from;
    const char *prefix;
    char *const *transposed;
    struct ckpt_progress progress;
};

static bool is_transposed(const struct source *s, const accel_safetensors_tensor_t *t)
{
    const size_t len = strlen(t->name);

    for (char *const *end = s->transposed; t->ndim == 2 && *end; end++)
        if (len >= strlen(*end) && strcmp(t->name + len - strlen(*end), *end) == 0)
            return true;
    return false;
}

/* A part of what ckpt_copy asks for, whose size it bounds. */
static accel_status_t read_source(void *user, size_t i, int64_t begin, int64_t count,
                                  void *data, accel_error_t *err)
{
    struct source *s = user;
    const accel_ckpt_box_t *t = &s->tensor[i];
    accel_status_t st;

    if (s->c) {
        struct ckpt_view v;

        ckpt_view(s->c, i, &v);
        st = ckpt_read_part(s->c, &v, begin, count, data, err);
    } else {
        st = (is_transposed(s, s->from[i]) ? accel_safetensors_read_transposed
                                           : accel_safetensors_read)(
            s->weights, s->from[i], begin, count, data, err);
    }
    ckpt_progress_add(&s->progress, count * (int64_t)accel_dtype_bytes(t->dtype));
    return st;
}

static int say_done(const struct source *s, const struct ckpt_copy *x, bool json)
{
    char size[32];

    if (json)
        printf("{\"step\": %lld, \"tensors\": %zu, \"bytes\": %lld, \"files\": %d}\n",
               (long long)x->step, s->count, (long long)s->progress.done, x->shards);
    else
        printf("%zu tensors, %s, are in %s/step_%08lld, in %d file%s\n", s->count,
               format_bytes((double)s->progress.done, size, sizeof(size)), x->root,
               (long long)x->step, x->shards, x->shards == 1 ? "" : "s");
    return cli_finish(0);
}

/* Writes what the source has. */
static accel_status_t rewrite(struct source *s, struct ckpt_copy *x, accel_error_t *err)
{
    accel_status_t st;

    for (size_t i = 0; i < s->count; i++) {
        int64_t elems = 1;

        for (int d = 0; d < s->tensor[i].ndim; d++)
            elems *= s->tensor[i].global_shape[d];
        s->progress.total += elems * (int64_t)accel_dtype_bytes(s->tensor[i].dtype);
    }
    s->progress.what = "written";
    x->tensors = s->tensor;
    x->tensor_count = s->count;
    x->read = read_source;
    x->user = s;
    st = ckpt_copy(x, err);
    ckpt_progress_end(&s->progress);
    return st;
}

/* ---- split ----------------------------------------------------------------------- */

/* All blobs of a checkpoint; *blobs_out is one malloc. */
static accel_status_t list_blobs(const accel_ckpt_t *c, accel_ckpt_blob_t **blobs_out,
                                 size_t *count_out, accel_error_t *err)
{
    accel_ckpt_blob_t b, *blobs;
    size_t n = 0;

    while (ckpt_blob_at(c, n, &b.data, &b.bytes))
        n++;
    blobs = calloc(n + 1, sizeof(*blobs));
    if (!blobs)
        return accel_fail_nomem(err, "the list of blobs", (n + 1) * sizeof(*blobs));
    for (size_t i = 0; i < n; i++)
        blobs[i].name = ckpt_blob_at(c, i, &blobs[i].data, &blobs[i].bytes);
    *blobs_out = blobs;
    *count_out = n;
    return ACCEL_OK;
}

/* All tensors and blobs of the checkpoint, under the same step and run-id, so that a
 * run takes up either. */
static accel_status_t split(struct source *s, struct ckpt_copy *x, const char *dir,
                            accel_error_t *err)
{
    accel_ckpt_blob_t *blobs = NULL;
    accel_status_t st = ckpt_open_path(&s->c, dir, err);

    if (!st) {
        s->count = accel_ckpt_tensor_count(s->c);
        s->tensor = calloc(s->count + 1, sizeof(*s->tensor));
        st = s->tensor ? list_blobs(s->c, &blobs, &x->blob_count, err)
                       : accel_fail_nomem(err, "the list of tensors",
                                          s->count * sizeof(*s->tensor));
    }
    for (size_t i = 0; i < s->count && !st; i++) {
        struct ckpt_view v;

        ckpt_view(s->c, i, &v);
        s->tensor[i].name = v.name;
        s->tensor[i].dtype = v.dtype;
        s->tensor[i].ndim = v.ndim;
        memcpy(s->tensor[i].global_shape, v.shape, (size_t)v.ndim * sizeof(*v.shape));
    }
    if (!st) {
        x->step = accel_ckpt_step(s->c);
        x->run_id = accel_ckpt_run_id(s->c);
        x->blobs = blobs;
        st = rewrite(s, x, err);
    }
    free(blobs);
    return st;
}

/* ---- import ---------------------------------------------------------------------- */

static bool is_float(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "BF16") == 0 ||
           strcmp(dtype, "F16") == 0 || strcmp(dtype, "F64") == 0;
}

/* Weights are float32 in checkpoints; what is no float is no weight, and is said. */
static accel_status_t take_weight(struct source *s, const accel_safetensors_tensor_t *t,
                                  accel_error_t *err)
{
    accel_ckpt_box_t *box = &s->tensor[s->count];
    const size_t cut = strlen(s->prefix);
    const char *param = t->name + (strncmp(t->name, s->prefix, cut) == 0 ? cut : 0);
    char *name = s->name[s->count];
    const bool transposed = is_transposed(s, t);

    if (!is_float(t->dtype)) {
        fprintf(stderr, "left out, since weights are floats: a tensor of dtype %s\n",
                t->dtype);
        return ACCEL_OK;
    }
    if (strlen(t->name) >= sizeof(*s->name) ||
        (size_t)snprintf(name, sizeof(*s->name), "model/%s", param) >= sizeof(*s->name))
        return accel_fail_at(err, A0815, t->file, "rename the tensor",
                             "the name of a tensor has more than 505 bytes");
    *box = (accel_ckpt_box_t){ .name = name, .dtype = ACCEL_F32, .ndim = t->ndim };
    for (int d = 0; d < t->ndim; d++)
        box->global_shape[d] = t->shape[transposed ? t->ndim - 1 - d : d];
    s->from[s->count++] = t;
    return ACCEL_OK;
}

/* A checkpoint of step 0 without the state of a run: accel_load_part takes it. */
static accel_status_t import(struct source *s, struct ckpt_copy *x, const char *path,
                             accel_error_t *err)
{
    accel_status_t st = accel_safetensors_open(&s->weights, path, err);
    size_t n = st ? 0 : accel_safetensors_count(s->weights);

    if (st)
        return st;
    s->tensor = calloc(n + 1, sizeof(*s->tensor));
    s->name = calloc(n + 1, sizeof(*s->name));
    s->from = calloc(n + 1, sizeof(*s->from));
    if (!s->tensor || !s->name || !s->from)
        return accel_fail_nomem(err, "the list of tensors", n * sizeof(*s->name));
    for (size_t i = 0; i < n && !st; i++)
        st = take_weight(s, accel_safetensors_at(s->weights, i), err);
    if (st)
        return st;
    x->run_id = "imported weights";
    return rewrite(s, x, err);
}

/* ---- index ----------------------------------------------------------------------- */

static int make_index(const char *dir, bool json)
{
    struct ckpt_progress progress = { .counts = "tensors", .off = json };
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    accel_status_t st = ckpt_open_path(&c, dir, &err);

    ACCEL_TRY(st, ckpt_index(c, ckpt_progress_read, &progress, &err));
    ckpt_progress_end(&progress);
    if (!st && json)
        printf("{\"step\": %lld, \"tensors\": %zu}\n", (long long)accel_ckpt_step(c),
               accel_ckpt_tensor_count(c));
    else if (!st)
        printf("index.h5 shows HDF5 tools the %zu tensors of step %lld\n",
               accel_ckpt_tensor_count(c), (long long)accel_ckpt_step(c));
    accel_ckpt_close(c);
    return cli_finish(st ? cli_fail(&err) : 0);
}

/* ---- prune, repair --------------------------------------------------------------- */

static void add_decision(void *user, const char *name, const char *action,
                         const char *why)
{
    cli_table_row(user, (const char *[]){ name, action, why });
}

/* What was done is printed even if the rest failed. */
static int tidy(char **argv)
{
    static const char *const columns[] = { "NAME", "ACTION", "WHY", NULL };
    struct cli_table *t = cli_table_new("decisions", columns);
    const bool json = strchr(argv[8], 'j') != NULL;
    struct ckpt_progress progress = { .off = json };
    struct ckpt_prune p = { .root = argv[2],
                            .keep = atoi(argv[3]),
                            .every = atoll(argv[4]),
                            .best = atoi(argv[5]),
                            .metric = argv[6][0] ? argv[6] : NULL,
                            .larger = atoi(argv[7]),
                            .dry_run = strchr(argv[8], 'n') != NULL,
                            .report = add_decision,
                            .user = t,
                            .progress = ckpt_progress_read,
                            .progress_user = &progress };
    accel_error_t err = { 0 };
    accel_status_t st;
    int code;

    if (!t)
        return cli_no_memory("the table");
    st = (strcmp(argv[1], "prune") == 0 ? ckpt_prune : ckpt_repair)(&p, &err);
    ckpt_progress_end(&progress);
    code = cli_table_print(t, json);
    return st ? cli_fail(&err) : code;
}

/* No argp here: `accel ckpt` is the only caller, and it checks its own command line. */
int main(int argc, char **argv)
{
    struct source s = { 0 };
    struct ckpt_copy x = { .sharding = "FLAT" };
    accel_error_t err = { 0 };
    accel_status_t st;
    bool json;
    int code;

    if (argc == 9 && argv[1][0] != '-')
        return tidy(argv);
    json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (argc == 4 && strcmp(argv[2], "index") == 0)
        return make_index(argv[3], json);
    if (argc < 6) {
        fprintf(stderr,
                "accel-rewrite: run `accel ckpt split` or `accel ckpt import`\n");
        return accel_exit_code(ACCEL_EUSAGE);
    }
    s.prefix = argc > 6 ? argv[6] : "";
    s.transposed = argv + (argc > 6 ? 7 : 6);
    s.progress.off = json;
    x.root = argv[4];
    x.shards = atoi(argv[5]);
    if (x.shards == 1)
        x.sharding = "NO_SHARD";
    st = (strcmp(argv[2], "split") == 0 ? split : import)(&s, &x, argv[3], &err);
    code = st ? cli_fail(&err) : say_done(&s, &x, json);
    accel_ckpt_close(s.c);
    accel_safetensors_close(s.weights);
    free(s.tensor);
    free(s.from);
    free(s.name);
    return code;
}
