/* SPDX-License-Identifier: Apache-2.0
 *
 * train: the reference trainer. A GPT-2 shaped model on plain text or token files,
 *
 *     srun --accel-config=fsdp.yaml ./train --data FILE.txt
 *
 * sharded, mixed-precision and preemption-safe as the config file says. This program
 * only names the model, the data and the schedule; it reads no rank, opens no
 * connection and handles no signal.
 */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <accel.h>

/* Options, and the structs of the library that most of them fill directly. */
struct settings {
    const char *data, *out;
    /* A published name or a directory; NULL: a gpt2 of the sizes below. */
    const char *model;
    /* Where to export the weights at the end; NULL: nowhere. */
    const char *save;
    /* One of those sizes was given, so --model must not be. */
    bool sized;
    accel_model_config_t gpt2;
    accel_job_t job;
    accel_optimizer_t optimizer;
    /* Tokens of a sample; tokens to print at the end. */
    int seq, sample;
};

/* argp prints this for --version. */
const char *argp_program_version = "train (accel) 0.1.0";
static const char doc[] =
    "Example:\n  srun --accel-config=fsdp.yaml ./train --data book.txt\n  accel launch "
    "--config fsdp.yaml -n 2 ./train --data book.txt --steps 500\n\nTrains a causal "
    "language model. The config file sets how it is distributed, sharded and saved. "
    "Options (and their defaults):";

/* Long options without a letter, above all letters. */
enum {
    O_DATA = 256,
    O_SAVE,
    O_MODEL,
    O_LAYERS,
    O_HEADS,
    O_WIDTH,
    O_SEQ,
    O_VOCAB,
    O_BATCH,
    O_STEPS,
    O_LR,
    O_WARMUP,
    O_CLIP,
    O_ACCUMULATE,
    O_SEED,
    O_OUT,
    O_EVAL,
    O_SAMPLE,
    O_LOG,
    O_DECAY,
    O_OPTIMIZER
};

/* Defaults in parentheses. Nothing here says how the run is
 * distributed: the config does. */
static const struct argp_option options[] = {
    { 0, 0, 0, 0, "Data and output:", 1 },
    { "data", O_DATA, "FILE|DIR", 0,
      "plain text, read as bytes, or .bin token files from accel tokenize (sample.txt)",
      0 },
    { "out", O_OUT, "DIR", 0, "log and checkpoints (out)", 0 },
    { "save", O_SAVE, "DIR", 0, "where to write the weights at the end (nowhere)", 0 },
    { "sample", O_SAMPLE, "N", 0, "tokens of text to print at the end (200)", 0 },
    { "log-every", O_LOG, "N", 0,
      "steps between progress lines (about 20 lines per run)", 0 },
    { 0, 0, 0, 0, "Model:", 2 },
    { "model", O_MODEL, "NAME|DIR", 0,
      "gpt2, llama-3.2-1b ..., or a directory with config.json and weights to start "
      "from (a gpt2 of the sizes below)",
      0 },
    { "layers", O_LAYERS, "N", 0, "transformer blocks (4)", 0 },
    { "heads", O_HEADS, "N", 0, "attention heads (4)", 0 },
    { "width", O_WIDTH, "N", 0, "embedding width, a multiple of heads (128)", 0 },
    { "seq", O_SEQ, "N", 0, "tokens per sample (128)", 0 },
    { "vocab", O_VOCAB, "N", 0,
      "vocabulary size, at least that of the data (the data's)", 0 },
    { 0, 0, 0, 0, "Training:", 3 },
    { "batch", O_BATCH, "N", 0, "samples per rank and micro-batch (8)", 0 },
    { "steps", O_STEPS, "N", 0, "optimizer steps (200)", 0 },
    { "optimizer", O_OPTIMIZER, "NAME", 0,
      "adamw, sgd (with momentum 0.9) or lion (adamw)", 0 },
    { "lr", O_LR, "X", 0, "peak learning rate (1e-3; sgd 1e-2, lion 1e-4)", 0 },
    { "warmup", O_WARMUP, "N", 0, "warm-up steps, then cosine to lr/10 (steps/20)", 0 },
    { "clip", O_CLIP, "X", 0, "global gradient norm, 0: off (1.0)", 0 },
    { "weight-decay", O_DECAY, "X", 0, "weight decay (0.1)", 0 },
    { "accumulate", O_ACCUMULATE, "N", 0, "micro-batches per step (1)", 0 },
    { "seed", O_SEED, "N", 0, "seed of initial values and sample order (1)", 0 },
    { "eval-every", O_EVAL, "N", 0,
      "steps between evaluations on the last tenth of the data, 0: never (0)", 0 },
    { 0, 0, 0, 0, 0, 0 },
};

/* The argument of an option as a whole number in [min, max]; anything else is wrong
 * usage and exits 64. */
static long whole(struct argp_state *state, const char *arg, long min, long max)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(arg, &end, 10);
    if (errno || *end || end == arg || v < min || v > max)
        argp_error(state, "'%s' is not a whole number between %ld and %ld", arg, min,
                   max);
    return v;
}

/* The same for a number. The comparison also refuses "nan". */
static float real(struct argp_state *state, const char *arg, double min, double max)
{
    char *end;
    double v = strtod(arg, &end);

    /* The whole argument must be the number: "1e-3x" is refused, not cut off. */
    if (*end || end == arg || !(v >= min && v <= max))
        argp_error(state, "'%s' is not a number between %g and %g", arg, min, max);
    return (float)v;
}

/* The names stand in the order of accel_optimizer_kind_t. */
static void parse_optimizer(const char *arg, struct argp_state *state,
                            accel_optimizer_t *o)
{
    static const char *const name[] = { "adamw", "sgd", "lion" };

    for (int i = 0; i < 3; i++)
        if (strcmp(arg, name[i]) == 0) {
            o->kind = (accel_optimizer_kind_t)i;
            /* The usual momentum; the other two have their own moments. */
            o->momentum = o->kind == ACCEL_SGD ? 0.9f : 0.0f;
            return;
        }
    argp_error(state, "'%s' is not adamw, sgd or lion", arg);
}

/* Options are parsed in three groups, as --help shows them; each passes on
 * what it does not know. */
static error_t parse_model(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;

    /* --seq is no size of the model: any model trains on shorter samples. */
    s->sized = s->sized || key == O_LAYERS || key == O_HEADS || key == O_WIDTH ||
               key == O_VOCAB;
    switch (key) {
    case O_MODEL:
        s->model = arg;
        return 0;
    case O_LAYERS:
        s->gpt2.layers = (int)whole(state, arg, 1, 1000);
        return 0;
    case O_HEADS:
        s->gpt2.heads = (int)whole(state, arg, 1, 1024);
        return 0;
    case O_WIDTH:
        s->gpt2.width = (int)whole(state, arg, 1, 65536);
        return 0;
    case O_SEQ:
        s->seq = (int)whole(state, arg, 1, 1 << 20);
        return 0;
    case O_VOCAB:
        s->gpt2.vocab = (int)whole(state, arg, 2, 1 << 20);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s' (use --data for data)", arg);
        return 0;
    case ARGP_KEY_END:
        /* Only now are all options known. */
        if (s->model && s->sized)
            argp_error(state,
                       "--model sets layers, heads, width and vocabulary itself");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Schedule, optimizer and batch. Bounds keep products within 64 bits. */
static error_t parse_training(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;
    accel_job_t *j = &s->job;

    switch (key) {
    case O_BATCH:
        j->batch = (int)whole(state, arg, 1, 1 << 20);
        return 0;
    case O_STEPS:
        j->steps = whole(state, arg, 1, 1L << 40);
        return 0;
    case O_OPTIMIZER:
        parse_optimizer(arg, state, &s->optimizer);
        return 0;
    case O_LR:
        s->optimizer.lr = real(state, arg, 1e-12, 1e3);
        return 0;
    case O_WARMUP:
        j->warmup = whole(state, arg, 0, 1L << 40);
        return 0;
    case O_CLIP:
        j->clip = real(state, arg, 0, 1e30);
        return 0;
    case O_DECAY:
        s->optimizer.weight_decay = real(state, arg, 0, 1e3);
        return 0;
    case O_ACCUMULATE:
        j->accumulate = (int)whole(state, arg, 1, 1 << 20);
        return 0;
    case O_SEED:
        j->seed = (uint64_t)whole(state, arg, 0, 1L << 62);
        return 0;
    case O_EVAL:
        j->eval_every = whole(state, arg, 0, 1L << 40);
        return 0;
    default:
        return parse_model(key, arg, state);
    }
}

/* The parser argp calls: data and output. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;

    switch (key) {
    case O_DATA:
        s->data = arg;
        return 0;
    case O_OUT:
        s->out = arg;
        return 0;
    case O_SAVE:
        s->save = arg;
        return 0;
    case O_SAMPLE:
        s->sample = (int)whole(state, arg, 0, 1 << 20);
        return 0;
    case O_LOG:
        s->job.log_every = (int)whole(state, arg, 1, 1 << 30);
        return 0;
    default:
        return parse_training(key, arg, state);
    }
}

/* One write per failure, so that the lines of several ranks do not mix. An empty text
 * means that another rank says it. */
static int fail(const accel_t *run, const accel_error_t *err)
{
    /* Room for the longest error with its place and hint. */
    char rank[32] = "", text[1536];

    /* Both are no failure but a stop: accel_report says what happens next. */
    if (!err->text[0] || err->code == ACCEL_ERESUME || err->code == ACCEL_ESTOPPED)
        return accel_report(err);
    if (run && !accel_is_main(run))
        snprintf(rank, sizeof(rank), "rank %d: ", accel_rank(run));
    accel_error_format(err, text, sizeof(text));
    fprintf(stderr, "accel: %s%s\n", rank, text);
    return accel_exit_code(err->code);
}

/* Prints what the model writes after a newline (text), or token numbers
 * (token files). All ranks generate, since each has only a part of the
 * weights; the main one prints. */
static accel_status_t print_sample(accel_t *run, const struct settings *s,
                                   accel_error_t *err)
{
    /* Plain text is read as bytes, which makes a vocabulary of 256. */
    bool text = accel_dataset_vocab(s->job.data) == 256;
    const int32_t prompt = text ? '\n' : 0;
    int32_t *out = calloc((size_t)s->sample, sizeof(*out));
    accel_status_t st;

    if (!out) {
        *err = (accel_error_t){ .code = ACCEL_ENOMEM, .message = 1 };
        snprintf(err->text, sizeof(err->text), "cannot allocate the sample");
        return ACCEL_ENOMEM;
    }
    /* A draw depends on seed and position only, so every rank takes the same tokens.
     * With a random generator of its own, each rank would write another text. */
    st = accel_generate(s->job.model, &prompt, 1, out, s->sample,
                        &(accel_sampling_t){ .bytes = sizeof(accel_sampling_t),
                                             .temperature = 0.8f,
                                             .seed = s->job.seed },
                        err);
    if (st == ACCEL_OK && accel_is_main(run)) {
        /* Bytes that are no text would drive the terminal. */
        printf("--- sample ---\n");
        for (int i = 0; i < s->sample; i++) {
            if (!text)
                printf("%d ", out[i]);
            else
                putchar(out[i] == '\n' || (out[i] >= 32 && out[i] < 127) ? out[i]
                                                                         : '?');
        }
        printf("\n--------------\n");
    }
    free(out);
    return st;
}

/* The whole loop. Every call is collective: all ranks make the same ones in the same
 * order. After a preemption accel_prepare goes on from the newest checkpoint, so the
 * same program text serves both lives. */
static accel_status_t train(accel_t *run, struct settings *s, accel_error_t *err)
{
    accel_job_t *j = &s->job;
    struct stat sb;
    accel_status_t st;

    /* A model that cannot be built is reported by accel_prepare, once for all ranks. */
    j->model = s->model ? accel_model_open(run, s->model, NULL)
                        : accel_model_new(run, &s->gpt2, NULL);
    st = accel_prepare(run, j, err);
    /* A directory has weights; a published name is only a shape. */
    if (st == ACCEL_OK && s->model && stat(s->model, &sb) == 0 && S_ISDIR(sb.st_mode))
        st = accel_load_weights(run, s->model, err);
    /* A run that had finished already is no error, and prints nothing again. */
    if (st != ACCEL_OK || !accel_more(run))
        return st;
    /* A turn of the loop is one micro-batch; accel_step updates the parameters only
     * after the last one of a step. It logs, evaluates and saves when that is due, and
     * returns ACCEL_ERESUME when Slurm wants the node back: the state is on disk then,
     * and main passes the exit code on. */
    while (accel_more(run)) {
        /* batch[0]: tokens [B, T]; batch[1]: the tokens that follow. */
        accel_tensor_t *batch[2];

        /* The call of the model may return NULL after an error inside its forward.
         * accel_backward reports it, with the module and op where it began. */
        if ((st = accel_next(run, batch, 2, err)) != ACCEL_OK ||
            (st = accel_backward(run, accel_call(j->model, batch, 2), err)) !=
                ACCEL_OK ||
            (st = accel_step(run, err)) != ACCEL_OK)
            return st;
    }
    /* Gathers the weights of all ranks into one Hugging Face directory. */
    if (s->save &&
        (st = accel_save_weights(run, s->save, "float32", 0, err)) != ACCEL_OK)
        return st;
    /* The weights are written by now: a failure here loses only the text. */
    return s->sample > 0 ? print_sample(run, s, err) : ACCEL_OK;
}

/* Opens the data and derives what follows from it: the vocabulary, the
 * warm-up, the learning rate. */
static accel_status_t open_data(struct settings *s, accel_error_t *err)
{
    /* Without evaluations all of the data is trained on. */
    /* Every rank opens the same files; accel_next then picks this rank's samples. */
    double holdout = s->job.eval_every > 0 ? 0.1 : 0;
    accel_status_t st = accel_dataset_open(&s->job.data, s->data, s->seq, holdout, err);
    int vocab;

    if (st != ACCEL_OK)
        return st;
    vocab = accel_dataset_vocab(s->job.data);
    if (s->gpt2.vocab == 0)
        s->gpt2.vocab = vocab;
    /* A larger vocabulary is fine, such as one padded for the GPU. */
    if (s->gpt2.vocab < vocab) {
        *err = (accel_error_t){ .code = ACCEL_EINVAL, .message = 615 };
        snprintf(err->text, sizeof(err->text), "--vocab %d, but the data has %d",
                 s->gpt2.vocab, vocab);
        snprintf(err->hint, sizeof(err->hint), "remove --vocab");
        return ACCEL_EINVAL;
    }
    /* The length of the run is known only now, when all options are read. */
    if (s->job.warmup < 0)
        s->job.warmup = s->job.steps / 20;
    if (s->optimizer.kind == ACCEL_ADAMW && s->optimizer.lr == 0)
        /* Small models learn faster than the default. */
        s->optimizer.lr = 1e-3f;
    /* A model of its own needs no longer context than its samples have. */
    s->gpt2.context = s->seq;
    s->job.out_dir = s->out;
    return ACCEL_OK;
}

/* The exit code is the library's: 85 asks for the run to be started again,
 * as the plugin does. */
int main(int argc, char **argv)
{
    static const struct argp argp = { options, parse_option, 0, doc, 0, 0, 0 };
    /* Small enough that a laptop sees the loss fall in a minute. */
    struct settings s = {
        .data = "sample.txt",
        .out = "out",
        .seq = 128,
        .sample = 200,
        .gpt2 = { .bytes = sizeof(s.gpt2),
                  .model_type = "gpt2",
                  .layers = 4,
                  .heads = 4,
                  .width = 128 },
        .job = { .bytes = sizeof(s.job),
                 .steps = 200,
                 .batch = 8,
                 .accumulate = 1,
                 .clip = 1.0f,
                 .seed = 1,
                 .warmup = -1,
                 .optimizer = &s.optimizer },
        .optimizer = { .bytes = sizeof(s.optimizer), .weight_decay = 0.1f },
    };
    /* The name is stored in each checkpoint: a directory is resumed by a run of the
     * same name only. */
    accel_options_t open_options = { .bytes = sizeof(open_options),
                                     .run_name = "train",
                                     .log = accel_log_stderr };
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    int code = 0;

    /* The exit code of wrong usage, as the library's table has it. */
    argp_err_exit_status = 64;
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    /* Without a run there is no rank to name. */
    if (accel_open(&run, &open_options, &err) != ACCEL_OK)
        return fail(NULL, &err);
    if (open_data(&s, &err) != ACCEL_OK || train(run, &s, &err) != ACCEL_OK)
        code = fail(run, &err);
    /* The error, if any, has been told: closing adds none. */
    accel_close(run, NULL);
    /* After the run, which reads from it. */
    accel_dataset_close(s.job.data);
    return code;
}
