/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules that compute in another dtype than their run. A run in bfloat16 with some
 * modules in float32 has the bits of a run in float32 with all others in bfloat16,
 * under every strategy; what is held and sent is what the plan says; checkpoints go on
 * with the same bits and without the rules; what cannot be is refused by name.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "numbers/wire.h"
#include "precision/module_policy.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"
#include "tests/world/run_tokens.h"

enum { STEPS = 5, STOP = 3, SEED = 5, SAMPLES = 8 };

struct outcome {
    double loss[STEPS];
    double evaluated;
    /* sent in steps: of gathers and reductions */
    int64_t gathered, reduced;
    int64_t planned_wire;
    struct shard_memory memory;
    struct plan plan;
    int units, linears;
    char said[1024];
};

struct scene {
    const char *precision, *modules, *strategy, *more;
    /* asked for from code: of that module */
    const char *module, *choice;
    const char *name; /* of the model; NULL: none */
    bool buffer;      /* its root has a buffer */
    int world;
    bool recompute, tied, gpt2;
    int until, save;
    char dir[128];
    struct outcome *out; /* shared; of rank 0 */
};

static char root[64] = "/tmp/accel-mprec.XXXXXX";

/* ---- bytes on the wire (the linker puts these in front of comm's own) ------------ */

static int64_t gather_bytes, reduce_bytes;

accel_status_t __real_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err);
accel_status_t __wrap_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err);
accel_status_t __real_comm_reduce_scatter(struct comm *c, const void *parts, float *out,
                                          size_t elems, accel_dtype_t t, float scale,
                                          bool accumulate, accel_error_t *err);
accel_status_t __wrap_comm_reduce_scatter(struct comm *c, const void *parts, float *out,
                                          size_t elems, accel_dtype_t t, float scale,
                                          bool accumulate, accel_error_t *err);

accel_status_t __wrap_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err)
{
    gather_bytes += (int64_t)(elems * accel_dtype_bytes(t)) * (comm_size(c) - 1);
    return __real_comm_all_gather(c, buf, elems, t, err);
}

accel_status_t __wrap_comm_reduce_scatter(struct comm *c, const void *parts, float *out,
                                          size_t elems, accel_dtype_t t, float scale,
                                          bool accumulate, accel_error_t *err)
{
    reduce_bytes += (int64_t)wire_bytes(elems, t) * (comm_size(c) - 1);
    return __real_comm_reduce_scatter(c, parts, out, elems, t, scale, accumulate, err);
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    accel_t *run;
    accel_module_t *model;
};

static accel_status_t choose(struct rig *k, const struct scene *p, accel_error_t *err)
{
    return p->module ? accel_module_precision(accel_module_find(k->model, p->module),
                                              p->choice, err)
                     : ACCEL_OK;
}

static accel_status_t rig_open(struct rig *k, const struct scene *p, accel_error_t *err)
{
    const accel_model_config_t sizes = { .bytes = sizeof(accel_model_config_t),
                                         .model_type = p->gpt2 ? "gpt2" : "llama",
                                         .layers = 2,
                                         .heads = 4,
                                         .kv_heads = p->gpt2 ? 0 : 2,
                                         .width = 32,
                                         .hidden = p->gpt2 ? 0 : 96,
                                         .context = TOKENS_SEQ,
                                         .vocab = TOKENS_VOCAB,
                                         .tied = p->tied };
    const accel_optimizer_t adam = { sizeof(adam), .lr = 3e-3f };
    accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = SAMPLES / p->world,
                          .seed = SEED, .out_dir = p->dir };
    char config[192];
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };

    snprintf(config, sizeof(config), "%s.yaml", p->dir);
    if (accel_open(&k->run, &o, err))
        return err->code;
    k->model = accel_model_new(k->run, &sizes, err);
    if (k->model && p->buffer &&
        !accel_buffer(k->model, "seen", ACCEL_F32, 1, &(int64_t){ 1 },
                      (accel_init_t){ 0 }))
        return ACCEL_EINVAL;
    if (!k->model || choose(k, p, err) ||
        accel_model_add(k->run, p->name ? p->name : "", k->model, err) ||
        !accel_optim_add(k->run, "o", &k->model, 1, &adam, err))
        return err->code;
    return accel_prepare_all(k->run, &loop, err);
}

static accel_status_t train_step(struct rig *k, int step, double *loss_out,
                                 accel_error_t *err)
{
    accel_step_info_t info = { .bytes = sizeof(info) };
    accel_status_t st = accel_batch_begin(k->run, err);

    ACCEL_TRY(st, accel_backward(
                      k->run, run_tokens_loss(k->run, k->model, SAMPLES, step % 2, err),
                      err));
    ACCEL_TRY(st, accel_step(k->run, err));
    ACCEL_TRY(st, accel_last_step(k->run, &info, err));
    *loss_out = st ? NAN : info.loss;
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    struct outcome own = { .loss = { 0 } };
    accel_error_t err = { 0 };
    struct rig k = { 0 };
    accel_status_t st = rig_open(&k, p, &err);

    gather_bytes = reduce_bytes = 0;
    for (int64_t s = accel_steps_done(k.run); !st && s < p->until; s++) {
        st = train_step(&k, (int)s, &own.loss[s], &err);
        own.gathered = gather_bytes;
        own.reduced = reduce_bytes;
        if (!st && s + 1 == p->save)
            st = accel_save(k.run, &err);
    }
    ACCEL_TRY(st, run_tokens_evaluate(k.run, k.model, SAMPLES, &own.evaluated, &err));
    if (!st) {
        shard_memory(k.run->shard, &own.memory);
        own.plan = k.run->plan;
        own.units = k.run->units.count;
        own.linears = k.run->fp8.linears.count;
    }
    snprintf(own.said, sizeof(own.said), "%.500s: %.500s", err.text, err.hint);
    if (b->rank == 0)
        *p->out = own;
    accel_close(k.run, NULL);
    return (int)st;
}

static void write_config(const struct scene *p)
{
    char path[160], text[640];

    snprintf(path, sizeof(path), "%s.yaml", p->dir);
    snprintf(text, sizeof(text),
             "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: %s\n"
             "  fsdp_activation_checkpointing: %s\n"
             "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
             "num_processes: %d\nuse_cpu: true\nmixed_precision: %s\n"
             "accel:\n  precision:\n%s    modules: \"%s\"\n",
             p->strategy, p->recompute ? "true" : "false", p->world, p->precision,
             p->more ? p->more : "", p->modules ? p->modules : "");
    run_folder_write(path, text);
}

/* Ends with that status. The rest is the name of the run's folder. */
static struct outcome __attribute__((format(printf, 3, 4)))
train(struct scene p, int status, const char *fmt, ...)
{
    char dir[32];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(dir, sizeof(dir), fmt, ap);
    va_end(ap);
    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, dir);
    p.world = p.world ? p.world : 1;
    p.precision = p.precision ? p.precision : "bf16";
    p.strategy = p.strategy ? p.strategy : "FULL_SHARD";
    p.until = p.until ? p.until : STEPS;
    p.out = fork_shared(sizeof(*p.out));
    write_config(&p);
    tap_is_int(open_world(p.world, 1, rank_main, &p, HANG_S), status,
               "%s: %d ranks, %s", dir, p.world, p.strategy);
    return *p.out;
}

static bool same(const struct outcome *a, const struct outcome *b, int from)
{
    return !memcmp(a->loss + from, b->loss + from,
                   (size_t)(STEPS - from) * sizeof(*a->loss)) &&
           a->evaluated == b->evaluated;
}

/* ---- tests ----------------------------------------------------------------------- */

/* Which modules are in float32; all others are in bfloat16. */
static const struct {
    const char *of_bf16, *of_f32;
    int units;
    bool tied, gpt2;
} mixes[] = {
    { "*=fp32", "", 3, false, false },
    { "", "*=bf16", 3, false, false },
    /* norms, in units of their own beside those of blocks and the root */
    { "*norm=fp32", "*norm=fp32, *=bf16", 6, false, false },
    { "model.layers.0=fp32", "model.layers.0=fp32, *=bf16", 3, false, false },
    { "*.mlp=fp32, *.q_proj.weight=fp32", "*.mlp=fp32, *.q_proj.weight=fp32, *=bf16", 5,
      false, false },
    { "lm_head=fp32", "lm_head=fp32, *=bf16", 4, false, false },
    /* the table is the head, too */
    { "model.embed_tokens=fp32", "model.embed_tokens=fp32, *=bf16", 4, true, false },
    { "w?e=fp32", "w?e=fp32, *=bf16", 4, false, true },
};

/* once: unit 0 has the last norm alone, and the plan counts it at both ends. */
static void check_sizes(const struct outcome *o, int world, bool once)
{
    const struct shard_memory *m = &o->memory;
    const int64_t sent = (o->gathered + o->reduced) / STEPS, want = o->plan.wire.node;

    tap_is_int((int64_t)m->gather_slots, o->plan.gather_bytes, "gathered as planned");
    tap_is_int((int64_t)(m->reduce_buffer + m->wire_buffer), o->plan.reduce_bytes,
               "reduced as planned");
    if (world > 1)
        tap_ok(once ? sent < want && sent > 0.99 * (double)want : sent == want,
               "sent as planned: %lld gathered, %lld reduced, %lld and %lld",
               (long long)o->gathered / STEPS, (long long)o->reduced / STEPS,
               (long long)sent, (long long)want);
}

/* A run in either dtype with the same modules in the same dtypes. */
static void test_mixes(void)
{
    static const char *const strategies[] = { "FULL_SHARD", "SHARD_GRAD_OP",
                                              "NO_SHARD" };
    static const int worlds[] = { 2, 1, 4 };
    int n = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(mixes); i++)
        for (int k = 0; k < 9; k += TAP_SANITIZED ? 4 : 1) {
            struct scene p = { .world = worlds[k % 3],
                               .strategy = strategies[k / 3],
                               .modules = mixes[i].of_bf16,
                               .tied = mixes[i].tied,
                               .gpt2 = mixes[i].gpt2,
                               .recompute = n % 3 == 2 };
            struct outcome a = train(p, 0, "bf16_%d", n), b;

            p.precision = "no";
            p.modules = mixes[i].of_f32;
            b = train(p, 0, "f32_%d", n++);
            tap_ok(same(&a, &b, 0) && a.loss[STEPS - 1] < a.loss[0],
                   "\"%s\": the same bits, %.17g and %.17g", mixes[i].of_bf16,
                   a.loss[STEPS - 1], b.loss[STEPS - 1]);
            tap_is_int(a.units, mixes[i].units, "units");
            if (k / 3 < 2) {
                check_sizes(&a, p.world, p.tied || p.gpt2);
                check_sizes(&b, p.world, p.tied || p.gpt2);
            }
        }
}

/* All in one dtype is the run in that. */
static void test_whole(void)
{
    struct scene p = { .world = 2, .precision = "no" };
    struct outcome wide = train(p, 0, "wide"), narrow, o;

    p.modules = "*=bf16";
    o = train(p, 0, "made-narrow");
    p.precision = "bf16";
    p.modules = NULL;
    narrow = train(p, 0, "narrow");
    tap_ok(same(&o, &narrow, 0) && !same(&narrow, &wide, 0), "bfloat16 by a rule");
    tap_ok(o.gathered == narrow.gathered && o.reduced == narrow.reduced &&
               2 * o.gathered == wide.gathered,
           "and its bytes on the wire");
    p.modules = "*=fp32";
    o = train(p, 0, "made-wide");
    tap_ok(same(&o, &wide, 0), "float32 by a rule");
}

/* The wire of gradients, and what a module returns. */
static void test_parts(void)
{
    struct scene p = { .world = 2, .modules = "*.mlp=fp32" };
    struct outcome wide = train(p, 0, "mlp"), o;

    p.modules = "*.mlp=fp32+reduce:bf16";
    o = train(p, 0, "mlp-reduce");
    tap_ok(o.gathered == wide.gathered && o.reduced < wide.reduced &&
               !same(&o, &wide, 0),
           "gradients of float32 modules in bfloat16: %lld bytes and not %lld",
           (long long)o.reduced, (long long)wide.reduced);
    check_sizes(&o, 2, false);
    p.modules = "*.mlp=bf16+reduce:fp32";
    o = train(p, 0, "mlp-wide-reduce");
    tap_ok(o.gathered < wide.gathered && o.reduced == wide.reduced, "and the reverse");
    check_sizes(&o, 2, false);
    p.modules = "*.mlp=fp32+output:fp32";
    o = train(p, ACCEL_EINVAL, "mlp-output");
    tap_ok(strstr(o.said, "float32") != NULL, "the sum of a block is bfloat16: %s",
           o.said);
    p.modules = "model.layers.1=fp32+output:fp32, model.norm=fp32+output:bf16";
    o = train(p, 0, "wide-between");
    p.modules = "model.layers.1=fp32, model.norm=fp32";
    wide = train(p, 0, "narrow-between");
    tap_ok(!same(&o, &wide, 0) &&
               fabs(o.loss[STEPS - 1] / wide.loss[STEPS - 1] - 1) < 0.02,
           "float32 between two modules: %.9g and %.9g", o.loss[STEPS - 1],
           wide.loss[STEPS - 1]);
}

/* A rule and the program's word give the same, whatever the model is called and whichever
 * of its tensors comes first. */
static void test_model_names(void)
{
    static const struct {
        const char *name;
        bool buffer;
        const char *rule;
    } rows[] = {
        { NULL, true, "model.layers.0=fp32" },
        { "net", false, "net/model.layers.0=fp32" },
        { "net", true, "net/model.layers.0=fp32" },
        { "net", false, "net/*.0=fp32" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct scene p = { .name = rows[i].name, .buffer = rows[i].buffer };
        struct outcome plain = train(p, 0, "name%zu_0", i), rule, o;

        p.modules = rows[i].rule;
        rule = train(p, 0, "name%zu_1", i);
        p.modules = NULL;
        p.module = "model.layers.0";
        p.choice = "fp32";
        o = train(p, 0, "name%zu_2", i);
        tap_ok(same(&o, &rule, 0) && !same(&o, &plain, 0), "\"%s\"%s: the same bits",
               rows[i].rule, rows[i].buffer ? ", a buffer first" : "");
    }
}

static void test_code(void)
{
    struct scene p = { .world = 2, .modules = "model.layers.0=fp32" };
    struct outcome rule = train(p, 0, "rule"), o;

    p.module = "model.layers.0";
    p.choice = "bf16";
    p.modules = "model.layers.0.*=fp32, model.layers.0=fp32";
    o = train(p, 0, "rule-wins");
    tap_ok(same(&o, &rule, 0), "a rule wins over the program");
    p.modules = NULL;
    p.choice = "float64";
    o = train(p, ACCEL_EINVAL, "bad-word");
    tap_ok(strstr(o.said, "'float64'") && strstr(o.said, "use fp32, bf16"), "%s",
           o.said);
    p.module = "no.such";
    o = train(p, ACCEL_EINVAL, "no-module");
    tap_ok(strstr(o.said, "is NULL") != NULL, "%s", o.said);
}

/* fp8 beside wide modules, from rules and from code. */
static void test_fp8(void)
{
    struct scene p = { .world = 2, .precision = "fp8" };
    struct outcome all = train(p, 0, "fp8"), o;

    p.modules = "model.layers.0=fp32";
    o = train(p, 0, "fp8-wide");
    tap_ok(o.linears > 0 && o.linears < all.linears && o.loss[STEPS - 1] < o.loss[0],
           "%d linears of %d, the rest in float32: %g", o.linears, all.linears,
           o.loss[STEPS - 1]);
    p.modules = NULL;
    p.module = "model.layers.1";
    p.choice = "bf16";
    o = train(p, 0, "fp8-code");
    tap_is_int(o.linears, all.linears - 7, "those of a block less, by the program");
    p.module = "model.layers.0";
    p.choice = "fp8";
    o = train(p, 0, "fp8-asked");
    tap_is_int(o.linears, all.linears + 1, "and asked for");
}

static void test_resume(void)
{
    struct scene p = { .world = 2, .modules = "*norm=fp32, model.layers.1.mlp=fp32" };
    struct outcome whole = train(p, 0, "whole"), o;

    for (int world = 1; world <= 4; world *= 2) {
        p.until = p.save = STOP;
        p.world = 2;
        train(p, 0, "again%d", world);
        p.until = p.save = 0;
        p.world = world;
        o = train(p, 0, "again%d", world);
        tap_ok(world == 2 ? same(&o, &whole, STOP)
                          : fabs(o.loss[STEPS - 1] / whole.loss[STEPS - 1] - 1) < 5e-3,
               "resumed on %d: %.9g and %.9g", world, o.loss[STEPS - 1],
               whole.loss[STEPS - 1]);
    }
    p.until = p.save = STOP;
    p.world = 2;
    train(p, 0, "onto");
    p.until = p.save = 0;
    p.modules = NULL;
    o = train(p, 0, "onto");
    tap_ok(fabs(o.loss[STEPS - 1] / whole.loss[STEPS - 1] - 1) < 2e-2,
           "and without the rules: %g", o.loss[STEPS - 1]);
}

static void test_refused(void)
{
    static const struct {
        const char *precision, *modules, *more, *says;
        bool gpt2; /* refused as not supported, in place of a mistake in the config */
    } bad[] = {
        { "bf16", "*norm=fp16", NULL, "only runs with mixed_precision: fp16", false },
        { "bf16", "*norm=fp32+reduce:fp16", NULL,
          "only runs with mixed_precision: fp16", false },
        { "bf16", "*norm=fp32", "    masters: bf16\n", "masters are narrow", false },
        { "bf16", "*norm=fp32+output", NULL, "asks for none of", false },
        { "bf16", "*norm=fp32+output:fp8", NULL, "asks for none of", false },
        { "bf16", "*norm=fp32+reduce:bf16+reduce:bf16", NULL, "asks for none of",
          false },
        { "bf16", "*nrm=fp32", NULL, "fits no module", false },
        { "bf16", "*norm=fp32, *.mlp, *=bf16", NULL, "has no glob", false },
        { "fp8", "*.nothing=fp8", NULL, "fits no linear", false },
        { "bf16", "wte=fp32", NULL, "wpe.weight is bfloat16 here", true },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        struct scene p = { .precision = bad[i].precision,
                           .modules = bad[i].modules,
                           .more = bad[i].more,
                           .gpt2 = bad[i].gpt2 };
        const struct outcome o =
            train(p, bad[i].gpt2 ? ACCEL_EUNSUPPORTED : ACCEL_ECONFIG, "bad%zu", i);

        tap_ok(strstr(o.said, bad[i].says) != NULL, "%s", o.said);
    }
}

/* Rows give the number of rules and the length of their globs; the last counts. */
static void test_rule_counts(void)
{
    static const struct {
        int rules, glob;
        const char *says; /* NULL: read */
    } rows[] = {
        { 1, 1, NULL },
        { 15, 1, NULL },
        { 16, 1, NULL },
        { 16, 20, NULL },
        { 1, 126, NULL },
        { 1, 127, NULL },
        { 3, 127, NULL },
        { 17, 1,
          "'q=fp32' of accel.precision.modules is one too many: there may be 16" },
        { 18, 1, "'q=fp32'" },
        { 1, 128, "has no glob of 1 to 127 characters" },
        { 1, 0, "has no glob of 1 to 127 characters" },
    };
    static struct config cfg;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct module_rules rules;
        accel_error_t err = { 0 };
        accel_status_t st;
        size_t used = 0;
        char last[129] = "";

        for (int r = 0; r < rows[i].rules; r++) {
            memset(last, 'a' + r, (size_t)rows[i].glob);
            used += (size_t)snprintf(cfg.precision_modules + used,
                                     sizeof(cfg.precision_modules) - used, "%s%s=%s",
                                     r ? ", " : "", last, r % 2 ? "bf16" : "fp32");
        }
        st = module_rules_read(&cfg, &rules, &err);
        if (rows[i].says)
            tap_ok(st == ACCEL_ECONFIG && strstr(err.text, rows[i].says), "%s",
                   err.text);
        else
            tap_ok(!st && rules.count == rows[i].rules &&
                       module_rule_of(&rules, last) == rows[i].rules - 1,
                   "%d rules, globs of %d: %s", rows[i].rules, rows[i].glob, err.text);
    }
}

int main(void)
{
    run_folder_new(root);
    test_rule_counts();
    test_whole();
    test_mixes();
    test_parts();
    test_model_names();
    test_code();
    test_fp8();
    test_resume();
    test_refused();
    run_folder_remove(root);
    return tap_done();
}
