/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel tokenize --tokenizer FILE [-o FILE] [--eot NAME] FILE...`: turns text into the
 * token file that a training reads. Text is read in pieces, so a file may be larger
 * than memory; the ids are those of the whole text.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lfs_pointer.h"
#include "data/tokenizer.h"
#include "cli/cli.h"
#include "cli/data/token_output.h"

/* First size of a piece in bytes; time between two progress lines. */
enum { PIECE = 1 << 20, PROGRESS_NS = 200000000 };

/* The command line; eot NULL: not given. */
struct args {
    const char *tokenizer, *output, *eot;
    char **files;
    int count;
};

/* A tokenization under way. */
struct job {
    accel_tokenizer_t *t;
    struct token_output out;
    /* Bytes read so far; time of the last progress line (clock_ns). */
    int64_t bytes, shown_ns;
    bool progress;
    /* [cap] */
    uint8_t *text;
    /* [2 * cap]: a byte is at most one id, and each text but the
     * first may bring a space. */
    int32_t *ids;
    size_t cap;
};

/* Token files are known by their ending, also when a trainer reads them. */
static bool is_bin(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && !strcmp(path + n - 4, ".bin");
}

static error_t parse_tokenize_args(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case 't':
        a->tokenizer = arg;
        return 0;
    case 'o':
        if (!is_bin(arg))
            argp_error(state, "'%s' does not end in .bin, the suffix of token files",
                       arg);
        a->output = arg;
        return 0;
    case 'e':
        a->eot = arg;
        return 0;
    /* All operands at once: they stay in argv. */
    case ARGP_KEY_ARGS:
        a->files = state->argv + state->next;
        a->count = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "give at least one text file, or - for standard input");
        return 0;
    case ARGP_KEY_END:
        if (!a->tokenizer)
            argp_error(state, "name the tokenizer: --tokenizer FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- text ------------------------------------------------------------------------ */

/* Doubles the piece. The ids are not copied: they hold nothing between two pieces. */
static accel_status_t grow_piece(struct job *j, accel_error_t *err)
{
    size_t cap = j->cap ? 2 * j->cap : PIECE;
    uint8_t *text = realloc(j->text, cap);
    int32_t *ids;

    if (text)
        j->text = text;
    free(j->ids); /* holds nothing between two pieces */
    j->ids = ids = malloc(2 * cap * sizeof(*ids));
    if (!text || !ids)
        return accel_fail_nomem(err, "a piece of text", cap);
    j->cap = cap;
    return ACCEL_OK;
}

/* One line on a terminal, rewritten at most five times a second. */
static void show_progress(struct job *j)
{
    int64_t now = j->progress ? clock_ns() : 0;
    char bytes[32], tokens[32];

    if (!j->progress || now - j->shown_ns < PROGRESS_NS)
        return;
    j->shown_ns = now;
    /* \033[K erases what a longer line before left. */
    fprintf(stderr, "\r%s, %s tokens \033[K",
            format_bytes((double)j->bytes, bytes, sizeof(bytes)),
            format_count((double)j->out.tokens, tokens, sizeof(tokens)));
}

/* Fills text[*have, cap) and moves *have; *end_out: the input has ended. */
static accel_status_t fill_piece(struct job *j, int fd, const char *name, size_t *have,
                                 bool *end_out, accel_error_t *err)
{
    *end_out = false;
    while (*have < j->cap && !*end_out) {
        ssize_t n = read(fd, j->text + *have, j->cap - *have);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return accel_fail_at(err, A0703, name, "give text files", "cannot read: %s",
                                 strerror(errno));
        *end_out = n == 0;
        *have += (size_t)n;
        j->bytes += n;
    }
    return ACCEL_OK;
}

/* Encodes one input piece by piece. A piece ends where cutting does not change the ids;
 * without such a place it grows. What follows the cut moves to the front. */
static accel_status_t encode_file(struct job *j, int fd, const char *name,
                                  accel_error_t *err)
{
    bool continued = false, end = false;
    size_t have = 0, n, count;
    accel_status_t st = ACCEL_OK;

    while (!st && !end) {
        st = fill_piece(j, fd, name, &have, &end, err);
        if (!st && !continued && is_lfs_pointer((const char *)j->text, have))
            st = accel_fail_at(err, A0701, name, LFS_POINTER_CURE, LFS_POINTER_TEXT);
        if (st)
            break;
        /* Where no token can reach across; 0: nowhere in this piece. */
        n = end ? have : tokenizer_cut(j->t, j->text, have);
        if (!n && !end) {
            st = grow_piece(j, err);
            continue;
        }
        st = tokenizer_encode(j->t, j->text, n, continued, j->ids, 2 * j->cap, &count,
                              err);
        ACCEL_TRY(st, token_output_add(&j->out, j->ids, count, err));
        memmove(j->text, j->text + n, have - n);
        have -= n;
        continued = true;
        show_progress(j);
    }
    return st;
}

/* One file, or standard input ("-"), which is not closed. */
static accel_status_t tokenize_file(struct job *j, const char *name, accel_error_t *err)
{
    bool is_stdin = !strcmp(name, "-");
    int fd = is_stdin ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    accel_status_t st;

    if (fd < 0)
        return accel_fail_at(err,
                             errno == ENOENT   ? A0701
                             : errno == EACCES ? A0702
                                               : A0703,
                             name, "check the path and its permissions",
                             "cannot open the text: %s", strerror(errno));
    st = encode_file(j, fd, is_stdin ? "standard input" : name, err);
    if (!is_stdin)
        close(fd);
    return st;
}

/* ---- files ----------------------------------------------------------------------- */

/* The id between two files; -1 if it is not known and there is one file only. */
static accel_status_t find_eot(const struct job *j, const struct args *a,
                               int32_t *id_out, accel_error_t *err)
{
    static const char *const usual[] = { "<|endoftext|>", "<|end_of_text|>", "</s>" };
    int32_t id = a->eot ? accel_tokenizer_id(j->t, a->eot) : -1;

    if (a->eot && id < 0)
        return accel_fail_at(err, A0716, a->tokenizer,
                             "see added_tokens of the tokenizer",
                             "--eot: there is no token '%s'", a->eot);
    for (size_t i = 0; !a->eot && id < 0 && i < ACCEL_ARRAY_SIZE(usual); i++)
        id = accel_tokenizer_id(j->t, usual[i]);
    /* Without an id between them the files would run into each other. */
    if (id < 0 && a->count > 1)
        return accel_fail_at(
            err, A0716, a->tokenizer, "name one with --eot",
            "the tokenizer has none of the usual tokens between two files");
    *id_out = id;
    return ACCEL_OK;
}

/* All files into one token file, with the end-of-text id between two of them. */
static accel_status_t tokenize_all(struct job *j, const struct args *a,
                                   accel_error_t *err)
{
    int32_t eot;
    accel_status_t st = accel_tokenizer_open(&j->t, a->tokenizer, err);

    ACCEL_TRY(st, find_eot(j, a, &eot, err));
    ACCEL_TRY(st, grow_piece(j, err));
    ACCEL_TRY(st, token_output_open(&j->out, a->output, j->t, err));
    for (int i = 0; i < a->count && !st; i++) {
        if (i)
            st = token_output_add(&j->out, &eot, 1, err);
        ACCEL_TRY(st, tokenize_file(j, a->files[i], err));
    }
    /* The result takes the place of the progress line. */
    if (j->progress)
        fprintf(stderr, "\r\033[K");
    return st ? st : token_output_commit(&j->out, err);
}

static const struct argp_option options[] = {
    { "tokenizer", 't', "FILE", 0, "tokenizer.json, or its directory", 0 },
    { "output", 'o', "FILE", 0, "The token file to write (default: tokens.bin)", 0 },
    { "eot", 'e', "NAME", 0,
      "The token between two files (default: <|endoftext|>, <|end_of_text|> or </s>, "
      "the first that the tokenizer has)",
      0 },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse_tokenize_args,
    .args_doc = "FILE...",
    .doc =
        "Turns text into a token file for training programs (--data). FILE - is "
        "standard input.\vThe tokenizer is a byte-level BPE with the word splitting of "
        "GPT-2 or Llama-3, as tokenizer.json or as the directory of a saved tokenizer; "
        "the ids equal those of the tokenizers library. A special token in the text "
        "becomes its id. A token has 2 bytes, or 4 if the vocabulary is larger than "
        "65536. The file gets its name when it is complete.",
};

static int run_tokenize(int argc, char **argv)
{
    struct args a = { .output = "tokens.bin" };
    struct job j = { .out.fd = -1, .progress = isatty(STDERR_FILENO) };
    char bytes[32];
    accel_error_t err = { 0 };
    accel_status_t st;

    cli_parse(&cli_tokenize, argc, argv, &a);
    st = tokenize_all(&j, &a, &err);
    /* On stdout, since it is the command's result. */
    if (!st)
        printf("%s: %" PRId64 " tokens of %d bytes, from %s of text; vocabulary %d\n",
               a.output, j.out.tokens, j.out.width,
               format_bytes((double)j.bytes, bytes, sizeof(bytes)),
               accel_tokenizer_vocab(j.t));
    token_output_close(&j.out);
    accel_tokenizer_close(j.t);
    free(j.text);
    free(j.ids);
    return cli_finish(st ? cli_fail(&err) : 0);
}

const struct cli_command cli_tokenize = {
    .name = "tokenize",
    .run = run_tokenize,
    .summary = "turn text into token files for training",
    .example = "accel tokenize --tokenizer gpt2/tokenizer.json -o train.bin *.txt",
    .argp = &argp,
};
