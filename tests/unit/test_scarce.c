/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory runs out: whatever opens, loads or writes something is called again and again,
 * and each of its calls for memory fails once. It says so, sets no result and keeps
 * nothing. So does every op, forward and backward, which leaves no weights gathered, and
 * works as before when there is memory again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/fp8_linears.h"
#include "models/model_config.h"
#include "ops/kv.h"
#include "powersgd/powersgd.h"
#include "tests/tap.h"
#include "tests/unit/optable.h"
#include "tests/world/model_run.h"
#include "tests/world/resident.h"
#include "tests/world/run_folder.h"
#include "tests/unit/scarce.h"
#include "weights/safetensors/accel_safetensors.h"

static struct backend *be;

/* What the rows work on: made again for each call, before memory fails. */
static struct graph g;
static accel_module_t *model;
static struct units units;
static struct fp8_linears linears;
static char folder[] = "/tmp/accel-scarce.XXXXXX";

enum { BATCH = 2, TIME = 5, VOCAB = 61 };

static const accel_model_config_t small_gpt2 = { .model_type = "gpt2",
                                                 .layers = 2,
                                                 .heads = 2,
                                                 .width = 32,
                                                 .context = 16,
                                                 .vocab = VOCAB,
                                                 .resid_dropout = 0.1f,
                                                 .attn_dropout = 0.1f },
                                  small_llama = { .model_type = "llama",
                                                  .layers = 2,
                                                  .heads = 4,
                                                  .kv_heads = 2,
                                                  .width = 32,
                                                  .context = 16,
                                                  .vocab = VOCAB,
                                                  .hidden = 48 },
                                  small_bert = { .model_type = "bert",
                                                 .layers = 2,
                                                 .heads = 2,
                                                 .width = 32,
                                                 .context = 16,
                                                 .vocab = VOCAB,
                                                 .hidden = 48,
                                                 .head = ACCEL_HEAD_MASKED_LM };

/* ---- what is called -------------------------------------------------------------- */

static accel_status_t cpu(void **made, accel_error_t *err)
{
    return backend_cpu_open((struct backend **)made, 1, err);
}

static accel_status_t cpu_sizes(void **made, accel_error_t *err)
{
    return backend_cpu_sizes_open((struct backend **)made, 1, err);
}

static accel_status_t cuda_sizes(void **made, accel_error_t *err)
{
    return backend_cuda_sizes_open((struct backend **)made, err);
}

static accel_status_t meta(void **made, accel_error_t *err)
{
    return backend_meta_open((struct backend **)made, be, err);
}

static void drop_backend(void *made)
{
    backend_close(made);
}

static accel_status_t graph(void **made, accel_error_t *err)
{
    static struct graph opened;
    accel_status_t st = graph_open(&opened, be, ACCEL_F32, false, err);

    *made = st ? NULL : &opened;
    return st;
}

static void drop_graph(void *made)
{
    graph_close(made);
}

/* Of what returns the object itself. */
static accel_status_t made_or(void *object, void **made, const accel_error_t *err)
{
    *made = object;
    return object ? ACCEL_OK : err->code;
}

static accel_status_t gpt2(void **made, accel_error_t *err)
{
    return made_or(model_new(&g, &small_gpt2, err), made, err);
}

static accel_status_t llama(void **made, accel_error_t *err)
{
    return made_or(model_new(&g, &small_llama, err), made, err);
}

static accel_status_t bert(void **made, accel_error_t *err)
{
    return made_or(model_new(&g, &small_bert, err), made, err);
}

static void drop_module(void *made)
{
    nn_module_free(made);
}

/* Of the model that is open. */
static accel_status_t lay_out(void **made, accel_error_t *err)
{
    accel_status_t st = nn_units_build(model, true, "", &units, err);

    *made = st ? NULL : &units;
    return st;
}

static void drop_units(void *made)
{
    units_free(made);
}

static accel_status_t buffers(void **made, accel_error_t *err)
{
    accel_status_t st = nn_buffers_open(model, err);

    *made = st ? NULL : model;
    return st;
}

static void drop_nothing(void *made)
{
    (void)made;
}

static accel_status_t narrow_linears(void **made, accel_error_t *err)
{
    static const struct config cfg;
    accel_status_t st;

    memset(&linears, 0, sizeof(linears));
    st = fp8_linears_open(&linears, &model, 1, &cfg, err);
    ACCEL_TRY(st, fp8_linears_place(&linears, be, err));
    if (!st) {
        fp8_linears_keep(&linears, be, true);
        st = fp8_linears_room(&linears, be, err);
    }
    if (st)
        fp8_linears_close(&linears);
    *made = st ? NULL : &linears;
    return st;
}

static void drop_linears(void *made)
{
    fp8_linears_close(made);
}

static accel_status_t cache(void **made, accel_error_t *err)
{
    return made_or(kv_new(&g, 2, 2, 8, 2, 16, err), made, err);
}

static void drop_cache(void *made)
{
    accel_kv_free(made);
}

static accel_status_t powersgd(void **made, const accel_powersgd_t *rule,
                               accel_error_t *err)
{
    static const struct powersgd_shape shapes[] = { { 20, 9, 0 }, { 1, 5, 0 } };

    return powersgd_open((struct powersgd **)made, be, rule, 0, shapes, 2, err);
}

static accel_status_t powersgd_layers(void **made, accel_error_t *err)
{
    return powersgd(made, &(accel_powersgd_t){ .rank = 2 }, err);
}

static accel_status_t powersgd_square(void **made, accel_error_t *err)
{
    return powersgd(made, &(accel_powersgd_t){ .rank = 2, .batched = true }, err);
}

static void drop_powersgd(void *made)
{
    powersgd_close(made);
}

static accel_status_t weights_of(const char *name, void **made, accel_error_t *err)
{
    return accel_safetensors_open((accel_safetensors_t **)made, model_run_data(name),
                                  err);
}

static accel_status_t one_file(void **made, accel_error_t *err)
{
    return weights_of("llama", made, err);
}

static accel_status_t shards(void **made, accel_error_t *err)
{
    return weights_of("gpt2-shards", made, err);
}

/* Opened, and a matrix read in both ways. */
static accel_status_t read_matrix(void **made, accel_error_t *err)
{
    static float values[1 << 16];
    accel_safetensors_t *s = NULL;
    accel_status_t st = weights_of("llama", (void **)&s, err);

    for (size_t i = 0; !st && i < accel_safetensors_count(s); i++) {
        const accel_safetensors_tensor_t *t = accel_safetensors_at(s, i);

        if (t->ndim != 2 || t->elems > 1 << 16)
            continue;
        st = accel_safetensors_read(s, t, 0, t->elems, values, err);
        ACCEL_TRY(st,
                  accel_safetensors_read_transposed(s, t, 0, t->elems, values, err));
        break;
    }
    accel_safetensors_close(s);
    *made = st ? NULL : values;
    return st;
}

static void drop_weights(void *made)
{
    accel_safetensors_close(made);
}

/* Two shards, written and made visible in a directory of their own each time. */
static accel_status_t write_weights(void **made, accel_error_t *err)
{
    static const accel_safetensors_entry_t entry[] = { { "a", 2, { 4, 6 }, NULL },
                                                       { "b", 1, { 5 }, NULL } };
    static const float values[24];
    static int round;
    accel_safetensors_writer_t *w = NULL;
    char dir[128];
    accel_status_t st;

    snprintf(dir, sizeof(dir), "%s/%d", folder, ++round);
    st = accel_safetensors_create(&w, dir, "F32", entry, 2, 64, err);
    ACCEL_TRY(st, accel_safetensors_write_transposed(w, 0, 0, 24, values, err));
    ACCEL_TRY(st, accel_safetensors_write(w, 1, 0, 5, values, err));
    ACCEL_TRY(st, accel_safetensors_commit(w, "config.json", "{}", err));
    accel_safetensors_writer_close(w);
    *made = st ? NULL : folder;
    return st;
}

static const struct row {
    const char *what;
    accel_status_t (*make)(void **made, accel_error_t *err);
    void (*drop)(void *made);
    /* the call whose failure is made good for by a smaller one; NULL: none */
    const char *second;
} rows[] = {
    { "the CPU", cpu, drop_backend, NULL },
    { "sizes of the CPU", cpu_sizes, drop_backend, NULL },
    { "sizes of CUDA", cuda_sizes, drop_backend, NULL },
    { "a rehearsal", meta, drop_backend, NULL },
    /* a shorter range of addresses does, too */
    { "a graph", graph, drop_graph, "mmap" },
    { "GPT-2", gpt2, drop_module, NULL },
    { "Llama", llama, drop_module, NULL },
    { "BERT", bert, drop_module, NULL },
    { "units", lay_out, drop_units, NULL },
    { "buffers", buffers, drop_nothing, NULL },
    { "8-bit linears", narrow_linears, drop_linears, NULL },
    { "a cache of keys", cache, drop_cache, NULL },
    { "PowerSGD", powersgd_layers, drop_powersgd, NULL },
    { "PowerSGD of a square", powersgd_square, drop_powersgd, NULL },
    { "weights of one file", one_file, drop_weights, NULL },
    { "weights in shards", shards, drop_weights, NULL },
    { "a matrix of weights", read_matrix, drop_nothing, NULL },
    { "weights to write", write_weights, drop_nothing, NULL },
};

/* ---- what must come of it -------------------------------------------------------- */

static bool surroundings(void)
{
    if (graph_open(&g, be, ACCEL_F32, false, NULL))
        return false;
    model = model_new(&g, &small_gpt2, NULL);
    return model && accel_buffer(model, "seen", ACCEL_F32, 1, &(int64_t){ 3 },
                                 (accel_init_t){ 0 });
}

static void clear(void)
{
    nn_module_free(model);
    graph_close(&g);
}

/* The row with its nth call failing; false: there are fewer, or a result says what is
 * wrong. */
static bool fail_one(const struct row *r, int nth)
{
    accel_error_t err = { 0 };
    accel_status_t st = ACCEL_OK;
    void *made = NULL;
    bool good = surroundings(), struck;
    const int before = scarce_held();

    scarce_begin(good ? nth : 0);
    if (good)
        st = r->make(&made, &err);
    struck = scarce_end();
    if (st ? scarce_held() != before || made : !made)
        good = tap_ok(false, "%s: %s, call %d: %d pieces are kept, %s", r->what,
                      scarce_call(), nth, scarce_held() - before,
                      made ? "and a result" : "no result");
    else if (struck && !(r->second && !strcmp(r->second, scarce_call())))
        good = st == ACCEL_ENOMEM && (strstr(err.text, "out of memory") ||
                                      strstr(err.text, "cannot allocate"));
    else
        good = st == ACCEL_OK;
    if (!good)
        tap_ok(false, "%s: %s, call %d: status %d, \"%s\"", r->what, scarce_call(), nth,
               (int)st, err.text);
    if (!st)
        r->drop(made);
    if (scarce_held() > before && r->drop != drop_nothing)
        good = tap_ok(false, "%s: %d pieces are left when it is closed", r->what,
                      scarce_held() - before);
    clear();
    return good && struck;
}

static void test_row(const struct row *r)
{
    int nth = 1;
    bool first = fail_one(r, nth);

    while (first && fail_one(r, ++nth))
        ;
    tap_ok(first && nth > 1, "%s: %d calls for memory, each fails once", r->what,
           nth - 1);
}

/* ---- ops ------------------------------------------------------------------------- */

static void watch(bool on)
{
    if (on)
        scarce_resume();
    else
        scarce_pause();
}

static void test_op(struct op_trial *t, void *user)
{
    struct op_outcome usual = { 0 };
    bool struck = true, good = op_attempt(t, be, &usual);
    int nth = 0;

    (void)user;
    while (good && struck) {
        struct op_outcome o = { 0 };
        accel_error_t err = { 0 };
        accel_status_t st;

        scarce_begin(++nth);
        scarce_pause();
        st = op_retry(t, be, watch, &o, &err);
        struck = scarce_end();
        good = st == (struck ? ACCEL_ENOMEM : ACCEL_OK) && !o.faults &&
               op_same(t, &usual, &o);
        if (!good)
            tap_ok(false, "%s: %s, call %d: status %d \"%s\", %d faults", t->what,
                   scarce_call(), nth, (int)st, err.text, o.faults);
        op_outcome_free(&o);
    }
    tap_ok(good, "%s: %d calls for memory, each fails once", t->what, nth - 1);
    op_outcome_free(&usual);
}

/* ---- models ---------------------------------------------------------------------- */

static const struct model_row {
    const char *what;
    const accel_model_config_t *shape;
    accel_dtype_t compute;
    bool recompute;
    int inputs, most[4]; /* ids of each below */
} models[] = {
    { "GPT-2", &small_gpt2, ACCEL_F32, false, 2, { VOCAB, VOCAB } },
    { "GPT-2", &small_gpt2, ACCEL_BF16, true, 2, { VOCAB, VOCAB } },
    { "Llama", &small_llama, ACCEL_BF16, false, 2, { VOCAB, VOCAB } },
    { "Llama", &small_llama, ACCEL_F32, true, 2, { VOCAB, VOCAB } },
    { "BERT", &small_bert, ACCEL_F32, false, 4, { VOCAB, 2, 2, VOCAB } },
};

/* A micro-batch; what it needs beside the model's own memory is there. */
static accel_status_t pass(const struct model_row *m, struct resident *r, bool scarce,
                           accel_error_t *err)
{
    accel_tensor_t *in[4] = { NULL }, *loss;
    accel_status_t st;

    graph_reset(&g);
    resident_zero_grad(r);
    for (int k = 0; k < m->inputs; k++) {
        in[k] = graph_tensor(&g, ACCEL_I32, 2, (int64_t[]){ BATCH, TIME });
        for (int i = 0; i < BATCH * TIME; i++)
            ((int32_t *)in[k]->data)[i] = (i + k) * 31 % m->most[k];
    }
    if (scarce)
        scarce_resume();
    loss = accel_call(model, in, m->inputs);
    *err = g.error;
    st = loss ? graph_backward(&g, loss, 1.0f, err) : g.error.code;
    scarce_pause();
    return st;
}

static double sum_of(const struct resident *r)
{
    double sum = 0;

    for (int u = 0; u < units.count; u++)
        for (int64_t i = 0; i < units.unit[u].elems; i++)
            sum += (double)(i % 97 + 1) * r->sum[u][i];
    return sum;
}

/* Passes with the nth call failing, and after each one as usual. */
static int fail_passes(const struct model_row *m, struct resident *r, double usual)
{
    bool good = true;
    int nth = 0;

    while (good) {
        accel_error_t err = { 0 }, later = { 0 };
        accel_status_t st;
        bool struck;
        int open = 0;

        scarce_begin(++nth);
        scarce_pause();
        st = pass(m, r, true, &err);
        struck = scarce_end();
        for (int u = 0; u < units.count; u++)
            open += abs(r->open[u]);
        good = st == (struck ? ACCEL_ENOMEM : ACCEL_OK) && !open && !r->faults &&
               !pass(m, r, false, &later) && sum_of(r) == usual;
        if (!good)
            tap_ok(false, "%s: %s, call %d: status %d \"%s\", %d units open; %s",
                   m->what, scarce_call(), nth, (int)st, err.text, open, later.text);
        if (!struck)
            break;
    }
    return good ? nth - 1 : 0;
}

static void test_model(const struct model_row *m)
{
    const char *name = accel_dtype_name(m->compute);
    struct resident r = { 0 };
    accel_error_t err = { 0 };
    bool good = !graph_open(&g, be, m->compute, false, &err);
    int calls = 0;

    model = good ? model_new(&g, m->shape, NULL) : NULL;
    good = model && !nn_units_build(model, true, "", &units, &err) &&
           !resident_open(&r, &units, m->compute, 1);
    if (good) {
        g.residency = resident_residency(&r);
        if (m->recompute)
            nn_recompute_units(model);
        g.draws.seed = 3;
        good = !pass(m, &r, false, &err);
        calls = good ? fail_passes(m, &r, sum_of(&r)) : 0;
    }
    tap_ok(calls > 0, "%s, %s%s: %d calls for memory, each fails once: %s", m->what,
           name, m->recompute ? ", recomputed" : "", calls, err.text);
    resident_close(&r);
    units_free(&units);
    clear();
}

int main(void)
{
    if (backend_cpu_open(&be, 1, NULL))
        return 1;
    run_folder_new(folder);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        test_row(&rows[i]);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(models); i++)
        test_model(&models[i]);
    optable_each(be, test_op, NULL);
    run_folder_remove(folder);
    backend_close(be);
    return tap_done();
}
