/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan FILE`: what a run with this config will need, before it is started:
 * groups, memory per rank by kind, bytes on the wire, size and time of a checkpoint and
 * how often to take one; for one strategy or for all. The model is built without data
 * and measured on the meta backend. No rank is started.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/plan/plan_cmd.h"

/* Long options without a letter, above all letters. */
enum {
    O_NODES = 256,
    O_GPUS,
    O_GPU_MEMORY,
    O_RANKS,
    O_COMPARE,
    O_COMPARE_PRECISION,
    O_STORAGE,
    O_MTBF,
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

/* The argument of an option as a whole number in [1, max]; anything else is wrong usage
 * and does not return. */
static int whole_number(struct argp_state *state, const char *option, const char *arg,
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

/* The same for a number above 0. The bound keeps later sums finite. */
static double positive_number(struct argp_state *state, const char *option,
                              const char *arg)
{
    char *end;
    double v = strtod(arg, &end);

    if (*end || end == arg || !(v > 0) || v > 1e12)
        argp_error(state, "--%s takes a number above 0, not '%s'", option, arg);
    return v;
}

static const struct argp_option options[] = {
    { "json", 'j', NULL, 0, "Print JSON instead of a table", 0 },
    { "compare", O_COMPARE, NULL, 0, "Show one line per strategy, this config's first",
      0 },
    { "compare-precision", O_COMPARE_PRECISION, NULL, 0,
      "Show one line per level of precision, this config's first", 0 },
    CLI_SETTINGS_OPTIONS,
    /* Groups of --help: a row without a name is a heading. */
    { NULL, 0, NULL, 0, "Ranks:", 1 },
    { "nodes", O_NODES, "N", 0, "Nodes (default: num_machines of the file, or 1)", 0 },
    { "gpus", O_GPUS, "G", 0, "GPUs per node, one rank each", 0 },
    { "gpu-memory", O_GPU_MEMORY, "GIB", 0,
      "Memory of each GPU (default: that of this machine's GPUs, if any)", 0 },
    { "ranks", O_RANKS, "R", 0,
      "Total number of ranks (default: num_processes of the file, or 1 per node)", 0 },
    { "threads", O_THREADS, "N", 0,
      "Compute threads per rank (default: this machine's cores / ranks per node)", 0 },
    { NULL, 0, NULL, 0, "Model:", 2 },
    { "model", 'm', "MODEL|DIR", 0,
      "gpt2-xl, llama-3-70b, bert-base-uncased ..., or a directory with a config.json "
      "(default: gpt2-124M)",
      0 },
    { "layers", O_LAYERS, "N", 0, "Transformer blocks", 0 },
    { "heads", O_HEADS, "N", 0, "Attention heads", 0 },
    { "width", O_WIDTH, "N", 0, "Embedding width, a multiple of the heads", 0 },
    { "context", O_CONTEXT, "N", 0,
      "Maximum sequence length (default: the model's, or seq)", 0 },
    { "vocab", O_VOCAB, "N", 0, "Vocabulary size", 0 },
    { NULL, 0, NULL, 0, "Training:", 3 },
    { "seq", O_SEQ, "N", 0, "Tokens per sample (default: the context, at most 8192)",
      0 },
    { "batch", O_BATCH, "N", 0, "Samples per rank and micro-batch (default: 8)", 0 },
    { "accumulate", O_ACCUMULATE, "N", 0, "Micro-batches per step (default: 1)", 0 },
    { NULL, 0, NULL, 0, "Checkpoints:", 4 },
    { "storage", O_STORAGE, "GBPS", 0,
      "Write bandwidth of all ranks together in GB/s; gives the time of a save", 0 },
    { "mtbf", O_MTBF, "HOURS", 0,
      "Mean time between failures of the whole job; gives the best interval between "
      "saves",
      0 },
    { 0 }
};

/* Where the number of an option is stored, and its largest value; NULL: not such an
 * option. The bounds keep every product of sizes within 64 bits. */
static int *number_of(struct plan_args *a, int key, long *max_out)
{
    const struct {
        int key, *to;
        long max;
    } numbers[] = {
        { O_NODES, &a->nodes, 65536 },
        { O_GPUS, &a->gpus, 4096 },
        { O_RANKS, &a->ranks, 1 << 20 },
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
            *max_out = numbers[i].max;
            return numbers[i].to;
        }
    return NULL;
}

/* The long name of a key that is in the table. */
static const char *option_name(int key)
{
    const struct argp_option *o = options;

    while (o->key != key)
        o++;
    return o->name;
}

static error_t parse_plan_args(int key, char *arg, struct argp_state *state)
{
    struct plan_args *a = state->input;
    long max = 0;
    int *to;

    switch (key) {
    case 'j':
        a->json = true;
        return 0;
    case O_COMPARE:
        a->compare = COMPARE_STRATEGIES;
        return 0;
    case O_COMPARE_PRECISION:
        a->compare = COMPARE_PRECISION;
        return 0;
    case O_STORAGE:
        a->storage = positive_number(state, "storage", arg);
        return 0;
    case O_MTBF:
        a->mtbf = positive_number(state, "mtbf", arg);
        return 0;
    case O_GPU_MEMORY:
        a->gpu_memory = positive_number(state, "gpu-memory", arg);
        return 0;
    case 'm':
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
        /* Numbers share one table; what is not in it belongs to --set and --site. */
        to = number_of(a, key, &max);
        if (!to)
            return cli_settings_parse(key, arg, state, &a->settings);
        *to = whole_number(state, option_name(key), arg, max);
        return 0;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse_plan_args,
    .args_doc = "FILE",
    .doc =
        "Plans a training run with this config before it starts: groups, memory per "
        "rank by kind, bytes that each rank sends per step, size of a checkpoint and "
        "how often to save one. Strategies that this version cannot run yet are "
        "planned too, and marked. Starts nothing and needs no Slurm.\vThe numbers are "
        "those that the run prints and keeps to. They are for one model and AdamW: the "
        "file does not say what a program asks for in code. Averages of weights "
        "(accel_ema), compressed sums of gradients (accel_powersgd), other optimizers "
        "and several models are in the plan that the run itself prints. With --gpus "
        "the numbers are those of GPUs; "
        "the memory that CUDA and NCCL take before the model is an estimate. A plan "
        "that does not fit the GPUs is still shown, after the changes that would make "
        "it fit. Exit code: 0 no problem, 64 an impossible shape, 65 a problem in the "
        "file or not enough GPU memory, 66 file missing."
};

/* What would help comes before the table, since it is what the user looks for then. The
 * exit code says 65 even where the table prints well. */
static int show_plan(const struct plan_args *a, const struct planned *p)
{
    /* Bytes of one GPU. */
    const int64_t memory = p->in.device.memory_bytes;
    char cure[384], need[32], have[32];
    struct plan plan;
    int code = 0, shown;

    /* p->in and p->other are computed by the same function: the cure is measured, not
     * guessed. */
    if (!plan_fits(p)) {
        plan_compute(&p->in, &plan);
        code =
            cli_error(A0016, a->file, plan_cure(&p->other, &plan, cure, sizeof(cure)),
                      "the plan needs %s of each GPU, which has %s (%.0f %%)",
                      format_bytes((double)plan.total_bytes, need, sizeof(need)),
                      format_bytes((double)memory, have, sizeof(have)),
                      100.0 * (double)plan.total_bytes / (double)memory);
    }
    if (a->compare == COMPARE_STRATEGIES)
        shown = plan_show_all(p, a->json);
    else if (a->compare == COMPARE_PRECISION)
        shown = plan_show_levels(p, a->json);
    else
        shown = plan_show(p, a->file, a->json);
    return shown ? shown : code;
}

/* The young interval needs the time of a save, so --mtbf without --storage is
 * refused before any work. */
static int run_plan(int argc, char **argv)
{
    struct plan_args a = { 0 };
    struct planned p = { 0 };
    accel_error_t err = { 0 };
    int code;

    cli_parse(&cli_plan, argc, argv, &a);
    if (a.mtbf > 0 && !(a.storage > 0))
        return cli_error(A0072, NULL, "add --storage GBPS",
                         "--mtbf gives an interval only together with --storage");
    /* As a run would resolve it here, user and site file included. */
    code = cli_config_load(a.file, &a.settings, &p.sources);
    cli_settings_free(&a.settings);
    if (code)
        return code;
    p.config = &p.sources.config;
    /* From the units of the command line to bytes per second and seconds. */
    p.storage = a.storage * 1e9;
    p.mtbf = a.mtbf * 3600;
    if (plan_prepare(&a, &p, &err))
        code = cli_fail(&err);
    else
        code = show_plan(&a, &p);
    /* Also after an error, which may leave half a plan. */
    plan_free(&p);
    return code;
}

const struct cli_command cli_plan = {
    .name = "plan",
    .run = run_plan,
    .summary = "groups, memory, traffic and checkpoints of a run",
    .example = "accel plan fsdp.yaml --nodes 4 --gpus 8 --model gpt2-1558M",
    .argp = &argp,
    .everyday = true,
};
