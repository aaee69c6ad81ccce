/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that transformers wrote, read by 1 to 4 ranks: every rank's part equals the
 * file, the logits equal torch's; written by them, the files hold the same bits. What
 * does not fit is refused with the tensor's name.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/model_run.h"
#include "tests/world/run_folder.h"
#include "weights/weights.h"

struct job {
    const char *in, *out, *dtype;
    int64_t shard_bytes;
    enum sharding_strategy strategy;
    const char *logits; /* torch's, of this name */
    /* refused: in is not loaded, and the reason has this text */
    const char *problem;
    int layers, width, vocab; /* 0: as in the file */
    const char *model;        /* another directory; the values are not compared */
    const char *warning;      /* rank 0's, with this text */
    int64_t step;             /* steps done before */
    bool resumed;             /* from a checkpoint: in is not read */
};

static char root[] = "/tmp/accel-weights.XXXXXX";
static char text[4096]; /* what the run logged */

static void take_line(void *user, accel_log_level_t level, const char *line)
{
    size_t n = strlen(text);

    (void)user;
    if (level == ACCEL_LOG_WARN)
        snprintf(text + n, sizeof(text) - n, "%s\n", line);
}

static accel_status_t open_run(accel_t *run, struct boot *b, const struct job *j,
                               accel_error_t *err)
{
    struct model_request r = {
        .dir = j->model ? j->model : j->in,
        .sizes = { .layers = j->layers, .width = j->width, .vocab = j->vocab },
        .strategy = j->strategy,
        .compute = ACCEL_F32,
    };

    run->log = (struct accel_log){ take_line, NULL, ACCEL_LOG_INFO };
    return backend_cpu_open(&r.backend, 1, err) ? err->code
                                                : model_run_open(run, b, &r, err);
}

/* Elements of this rank that are not those of the file. The file is read whole, and
 * transposed here. */
static int wrong_parts(accel_t *run, const char *path, accel_error_t *err)
{
    static float whole[4096];
    struct weight_part *part = NULL;
    accel_safetensors_t *s = NULL;
    size_t n = 0;
    int bad = 0;

    if (accel_safetensors_open(&s, path, err) ||
        weight_parts(run, NULL, true, &part, &n, err))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const accel_tensor_t *p = part[i].param;
        const accel_safetensors_tensor_t *t;
        bool transposed = p->ndim == 2 && strstr(p->name, "c_");
        char name[128];

        snprintf(name, sizeof(name), "transformer.%s", p->name);
        t = accel_safetensors_find(s, name);
        t = t ? t : accel_safetensors_find(s, p->name);
        if (!t || t->elems != p->elems ||
            accel_safetensors_read(s, t, 0, t->elems, whole, err))
            return -1;
        for (int64_t k = 0; k < part[i].count; k++) {
            int64_t at = part[i].begin + k;

            if (transposed) /* ours [o][i], the file's [i][o] */
                at = at % p->dim[1] * p->dim[0] + at / p->dim[1];
            bad += memcmp(&whole[at], weight_part_at(&part[i], k), sizeof(float)) != 0;
        }
    }
    free(part);
    accel_safetensors_close(s);
    return bad;
}

/* Parts whose values are not what they are to be beside a run that loaded nothing: the
 * same for a head that the file did not have, others for the embeddings that it had. */
static int wrong_beside_fresh(accel_t *run, struct boot *b, const struct job *j,
                              accel_error_t *err)
{
    struct weight_part *ours = NULL, *theirs = NULL;
    accel_t fresh = { 0 };
    size_t n = 0, m = 0;
    int bad = 0;

    if (open_run(&fresh, b, j, err) || weight_parts(run, NULL, false, &ours, &n, err) ||
        weight_parts(&fresh, NULL, false, &theirs, &m, err) || n != m)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const char *name = ours[i].param->name;
        bool same =
            ours[i].count == 0 || !memcmp(ours[i].data, theirs[i].data,
                                          (size_t)ours[i].count * sizeof(float));
        bool drawn = ours[i].count > 0 && *(const float *)theirs[i].data != 0.0f;

        if (strcmp(name, "classifier.weight") == 0)
            bad += !same || (ours[i].count > 0 && !drawn);
        else if (strstr(name, "word_embeddings"))
            bad += same && ours[i].count > 0;
    }
    free(ours);
    free(theirs);
    model_run_close(&fresh);
    return bad;
}

/* Largest difference of the logits to torch's. */
static double logits_off(accel_t *run, const char *name, accel_error_t *err)
{
    float want[MODEL_RUN_LOGITS], got[MODEL_RUN_LOGITS];
    double worst = 0;
    int64_t count;

    if (model_run_torch(name, want, err) ||
        model_run_logits(run, name, got, &count, err))
        return NAN;
    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    return worst;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct job *j = arg;
    accel_t run = { 0 };
    accel_error_t err = { 0 };
    accel_status_t st = open_run(&run, b, j, &err);
    double off = 0;
    int bad = 0;

    text[0] = '\0';
    run.progress.step = j->step;
    run.progress.resumed = j->resumed;
    if (!st)
        st = accel_load_weights(&run, j->in, &err);
    if (j->problem) {
        bad = st == ACCEL_OK || run.status != st ||
              (b->rank == 0 && !strstr(err.text, j->problem));
        if (b->rank == 0)
            fprintf(stderr, "# %s: %s\n", err.where, err.text);
        model_run_close(&run);
        return bad;
    }
    if (!st && !j->model)
        bad = wrong_parts(&run, j->in, &err);
    if (!st && j->warning)
        bad = wrong_beside_fresh(&run, b, j, &err);
    if (j->warning && (b->rank != 0 || strstr(text, j->warning)))
        text[0] = '\0';
    if (!st && j->logits)
        off = logits_off(&run, j->logits, &err);
    if (!st && j->out)
        st = accel_save_weights(&run, j->out, j->dtype, j->shard_bytes, &err);
    if (st || bad || !(off < 1e-4) || text[0])
        fprintf(stderr, "# rank %d: %s: %s; %d wrong; logits off by %g; %s\n", b->rank,
                err.where, err.text, bad, off, text);
    model_run_close(&run);
    return st || bad || !(off < 1e-4) || text[0];
}

/* Tensors of a that are not in b with the same shape and, read as float32 and rounded
 * to `dtype`, the same bits. */
static int different(const char *a, const char *b, const char *dtype, size_t files)
{
    static float x[4096], y[4096];
    accel_safetensors_t *s = NULL, *t = NULL;
    accel_error_t err = { 0 };
    int bad = 0;
    size_t changes = 1;

    if (accel_safetensors_open(&s, a, &err) || accel_safetensors_open(&t, b, &err)) {
        tap_diag("%s: %s", err.where, err.text);
        return -1;
    }
    for (size_t i = 0; i < accel_safetensors_count(s); i++) {
        const accel_safetensors_tensor_t *p = accel_safetensors_at(s, i);
        const accel_safetensors_tensor_t *q = accel_safetensors_find(t, p->name);

        if (!q || p->ndim != q->ndim || strcmp(q->dtype, dtype) ||
            memcmp(p->shape, q->shape, sizeof(p->shape)) ||
            accel_safetensors_read(s, p, 0, p->elems, x, &err) ||
            accel_safetensors_read(t, q, 0, q->elems, y, &err)) {
            bad++;
            continue;
        }
        for (int64_t k = 0; k < p->elems; k++) /* F16: half of its last bit */
            bad += strcmp(dtype, "F16")
                       ? memcmp(&x[k], &y[k], 4) != 0
                       : fabsf(x[k] - y[k]) > fmaxf(fabsf(x[k]) / 2048, 0x1p-25f);
    }
    for (size_t i = 1; i < accel_safetensors_count(t); i++)
        changes += strcmp(accel_safetensors_at(t, i - 1)->file,
                          accel_safetensors_at(t, i)->file) != 0;
    bad += accel_safetensors_count(s) != accel_safetensors_count(t);
    bad += changes < files || !accel_safetensors_metadata(t, "format");
    accel_safetensors_close(s);
    accel_safetensors_close(t);
    return bad;
}

static void test_load(void)
{
    static const char *const others[] = { "llama", "llama-tied", "bert",
                                          "bert-labels" };
    struct job j = { .in = DATA "/gpt2", .strategy = SHARD_FULL, .logits = "gpt2" };

    for (int n = 1; n <= 4; n++)
        tap_is_int(fork_world(n, rank_main, &j, 240), 0,
                   "%d rank(s): the file's values, torch's logits", n);
    j.strategy = SHARD_NONE;
    tap_is_int(fork_world(2, rank_main, &j, 240), 0, "NO_SHARD: the same");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(others); i++) {
        char in[400];

        snprintf(in, sizeof(in), DATA "/%s", others[i]);
        j = (struct job){ .in = in, .strategy = SHARD_FULL, .logits = others[i] };
        tap_is_int(fork_world(2, rank_main, &j, 240), 0,
                   "%s: the file's values, torch's logits", others[i]);
    }
    j = (struct job){ .in = DATA "/gpt2-shards", .strategy = SHARD_FULL };
    tap_is_int(fork_world(3, rank_main, &j, 240), 0, "bfloat16 in three shards");
    j.in = DATA "/gpt2-old";
    tap_is_int(fork_world(2, rank_main, &j, 240), 0,
               "names without prefix, masks as buffers, the head a second time");
}

/* A language model's file for a model of labels, and the other way round. What the file
 * does not have is as in a run that loads nothing. */
static void test_heads(void)
{
    struct job j = { .in = DATA "/bert",
                     .model = DATA "/bert-labels",
                     .strategy = SHARD_FULL };

    j.warning = "has no values for bert.pooler.dense.weight, bert.pooler.dense.bias, "
                "classifier.weight, classifier.bias: initial values are kept";
    tap_is_int(fork_world(2, rank_main, &j, 240), 0, "a head that is not in the file");
    j.warning = "has 5 tensors that the model does not use: cls.predictions.bias, "
                "cls.predictions.transform.LayerNorm.bias, ";
    tap_is_int(fork_world(2, rank_main, &j, 240), 0,
               "and one that is not in the model");
}

static void test_save(void)
{
    static const struct {
        const char *what, *in, *dtype, *stored;
        int ranks;
        int64_t shard_bytes;
        size_t files;
        enum sharding_strategy strategy;
    } cases[] = {
        { "whole", "gpt2", "float32", "F32", 1, 0, 1, SHARD_FULL },
        { "by 3 ranks", "gpt2", "float32", "F32", 3, 0, 1, SHARD_FULL },
        { "by 2 of NO_SHARD", "gpt2", "float32", "F32", 2, 1 << 20, 1, SHARD_NONE },
        { "in shards", "gpt2", "float32", "F32", 4, 3000, 3, SHARD_FULL },
        { "bfloat16", "gpt2-shards", "bfloat16", "BF16", 2, 2000, 3, SHARD_FULL },
        { "float16", "gpt2", "float16", "F16", 2, 0, 1, SHARD_FULL },
        { "llama", "llama", "float32", "F32", 2, 0, 1, SHARD_FULL },
        { "tied llama", "llama-tied", "float32", "F32", 3, 0, 1, SHARD_FULL },
        { "bert", "bert", "float32", "F32", 2, 0, 1, SHARD_FULL },
        { "bert's labels", "bert-labels", "float32", "F32", 2, 0, 1, SHARD_FULL },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        char in[400], out[64];
        struct job j = { .dtype = cases[i].dtype,
                         .shard_bytes = cases[i].shard_bytes,
                         .strategy = cases[i].strategy,
                         .in = in,
                         .out = out };

        snprintf(in, sizeof(in), DATA "/%s", cases[i].in);
        snprintf(out, sizeof(out), "%s/out%zu", root, i);
        tap_is_int(fork_world(cases[i].ranks, rank_main, &j, 240), 0, "%s: written",
                   cases[i].what);
        tap_is_int(different(in, out, cases[i].stored, cases[i].files), 0,
                   "%s: equal to what transformers wrote", cases[i].what);
        j.in = out;
        j.out = NULL;
        tap_is_int(fork_world(2, rank_main, &j, 240), 0,
                   "%s: read back, with its config.json", cases[i].what);
    }
}

/* What is other in a copy of a model's file. */
struct change {
    const char *deeper;    /* gets a last dimension of size 1 */
    const char *from, *to; /* a tensor's name, and another one */
    bool
        head; /* one is added: that of gpt2, with another last value than the embedding */
};

static void write_changed(const char *dir, const char *in, const struct change *by)
{
    static float x[4096];
    accel_safetensors_entry_t e[64];
    accel_safetensors_writer_t *w = NULL;
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };
    bool good = !accel_safetensors_open(&s, in, &err) &&
                (!by->from || (accel_safetensors_find(s, by->from) &&
                               !accel_safetensors_find(s, by->to)));
    const size_t kept = good ? accel_safetensors_count(s) : 0, n = kept + by->head;

    for (size_t i = 0; i < kept; i++) {
        const accel_safetensors_tensor_t *t = accel_safetensors_at(s, i);
        const bool renamed = by->from && strcmp(t->name, by->from) == 0;

        e[i] = (accel_safetensors_entry_t){ .name = renamed ? by->to : t->name,
                                            .ndim = t->ndim };
        memcpy(e[i].shape, t->shape, sizeof(t->shape));
        if (by->deeper && strcmp(t->name, by->deeper) == 0)
            e[i].shape[e[i].ndim++] = 1;
    }
    if (by->head)
        e[kept] = (accel_safetensors_entry_t){ "lm_head.weight", 2, { 41, 8 }, NULL };
    good = good && !accel_safetensors_create(&w, dir, "F32", e, n, 0, &err);
    for (size_t i = 0; good && i < n; i++) {
        const accel_safetensors_tensor_t *t =
            i < kept ? accel_safetensors_at(s, i)
                     : accel_safetensors_find(s, "transformer.wte.weight");

        good = t && !accel_safetensors_read(s, t, 0, t->elems, x, &err);
        if (good && i == kept)
            x[t->elems - 1] += 1;
        good = good && !accel_safetensors_write(w, i, 0, t->elems, x, &err);
    }
    good = good && !accel_safetensors_commit(w, NULL, NULL, &err);
    tap_ok(good, "a changed file of %s is written %s", in, err.text);
    accel_safetensors_writer_close(w);
    accel_safetensors_close(s);
}

static void test_changed(void)
{
    char deep[64], headed[64];
    struct job j = { .model = DATA "/gpt2", .strategy = SHARD_FULL };

    snprintf(deep, sizeof(deep), "%s/deep", root);
    snprintf(headed, sizeof(headed), "%s/headed", root);
    write_changed(deep, DATA "/gpt2",
                  &(struct change){ .deeper = "transformer.ln_f.bias" });
    write_changed(headed, DATA "/gpt2", &(struct change){ .head = true });
    j.in = deep;
    j.problem = "ln_f.bias has shape [8, 1] in the file, but [8] in the model";
    tap_is_int(fork_world(2, rank_main, &j, 240), 0, "refused: %s", j.problem);
    j.in = headed;
    j.problem = "lm_head.weight differs from transformer.wte.weight, to which";
    tap_is_int(fork_world(2, rank_main, &j, 240), 0, "refused: %s", j.problem);
}

/* Of two tied tensors the file has the other one. */
static void test_tied_alone(void)
{
    static const struct {
        const char *model, *from, *to, *problem;
    } c[] = {
        { "gpt2", "transformer.wte.weight", "lm_head.weight", NULL },
        { "llama-tied", "model.embed_tokens.weight", "lm_head.weight", NULL },
        { "bert", "cls.predictions.bias", "cls.predictions.decoder.bias", NULL },
        { "bert", "bert.embeddings.word_embeddings.weight",
          "cls.predictions.decoder.weight", NULL },
        { "llama", "model.embed_tokens.weight", "spare",
          "embed_tokens.weight is not in the file" },
        { "bert", "bert.embeddings.word_embeddings.weight",
          "cls.predictions.decoder.other",
          "word_embeddings.weight is not in the file" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        char in[400], out[64];
        struct job j = { .model = in,
                         .in = out,
                         .strategy = SHARD_FULL,
                         .problem = c[i].problem,
                         .logits = c[i].model };

        snprintf(in, sizeof(in), DATA "/%s", c[i].model);
        snprintf(out, sizeof(out), "%s/tied%zu", root, i);
        write_changed(out, in, &(struct change){ .from = c[i].from, .to = c[i].to });
        tap_is_int(fork_world(2, rank_main, &j, 240), 0, "%s: %s", c[i].model,
                   c[i].problem ? c[i].problem : "torch's logits");
    }
}

/* After a step the optimizer's moments belong to other weights; a run that goes on from a
 * checkpoint has better ones, and does not even open the file. */
static void test_late(void)
{
    struct job j = { .in = DATA "/gpt2", .strategy = SHARD_FULL, .step = 1 };

    j.problem = "accel_load_weights after 1 steps";
    tap_is_int(fork_world(2, rank_main, &j, 240), 0, "refused: %s", j.problem);
    j = (struct job){ .in = DATA "/nothing",
                      .model = DATA "/gpt2",
                      .strategy = SHARD_FULL,
                      .step = 1,
                      .resumed = true };
    tap_is_int(fork_world(2, rank_main, &j, 240), 0,
               "a resumed run keeps the values of its checkpoint");
}

static void test_refused(void)
{
    static const struct {
        const char *problem, *in;
        int layers, width, vocab;
    } cases[] = {
        { "wte.weight has shape [41, 8] in the file, but [40, 8] in the model",
          DATA "/gpt2", 0, 0, 40 },
        { "h.2.ln_1.weight is not in the file", DATA "/gpt2", 3, 0, 0 },
        { "wte.weight has shape [41, 8] in the file, but [50, 8] in the model",
          DATA "/gpt2", 0, 0, 50 },
        { "wte.weight has shape [41, 8] in the file, but [41, 16] in the model",
          DATA "/gpt2", 0, 16, 0 },
        { "no such file", DATA "/nothing", 0, 0, 0 },
        { "model.safetensors", "/", 0, 0, 0 },
    };
    struct stat sb;
    char path[128];
    struct job j = { .dtype = "float32", .strategy = SHARD_FULL };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        j.in = cases[i].in;
        j.problem = cases[i].problem;
        j.layers = cases[i].layers;
        j.width = cases[i].width;
        j.vocab = cases[i].vocab;
        tap_is_int(fork_world(2, rank_main, &j, 240), 0, "refused: %s", j.problem);
    }
    snprintf(path, sizeof(path), "%s/out0/.model.safetensors.tmp", root);
    tap_ok(stat(path, &sb) != 0, "no temporary file is left");
}

int main(void)
{
    run_folder_new(root);
    test_load();
    test_heads();
    test_save();
    test_refused();
    test_changed();
    test_tied_alone();
    test_late();
    run_folder_remove(root);
    return tap_done();
}
