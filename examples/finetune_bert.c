/* SPDX-License-Identifier: Apache-2.0
 *
 * finetune_bert: learns classes of sentence pairs from a TSV file with lines
 * LABEL<tab>SENTENCE or LABEL<tab>SENTENCE<tab>SENTENCE, labels from 0 on:
 *
 *     srun --accel-config=fsdp.yaml ./finetune_bert --model BERT/ --data mrpc.tsv
 *
 * Starts from a directory as Hugging Face writes it (config.json, model.safetensors,
 * vocab.txt) or, without --model, from a small model of its own.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <accel.h>

#include "wordpiece.h"

/* A line of the file. The texts are not ended by NUL; len[1] is 0
 * for a single sentence. */
struct pair {
    int32_t label;
    const char *text[2];
    int len[2];
};

/* Options, and what is made from them. */
struct program {
    const char *model, *data, *vocab, *out, *save;
    int seq, labels;
    double holdout;
    accel_model_config_t bert;
    accel_job_t job;
    accel_optimizer_t optimizer;
    /* The whole file; pairs point into it. */
    char *text;
    struct pair *pair;
    int64_t pairs;
    struct wordpiece *pieces;
    /* Ids of [CLS], [SEP] and [PAD]. */
    int32_t cls, sep, pad;
};

const char *argp_program_version = "finetune_bert (accel) 0.1.0";
static const char doc[] =
    "Example:\n  srun --accel-config=fsdp.yaml ./finetune_bert --model DIR --data "
    "FILE.tsv\n\nTrains BERT to classify sentences or sentence pairs (LABEL, SENTENCE, "
    "SENTENCE, separated by tabs) and prints the accuracy on the held-out end of the "
    "file. Options (and their defaults):";

/* Long options without a letter, above all letters. */
enum {
    O_MODEL = 256,
    O_DATA,
    O_VOCAB,
    O_OUT,
    O_SAVE,
    O_SEQ,
    O_BATCH,
    O_STEPS,
    O_LR,
    O_SEED,
    O_HOLDOUT
};

/* Defaults in parentheses, as in --help of every example. */
static const struct argp_option options[] = {
    { "model", O_MODEL, "DIR", 0, "config.json and weights to start from (none)", 0 },
    { "data", O_DATA, "FILE", 0, "the TSV file", 0 },
    { "vocab", O_VOCAB, "FILE", 0, "word pieces (DIR/vocab.txt)", 0 },
    { "out", O_OUT, "DIR", 0, "log and checkpoints (out)", 0 },
    { "save", O_SAVE, "DIR", 0, "where to write the tuned model (nowhere)", 0 },
    { "seq", O_SEQ, "N", 0, "longest pair, in word pieces (64)", 0 },
    { "batch", O_BATCH, "N", 0, "pairs per rank (16)", 0 },
    { "steps", O_STEPS, "N", 0, "optimizer steps (200)", 0 },
    { "lr", O_LR, "X", 0, "peak learning rate (5e-5; without --model 1e-3)", 0 },
    { "seed", O_SEED, "N", 0, "seed of initial values and sample order (1)", 0 },
    { "holdout", O_HOLDOUT, "X", 0,
      "fraction of the file held out for the accuracy (0.1)", 0 },
    { 0 },
};

/* The argument of an option as a number in [min, max]; anything else exits 64. */
static double number(struct argp_state *state, const char *arg, double min, double max)
{
    char *end;
    double v = strtod(arg, &end);

    if (end == arg || *end || !(v >= min && v <= max))
        argp_error(state, "'%s' is not a number between %g and %g", arg, min, max);
    return v;
}

/* The first five keys are texts, in the order of `text`. */
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct program *p = state->input;
    const char **const text[] = { &p->model, &p->data, &p->vocab, &p->out, &p->save };

    /* Texts need no check here: whoever opens the file says what is wrong with it. */
    if (key >= O_MODEL && key <= O_SAVE) {
        *text[key - O_MODEL] = arg;
        return 0;
    }
    switch (key) {
    case O_SEQ:
        p->seq = (int)number(state, arg, 4, 4096);
        return 0;
    case O_BATCH:
        p->job.batch = (int)number(state, arg, 1, 65536);
        return 0;
    case O_STEPS:
        p->job.steps = (int64_t)number(state, arg, 1, 1e12);
        return 0;
    case O_LR:
        p->optimizer.lr = (float)number(state, arg, 1e-12, 1e3);
        return 0;
    case O_SEED:
        p->job.seed = (uint64_t)number(state, arg, 0, 1e15);
        return 0;
    case O_HOLDOUT:
        p->holdout = number(state, arg, 0, 0.5);
        return 0;
    /* Called after the last option, when it is clear what is missing. */
    case ARGP_KEY_END:
        if (!p->data)
            argp_error(state, "give the TSV file: --data FILE");
        if (!p->model && !p->vocab)
            argp_error(state, "give the word pieces: --vocab FILE, or --model DIR");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Fills `err` with "FILE, line N: WHAT"; line 0: of the file as a
 * whole. Returns `status`. */
static accel_status_t problem(accel_error_t *err, accel_status_t status,
                              const char *hint, const char *file, long line,
                              const char *what)
{
    char text[512];

    if (line > 0)
        snprintf(text, sizeof(text), "%s, line %ld: %s", file, line, what);
    else
        snprintf(text, sizeof(text), "%s: %s", file, what);
    /* The same struct as for the library's own errors, so that main reports both
     * alike. */
    return accel_error_set(err, status, text, hint);
}

/* Reads the whole file as one text. Small data: every rank has a copy. */
static accel_status_t read_file(struct program *p, accel_error_t *err)
{
    FILE *f = fopen(p->data, "r");
    size_t room = 0;
    ssize_t n;

    if (!f)
        return problem(err, ACCEL_ENOENT, "check --data", p->data, 0, strerror(errno));
    /* A delimiter that no text has: getdelim then reads to the end, whatever the
     * size. */
    n = getdelim(&p->text, &room, '\0', f);
    fclose(f);
    if (n <= 0)
        return problem(err, ACCEL_EINVAL, "write one pair per line", p->data, 0,
                       "the file is empty or cannot be read");
    /* getdelim stops at a NUL: what follows it would be lost in silence. */
    if ((size_t)n != strlen(p->text))
        return problem(err, ACCEL_EINVAL, "give a TSV file, which is plain text",
                       p->data, 0, "the file contains a NUL byte");
    return ACCEL_OK;
}

/* Splits a line: *out points into it. Returns what is wrong with the line, or NULL. */
static const char *split_line(char *line, struct pair *out)
{
    char *end;
    long label = strtol(line, &end, 10);

    if (end == line || *end != '\t' || label < 0 || label > 999)
        return "the line does not begin with a label from 0 to 999 and a tab";
    /* The bound catches a file of scores or ids before a head of that many classes is
     * made. */
    out->label = (int32_t)label;
    for (int i = 0; i < 2; i++) {
        char *begin = end + (*end == '\t');

        end = begin + strcspn(begin, "\t");
        out->text[i] = begin;
        out->len[i] = (int)(end - begin);
    }
    return *end ? "the line has more than a label and two sentences" : NULL;
}

/* Splits the file into pairs and counts the labels. Empty lines are passed over. */
static accel_status_t read_pairs(struct program *p, accel_error_t *err)
{
    accel_status_t st = read_file(p, err);
    char *line, *rest = p->text;
    long number_of_line = 0;

    /* strsep ends each line with a NUL in place, so pairs can point into the text. */
    while (st == ACCEL_OK && (line = strsep(&rest, "\n")) != NULL) {
        struct pair *more;
        const char *wrong;
        size_t n = strlen(line);

        /* Counted before anything is passed over: editors count all lines. */
        number_of_line++;
        if (n && line[n - 1] == '\r')
            line[n - 1] = '\0';
        if (!*line)
            continue;
        more = realloc(p->pair, (size_t)(p->pairs + 1) * sizeof(*more));
        if (!more)
            return problem(err, ACCEL_ENOMEM, NULL, p->data, 0, "no memory");
        p->pair = more;
        wrong = split_line(line, &more[p->pairs]);
        if (wrong)
            return problem(err, ACCEL_EINVAL, "LABEL<tab>SENTENCE<tab>SENTENCE",
                           p->data, number_of_line, wrong);
        /* Labels count from 0, so the largest one tells their number. */
        if (more[p->pairs].label >= p->labels)
            p->labels = more[p->pairs].label + 1;
        p->pairs++;
    }
    return st;
}

/* Encodes "[CLS] first [SEP] second [SEP]" into ids, types (0 and 1) and mask, [seq]
 * each. The longer sentence is cut until both fit. */
static void encode(const struct program *p, const struct pair *pair, int32_t *ids,
                   int32_t *types, int32_t *mask)
{
    /* Room for pieces beside [CLS] and one or two [SEP]. */
    int both = pair->len[1] > 0, room = p->seq - 2 - both, n[2] = { 0, 0 }, at = 0;
    int32_t part[2][4096];

    for (int i = 0; i <= both; i++)
        n[i] =
            wordpiece_encode(p->pieces, pair->text[i], pair->len[i], part[i], p->seq);
    /* One piece at a time from the longer sentence, as Hugging Face's longest_first: a
     * short sentence is kept whole. */
    while (n[0] + n[1] > room)
        n[n[1] > n[0]]--;
    /* The classifier reads position 0 only. */
    ids[at] = p->cls;
    types[at++] = 0;
    for (int i = 0; i <= both; i++)
        for (int k = 0; k <= n[i]; k++, at++) {
            ids[at] = k < n[i] ? part[i][k] : p->sep;
            types[at] = i;
        }
    /* Attention sees the pieces and not the padding behind them. */
    for (int i = 0; i < p->seq; i++)
        mask[i] = i < at;
    for (; at < p->seq; at++) {
        ids[at] = p->pad;
        types[at] = 0;
    }
}

/* accel_fetch_f: a sample is computed from its index alone, so every rank and every
 * life sees the same one. */
static int fetch(void *user, int64_t index, void *const *dst)
{
    const struct program *p = user;

    /* Encoded again in every epoch: next to the forward that takes no time, and it
     * saves the memory of a copy. */
    encode(p, &p->pair[index], dst[0], dst[1], dst[2]);
    *(int32_t *)dst[3] = p->pair[index].label;
    return 0;
}

/* Reads the pairs and the vocabulary. */
static accel_status_t read_data(struct program *p, accel_error_t *err)
{
    char path[4096];
    accel_status_t st = read_pairs(p, err);

    /* A model's directory has its own vocabulary; --vocab takes precedence over it. */
    snprintf(path, sizeof(path), "%s%s", p->vocab ? p->vocab : p->model,
             p->vocab ? "" : "/vocab.txt");
    if (st != ACCEL_OK)
        return st;
    p->pieces = wordpiece_open(path);
    if (!p->pieces)
        return problem(err, ACCEL_EINVAL,
                       "write one piece per line, with [PAD] [UNK] [CLS] [SEP]", path,
                       0, strerror(errno));
    /* Never -1: wordpiece_open refuses a vocabulary that lacks one of these. */
    p->cls = wordpiece_id(p->pieces, "[CLS]");
    p->sep = wordpiece_id(p->pieces, "[SEP]");
    p->pad = wordpiece_id(p->pieces, "[PAD]");
    return ACCEL_OK;
}

/* The shape of the model: the directory's, or a small one; the head has as many
 * labels as the data. */
static accel_status_t choose_shape(struct program *p, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    p->bert = (accel_model_config_t){ .bytes = sizeof(p->bert),
                                      .model_type = "bert",
                                      .layers = 2,
                                      .heads = 4,
                                      .width = 64,
                                      .hidden = 256,
                                      .context = p->seq,
                                      .resid_dropout = 0.1f };
    /* The directory's config.json decides everything but the head. */
    if (p->model)
        st = accel_model_config(p->model, &p->bert, err);
    else
        p->bert.vocab = wordpiece_size(p->pieces);
    /* A new head on top of the pre-trained layers. */
    p->bert.head = ACCEL_HEAD_CLASSIFY;
    p->bert.labels = p->labels;
    /* Positions end with the model's context. */
    if (st == ACCEL_OK && p->seq > p->bert.context)
        p->seq = p->bert.context;
    /* An id beyond the embedding would stop the first step. Here the message can say
     * which file is to blame. */
    if (st == ACCEL_OK && p->bert.vocab < wordpiece_size(p->pieces))
        st = problem(err, ACCEL_EINVAL, "use the vocab.txt of the model", p->model, 0,
                     "the model has fewer words than the vocabulary");
    return st;
}

/* Four fields per sample: ids, segment ids and attention mask, int32 [seq] each, and
 * the label. The last part (`holdout`) is kept for the accuracy. */
static accel_status_t open_dataset(struct program *p, accel_error_t *err)
{
    const accel_field_t row = { ACCEL_I32, 1, { p->seq } },
                        one = { ACCEL_I32, 0, { 0 } };
    const accel_field_t fields[] = { row, row, row, one };

    /* The order of the fields is that of the inputs of BERT's forward. */
    return accel_dataset_new(&p->job.data, p->pairs, fields, 4, fetch, p, p->holdout,
                             err);
}

/* Prints how many of the held-out pairs get their label. Every rank computes all of
 * them, because a forward is collective where weights are sharded. */
static accel_status_t accuracy(accel_t *run, struct program *p, accel_error_t *err)
{
    int64_t first = accel_dataset_samples(p->job.data), good = 0;
    const int64_t dims[] = { 1, p->seq };
    float *logits = calloc((size_t)p->labels, sizeof(*logits));
    int32_t *row = calloc(3 * (size_t)p->seq, sizeof(*row));
    accel_status_t st = logits && row ? ACCEL_OK : ACCEL_ENOMEM;

    for (int64_t i = first; st == ACCEL_OK && i < p->pairs; i++) {
        accel_tensor_t *in[3], *y;
        int best = 0;

        /* Also ends the tensors of the pair before. */
        /* Without dropout and without a tape. */
        accel_inference_mode(run, 1);
        encode(p, &p->pair[i], row, row + p->seq, row + 2 * p->seq);
        for (int k = 0; k < 3; k++)
            in[k] = accel_input(run, ACCEL_I32, 2, dims, row + k * p->seq, err);
        /* Three inputs, without the label: the forward returns logits, not the loss. */
        y = accel_call(p->job.model, in, 3);
        st = y ? accel_tensor_read(y, logits, (size_t)p->labels, err)
               : accel_backward(run, NULL, err); /* has the forward's error */
        for (int k = 1; k < p->labels; k++)
            best = logits[k] > logits[best] ? k : best;
        good += best == p->pair[i].label;
    }
    /* Set back also on failure, so that the run can go on to its end. */
    accel_inference_mode(run, 0);
    if (st == ACCEL_OK && accel_is_main(run) && p->pairs > first)
        printf("accuracy %.4f (%lld of %lld held-out pairs)\n",
               (double)good / (double)(p->pairs - first), (long long)good,
               (long long)(p->pairs - first));
    free(logits);
    free(row);
    return st;
}

/* Weights are loaded only by a run that begins: a resumed one has its own. */
static accel_status_t train(accel_t *run, struct program *p, accel_error_t *err)
{
    accel_tensor_t *batch[4];
    accel_status_t st;

    /* A model that cannot be built is reported by accel_prepare, once for all ranks. */
    p->job.model = accel_model_new(run, &p->bert, NULL);
    st = accel_prepare(run, &p->job, err);
    if (st == ACCEL_OK && p->model && accel_steps_done(run) == 0)
        st = accel_load_weights(run, p->model, err);
    /* The loop of every program. A preempted run leaves it with ACCEL_ERESUME; the
     * restarted one enters it after the steps that are already done. */
    while (st == ACCEL_OK && accel_more(run))
        if ((st = accel_next(run, batch, 4, err)) == ACCEL_OK &&
            (st = accel_backward(run, accel_call(p->job.model, batch, 4), err)) ==
                ACCEL_OK)
            st = accel_step(run, err);
    /* Both calls are collective: also the ranks that print nothing make them. */
    if (st == ACCEL_OK)
        st = accuracy(run, p, err);
    if (st == ACCEL_OK && p->save)
        st = accel_save_weights(run, p->save, "float32", 0, err);
    return st;
}

int main(int argc, char **argv)
{
    static const struct argp argp = { options, parse, 0, doc, 0, 0, 0 };
    struct program p = { .out = "out",
                         .seq = 64,
                         .labels = 2,
                         .holdout = 0.1,
                         .job = { .bytes = sizeof(p.job),
                                  .optimizer = &p.optimizer,
                                  .steps = 200,
                                  .batch = 16,
                                  .clip = 1,
                                  .seed = 1 },
                         .optimizer.bytes = sizeof(p.optimizer) };
    accel_options_t open_options = { .bytes = sizeof(open_options),
                                     .run_name = "finetune_bert",
                                     .log = accel_log_stderr };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    /* Wrong usage exits as the library's own ACCEL_EUSAGE does. */
    argp_err_exit_status = 64;
    argp_parse(&argp, argc, argv, 0, NULL, &p);
    /* A tuned model needs smaller steps than one that begins. */
    if (!(p.optimizer.lr > 0))
        p.optimizer.lr = p.model ? 5e-5f : 1e-3f;
    /* A tenth of the steps, as BERT was tuned by its authors. */
    p.job.warmup = p.job.steps / 10;
    p.job.out_dir = p.out;
    /* The data are read before accel_open, so that a wrong path is reported before the
     * ranks connect. */
    if (read_data(&p, &err) == ACCEL_OK && choose_shape(&p, &err) == ACCEL_OK &&
        open_dataset(&p, &err) == ACCEL_OK &&
        accel_open(&run, &open_options, &err) == ACCEL_OK)
        train(run, &p, &err);
    accel_close(run, &err);
    accel_dataset_close(p.job.data);
    wordpiece_close(p.pieces);
    free(p.pair);
    free(p.text);
    return accel_report(&err); /* prints nothing where another rank says why */
}
