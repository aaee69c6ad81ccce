/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel ckpt export DIR OUT`: tensors of a checkpoint as safetensors files. Weights
 * get the names and layouts that accel_save_weights gives them, and those of a model of
 * the library its config.json; with --all every tensor keeps its name and its dtype.
 * A part of a tensor is in memory at a time, and nothing is visible before the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel_safetensors.h"
#include "checkpoint/ckpt_tools.h"
#include "cli/data/ckpt_cmd.h"
#include "models/family.h"

/* prefix of the tensors that are weights */
static const char weights_prefix[] = "model/";

/* Names of dtypes in checkpoints and in safetensors files. */
static const struct {
    accel_dtype_t dtype;
    const char *stored;
} stored[] = {
    { ACCEL_F32, "F32" },        { ACCEL_BF16, "BF16" },      { ACCEL_I32, "I32" },
    { ACCEL_U16, "U16" },        { ACCEL_U8, "U8" },          { ACCEL_F64, "F64" },
    { ACCEL_I64, "I64" },        { ACCEL_F16, "F16" },        { ACCEL_I8, "I8" },
    { ACCEL_F8E4M3, "F8_E4M3" }, { ACCEL_F8E5M2, "F8_E5M2" },
};

/* One export. */
struct export
{
    const struct ckpt_args *args;
    accel_ckpt_t *c;
    struct ckpt_model model;
    const struct hf_names *names;
    /* [count]: the tensors to write, by the size of their elements, then by name */
    struct ckpt_view *view;
    char(*name)[512];
    size_t count;
    accel_safetensors_writer_t *out;
    void *part;
    struct ckpt_progress progress;
    /* files of the tokenizer that were copied */
    int tokenizer;
};

/* What --dtype says, as the files have it; NULL: nothing that weights can be. */
static const char *weights_dtype(const char *dtype)
{
    static const char *const names[][2] = { { "float32", "F32" },
                                            { "bfloat16", "BF16" },
                                            { "float16", "F16" } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++)
        if (strcmp(names[i][0], dtype ? dtype : "float32") == 0)
            return names[i][1];
    return NULL;
}

static const char *stored_dtype(accel_dtype_t t)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(stored); i++)
        if (stored[i].dtype == t)
            return stored[i].stored;
    return NULL;
}

/* Wide elements first, so that every tensor is aligned in the file. */
static int wide_first(const void *pa, const void *pb)
{
    const struct ckpt_view *a = pa, *b = pb;
    size_t m = accel_dtype_bytes(a->dtype), n = accel_dtype_bytes(b->dtype);

    return m != n ? (m < n) - (m > n) : strcmp(a->name, b->name);
}

/* A matrix that Hugging Face stores as its transpose. */
static bool is_transposed(const struct export *x, const struct ckpt_view *v)
{
    return !x->args->all && v->ndim == 2 && hf_is_transposed(x->names, v->name);
}

/* Which tensors, and what they are called. */
static accel_status_t choose(struct export *x, accel_error_t *err)
{
    size_t n = accel_ckpt_tensor_count(x->c);

    x->view = calloc(n + 1, sizeof(*x->view));
    x->name = calloc(n + 1, sizeof(*x->name));
    if (!x->view || !x->name)
        return accel_fail_nomem(err, "the list of tensors", n * sizeof(*x->name));
    for (size_t i = 0; i < n; i++) {
        struct ckpt_view *v = &x->view[x->count];

        ckpt_view(x->c, i, v);
        if (!x->args->all && strncmp(v->name, weights_prefix, 6) != 0)
            continue;
        if (!x->args->all && !ckpt_is_weight(x->c, v))
            return accel_fail_at(err, A0827, v->name, "give --all",
                                 "a weight of dtype %s", accel_dtype_name(v->dtype));
        x->count++;
        x->progress.total += v->elems * (int64_t)accel_dtype_bytes(v->dtype);
    }
    if (x->count == 0 && ckpt_tensor_find(x->c, "flat/0") >= 0)
        return accel_fail_at(err, A0847, x->args->path[0],
                             "resume the run that wrote it, with fsdp_state_dict_type: "
                             "SHARDED_STATE_DICT, and export what it saves",
                             "the checkpoint has flat shards (LOCAL_STATE_DICT), whose "
                             "weights have no names");
    if (x->count == 0)
        return accel_fail_at(err, A0825, x->args->path[0],
                             "give --all for what is there",
                             "the checkpoint holds no tensor %s...", weights_prefix);
    qsort(x->view, x->count, sizeof(*x->view), wide_first);
    for (size_t i = 0; i < x->count; i++)
        if (x->args->all)
            snprintf(x->name[i], sizeof(x->name[i]), "%s", x->view[i].name);
        else
            hf_name(x->names, x->view[i].name + 6, 0, x->name[i], sizeof(x->name[i]));
    return ACCEL_OK;
}

/* Lays out the files. */
static accel_status_t begin(struct export *x, accel_error_t *err)
{
    accel_safetensors_entry_t *entry = calloc(x->count, sizeof(*entry));
    accel_status_t st;

    if (!entry)
        return accel_fail_nomem(err, "the list of tensors", x->count * sizeof(*entry));
    for (size_t i = 0; i < x->count; i++) {
        const struct ckpt_view *v = &x->view[i];
        bool transposed = is_transposed(x, v);

        entry[i] =
            (accel_safetensors_entry_t){ .name = x->name[i],
                                         .ndim = v->ndim,
                                         .dtype = x->args->all ? stored_dtype(v->dtype)
                                                               : NULL };
        for (int d = 0; d < v->ndim; d++)
            entry[i].shape[d] = v->shape[transposed ? v->ndim - 1 - d : d];
    }
    st = accel_safetensors_create(&x->out, x->args->path[1],
                                  weights_dtype(x->args->dtype), entry, x->count,
                                  x->args->shard_bytes, err);
    free(entry);
    return st;
}

/* Elements that are read at a time: of a transposed matrix whole rows. */
static int64_t part_elems(const struct export *x, const struct ckpt_view *v,
                          bool transposed)
{
    int64_t most = ckpt_part_elems(x->args->all ? v->dtype : ACCEL_F32),
            row = transposed ? v->shape[1] : 1;

    return most > row ? most / row * row : row;
}

/* Elements [at, at + n) of tensor i, by way of x->part. */
static accel_status_t put_part(struct export *x, size_t i, int64_t at, int64_t n,
                               accel_error_t *err)
{
    const struct ckpt_view *v = &x->view[i];
    float *wide = x->part;
    accel_status_t st;

    if (x->args->all) {
        st = ckpt_read_part(x->c, v, at, n, x->part, err);
        return st ? st : accel_safetensors_write_stored(x->out, i, at, n, x->part, err);
    }
    ACCEL_CHECK(st, ckpt_read_weights(x->c, v, at, n, wide, wide + n, err));
    return (is_transposed(x, v) ? accel_safetensors_write_transposed
                                : accel_safetensors_write)(x->out, i, at, n, wide, err);
}

/* One tensor, part by part. */
static accel_status_t put(struct export *x, size_t i, accel_error_t *err)
{
    const struct ckpt_view *v = &x->view[i];
    int64_t most = v->elems ? part_elems(x, v, is_transposed(x, v)) : 1;
    size_t size = accel_dtype_bytes(v->dtype);
    size_t room = (size_t)most * size;
    accel_status_t st = ACCEL_OK;
    void *part;

    if (!x->args->all)
        room = (size_t)most * sizeof(float) + ckpt_weight_room(v, most);
    /* larger than usual for a transposed matrix with one long row only */
    part = realloc(x->part, room);
    if (!part)
        return accel_fail_nomem(err, "a part of a tensor", room);
    x->part = part;
    for (int64_t at = 0; at < v->elems && !st; at += most) {
        int64_t n = v->elems - at < most ? v->elems - at : most;

        st = put_part(x, i, at, n, err);
        ckpt_progress_add(&x->progress, n * (int64_t)size);
    }
    return st;
}

/* The rules of names: --hf, or what the run has noted. With --hf of another type only
 * the names are known, not the sizes. */
static accel_status_t find_model(struct export *x, accel_error_t *err)
{
    const struct ckpt_args *a = x->args;
    const char *type = a->hf;
    accel_status_t st = ACCEL_OK;
    char shown[32];

    if (!a->all)
        st = ckpt_model_read(x->c, a->dtype ? a->dtype : "float32", &x->model, err);
    if (!type && *x->model.type)
        type = x->model.type;
    x->names = hf_names_for(type);
    if (!st && !x->names)
        st = accel_fail_at(err, A0642, ckpt_path(x->c),
                           "use the version of accel that wrote it",
                           "this version does not know models of type %s",
                           hf_json_shown(type, shown, sizeof(shown)));
    if (a->hf && strcmp(a->hf, x->model.type) != 0) {
        free(x->model.config);
        x->model = (struct ckpt_model){ 0 };
    }
    return st;
}

/* Everything between opening and closing. */
static accel_status_t export_all(struct export *x, accel_error_t *err)
{
    accel_status_t st = find_model(x, err);

    ACCEL_TRY(st, choose(x, err));
    ACCEL_TRY(st, begin(x, err));
    for (size_t i = 0; i < x->count && !st; i++)
        st = put(x, i, err);
    ACCEL_TRY(st,
              accel_safetensors_commit(x->out, x->model.config ? "config.json" : NULL,
                                       x->model.config, err));
    if (!st)
        x->tokenizer = ckpt_model_tokenizer(&x->model, x->args->path[1]);
    ckpt_progress_end(&x->progress);
    return st;
}

static int say_done(const struct export *x)
{
    char size[32];

    if (x->args->json)
        printf("{\"tensors\": %zu, \"bytes\": %lld}\n", x->count,
               (long long)x->progress.total);
    else
        printf("%zu tensors, %s of the checkpoint of step %lld, are in %s%s%s\n",
               x->count, format_bytes((double)x->progress.total, size, sizeof(size)),
               (long long)accel_ckpt_step(x->c), x->args->path[1],
               x->model.config               ? ", with config.json"
               : x->args->hf || x->args->all ? ""
                                             : ", under the run's own names",
               x->tokenizer ? " and the tokenizer's files" : "");
    return cli_finish(0);
}

/* Would removing the checkpoint remove what is written to `path`, too? Looks at the
 * longest part of the path that is there. */
static bool is_inside(const char *path, const char *dir)
{
    char *real_dir = realpath(dir, NULL), *part = strdup(path), *real = NULL, *slash;
    const size_t len = real_dir ? strlen(real_dir) : 0;
    bool inside;

    while (part && !(real = realpath(*part ? part : "/", NULL)) &&
           (slash = strrchr(part, '/')))
        *slash = '\0';
    if (!real)
        real = realpath(".", NULL);
    inside = real && len > 0 && strncmp(real, real_dir, len) == 0 &&
             (real[len] == '/' || real[len] == '\0');
    free(real_dir);
    free(part);
    free(real);
    return inside;
}

int ckpt_export(const struct ckpt_args *a)
{
    struct export x = { .args = a, .progress = { .what = "exported", .off = a->json } };
    accel_error_t err = { 0 };
    accel_status_t st = ACCEL_OK;
    char types[128], hf[160];
    int code;

    snprintf(hf, sizeof(hf), "--hf takes %s",
             model_family_list(MODEL_TYPES, types, sizeof(types)));
    if (!hf_names_for(a->hf) || !weights_dtype(a->dtype) ||
        (a->all && (a->hf || a->dtype)))
        st = accel_fail(&err, A0010, "see accel ckpt --help", "%s",
                        !hf_names_for(a->hf) ? hf
                        : a->all ? "--all keeps names and dtypes as they are"
                                 : "--dtype takes float32, bfloat16 or float16");
    ACCEL_TRY(st, ckpt_open_path(&x.c, a->path[0], &err));
    if (!st && a->remove && is_inside(a->path[1], ckpt_path(x.c)))
        st = accel_fail_at(&err, A0010, a->path[1], "write to a directory beside it",
                           "the output lies in the checkpoint that is to be removed");
    ACCEL_TRY(st, export_all(&x, &err));
    if (!st && a->remove)
        st = ckpt_remove(ckpt_path(x.c), &err);
    code = st ? cli_fail(&err) : say_done(&x);
    accel_safetensors_writer_close(x.out);
    accel_ckpt_close(x.c);
    free(x.view);
    free(x.name);
    free(x.part);
    free(x.model.config);
    return code;
}
