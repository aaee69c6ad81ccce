/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan FILE`: what a run with this config will need, before it is started: memory
 * per rank by kind, bytes on the wire, size of a checkpoint. The model is built without
 * data and measured on the meta backend; no rank is started.
 */
#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "config/config.h"
#include "nn/models/gpt2.h"
#include "plan/plan.h"
#include "scripts/accel/cli.h"
#include "scripts/accel/settings.h"

enum {
    O_NODES = 256,
    O_RANKS,
    O_LAYERS,
    O_HEADS,
    O_WIDTH,
    O_CONTEXT,
    O_VOCAB,
    O_SEQ,
    O_BATCH,
    O_ACCUMULATE,
    O_THREADS
};

#define MODELS "gpt2|gpt2-medium|gpt2-large|gpt2-xl"

static const struct preset {
    const char *name;
    accel_gpt2_t shape;
} presets[] = {
    { "gpt2", { 12, 12, 768, 1024, 50257 } },
    { "gpt2-medium", { 24, 16, 1024, 1024, 50257 } },
    { "gpt2-large", { 36, 20, 1280, 1024, 50257 } },
    { "gpt2-xl", { 48, 25, 1600, 1024, 50257 } },
};

struct plan_args {
    const char *file, *model; /* model: name of a preset; NULL: gpt2 */
    accel_gpt2_t shape;       /* 0: as the model */
    int nodes, ranks_per_node, seq, batch, accumulate, threads; /* 0: not given */
    bool json;
    struct cli_settings settings;
};

static int whole(struct argp_state *state, const char *option, const char *arg,
                 long max)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(arg, &end, 10);
    if (errno || *end || end == arg || v < 1 || v > max)
        argp_error(state, "--%s takes a whole number from 1 to %ld, not '%s'", option,
                   max, arg);
    return (int)v;
}

static const struct preset *find_preset(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(presets); i++)
        if (!strcmp(presets[i].name, name))
            return &presets[i];
    return NULL;
}

static const struct argp_option options[] = {
    { "json", 'j', NULL, 0, "Print JSON instead of a table", 0 },
    CLI_SETTINGS_OPTIONS,
    { NULL, 0, NULL, 0, "Ranks:", 1 },
    { "nodes", O_NODES, "N", 0, "Nodes (default: num_machines of the file, or 1)", 0 },
    { "ranks-per-node", O_RANKS, "N", 0,
      "Ranks on each node (default: num_processes of the file shared out, or 1)", 0 },
    { "threads", O_THREADS, "N", 0,
      "Compute threads of a rank (default: this machine's, shared out)", 0 },
    { NULL, 0, NULL, 0, "Model:", 2 },
    { "model", 'm', MODELS, 0, "Shape to begin with (default: gpt2)", 0 },
    { "layers", O_LAYERS, "N", 0, "Transformer blocks", 0 },
    { "heads", O_HEADS, "N", 0, "Attention heads", 0 },
    { "width", O_WIDTH, "N", 0, "Embedding width, a multiple of the heads", 0 },
    { "context", O_CONTEXT, "N", 0, "Longest sequence (default: the model's, or seq)",
      0 },
    { "vocab", O_VOCAB, "N", 0, "Vocabulary", 0 },
    { NULL, 0, NULL, 0, "Training:", 3 },
    { "seq", O_SEQ, "N", 0, "Tokens per sample (default: the context)", 0 },
    { "batch", O_BATCH, "N", 0, "Samples per rank and micro-batch (default: 8)", 0 },
    { "accumulate", O_ACCUMULATE, "N", 0, "Micro-batches per step (default: 1)", 0 },
    { 0 }
};

/* Where the number of an option goes, and its largest value. */
static int *number_of(struct plan_args *a, int key, long *max)
{
    const struct {
        int key, *to;
        long max;
    } numbers[] = {
        { O_NODES, &a->nodes, 65536 },
        { O_RANKS, &a->ranks_per_node, 4096 },
        { O_THREADS, &a->threads, 1024 },
        { O_LAYERS, &a->shape.layers, 1000 },
        { O_HEADS, &a->shape.heads, 1024 },
        { O_WIDTH, &a->shape.width, 65536 },
        { O_CONTEXT, &a->shape.context, 1 << 20 },
        { O_VOCAB, &a->shape.vocab, 1 << 20 },
        { O_SEQ, &a->seq, 1 << 20 },
        { O_BATCH, &a->batch, 1 << 20 },
        { O_ACCUMULATE, &a->accumulate, 1 << 20 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(numbers); i++)
        if (numbers[i].key == key) {
            *max = numbers[i].max;
            return numbers[i].to;
        }
    return NULL;
}

static const char *option_name(int key)
{
    const struct argp_option *o = options;

    while (o->key != key)
        o++;
    return o->name;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct plan_args *a = state->input;
    long max = 0;
    int *to;

    switch (key) {
    case 'j':
        a->json = true;
        return 0;
    case 'm':
        if (!find_preset(arg))
            argp_error(state, "unknown model '%s'; there are " MODELS, arg);
        a->model = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (a->file)
            argp_error(state, "one file at a time");
        a->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->file)
            argp_error(state, "no file given");
        return 0;
    default:
        to = number_of(a, key, &max);
        if (!to)
            return cli_settings_parse(key, arg, state, &a->settings);
        *to = whole(state, option_name(key), arg, max);
        return 0;
    }
}

/* ---- what is planned --------------------------------------------------------------------- */

struct planned {
    struct cli_config sources;
    const struct config *config; /* of `sources` */
    struct plan_input in;
    struct plan plan;
    accel_gpt2_t shape;
    int seq, batch, threads;
    char model[64];
};

/* Options decide; what they leave open comes from the file. */
static accel_status_t choose_ranks(const struct plan_args *a, struct planned *p,
                                   accel_error_t *err)
{
    const struct config *c = p->config;
    long long nodes = a->nodes ? a->nodes : c->num_machines ? c->num_machines : 1;
    long long per_node = a->ranks_per_node;

    if (!per_node && c->num_processes && c->num_processes % nodes)
        return accel_fail_at(err, A0390, a->file, "give --ranks-per-node",
                             "num_processes is %lld, which %lld nodes cannot share "
                             "evenly",
                             (long long)c->num_processes, nodes);
    if (!per_node)
        per_node = c->num_processes ? c->num_processes / nodes : 1;
    if (nodes * per_node > 1 << 20)
        return accel_fail(err, A0015, "give smaller --nodes or --ranks-per-node",
                          "%lld ranks are more than 1048576", nodes * per_node);
    if (c->distributed_type == DIST_NO && nodes * per_node > 1)
        return accel_fail_at(err, A0303, a->file,
                             "set distributed_type: FSDP or MULTI_CPU",
                             "distributed_type NO is one process, but %lld are planned",
                             nodes * per_node);
    if (c->num_processes && c->num_processes != nodes * per_node)
        fprintf(
            stderr,
            "note: %s says num_processes: %lld, so srun will refuse %lld ranks until "
            "that key is changed or removed\n",
            a->file, (long long)c->num_processes, nodes * per_node);
    p->in.nodes = (int)nodes;
    p->in.local_size = (int)per_node;
    p->in.world = (int)(nodes * per_node);
    return ACCEL_OK;
}

static int either(int given, int otherwise)
{
    return given ? given : otherwise;
}

static void choose_shape(const struct plan_args *a, struct planned *p)
{
    const struct preset *m = find_preset(a->model ? a->model : "gpt2");
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);

    p->shape = (accel_gpt2_t){ .layers = either(a->shape.layers, m->shape.layers),
                               .heads = either(a->shape.heads, m->shape.heads),
                               .width = either(a->shape.width, m->shape.width),
                               .vocab = either(a->shape.vocab, m->shape.vocab) };
    p->shape.context =
        either(a->shape.context, a->seq > m->shape.context ? a->seq : m->shape.context);
    p->seq = either(a->seq, p->shape.context);
    p->batch = either(a->batch, 8);
    p->in.accumulate = either(a->accumulate, 1);
    p->threads = either(a->threads, cores / p->in.local_size);
    p->threads = p->threads < 1 ? 1 : p->threads;
    snprintf(p->model, sizeof(p->model), "%s%s", m->name,
             memcmp(&p->shape, &m->shape, sizeof(p->shape)) ? ", changed" : "");
}

/* Cuts the model into units and plans with them. */
static accel_status_t plan_units(struct planned *p, const struct nn_units *units,
                                 accel_error_t *err)
{
    int64_t *elems = calloc((size_t)units->count, sizeof(*elems));

    if (!elems)
        return accel_fail_nomem(err, "the plan", (size_t)units->count * sizeof(*elems));
    for (int u = 0; u < units->count; u++) {
        elems[u] = units->unit[u].elems;
        for (int i = 0; i < units->unit[u].param_count; i++)
            p->in.params += units->unit[u].param[i]->elems;
    }
    p->in.units = units->count;
    p->in.unit_elems = elems;
    p->in.config = p->config;
    plan_compute(&p->in, &p->plan);
    p->in.unit_elems = NULL;
    free(elems);
    return ACCEL_OK;
}

static accel_status_t compute(struct planned *p, accel_error_t *err)
{
    bool bf16 = p->config->mixed_precision == PRECISION_BF16;
    bool wrap = p->config->distributed_type == DIST_FSDP &&
                p->config->auto_wrap_policy == WRAP_TRANSFORMER;
    struct backend *be = NULL;
    struct graph g = { 0 };
    struct nn_units units = { 0 };
    accel_module_t *model = NULL;
    size_t activations = 0;
    accel_status_t s;

    s = backend_cpu_sizes_open(&be, p->threads, err);
    if (s != ACCEL_OK)
        return s;
    s = graph_open(&g, be, bf16 ? ACCEL_BF16 : ACCEL_F32, true, err);
    if (s != ACCEL_OK)
        goto close_backend;
    model = gpt2_new(&g, &p->shape, err);
    if (!model) {
        s = err->code;
        goto out;
    }
    s = nn_units_build(model, wrap, p->config->transformer_cls, &units, err);
    if (s == ACCEL_OK)
        s = nn_measure(model, p->batch, p->seq, true, &activations, err);
    p->in.activation_bytes = (int64_t)activations;
    if (s == ACCEL_OK)
        s = plan_units(p, &units, err);
out:
    nn_units_free(&units);
    nn_module_free(model);
    graph_close(&g);
close_backend:
    backend_close(be);
    return s;
}

/* ---- output ------------------------------------------------------------------------------- */

static int print_text(const struct planned *p, const char *file)
{
    struct strbuf text = { 0 };
    char shape[160], batch[128], threads[32];
    accel_error_t err;

    snprintf(shape, sizeof(shape),
             "%s: %d layers, %d heads, width %d, context %d, "
             "vocabulary %d",
             p->model, p->shape.layers, p->shape.heads, p->shape.width,
             p->shape.context, p->shape.vocab);
    snprintf(batch, sizeof(batch), "%d per rank of %d tokens", p->batch, p->seq);
    snprintf(threads, sizeof(threads), "%d per rank", p->threads);
    plan_print(&p->in, &p->plan,
               (const char *[]){ "config", file, "model", shape, "batch", batch,
                                 "threads", threads, NULL },
               &text);
    if (text.failed) {
        accel_fail_nomem(&err, "the plan", 0);
        strbuf_free(&text);
        return cli_fail(&err);
    }
    fputs(text.s, stdout);
    puts("  (the process itself, before the model, is measured when a run starts)");
    strbuf_free(&text);
    return cli_finish(0);
}

static json_t *bytes_json(const struct plan *p)
{
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "parameters", (json_int_t)p->param_bytes,
        "adam_moments", (json_int_t)p->moment_bytes, "gradients",
        (json_int_t)p->gradient_bytes, "gather", (json_int_t)p->gather_bytes, "reduce",
        (json_int_t)p->reduce_bytes, "activations", (json_int_t)p->activation_bytes,
        "peak", (json_int_t)p->total_bytes);
}

static int print_json(const struct planned *p, const char *file)
{
    bool full = plan_strategy(p->config) == SHARD_FULL;
    const accel_gpt2_t *m = &p->shape;
    accel_error_t err;
    json_t *all =
        json_pack("{s:s,s:{s:s,s:i,s:i,s:i,s:i,s:i},s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:i}",
                  "config", file, "model", "name", p->model, "layers", m->layers,
                  "heads", m->heads, "width", m->width, "context", m->context, "vocab",
                  m->vocab, "params", (json_int_t)p->in.params, "units", p->in.units,
                  "nodes", p->in.nodes, "ranks", p->in.world, "seq", p->seq, "batch",
                  p->batch, "accumulate", p->in.accumulate, "threads", p->threads);
    json_t *rest = json_pack(
        "{s:s,s:i,s:i,s:I,s:o,s:I,s:I}", "sharding", full ? "FULL_SHARD" : "NO_SHARD",
        "shard_group_size", full ? p->in.world : 1, "replica_group_size",
        full ? 1 : p->in.world, "shard_elems_per_rank", (json_int_t)p->plan.shard_elems,
        "bytes_per_rank", bytes_json(&p->plan), "sent_bytes_per_rank_and_step",
        (json_int_t)p->plan.wire_bytes_per_step, "checkpoint_bytes",
        (json_int_t)p->plan.checkpoint_bytes);
    int code;

    if (!all || !rest || json_object_update(all, rest)) {
        accel_fail_nomem(&err, "the plan", 0);
        code = cli_fail(&err);
    } else {
        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        puts("");
        code = cli_finish(0);
    }
    json_decref(rest);
    json_decref(all);
    return code;
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FILE",
    .doc = "Plans a run of the GPT-2 trainer with this config before it is started: "
           "memory per rank by kind, bytes each rank sends per step, size of a "
           "checkpoint. Starts nothing and needs no Slurm.\vThe numbers are those that "
           "the run prints and keeps to. Exit code: 0 good, 64 an impossible shape, 65 "
           "a problem in the file, 66 file missing."
};

static int run_plan(int argc, char **argv)
{
    struct plan_args a = { 0 };
    struct planned p = { 0 };
    accel_error_t err = { 0 };
    int code;

    cli_parse(&cli_plan, argc, argv, &a);
    code = cli_config_load(a.file, &a.settings, &p.sources);
    cli_settings_free(&a.settings);
    if (code)
        return code;
    p.config = &p.sources.config;
    if (choose_ranks(&a, &p, &err))
        return cli_fail(&err);
    choose_shape(&a, &p);
    if (compute(&p, &err))
        return cli_fail(&err);
    return a.json ? print_json(&p, a.file) : print_text(&p, a.file);
}

const struct cli_command cli_plan = {
    .name = "plan",
    .run = run_plan,
    .summary = "memory, traffic and checkpoint size of a run",
    .example = "accel plan fsdp.yaml --nodes 4 --ranks-per-node 8 --model gpt2-xl",
    .argp = &argp,
    .everyday = true,
};
