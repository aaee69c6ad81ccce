/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are gathered in fp8 (fp8_backend AO, or MSAMP's level O3, which also
 * holds them so on one rank): the losses of runs with and without are the same bits, the
 * bytes of those weights are half, the plan has the bytes that are held, and what is no
 * linear refuses them.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"
#include "tests/world/run_tokens.h"

enum { STEPS = 6, STOP = 3, SEED = 5, SAMPLES = 8 };

struct outcome {
    double loss[STEPS];
    double evaluated;
    /* gathered by this rank's calls: as bytes, and otherwise */
    int64_t coded, wide;
    int64_t planned, held, room;
    /* 8-bit copies beside them, and elements of the model */
    int64_t kept, params;
    int linears;
    /* the plan's row */
    char wide_row[160];
    char said[1024];
};

struct scene {
    const char *strategy, *classes, *modules;
    int world;
    bool codes, msamp;
    /* a model with a class of its own, which is not only linears; data of the run's, so
     * that the forward is rehearsed */
    bool own, fed;
    int until, save;
    char dir[128];
    struct outcome *out; /* shared; of rank 0 */
};

static char root[64] = "/tmp/accel-fp8g.XXXXXX";

/* ---- bytes on the wire (the linker puts this in front of comm's own) ------------- */

static int64_t coded_bytes, wide_bytes;

accel_status_t __real_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err);
accel_status_t __wrap_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err);

accel_status_t __wrap_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err)
{
    const int64_t bytes = (int64_t)(elems * accel_dtype_bytes(t)) * comm_size(c);

    *(t == ACCEL_U8 ? &coded_bytes : &wide_bytes) += bytes;
    return __real_comm_all_gather(c, buf, elems, t, err);
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    accel_t *run;
    accel_module_t *model;
    accel_dataset_t *data;
};

/* Matrices of one module in order of declaration. The first and the last are wide. */
struct tower {
    accel_tensor_t *in, *table, *up, *down, *head;
};

static accel_tensor_t *tower_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    const struct tower *t = accel_module_state(m);
    accel_tensor_t *x = accel_embedding(in[0], t->table, NULL);

    (void)n;
    x = accel_linear(x, t->in, NULL, ACCEL_ACT_GELU);
    x = accel_linear(accel_linear(x, t->up, NULL, ACCEL_ACT_GELU), t->down, NULL,
                     ACCEL_ACT_NONE);
    return accel_cross_entropy(x, t->head, NULL, in[1], NULL);
}

static accel_module_t *tower_new(accel_t *run)
{
    static const accel_class_t class = { sizeof(class), "Tower", tower_forward,
                                         sizeof(struct tower) };
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 0.05f };
    accel_module_t *m = accel_module_new(run, &class, NULL, "");
    struct tower *t = accel_module_state(m);
    const struct {
        accel_tensor_t **at;
        const char *name;
        int64_t dims[2];
    } params[] = { { &t->in, "in", { 32, 32 } },
                   { &t->table, "table", { TOKENS_VOCAB, 32 } },
                   { &t->up, "up", { 288, 32 } },
                   { &t->down, "down", { 32, 288 } },
                   { &t->head, "head", { TOKENS_VOCAB, 32 } } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(params); i++)
        *params[i].at = accel_param(m, params[i].name, 2, params[i].dims, normal);
    return m;
}

/* The row of what is not in fp8. */
static void note_row(void *user, accel_log_level_t level, const char *line)
{
    static const char label[] = "not in fp8";
    const char *at = strstr(line, label);
    struct outcome *o = user;

    (void)level;
    if (at)
        snprintf(o->wide_row, sizeof(o->wide_row), "%s",
                 at + strlen(label) + strspn(at + strlen(label), " "));
}

/* A job of the model and the data beside its folder. */
static accel_status_t rig_feed(struct rig *k, const struct scene *p, accel_error_t *err)
{
    accel_job_t job = { sizeof(job),
                        .model = k->model,
                        .steps = STEPS,
                        .batch = SAMPLES / p->world,
                        .seed = SEED,
                        .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                           .lr = 3e-3f },
                        .out_dir = p->dir };
    char path[192];

    snprintf(path, sizeof(path), "%s.txt", p->dir);
    if (accel_dataset_open(&k->data, path, TOKENS_SEQ, 0, err))
        return err->code;
    job.data = k->data;
    return accel_prepare(k->run, &job, err);
}

static accel_status_t rig_open(struct rig *k, const struct scene *p,
                               struct outcome *own, accel_error_t *err)
{
    const accel_optimizer_t adam = { sizeof(adam), .lr = 3e-3f };
    accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = SAMPLES / p->world,
                          .seed = SEED, .out_dir = p->dir };

    if (run_net_run(&k->run, p->dir, note_row, own, err))
        return err->code;
    /* weights of the Llama are more than is narrowed at a time */
    k->model = p->own ? tower_new(k->run) : run_tokens_llama(k->run, 288, err);
    if (p->fed)
        return rig_feed(k, p, err);
    if (!k->model || accel_model_add(k->run, "", k->model, err) ||
        !accel_optim_add(k->run, "o", &k->model, 1, &adam, err))
        return err->code;
    return accel_prepare_all(k->run, &loop, err);
}

static accel_status_t train_step(struct rig *k, bool fed, int step, double *loss_out,
                                 accel_error_t *err)
{
    accel_step_info_t info = { .bytes = sizeof(info) };
    accel_tensor_t *batch[2];
    accel_status_t st;

    if (fed) {
        st = accel_next(k->run, batch, 2, err);
        ACCEL_TRY(st, accel_backward(k->run, accel_call(k->model, batch, 2), err));
        ACCEL_TRY(st, accel_step(k->run, err));
    } else {
        st = run_tokens_step(k->run, k->model, SAMPLES, step % 2, err);
    }
    ACCEL_TRY(st, accel_last_step(k->run, &info, err));
    *loss_out = st ? NAN : info.loss;
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    struct outcome own = { .loss = { 0 } };
    struct shard_memory m = { 0 };
    accel_error_t err = { 0 };
    struct rig k = { 0 };
    accel_status_t st = rig_open(&k, p, &own, &err);

    for (int64_t s = accel_steps_done(k.run); !st && s < p->until; s++) {
        st = train_step(&k, p->fed, (int)s, &own.loss[s], &err);
        if (!st && s + 1 == p->save)
            st = accel_save(k.run, &err);
    }
    if (!st && !p->fed)
        st = run_tokens_evaluate(k.run, k.model, SAMPLES, &own.evaluated, &err);
    if (!st) {
        shard_memory(k.run->shard, &m);
        own.held = (int64_t)m.gather_slots;
        own.room = (int64_t)m.coded_room;
        own.planned = k.run->plan.gather_bytes;
        own.kept = k.run->fp8.linears.kept_bytes;
        for (int u = 0; u < k.run->units.count; u++)
            own.params += k.run->units.unit[u].elems;
        own.linears = k.run->fp8.linears.count;
        own.coded = coded_bytes;
        own.wide = wide_bytes;
    }
    snprintf(own.said, sizeof(own.said), "%s", err.text);
    if (b->rank == 0)
        *p->out = own;
    accel_close(k.run, NULL);
    accel_dataset_close(k.data);
    return (int)st;
}

static void write_config(const struct scene *p)
{
    const char *backend = p->msamp ? "MSAMP" : "AO";
    const char *key = p->msamp ? "opt_level" : "enable_fsdp_float8_all_gather";
    const char *with = p->msamp ? "O3" : "true", *without = p->msamp ? "O2" : "false";
    char path[160], text[640];

    snprintf(path, sizeof(path), "%s.yaml", p->dir);
    snprintf(text, sizeof(text),
             "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: %s\n"
             "  fsdp_auto_wrap_policy: %s\n"
             "  fsdp_transformer_layer_cls_to_wrap: %s\n"
             "num_processes: %d\nuse_cpu: true\nmixed_precision: fp8\nfp8_config:\n"
             "  fp8_backend: %s\n  %s: %s\n"
             "accel:\n  precision:\n    modules: \"%s\"\n",
             p->strategy, p->own ? "NO_WRAP" : "TRANSFORMER_BASED_WRAP", p->classes,
             p->world, backend, key, p->codes ? with : without,
             p->modules ? p->modules : "");
    run_folder_write(path, text);
}

/* Of 16 letters. */
static void write_data(const struct scene *p)
{
    char path[192], text[2001] = "";

    snprintf(path, sizeof(path), "%s.txt", p->dir);
    for (int i = 0; i < 2000; i++)
        text[i] = (char)('0' + i * i % 16);
    run_folder_write(path, text);
}

/* In a folder of that name, which a later life may have, too. */
static struct outcome __attribute__((format(printf, 3, 4)))
train(struct scene p, int status, const char *name, ...)
{
    va_list args;
    int n;

    n = snprintf(p.dir, sizeof(p.dir), "%s/", root);
    va_start(args, name);
    vsnprintf(p.dir + n, sizeof(p.dir) - (size_t)n, name, args);
    va_end(args);
    p.strategy = p.strategy ? p.strategy : "FULL_SHARD";
    p.classes = p.classes ? p.classes : "LlamaDecoderLayer";
    p.until = p.until ? p.until : STEPS;
    p.out = fork_shared(sizeof(*p.out));
    write_config(&p);
    write_data(&p);
    tap_is_int(open_world(p.world, 1, rank_main, &p, HANG_S), status,
               "%s: %d ranks, %s", p.dir + n, p.world, p.strategy);
    return *p.out;
}

static bool same(const struct outcome *a, const struct outcome *b, int from)
{
    return !memcmp(a->loss + from, b->loss + from,
                   (size_t)(STEPS - from) * sizeof(*a->loss)) &&
           a->evaluated == b->evaluated;
}

/* ---- tests ----------------------------------------------------------------------- */

/* One rank: only MS-AMP holds codes, of all units, and nothing beside them. */
static void check_alone(const struct outcome *o, const struct outcome *wide, bool msamp)
{
    if (!msamp)
        tap_ok(o->coded == 0 && o->held == wide->held, "nothing to gather");
    else
        tap_ok(o->coded == 0 && o->held > o->params && 4 * o->held < 5 * o->params &&
                   o->kept == 0 && wide->kept > 0,
               "%lld bytes for %lld weights are all that there is, %lld beside bf16",
               (long long)o->held, (long long)o->params, (long long)wide->kept);
}

static void test_bits(bool msamp)
{
    static const char *const strategies[] = { "FULL_SHARD", "SHARD_GRAD_OP" };
    static const char *const classes[] = { "Linear", "LlamaDecoderLayer" };
    static const int worlds[] = { 1, 2, 4 };

    for (int i = 0; i < 12; i += TAP_SANITIZED ? 5 : msamp ? 4 : 1) {
        struct scene p = { .world = worlds[i % 3],
                           .strategy = strategies[i / 3 % 2],
                           .classes = classes[i / 6],
                           .msamp = msamp };
        struct outcome wide = train(p, 0, "wide%d%d", msamp, i), o;

        p.codes = true;
        o = train(p, 0, "coded%d%d", msamp, i);
        tap_ok(same(&o, &wide, 0) && o.loss[STEPS - 1] < o.loss[0],
               "%s: the same bits, %g", p.classes, o.loss[STEPS - 1]);
        tap_ok(o.planned == o.held + o.room && wide.planned == wide.held && !wide.room,
               "planned as held: %lld and %lld + %lld, %lld and %lld",
               (long long)o.planned, (long long)o.held, (long long)o.room,
               (long long)wide.planned, (long long)wide.held);
        if (p.world == 1)
            check_alone(&o, &wide, msamp);
        else if (i < 6) /* such a unit is one weight */
            tap_ok(o.coded > 0 && wide.wide - o.wide == 2 * o.coded && wide.coded == 0,
                   "weights have half the bytes: %lld and not %lld", (long long)o.coded,
                   (long long)(wide.wide - o.wide));
        else
            tap_ok(10 * (o.coded + o.wide) < 8 * wide.wide && o.held < wide.held,
                   "and a unit is smaller: %lld and not %lld in all, %lld and not %lld "
                   "held",
                   (long long)(o.coded + o.wide), (long long)wide.wide,
                   (long long)o.held, (long long)wide.held);
    }
}

static void test_resume(bool msamp)
{
    struct scene p = { .world = 2, .codes = true, .msamp = msamp };
    struct outcome whole = train(p, 0, "whole%d", msamp), o;

    p.until = p.save = STOP;
    train(p, 0, "again%d", msamp);
    train(p, 0, "change%d", msamp);
    p.until = p.save = 0;
    o = train(p, 0, "again%d", msamp);
    tap_ok(same(&o, &whole, STOP), "resumed: the same bits");
    p.codes = false;
    o = train(p, 0, "change%d", msamp);
    tap_ok(same(&o, &whole, STOP), "and without codes");
}

/* What a level has saved goes on with other ranks. */
static void test_levels(void)
{
    static const int worlds[] = { 1, 4 };
    struct scene p = { .world = 2, .codes = true, .msamp = true };
    struct outcome whole = train(p, 0, "level"), o;

    for (int i = 0; i < 2; i++) {
        p.world = 2;
        p.until = p.save = STOP;
        train(p, 0, "onto%d", worlds[i]);
        p.world = worlds[i];
        p.until = p.save = 0;
        o = train(p, 0, "onto%d", worlds[i]);
        tap_ok(fabs(o.loss[STOP] / whole.loss[STOP] - 1) < 5e-3 &&
                   fabs(o.loss[STEPS - 1] / whole.loss[STEPS - 1] - 1) < 1e-2,
               "on %d ranks: %g and %g", worlds[i], o.loss[STEPS - 1],
               whole.loss[STEPS - 1]);
    }
}

/* The head is read by the loss, which multiplies in bfloat16. */
static void test_head(void)
{
    struct scene p = { .world = 2, .codes = true, .modules = "lm_head=fp8" };
    struct outcome o = train(p, ACCEL_EUNSUPPORTED, "head");

    tap_ok(strstr(o.said, "lm_head.weight is gathered in fp8") != NULL, "%s", o.said);
}

/* The rehearsal of the forward finds the table; what linears alone take is coded. */
static void test_rehearsed(bool msamp)
{
    struct scene p = {
        .world = 2, .classes = "Tower", .msamp = msamp, .own = true, .fed = true
    };
    struct outcome wide = train(p, 0, "fed%d", msamp), o;

    p.codes = true;
    o = train(p, 0, "fedcode%d", msamp);
    tap_ok(same(&o, &wide, 0) && o.coded > 0 && o.planned == o.held + o.room,
           "a table of a rehearsed model: the same bits, %lld bytes in codes",
           (long long)o.coded);
    tap_is_str(o.wide_row, "table: gathered in bfloat16, for ops that are no linears",
               "the plan says so");
    tap_is_str(wide.wide_row, "", "but not where nothing is coded");
}

/* Of modules of the program's own nothing is known before their forward, but what is
 * asked for by name. */
static void test_own(bool msamp)
{
    static const char *const named[] = { "up=fp8,down=fp8", "up=fp8" };

    for (int world = 1; world <= 2; world++) {
        struct scene p = {
            .world = world, .classes = "Tower", .msamp = msamp, .own = true
        };
        struct outcome wide = train(p, 0, "own%d%d", msamp, world), o;

        p.codes = true;
        o = train(p, 0, "owncode%d%d", msamp, world);
        tap_ok(same(&o, &wide, 0) && o.coded == 0 && o.planned == o.held + o.room,
               "a table of its own: trains, nothing in fp8, %lld planned",
               (long long)o.planned);
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(named); i++) {
            p.modules = named[i];
            o = train(p, 0, "named%d%d%zu", msamp, world, i);
            tap_ok(same(&o, &wide, 0) && o.planned == o.held + o.room &&
                       (world == 1 ? o.coded == 0 : o.coded > 0),
                   "what is named as linears', %s: %lld bytes", named[i],
                   (long long)o.coded);
        }
    }
}

int main(void)
{
    run_folder_new(root);
    for (int msamp = 0; msamp < 2; msamp++) {
        test_bits(msamp);
        test_resume(msamp);
        test_own(msamp);
        test_rehearsed(msamp);
    }
    test_levels();
    test_head();
    run_folder_remove(root);
    return tap_done();
}
