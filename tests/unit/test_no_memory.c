/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call for memory fails, one at a time: a row is something that a program does, in a
 * process of its own for every such call that it makes. It ends with an error that has a
 * text, or with what it gives otherwise, and leaves no file open; never by a signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "common/plain_file.h"
#include "data/data_impl.h"
#include "data/token_file.h"
#include "data/tokenizer_impl.h"
#include "loader/stream.h"
#include "handle/run.h"
#include "track/track.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/run_folder.h"
#include "tests/unit/scarce.h"

static char root[] = "/tmp/accel-memory.XXXXXX", path[200], config[100];

/* ---- what is done ---------------------------------------------------------------- */

/* What it gives goes to *out; name: of the files that it reads. */
typedef accel_status_t (*act_f)(const char *name, uint64_t *out, accel_error_t *err);

static accel_status_t read_files(const char *name, uint64_t *out, accel_error_t *err)
{
    accel_dataset_t *d = NULL;
    int32_t ids[4], targets[4];
    accel_status_t st;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    st = accel_dataset_open(&d, path, 4, 0, err);
    ACCEL_TRY(st, data_sample(d, 1, (void *[]){ ids, targets }, err));
    ACCEL_TRY(st, data_digest(d, out, err));
    if (!st)
        *out += (uint64_t)ids[0];
    accel_dataset_close(d);
    return st;
}

static int next_of(void *user, void *const *dst)
{
    int *left = user;

    memset(dst[0], *left, 3);
    memset(dst[1], *left, 100);
    return --*left >= 0;
}

static int rewind_of(void *user, int64_t epoch)
{
    *(int *)user = 5 + (int)epoch;
    return 0;
}

static accel_status_t read_stream(const char *name, uint64_t *out, accel_error_t *err)
{
    static const accel_field_t field[] = { { ACCEL_U8, 1, { 3 } },
                                           { ACCEL_U8, 1, { 100 } } };
    int left = 0;
    const accel_iterable_t source = { sizeof(source), next_of, rewind_of, &left, 0 };
    accel_dataset_t *d = NULL;
    struct stream s = { 0 };
    bool got = true;
    accel_status_t st = accel_dataset_iterable_new(&d, &source, field, 2, err);

    (void)name;
    ACCEL_TRY(st, stream_open(&s, d, err));
    if (!st)
        stream_begin(&s, 2);
    for (int64_t n = 0; !st && got; n++) {
        st = stream_read(&s, n, NULL, &got, err);
        *out += got;
    }
    stream_close(&s);
    accel_dataset_close(d);
    return st;
}

/* A long word, too, whose pairs lie in a heap. */
static accel_status_t tokenize(const char *name, uint64_t *out, accel_error_t *err)
{
    static char text[3000];
    const char *src = getenv("ACCEL_SRC");
    accel_tokenizer_t *t = NULL;
    int32_t ids[3000];
    size_t n = 0;
    accel_status_t st;

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 1000 < 500 ? 'a' + (char)(i % 7) : i % 5 ? 'x' : ' ';
    snprintf(path, sizeof(path), "%s/tests/data/tokenizer/%s", src ? src : ".", name);
    st = accel_tokenizer_open(&t, path, err);
    ACCEL_TRY(st, accel_tokenize(t, text, sizeof(text), ACCEL_TOKENIZE_FRAME, ids, 3000,
                                 &n, err));
    for (size_t i = 0; !st && i < n; i++)
        *out = *out * 31 + (uint64_t)ids[i];
    accel_tokenizer_close(t);
    return st;
}

/* ---- a run ----------------------------------------------------------------------- */

static accel_tensor_t *weight;

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_sum(accel_linear(in[0], weight, NULL, ACCEL_ACT_NONE), -1);
}

static accel_module_t *net_new(accel_t *run)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward, 0 };
    const int64_t dims[] = { 1, 1 };
    accel_module_t *m = accel_module_new(run, &cls, NULL, NULL);

    if (m)
        weight = accel_param(m, "w", 2, dims, (accel_init_t){ ACCEL_INIT_CONSTANT, 2 });
    return m;
}

static accel_status_t step_of(accel_t *run, accel_module_t *m, accel_error_t *err)
{
    const int64_t dims[] = { 1, 1 };
    const float one = 1;
    accel_tensor_t *in;
    accel_status_t st = accel_batch_begin(run, err);

    if (st)
        return st;
    in = accel_input(run, ACCEL_F32, 2, dims, &one, err);
    st = accel_backward(run, accel_call(m, &in, 1), err);
    return st ? st : accel_step(run, err);
}

/* Steps that are not done already, a checkpoint after the second; the steps that are
 * done and the loss of the last one go to *out. */
static accel_status_t live(int steps, const char *out_dir, uint64_t *out,
                           accel_error_t *err)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    const accel_loop_t loop = { sizeof(loop), .steps = steps, .batch = 1,
                                .out_dir = out_dir };
    accel_step_info_t info = { .bytes = sizeof(info) };
    accel_module_t *m = NULL;
    accel_t *run = NULL;
    accel_error_t end = { 0 };
    accel_status_t st = accel_open(&run, &o, err), closed;

    if (!st) {
        m = net_new(run);
        st = accel_model_add(run, "a", m, err);
    }
    if (!st && !accel_optim_add(run, "oa", &m, 1, &sgd, err))
        st = err->code;
    ACCEL_TRY(st, accel_prepare_all(run, &loop, err));
    while (!st && accel_more(run))
        st = step_of(run, m, err);
    ACCEL_TRY(st, accel_last_step(run, &info, err));
    closed = accel_close(run, &end);
    if (!st && closed)
        *err = end;
    *out = *out * 100 + (uint64_t)(10 * info.step + (int64_t)(5 + info.loss));
    return st ? st : closed;
}

static accel_status_t live_twice(const char *name, uint64_t *out, accel_error_t *err)
{
    accel_status_t st;

    snprintf(path, sizeof(path), "%s/%s.%d", root, name, (int)getpid());
    st = live(2, path, out, err);
    return st ? st : live(3, path, out, err);
}

static const struct row {
    const char *what;
    act_f act;
    const char *name;
    int most; /* of more calls as many are tried, in equal steps */
} rows[] = {
    { "text is read", read_files, "text", 100 },
    { "token files are read", read_files, "tokens", 100 },
    { "samples come one after the other", read_stream, NULL, 100 },
    { "a tokenizer.json", tokenize, "llama3.json", 100 },
    { "a tokenizer of two files", tokenize, "gpt2", 100 },
    { "a run that saves, and one that resumes", live_twice, "run", 30 },
};

/* ---- each call for memory of it -------------------------------------------------- */

enum outcome { SAME, REFUSED, NO_TEXT, OTHER, LEFT_OPEN, KINDS };

static const char *const outcomes[] = { "as without", "refused",
                                        "an error without text", "something else",
                                        "a file left open" };

static enum outcome try(const struct row *r, int nth, uint64_t want)
{
    const int files = tap_open_files();
    accel_error_t err = { 0 };
    uint64_t got = 0;
    accel_status_t st;

    scarce_begin(nth);
    st = r->act(r->name, &got, &err);
    scarce_end();
    if (tap_open_files() != files)
        return LEFT_OPEN;
    return st ? err.text[0] ? REFUSED : NO_TEXT : got == want ? SAME : OTHER;
}

/* In a process of its own; a signal is the number that the shell shows. */
static int outcome_of(const struct row *r, int nth, uint64_t want)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(try(r, nth, want));
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        abort();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void check_row(const struct row *r)
{
    int seen[KINDS] = { 0 }, wrong = 0, calls, step;
    accel_error_t err = { 0 };
    uint64_t want = 0;

    scarce_begin(0);
    tap_ok(!r->act(r->name, &want, &err) && want, "%s (%s)", r->what, err.text);
    scarce_end();
    calls = scarce_calls();
    step = calls / r->most + 1;
    for (int nth = 1; nth <= calls; nth += step) {
        const int how = outcome_of(r, nth, want);

        if (how <= REFUSED) {
            seen[how]++;
            continue;
        }
        wrong++;
        tap_diag("%s: call for memory %d of %d: %s (%d)", r->what, nth, calls,
                 how < KINDS ? outcomes[how] : "a signal", how);
    }
    tap_is_int(wrong, 0, "%s: %d calls for memory, of which %d are needed", r->what,
               seen[SAME] + seen[REFUSED], seen[REFUSED]);
    tap_ok(seen[REFUSED] > 0, "%s: without memory it is refused", r->what);
}

/* ---- what is said ---------------------------------------------------------------- */

static void test_cause(void)
{
    char *text;
    size_t len;
    int error;

    scarce_begin(1);
    error = plain_tail(AT_FDCWD, config, 100, &text, &len);
    scarce_end();
    tap_is_int(error, ENOMEM, "the end of a file: no memory");
}

static void test_track(void)
{
    const accel_item_t items[3] = { { .name = "a" }, { .name = "b" }, { .name = "c" } };
    struct track_items clean;
    accel_error_t err = { 0 };
    char want[100];

    scarce_begin(1);
    (void)track_clean_items(items, 3, &clean, &err);
    scarce_end();
    snprintf(want, sizeof(want), "out of memory: items to track needs %zu B",
             sizeof(items));
    tap_is_str(err.text, want, "the bytes of three items");
    track_items_free(&clean);
}

static void test_long_word(void)
{
    static char word[500];
    const char *src = getenv("ACCEL_SRC");
    accel_tokenizer_t *t = NULL;
    accel_error_t err = { 0 };
    size_t n;

    memset(word, 'a', sizeof(word));
    snprintf(path, sizeof(path), "%s/tests/data/tokenizer/gpt2.json", src ? src : ".");
    if (accel_tokenizer_open(&t, path, &err))
        abort();
    for (int nth = 1; nth < 9 && !strstr(err.text, "word"); nth++) {
        scarce_begin(nth);
        (void)accel_tokenize(t, word, sizeof(word), 0, NULL, 0, &n, &err);
        scarce_end();
    }
    tap_is_str(err.text, "out of memory: a long word needs 5.9 KiB",
               "12 bytes for each of 500");
    accel_tokenizer_close(t);
}

/* ---- by two ranks ---------------------------------------------------------------- */

static struct shared {
    int nth, calls, kind[2];
} * shared;

/* Both split; a call of the last rank for memory fails. */
static int split_rank(struct boot *b, void *arg)
{
    const struct comm_options o = { .backend = "shm", .timeout_ms = HANG_S * 1000 };
    struct comm *c = NULL, *group = NULL;
    int64_t sum = 1;
    accel_error_t err = { 0 };
    accel_status_t st;

    (void)arg;
    if (comm_open(&c, b, &o, &err))
        return 2;
    scarce_begin(b->rank == 1 ? shared->nth : 0);
    st = comm_split(c, 0, 0, &group, &err);
    scarce_end();
    if (b->rank == 1)
        shared->calls = scarce_calls();
    ACCEL_TRY(st, comm_all_reduce(group, &sum, 1, ACCEL_I64, COMM_SUM, &err));
    shared->kind[b->rank] = !st           ? sum == 2 ? SAME : OTHER
                            : err.text[0] ? REFUSED
                                          : NO_TEXT;
    comm_close(group);
    comm_close(c);
    return 0;
}

static void test_split(void)
{
    int refused = 0;

    shared = fork_shared(sizeof(*shared));
    tap_is_int(fork_world(2, split_rank, NULL, HANG_S), 0, "two ranks split");
    for (int nth = 1, calls = shared->calls; nth <= calls; nth++) {
        shared->nth = nth;
        shared->kind[0] = shared->kind[1] = OTHER;
        tap_is_int(fork_world(2, split_rank, NULL, HANG_S), 0,
                   "a split, call for memory %d of %d", nth, calls);
        tap_ok(shared->kind[0] == shared->kind[1] && shared->kind[1] <= REFUSED,
               "  rank 0: %s; rank 1: %s", outcomes[shared->kind[0]],
               outcomes[shared->kind[1]]);
        refused += shared->kind[1] == REFUSED;
    }
    tap_ok(refused > 0, "some are needed");
}

/* ---- the files ------------------------------------------------------------------- */

static void put(const char *name, const void *data, size_t bytes)
{
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
        abort();
}

int main(void)
{
    uint8_t tokens[TOKEN_FILE_HEADER + 2 * 10] = { 0 };

    run_folder_make(root,
                    "distributed_type: 'NO'\nuse_cpu: true\nmixed_precision: 'no'\n"
                    "accel: {log_level: warn, checkpoint: {every_steps: 2}}\n",
                    config, sizeof(config));
    snprintf(path, sizeof(path), "%s/text", root);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/tokens", root);
    mkdir(path, 0755);
    put("text/1", "abcdefghij", 10);
    put("text/2", "klmnopqrst", 10);
    token_file_header(tokens, 2, 10, 7);
    for (int i = 0; i < 10; i++)
        token_file_put(tokens + TOKEN_FILE_HEADER + 2 * i, 2, (uint32_t)i + 5);
    put("tokens/1.bin", tokens, sizeof(tokens));
    put("tokens/2.bin", tokens, sizeof(tokens));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        check_row(&rows[i]);
    test_cause();
    test_track();
    test_long_word();
    test_split();
    run_folder_remove(root);
    return tap_done();
}
