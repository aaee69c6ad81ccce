/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints whose hashes are right and whose scales are not: those of fp8 linears
 * (length, shape, dtype, value, missing, too many) and of fp16's loss scale. A run
 * refuses them with the code that says so, or goes on with scales that a run can have.
 * And those whose trainer's state is of another step than their weights.
 *     test_state_forged [CASES [SEED]]    60 of each; make fuzz-state: 5000
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/accel_ckpt.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

enum { LENGTH = 5, STOP = 3, TENSORS = 200, BLOB = 16384 };

static char root[64] = "/tmp/accel-forged.XXXXXX";
static char config[128], said[2048];
static uint64_t seed;

/* splitmix64 */
static uint64_t draw(uint64_t below)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* ---- a run ----------------------------------------------------------------------- */

static void note_log(void *user, accel_log_level_t level, const char *line)
{
    const size_t used = strlen(said);

    (void)user;
    if (level == ACCEL_LOG_WARN)
        snprintf(said + used, sizeof(said) - used, "%s\n", line);
}

static accel_status_t open_run(accel_t **run_out, const char *dir, accel_error_t *err)
{
    const accel_model_config_t llama = { .bytes = sizeof(accel_model_config_t),
                                         .model_type = "llama",
                                         .layers = 2,
                                         .heads = 2,
                                         .kv_heads = 2,
                                         .width = 32,
                                         .hidden = 32,
                                         .context = 8,
                                         .vocab = 32 };
    const accel_optimizer_t adam = { sizeof(adam), .lr = 1e-3f };
    const accel_loop_t loop = { sizeof(loop), .steps = 9, .batch = 1, .seed = 3,
                                .out_dir = dir };
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1,
                                .log = note_log };
    accel_module_t *m;

    said[0] = '\0';
    if (accel_open(run_out, &o, err))
        return err->code;
    m = accel_model_new(*run_out, &llama, err);
    if (!m || accel_model_add(*run_out, "", m, err) ||
        !accel_optim_add(*run_out, "o", &m, 1, &adam, err))
        return err->code;
    return accel_prepare_all(*run_out, &loop, err);
}

static accel_status_t step(accel_t *run, accel_error_t *err)
{
    const int64_t dims[] = { 1, 8 };
    int32_t ids[8], next[8];
    accel_tensor_t *in[2];

    for (int i = 0; i < 8; i++) {
        ids[i] = i * 3 % 32;
        next[i] = (i * 3 + 3) % 32;
    }
    if (accel_batch_begin(run, err))
        return err->code;
    in[0] = accel_input(run, ACCEL_I32, 2, dims, ids, err);
    in[1] = accel_input(run, ACCEL_I32, 2, dims, next, err);
    if (accel_backward(run, accel_call(run->tree[0], in, 2), err))
        return err->code;
    return accel_step(run, err);
}

/* ---- a checkpoint in memory ------------------------------------------------------ */

struct image {
    accel_ckpt_box_t box[TENSORS];
    char name[TENSORS][96];
    size_t tensors, first, scales; /* the scales are tensors [first, first + scales) */
    char run_id[1100], blob[BLOB];
    size_t blob_bytes;
    int64_t step;
};

static size_t box_elems(const accel_ckpt_box_t *b)
{
    size_t n = 1;

    for (int d = 0; d < b->ndim; d++)
        n *= (size_t)b->global_shape[d];
    return n;
}

/* Memory for any dtype of as many elements. */
static accel_status_t image_read(struct image *m, const char *dir, accel_error_t *err)
{
    accel_ckpt_t *c = NULL;
    accel_status_t st = accel_ckpt_open(&c, dir, err);
    const void *blob;

    memset(m, 0, sizeof(*m));
    if (st)
        return st;
    m->tensors = accel_ckpt_tensor_count(c);
    for (size_t i = 0; i < m->tensors; i++) {
        accel_ckpt_box_t *b = &m->box[i];
        const int64_t *shape;
        const char *name;

        accel_ckpt_tensor(c, i, &name, &b->dtype, &b->ndim, &shape);
        snprintf(m->name[i], sizeof(m->name[i]), "%s", name);
        b->name = m->name[i];
        memcpy(b->global_shape, shape, (size_t)b->ndim * sizeof(*shape));
        memcpy(b->shape, shape, (size_t)b->ndim * sizeof(*shape));
        b->data = calloc(box_elems(b) + 64, 8);
        if (strncmp(name, "fp8/", 4) == 0) {
            m->first = m->scales++ ? m->first : i;
        }
    }
    st = accel_ckpt_read(c, m->box, m->tensors, err);
    blob = accel_ckpt_blob(c, "trainer", &m->blob_bytes);
    memcpy(m->blob, blob, m->blob_bytes);
    snprintf(m->run_id, sizeof(m->run_id), "%s", accel_ckpt_run_id(c));
    m->step = accel_ckpt_step(c);
    accel_ckpt_close(c);
    return st;
}

static accel_status_t image_write(const struct image *m, const char *dir,
                                  accel_error_t *err)
{
    const accel_ckpt_blob_t blob = { "trainer", m->blob, m->blob_bytes };
    const accel_ckpt_save_t s = { sizeof(s),
                                  .root = dir,
                                  .step = m->step,
                                  .owner = "forger",
                                  .run_id = m->run_id,
                                  .sharding = "FULL_SHARD",
                                  .boxes = m->box,
                                  .box_count = m->tensors,
                                  .blobs = &blob,
                                  .blob_count = 1,
                                  .keep = 1 };

    return accel_ckpt_save(&s, NULL, NULL, err);
}

static void image_free(struct image *m)
{
    for (size_t i = 0; i < m->tensors; i++)
        free(m->box[i].data);
}

/* Another value for line `key` of the blob; "": the line goes. */
static void set_line(struct image *m, const char *key, const char *value)
{
    char *at, *end, rest[BLOB];
    char with[64];

    m->blob[m->blob_bytes] = '\0';
    snprintf(with, sizeof(with), "\n%s=", key);
    at = strstr(m->blob, with);
    if (!at)
        return;
    at++;
    end = strchr(at, '\n') + 1;
    snprintf(rest, sizeof(rest), "%s", end);
    if (value[0])
        at += sprintf(at, "%s=%s\n", key, value);
    snprintf(at, sizeof(m->blob) - (size_t)(at - m->blob), "%s", rest);
    m->blob_bytes = strlen(m->blob);
}

/* ---- forgeries of fp8 ------------------------------------------------------------ */

enum answer { REFUSED, TAKEN };

/* One of them; what it is goes to what[len]. */
static enum answer forge_fp8(struct image *m, char *what, size_t len)
{
    static const struct {
        float value;
        const char *what;
        enum answer scale, other;
    } values[] = {
        { NAN, "NaN", REFUSED, REFUSED },
        { -FLT_MIN, "negative", REFUSED, REFUSED },
        { 0, "0", REFUSED, TAKEN },
        { INFINITY, "infinite", REFUSED, TAKEN },
        { 1e-44f, "without an inverse", REFUSED, TAKEN },
    };
    static const struct {
        const char *text;
        enum answer steps, history;
    } lines[] = {
        { "-1", REFUSED, REFUSED }, { "0", TAKEN, REFUSED },
        { "7", TAKEN, REFUSED },    { "99999999999999999999", REFUSED, REFUSED },
        { "x", REFUSED, REFUSED },  { "5 ", REFUSED, REFUSED },
        { "", REFUSED, REFUSED },   { "2147483647", TAKEN, REFUSED },
    };
    accel_ckpt_box_t *b = &m->box[m->first + draw(m->scales)];
    const int64_t each = b->global_shape[1];
    const size_t n = box_elems(b), at = draw(n);
    const bool scale = at % (size_t)each == 0;
    const size_t line = draw(ACCEL_ARRAY_SIZE(lines)), kind = draw(11);
    const bool steps = draw(2);

    if (kind < ACCEL_ARRAY_SIZE(values)) {
        ((float *)b->data)[at] = values[kind].value;
        snprintf(what, len, "%s[%zu] is %s", b->name, at, values[kind].what);
        return scale ? values[kind].scale : values[kind].other;
    }
    switch (kind) {
    case 5:
        b->global_shape[1] = b->shape[1] = each + 1 - 2 * (int64_t)draw(2);
        snprintf(what, len, "%s is [3, %lld]", b->name, (long long)b->shape[1]);
        return REFUSED;
    case 6:
        b->global_shape[0] = b->shape[0] = each;
        b->global_shape[1] = b->shape[1] = 3;
        snprintf(what, len, "%s is transposed", b->name);
        return REFUSED;
    case 7:
        b->ndim = 1;
        b->global_shape[0] = b->shape[0] = (int64_t)n;
        snprintf(what, len, "%s has one dimension", b->name);
        return REFUSED;
    case 8:
        b->dtype = draw(2) ? ACCEL_I32 : ACCEL_BF16;
        snprintf(what, len, "%s is %s", b->name, accel_dtype_name(b->dtype));
        return REFUSED;
    case 9:
        snprintf(m->name[m->first + draw(m->scales)], sizeof(m->name[0]),
                 "fp8/no.such%u", (unsigned)draw(1000));
        snprintf(what, len, "one has another name");
        return TAKEN;
    default:
        set_line(m, steps ? "scale_steps" : "scale_history", lines[line].text);
        snprintf(what, len, "%s=%s", steps ? "scale_steps" : "scale_history",
                 lines[line].text);
        return steps ? lines[line].steps : lines[line].history;
    }
}

/* The loss scale of fp16. */
static enum answer forge_fp16(struct image *m, char *what, size_t len)
{
    static const struct {
        const char *text;
        enum answer answer;
    } lines[] = {
        { "nan 0", REFUSED },
        { "inf 0", REFUSED },
        { "-1 0", REFUSED },
        { "0 0", REFUSED },
        { "1e-40 0", REFUSED },
        { "65536", REFUSED },
        { "65536 ", REFUSED },
        { "65536 -1", REFUSED },
        { "65536 x", REFUSED },
        { "65536 1 1", REFUSED },
        { "x 0", REFUSED },
        { "65536 9223372036854775807", REFUSED },
        { "65536 99999999999999999999", REFUSED },
        { "1e39 0", REFUSED },
        { "4096 3", TAKEN },
        { "1 1999", TAKEN },
        { "", TAKEN },
    };
    const size_t i = draw(ACCEL_ARRAY_SIZE(lines));

    set_line(m, "loss_scale", lines[i].text);
    snprintf(what, len, "loss_scale=%s", lines[i].text);
    return lines[i].answer;
}

/* The step of the trainer's state, where the weights are of step STOP. */
static enum answer forge_step(struct image *m, char *what, size_t len)
{
    const int of = (int)draw(2 * STOP) + 1;
    char value[16];

    snprintf(value, sizeof(value), "%d", of);
    set_line(m, "step", value);
    snprintf(what, len, "step=%d", of);
    return of == STOP ? TAKEN : REFUSED;
}

/* ---- trials ---------------------------------------------------------------------- */

/* What a run that took the forgery must be able to do. */
static bool goes_on(accel_t *run, accel_error_t *err)
{
    const struct fp8_linears *l = &run->fp8.linears;

    for (int i = 0; i < l->count; i++)
        for (int t = 0; t < FP8_TENSORS; t++) {
            const float s = *fp8_scale(&l->linear[i], (enum fp8_tensor)t);

            if (!(s > 0) || isinf(s) || isinf(1 / s))
                return false;
        }
    return accel_steps_done(run) == STOP && step(run, err) == ACCEL_OK &&
           isfinite(run->loop.last.loss);
}

/* 0: as expected. */
static int trial(const char *good, enum answer (*forge)(struct image *, char *, size_t),
                 const char *named)
{
    char dir[160], below[200], what[200] = "";
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    struct image m;
    enum answer want;
    accel_status_t st;
    bool well;

    if (image_read(&m, good, &err)) {
        tap_diag("%s", err.text);
        return 1;
    }
    want = forge(&m, what, sizeof(what));
    snprintf(dir, sizeof(dir), "%s/trial", root);
    snprintf(below, sizeof(below), "%s/checkpoints", dir);
    st = image_write(&m, below, &err);
    ACCEL_TRY(st, open_run(&run, dir, &err));
    if (st)
        /* the reason is in the log; what the run ends with is that none is left */
        well = want != TAKEN && st == ACCEL_ECORRUPT && strstr(said, named);
    else
        well = want != REFUSED && goes_on(run, &err);
    if (!well)
        tap_diag("%s: status %d, %s; %s", what, (int)st, err.text, said);
    accel_close(run, NULL);
    image_free(&m);
    snprintf(below, sizeof(below), "rm -rf %s", dir);
    return system(below) != 0 || !well;
}

static void campaign(const char *precision, int cases,
                     enum answer (*forge)(struct image *, char *, size_t),
                     const char *named)
{
    char text[512], dir[128], good[200];
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    accel_status_t st;
    int wrong = 0;

    snprintf(
        text, sizeof(text),
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
        "mixed_precision: %s\nfp8_config:\n  amax_history_len: %d\n"
        "num_machines: 1\nnum_processes: 1\nuse_cpu: true\n",
        precision, LENGTH);
    run_folder_write(config, text);
    snprintf(dir, sizeof(dir), "%s/good-%s", root, precision);
    st = open_run(&run, dir, &err);
    for (int i = 0; i < STOP; i++)
        ACCEL_TRY(st, step(run, &err));
    ACCEL_TRY(st, accel_save(run, &err));
    accel_close(run, NULL);
    snprintf(good, sizeof(good), "%s/checkpoints/step_%08d", dir, STOP);
    if (!tap_is_int(st, ACCEL_OK, "%s: a checkpoint to forge: %s", precision, err.text))
        return;
    for (int i = 0; i < cases; i++)
        wrong += trial(good, forge, named);
    tap_is_int(wrong, 0, "%s: %d forgeries, each refused or harmless", precision,
               cases);
}

int main(int argc, char **argv)
{
    const int cases = argc > 1 ? atoi(argv[1]) : TAP_SANITIZED ? 25 : 60;

    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    tap_diag("seed %llu", (unsigned long long)seed);
    run_folder_make(root, "", config, sizeof(config));
    campaign("fp8", cases, forge_fp8, "scales");
    campaign("fp16", cases, forge_fp16, "loss scale");
    campaign("bf16", 12, forge_step, "the trainer state is of step");
    run_folder_remove(root);
    return tap_done();
}
