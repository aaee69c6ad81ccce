/* SPDX-License-Identifier: Apache-2.0
 *
 * generate: continues a text with a GPT-2 or Llama in Hugging Face's format,
 *
 *     ./generate --model DIR --prompt "Once upon a time"
 *
 * DIR has config.json, model.safetensors and the tokenizer. Text
 * appears as it is generated.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <accel.h>

struct settings {
    const char *model, *prompt, *out;
    int count;
    /* Temperature, top-k, top-p, seed: passed to accel_generate. */
    accel_sampling_t how;
};

/* argp prints this for --version. */
const char *argp_program_version = "generate (accel) 0.1.0";
static const char doc[] =
    "Example:\n"
    "  ./generate --model gpt2 --prompt 'The meaning of life' --top-p 0.9\n\n"
    "Continues a text with a GPT-2 or Llama. Options (and their defaults):";

/* Long options without a letter, above all letters. */
enum { O_MODEL = 256, O_PROMPT, O_COUNT, O_TEMPERATURE, O_K, O_P, O_SEED, O_OUT };

static const struct argp_option options[] = {
    { "model", O_MODEL, "DIR", 0, "config.json, weights and tokenizer (required)", 0 },
    { "prompt", O_PROMPT, "TEXT", 0, "text to continue (<|endoftext|>)", 0 },
    { "count", O_COUNT, "N", 0, "most tokens to generate (100)", 0 },
    { "temperature", O_TEMPERATURE, "X", 0, "sampling temperature, 0: greedy (0.8)",
      0 },
    { "top-k", O_K, "N", 0, "sample from the N likeliest tokens, 0: all (0)", 0 },
    { "top-p", O_P, "X", 0,
      "sample from the likeliest tokens whose probabilities sum to X (1)", 0 },
    { "seed", O_SEED, "N", 0, "seed of the sampling (1)", 0 },
    { "out", O_OUT, "DIR", 0, "log of the run (out)", 0 },
    { 0, 0, 0, 0, 0, 0 },
};

/* The argument of an option as a number in [min, max]; anything else exits 64. */
static double number(struct argp_state *state, const char *arg, double min, double max)
{
    char *end;
    double v = strtod(arg, &end);

    if (*end || end == arg || !(v >= min && v <= max))
        argp_error(state, "'%s' is not a number between %g and %g", arg, min, max);
    return v;
}

/* One case per option, in the order of the table. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;

    switch (key) {
    case O_MODEL:
        s->model = arg;
        return 0;
    case O_PROMPT:
        s->prompt = arg;
        return 0;
    case O_OUT:
        s->out = arg;
        return 0;
    case O_COUNT:
        s->count = (int)number(state, arg, 0, 1 << 24);
        return 0;
    case O_TEMPERATURE:
        s->how.temperature = (float)number(state, arg, 0, 1e6);
        return 0;
    case O_K:
        s->how.top_k = (int)number(state, arg, 0, 1 << 24);
        return 0;
    case O_P:
        s->how.top_p = (float)number(state, arg, 0, 1);
        return 0;
    case O_SEED:
        s->how.seed = (uint64_t)number(state, arg, 0, 9e15);
        return 0;
    case ARGP_KEY_END:
        if (!s->model)
            argp_error(state, "--model is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Warnings and errors only: the text itself is the output. */
static void print_log(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    if (level <= ACCEL_LOG_WARN)
        fprintf(stderr, "accel: %s\n", line);
}

/* Turns tokens into text on stdout. A token may end inside a character of UTF-8: its
 * first bytes wait here for the rest. */
struct stream {
    const accel_tokenizer_t *tokenizer;
    /* Tokens that end a text: not printed. */
    int32_t stop[3];
    /* Only the main rank prints. */
    int stops, main;
    /* Bytes at the beginning of `text` that are not printed yet. */
    size_t waiting;
    char text[4096];
};

/* Called with each token as it is drawn. 0: go on. */
static int show(void *user, int32_t token)
{
    struct stream *s = user;
    size_t bytes = 0, whole;

    /* accel_generate ends at such a token by itself; here it is only kept off the
     * screen. */
    for (int i = 0; i < s->stops; i++)
        if (token == s->stop[i])
            return 0;
    /* Another answer than 0 would end the text on this rank alone, and the others would
     * wait for it. So a token that cannot be shown is passed over. */
    if (!s->main ||
        accel_detokenize(s->tokenizer, &token, 1, s->text + s->waiting,
                         sizeof(s->text) - s->waiting, &bytes, NULL) != ACCEL_OK ||
        bytes > sizeof(s->text) - s->waiting)
        return 0;
    bytes += s->waiting;
    /* Bytes up to the end of the last whole character. */
    whole = accel_utf8_whole(s->text, bytes);
    /* Flushed, as a reader wants to see the words as they come. */
    fwrite(s->text, 1, whole, stdout);
    fflush(stdout);
    s->waiting = bytes - whole;
    /* At most three bytes stay: a character of UTF-8 has four. */
    memmove(s->text, s->text + whole, s->waiting);
    return 0;
}

/* The model's shape from config.json, then its weights. accel_prepare stands between
 * the two: it places the parameters that the weights go to. */
static accel_status_t prepare(accel_t *run, const struct settings *s,
                              accel_module_t **model, accel_error_t *err)
{
    /* No step is made, but a job needs a length. */
    accel_job_t job = {
        .bytes = sizeof(job), .steps = 1, .batch = 1, .out_dir = s->out
    };
    accel_status_t st;

    /* The kind of model follows from the file: any causal one will do. */
    job.model = *model = accel_model_open(run, s->model, err);
    if (!*model)
        return err->code;
    st = accel_prepare(run, &job, err);
    return st != ACCEL_OK ? st : accel_load_weights(run, s->model, err);
}

/* The prompt and what follows lie in one array: ids[0, cap) and ids[cap, ...). Every
 * rank calls it; the tokens are the same on all. */
static accel_status_t generate(accel_t *run, struct settings *s,
                               const accel_tokenizer_t *tokenizer, accel_error_t *err)
{
    static const char *const ends[] = { "<|endoftext|>", "<|end_of_text|>",
                                        "<|eot_id|>" };
    struct stream stream = { .tokenizer = tokenizer, .main = accel_is_main(run) };
    /* A byte makes at most one token; 16 for those that frame the text. */
    size_t bytes = strlen(s->prompt), n, cap = bytes + 16;
    int32_t *ids = calloc(cap + (size_t)s->count, sizeof(*ids));
    accel_module_t *model;
    accel_status_t st;

    if (!ids)
        return accel_error_set(err, ACCEL_ENOMEM, "cannot allocate the text", NULL);
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        /* -1: this tokenizer has no such token. */
        if ((stream.stop[stream.stops] = accel_tokenizer_id(tokenizer, ends[i])) >= 0)
            stream.stops++;
    /* FRAME: with the tokens that the model expects around a text. */
    st = accel_tokenize(tokenizer, s->prompt, bytes, ACCEL_TOKENIZE_FRAME, ids, cap, &n,
                        err);
    if (st == ACCEL_OK)
        st = prepare(run, s, &model, err);
    /* Tokens that end a text are the tokenizer's matter: a model of another family has
     * others. */
    s->how.token = show;
    s->how.user = &stream;
    s->how.stop = stream.stop;
    s->how.stop_count = stream.stops;
    /* The text may outgrow the model's context: the newer half is kept, and what was
     * forgotten has no influence on what follows. */
    if (st == ACCEL_OK)
        st = accel_generate(model, ids, (int)n, ids + cap, s->count, &s->how, err);
    /* A text that ends inside a character: its bytes are printed as they are. */
    if (st == ACCEL_OK && stream.main) {
        fwrite(stream.text, 1, stream.waiting, stdout);
        putchar('\n');
    }
    free(ids);
    return st;
}

/* argp's own exit code for wrong usage is made 64, as the library's is. */
int main(int argc, char **argv)
{
    static const struct argp argp = { options, parse_option, 0, doc, 0, 0, 0 };
    struct settings s = {
        .prompt = "<|endoftext|>",
        .out = "out",
        .count = 100,
        .how = { .bytes = sizeof(s.how), .temperature = 0.8f, .seed = 1 }
    };
    accel_options_t open_options = { .bytes = sizeof(open_options),
                                     .run_name = "generate",
                                     .log = print_log };
    accel_tokenizer_t *tokenizer = NULL;
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    accel_status_t st;
    char text[1536];

    argp_err_exit_status = 64;
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    st = accel_open(&run, &open_options, &err);
    if (st == ACCEL_OK)
        st = accel_tokenizer_open(&tokenizer, s.model, &err);
    if (st == ACCEL_OK)
        st = generate(run, &s, tokenizer, &err);
    /* The text is empty where another rank knows the reason and prints it. */
    if (st != ACCEL_OK && err.text[0]) {
        accel_error_format(&err, text, sizeof(text));
        fprintf(stderr, "accel: %s\n", text);
    }
    accel_close(run, NULL);
    accel_tokenizer_close(tokenizer);
    return accel_exit_code(st);
}
