/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_load_weights, accel_model_load: Hugging Face files into the shards. Each rank
 * reads the ranges that it keeps, a few tensors at a time. Never changes the
 * optimizer's state or the progress.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "training/ema.h"
#include "backend/device.h"
#include "weights/weights.h"

/* elements that one thread reads at a time: as stored, and transposed */
#define STRAIGHT_ELEMS (1 << 20)
#define TURNED_ELEMS   (4 << 20)
/* elements compared at a time when tied tensors are held against each other */
#define COMPARE_ELEMS (64 << 10)
#define NAME_BYTES    512

/* ---- this rank's parts ----------------------------------------------------------- */

/* Flat range of a box: its first element in the tensor, and how many it has. The boxes
 * of a shard are cut from one range, so those of a parameter follow each other. */
static void range_of(const accel_ckpt_box_t *box, int64_t *begin_out,
                     int64_t *count_out)
{
    int64_t stride = 1;

    *begin_out = 0;
    *count_out = 1;
    for (int d = box->ndim - 1; d >= 0; d--) {
        *begin_out += box->offset[d] * stride;
        *count_out *= box->shape[d];
        stride *= box->global_shape[d];
    }
}

/* Is it the full name of a parameter of the model? Names of models have no slash. */
static bool is_of(const struct run_model *model, const char *name)
{
    size_t len = model ? strlen(model->name) : 0;

    return !len || (strncmp(name, model->name, len) == 0 && name[len] == '/');
}

/* The parameter's name in that of a box of weights or of their scales; NULL: it is a
 * box of the optimizer's state. */
static const char *param_of_box(const char *name)
{
    const bool weights = strncmp(name, "model/", 6) == 0;

    return weights || shard_is_exponents(name) ? strchr(name, '/') + 1 : NULL;
}

/* Joins boxes to parts. Boxes come in the order of the parameters, those of one
 * parameter in memory order, so one pass is enough. Boxes of the optimizer's state and
 * of other models are passed over. */
static void take_boxes(const struct run_model *model, struct weight_part *part,
                       size_t n, const accel_ckpt_box_t *box, size_t boxes)
{
    size_t at = 0;

    for (size_t i = 0; i < boxes; i++) {
        const char *name = param_of_box(box[i].name);
        int64_t begin, count;

        if (!name || !is_of(model, name))
            continue;
        while (at < n && strcmp(tensor_full_name(part[at].param), name) != 0)
            at++;
        if (at == n)
            return;
        if (shard_is_exponents(box[i].name)) {
            part[at].exponent = box[i].data;
            continue;
        }
        range_of(&box[i], &begin, &count);
        if (part[at].count == 0) {
            part[at].begin = begin;
            part[at].data = box[i].data;
            part[at].type = box[i].dtype;
        }
        part[at].count += count;
    }
}

/* shard_boxes names what is stored; a parameter without a box keeps count 0. */
accel_status_t weight_parts(accel_t *run, const struct run_model *model, bool for_load,
                            struct weight_part **parts_out, size_t *count_out,
                            accel_error_t *err)
{
    accel_ckpt_box_t *box = NULL;
    struct weight_part *part;
    size_t boxes = 0, n = 0;
    accel_status_t st;

    for (int u = 0; u < run->units.count; u++)
        n += (size_t)run->units.unit[u].param_count;
    part = calloc(n + 1, sizeof(*part));
    if (!part)
        return accel_fail_nomem(err, "the list of parameters", n * sizeof(*part));
    n = 0;
    for (int u = 0; u < run->units.count; u++)
        for (int i = 0; i < run->units.unit[u].param_count; i++)
            if (is_of(model, tensor_full_name(run->units.unit[u].param[i])))
                part[n++].param = run->units.unit[u].param[i];
    st = shard_boxes(run->shard, for_load, &box, &boxes, err);
    if (st) {
        free(part);
        return st;
    }
    take_boxes(model, part, n, box, boxes);
    free(box);
    *parts_out = part;
    *count_out = n;
    return ACCEL_OK;
}

/* ---- which tensor is which parameter --------------------------------------------- */

/* One call on this rank. */
struct load {
    accel_t *run;
    /* NULL: the run's units */
    const struct run_model *model;
    const struct hf_names *names;
    accel_safetensors_t *file;
    struct weight_part *part;
    size_t parts;
    /* [parts]: the tensor it is read from; NULL: keeps its values */
    const accel_safetensors_tensor_t **from;
    /* [tensors]: is a parameter's source */
    bool *used;
    /* for the log: heads without values, tensors without a parameter */
    struct strbuf kept, left;
    /* how many of the latter; only the first 20 are in the text */
    size_t lefts;
};

void weight_shape_text(int ndim, const int64_t *dim, bool transposed, char *buf,
                       size_t len)
{
    size_t used = (size_t)snprintf(buf, len, "[");

    for (int d = 0; d < ndim && used < len; d++)
        used += (size_t)snprintf(buf + used, len - used, "%s%lld", d ? ", " : "",
                                 (long long)dim[transposed ? ndim - 1 - d : d]);
    if (used < len)
        snprintf(buf + used, len - used, "]");
}

/* The shapes must agree, after transposition where the model's files have it. */
static accel_status_t check_shape(const struct load *l, const accel_tensor_t *p,
                                  const accel_safetensors_tensor_t *t,
                                  accel_error_t *err)
{
    bool transposed = hf_is_transposed(l->names, p->name), same = t->ndim == p->ndim;
    char ours[128], theirs[128];

    for (int d = 0; same && d < p->ndim; d++)
        same = t->shape[d] == p->dim[transposed ? p->ndim - 1 - d : d];
    if (same)
        return ACCEL_OK;
    weight_shape_text(p->ndim, p->dim, transposed, ours, sizeof(ours));
    weight_shape_text(t->ndim, t->shape, false, theirs, sizeof(theirs));
    return accel_fail_at(
        err, A0830, t->file, "build the model from the config.json of these weights",
        "%.200s has shape %s in the file, but %s in the model", p->name, theirs, ours);
}

/* The first tensor that is there under one of a name's forms. */
static const accel_safetensors_tensor_t *find_name(const struct load *l,
                                                   const char *param)
{
    const accel_safetensors_tensor_t *t = NULL;
    char name[NAME_BYTES];

    for (int k = 0; !t && hf_name(l->names, param, k, name, sizeof(name)); k++)
        t = accel_safetensors_find(l->file, name);
    return t;
}

/* Are the two forms of one name? */
static bool same_name(const struct load *l, const char *a, const char *b)
{
    char x[NAME_BYTES], y[NAME_BYTES];

    return hf_name(l->names, a, 0, x, sizeof(x)) &&
           hf_name(l->names, b, 0, y, sizeof(y)) && strcmp(x, y) == 0;
}

static bool is_param(const struct load *l, const char *name)
{
    for (size_t i = 0; i < l->parts; i++)
        if (same_name(l, l->part[i].param->name, name))
            return true;
    return false;
}

/* Of two tensors that the model ties a file may hold either one. */
static const accel_safetensors_tensor_t *find_tied(const struct load *l,
                                                   const char *param)
{
    const accel_safetensors_tensor_t *t = NULL;
    const char *tensor, *of;

    for (int i = 0; !t && hf_tied(l->names, i, &tensor, &of); i++)
        if (same_name(l, param, of) && !is_param(l, tensor))
            t = find_name(l, tensor);
    return t;
}

/* Finds the tensor for part i under one of its names. A new head may be missing, any
 * other parameter may not. */
static accel_status_t find_one(struct load *l, size_t i, const char *path,
                               accel_error_t *err)
{
    const accel_tensor_t *p = l->part[i].param;
    const accel_safetensors_tensor_t *t = find_name(l, p->name);

    if (!t)
        t = find_tied(l, p->name);
    /* a pre-trained body under a new head: its initial values stay */
    if (!t && hf_is_head(l->names, p->name)) {
        strbuf_printf(&l->kept, "%s%s", l->kept.len ? ", " : "", p->name);
        return ACCEL_OK;
    }
    if (!t)
        return accel_fail_at(err, A0830, path,
                             "build the model from the config.json of these weights",
                             "the parameter %.300s is not in the file", p->name);
    l->from[i] = t;
    for (size_t k = 0; k < accel_safetensors_count(l->file); k++)
        if (accel_safetensors_at(l->file, k) == t)
            l->used[k] = true;
    return check_shape(l, p, t, err);
}

/* Pair i of tensors that a file may hold twice: a_out is the copy, b_out the tensor
 * that the parameter is read from; NULL: not in the file. False: no more pairs. */
static bool tied_pair(const struct load *l, int i,
                      const accel_safetensors_tensor_t **a_out,
                      const accel_safetensors_tensor_t **b_out)
{
    const char *tensor, *param;

    *a_out = *b_out = NULL;
    if (!hf_tied(l->names, i, &tensor, &param))
        return false;
    *a_out = find_name(l, tensor);
    *b_out = find_name(l, param);
    return true;
}

/* ndim and all sizes */
static bool same_shape(const accel_safetensors_tensor_t *a,
                       const accel_safetensors_tensor_t *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape)) == 0;
}

/* A head that the model ties to its embedding must not have values of its own in
 * the file: they would be lost silently. Compares piece by piece, with two
 * buffers of COMPARE_ELEMS. */
static accel_status_t check_tied(struct load *l, accel_error_t *err)
{
    const accel_safetensors_tensor_t *a, *b;
    float *x = malloc(2 * COMPARE_ELEMS * sizeof(*x)), *y = x + COMPARE_ELEMS;
    accel_status_t st = ACCEL_OK;

    if (!x)
        return accel_fail_nomem(err, "read buffers", 2 * COMPARE_ELEMS * sizeof(*x));
    for (int i = 0; !st && tied_pair(l, i, &a, &b); i++) {
        bool same = a && b && same_shape(a, b);
        bool used = false;

        for (size_t k = 0; a && k < l->parts; k++)
            used = used || l->from[k] == a; /* a parameter: not tied in this model */
        if (!a || used)
            continue;
        /* bit by bit: tied tensors are copies */
        for (int64_t at = 0; same && !st && at < a->elems; at += COMPARE_ELEMS) {
            int64_t n = a->elems - at < COMPARE_ELEMS ? a->elems - at : COMPARE_ELEMS;

            st = accel_safetensors_read(l->file, a, at, n, x, err);
            ACCEL_TRY(st, accel_safetensors_read(l->file, b, at, n, y, err));
            same = !st && memcmp(x, y, (size_t)n * sizeof(*x)) == 0;
        }
        if (!st && !same)
            st = accel_fail_at(
                err, A0830, a->file,
                "use weights with a tied head, or a model with an untied one",
                "%.200s differs from %.200s, to which the model ties it", a->name,
                b ? b->name : "nothing");
    }
    free(x);
    return st;
}

/* Is t a copy that check_tied has looked at? */
static bool is_tied(const struct load *l, const accel_safetensors_tensor_t *t)
{
    const accel_safetensors_tensor_t *a, *b;

    for (int i = 0; tied_pair(l, i, &a, &b); i++)
        if (a == t)
            return true;
    return false;
}

/* Tensors that nothing reads: a sign of a wrong model, so they are logged. */
static void list_left(struct load *l)
{
    for (size_t k = 0; k < accel_safetensors_count(l->file); k++) {
        const accel_safetensors_tensor_t *t = accel_safetensors_at(l->file, k);

        /* known and without a parameter: no reason for a warning */
        if (l->used[k] || hf_is_buffer(l->names, t->name) || is_tied(l, t))
            continue;
        if (l->lefts++ < 20)
            strbuf_printf(&l->left, "%s%s", l->left.len ? ", " : "", t->name);
    }
}

/* ---- reading --------------------------------------------------------------------- */

/* A read of one thread. */
struct piece {
    size_t part;
    /* elements, from the part's own first one */
    int64_t first, count;
};

/* elements of the pieces of part i */
static int64_t piece_elems(const struct load *l, size_t i)
{
    return hf_is_transposed(l->names, l->part[i].param->name) ? TURNED_ELEMS
                                                              : STRAIGHT_ELEMS;
}

/* Reads a piece into host memory, transposed where the file has it so. */
static accel_status_t read_to(const struct load *l, const struct piece *p, float *to,
                              accel_error_t *err)
{
    const struct weight_part *w = &l->part[p->part];

    return (hf_is_transposed(l->names, w->param->name)
                ? accel_safetensors_read_transposed
                : accel_safetensors_read)(l->file, l->from[p->part],
                                          w->begin + p->first, p->count, to, err);
}

/* Straight into the shard, or by way of the host. Many threads read; one at a time
 * talks to the device. */
static accel_status_t read_piece(const struct load *l, const struct piece *p,
                                 accel_error_t *err)
{
    const struct weight_part *part = &l->part[p->part];
    const size_t bytes = (size_t)p->count * sizeof(float);
    float *host;
    accel_status_t st;

    if (!weights_are_staged(l->run))
        return read_to(l, p, weight_part_at(part, p->first), err);
    host = malloc(bytes);
    if (!host)
        return accel_fail_nomem(err, "read buffers", bytes);
    st = read_to(l, p, host, err);
    if (!st) {
#pragma omp critical(accel_to_shard)
        weight_part_write(l->run, part, p->first, p->count, host);
    }
    free(host);
    return st;
}

/* All reads of this rank. *list_out is one malloc. */
static accel_status_t list_pieces(const struct load *l, struct piece **list_out,
                                  size_t *count_out, accel_error_t *err)
{
    struct piece *list;
    size_t cap = 0;

    for (size_t i = 0; i < l->parts; i++)
        /* an upper bound; parts without a tensor make no pieces */
        cap += (size_t)(l->part[i].count / piece_elems(l, i)) + 1;
    list = calloc(cap, sizeof(*list));
    if (!list)
        return accel_fail_nomem(err, "the list of reads", cap * sizeof(*list));
    *count_out = 0;
    for (size_t i = 0; i < l->parts; i++) {
        int64_t most = piece_elems(l, i);

        for (int64_t at = 0; l->from[i] && at < l->part[i].count; at += most) {
            int64_t rest = l->part[i].count - at;

            list[(*count_out)++] = (struct piece){ i, at, rest < most ? rest : most };
        }
    }
    *list_out = list;
    return ACCEL_OK;
}

/* Reads all pieces with the threads of the process; the schedule is dynamic, since
 * transposed pieces take longer. The first failure to get to the critical section is
 * the result; the others still finish. */
static accel_status_t read_all(struct load *l, accel_error_t *err)
{
    struct piece *list = NULL;
    size_t n = 0;
    accel_status_t st, first = ACCEL_OK;

    ACCEL_CHECK(st, list_pieces(l, &list, &n, err));
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < n; i++) {
        accel_error_t own = { 0 };
        accel_status_t bad = read_piece(l, &list[i], &own);

        if (!bad)
            continue;
#pragma omp critical(accel_load_weights)
        if (!first) {
            first = bad;
            *err = own;
        }
    }
    free(list);
    return first;
}

/* ---- the call -------------------------------------------------------------------- */

/* The directory of weights, of which `path` may be a file. */
static void weights_dir(const char *path, char *buf, size_t len)
{
    const char *slash = strrchr(path, '/');
    struct stat sb;

    if (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode))
        snprintf(buf, len, "%s", path);
    else
        snprintf(buf, len, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

/* Bytes of text are not the ids that weights with a tokenizer beside them know. */
static accel_status_t check_text(const accel_t *run, const char *path,
                                 accel_error_t *err)
{
    static const char *const files[] = { "tokenizer.json", "vocab.json", "vocab.txt",
                                         "tokenizer.model", "spiece.model" };
    const char *text = run->job.data ? data_text_file(run->job.data) : NULL;
    char dir[2048], name[4096], cure[384];

    weights_dir(path, dir, sizeof(dir));
    for (size_t i = 0; text && i < ACCEL_ARRAY_SIZE(files); i++) {
        snprintf(name, sizeof(name), "%s/%s", dir, files[i]);
        if (access(name, F_OK) != 0)
            continue;
        if ((size_t)snprintf(cure, sizeof(cure),
                             "run `accel tokenize --tokenizer %s -o train.bin %s`, and "
                             "train on train.bin",
                             dir, text) >= sizeof(cure))
            strcpy(cure, "make a token file of it (accel tokenize), and train on that");
        return accel_fail_at(err, A0720, text, cure,
                             "text is read as bytes, but the weights in %s have a "
                             "tokenizer (%s)",
                             dir, files[i]);
    }
    return ACCEL_OK;
}

/* This rank's work. Nothing is read into the shards before every parameter has its
 * tensor. Rank 0 alone compares tied tensors: one look is enough. */
static accel_status_t load_own(struct load *l, const char *path, accel_error_t *err)
{
    accel_status_t st;
    size_t tensors;

    ACCEL_CHECK(st, check_text(l->run, path, err));
    ACCEL_CHECK(st, accel_safetensors_open(&l->file, path, err));
    tensors = accel_safetensors_count(l->file);
    ACCEL_CHECK(st, weight_parts(l->run, l->model, true, &l->part, &l->parts, err));
    l->from = calloc(l->parts + 1, sizeof(*l->from));
    l->used = calloc(tensors + 1, sizeof(*l->used));
    if (!l->from || !l->used)
        return accel_fail_nomem(err, "the table of weights",
                                l->parts * sizeof(*l->from) + tensors);
    for (size_t i = 0; i < l->parts && !st; i++)
        st = find_one(l, i, path, err);
    if (!st && l->run->boot.rank == 0)
        st = check_tied(l, err);
    if (!st)
        list_left(l);
    return st ? st : read_all(l, err);
}

/* Rank 0's lines in the log. */
static void say(const struct load *l, const char *path, double seconds)
{
    const struct accel_log *log = &l->run->log;
    int64_t bytes = 0;
    size_t read = 0;
    char size[32];

    for (size_t i = 0; i < l->parts; i++) {
        bytes += l->from[i] ? l->from[i]->bytes : 0;
        read += l->from[i] != NULL;
    }
    if (l->kept.len)
        accel_logf(log, ACCEL_LOG_WARN,
                   "%s has no values for %s: initial values are kept", path, l->kept.s);
    if (l->lefts)
        accel_logf(log, ACCEL_LOG_WARN,
                   "%s has %zu tensor%s that the model does not use: %s%s", path,
                   l->lefts, l->lefts == 1 ? "" : "s", l->left.s,
                   l->lefts > 20 ? ", ..." : "");
    accel_logf(log, ACCEL_LOG_INFO, "%zu parameters read from %s in %.2f s (%s)", read,
               path, seconds, format_bytes((double)bytes, size, sizeof(size)));
}

/* Collective. A run that resumed has better values already, so the same program works
 * for a first start and a restart. */
static accel_status_t load_weights(accel_t *run, const struct run_model *model,
                                   const char *call, const char *path,
                                   accel_error_t *err)
{
    struct load l = { .run = run,
                      .model = model,
                      .names = hf_names_of(model ? model->root : NULL) };
    int64_t start = clock_ns();
    accel_status_t st;

    if (run->progress.resumed) {
        if (!path || !*path)
            return accel_fail(err, A0825, "give a file or a directory",
                              "%s: the path is empty", call);
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_INFO,
                       "%s is not read: the run resumes from its checkpoint", path);
        return ACCEL_OK;
    }
    /* the moments of the optimizer would belong to other weights */
    if (run->progress.step > 0)
        return accel_fail(err, A0901, "load weights before the first step",
                          "%s after %lld steps", call, (long long)run->progress.step);
    /* from here on all ranks have their values, or all have the error */
    st = run_agree(run, load_own(&l, path, err), err);
    if (!st) {
        for (size_t i = 0; i < l.parts; i++)
            if (l.from[i])
                /* parameters that were read need no initial values */
                shard_given(run->shard, l.part[i].param);
        shard_loaded(run->shard);
        /* loading is not part of the first step's time */
        run->loop.step_start_ns = clock_ns();
        if (run->boot.rank == 0)
            say(&l, path, (double)(clock_ns() - start) / 1e9);
    }
    accel_safetensors_close(l.file);
    strbuf_free(&l.kept);
    strbuf_free(&l.left);
    free(l.part);
    free(l.from);
    free(l.used);
    return st;
}

accel_status_t accel_load_weights(accel_t *run, const char *path, accel_error_t *err)
{
    static const char call[] = "accel_load_weights";
    const struct run_model *model;
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, run_trains(run, call, err));
    ACCEL_CHECK(st,
                models_only(run, call, "call accel_model_load for each", &model, err));
    st = load_weights(run, model, call, path, &e);
    return st == ACCEL_OK ? st : run_report(run, st, &e, err);
}

accel_status_t accel_model_load(accel_t *run, accel_module_t *root, const char *path,
                                accel_error_t *err)
{
    static const char call[] = "accel_model_load";
    const struct run_model *model;
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, run_trains(run, call, err));
    ACCEL_CHECK(st, models_given(run, root, call, &model, err));
    st = load_weights(run, model, call, path, &e);
    return st == ACCEL_OK ? st : run_report(run, st, &e, err);
}
