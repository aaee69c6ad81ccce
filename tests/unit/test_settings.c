/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_options.set: what a run says of it, ranks whose programs differ, and sums by
 * nodes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

static char dir[64] = "/tmp/accel-settings.XXXXXX", config[96], said[4096];

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    size_t used = strlen(said);

    (void)user;
    (void)level;
    snprintf(said + used, sizeof(said) - used, "%s\n", line);
}

static accel_status_t open_with(const char *const *set, accel_t **run_out,
                                accel_error_t *err)
{
    accel_options_t o = { sizeof(o), .config_file = config, .log = keep_line,
                          .threads = 1, .set = set };

    said[0] = '\0';
    *err = (accel_error_t){ 0 };
    return accel_open(run_out, &o, err);
}

static void test_said(void)
{
    static const char *const set[] = { "accel.checkpoint.keep=9", "accel.track=csv",
                                       "mixed_precision=bf16", "accel.track=jsonl",
                                       NULL };
    accel_error_t err;
    accel_info_t info = { .bytes = sizeof(info) };
    accel_t *run = NULL;

    tap_ok(!open_with(set, &run, &err) && !accel_info(run, &info, &err) &&
               !strcmp(info.config_set, "accel.checkpoint.keep accel.track") &&
               run->config.ckpt_keep == 9 && !strcmp(info.compute, "float32") &&
               !strcmp(run->config.track, "jsonl"),
           "keys of the program: %s %s", run ? info.config_set : "", err.text);
    tap_ok(strstr(said, "the program sets accel.checkpoint.keep: 9\n") &&
               strstr(said, "the program sets accel.track: jsonl\n") &&
               strstr(said, "the program sets mixed_precision, but ") &&
               strstr(said, "one.yaml:3 has precedence: no\n"),
           "and the log: %s", said);
    accel_close(run, NULL);
    tap_ok(!open_with(NULL, &run, &err) && !accel_info(run, &info, &err) &&
               !info.config_set[0] && !strstr(said, "the program sets"),
           "a program that sets nothing");
    accel_close(run, NULL);
}

/* The level of the config decides which lines rank 0 gives to the program. */
static void test_levels(void)
{
    static const struct {
        const char *set[2], *lines;
    } all[] = {
        { { "accel.log_level=warn" }, "a warning\n" },
        { { "accel.log_level=info" }, "a warning\na note\n" },
        { { "accel.log_level=debug" }, "a warning\na note\na detail\n" },
    };
    accel_error_t err;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++) {
        accel_t *run = NULL;
        accel_status_t st = open_with(all[i].set, &run, &err);

        said[0] = '\0';
        if (run) {
            accel_logf(&run->log, ACCEL_LOG_WARN, "a warning");
            accel_logf(&run->log, ACCEL_LOG_INFO, "a note");
            accel_logf(&run->log, ACCEL_LOG_DEBUG, "a detail");
        }
        tap_ok(!st && !strcmp(said, all[i].lines), "%s: %s %s", all[i].set[0], said,
               err.text);
        accel_close(run, NULL);
    }
}

static void test_bad(void)
{
    static const char *const unknown[] = { "acel.track=csv", NULL };
    static const char *const ranks[] = { "num_processes=2", NULL };
    static const char *const unsupported[] = { "distributed_type=XLA", NULL };
    accel_error_t err;
    accel_t *run = NULL;

    tap_ok(open_with(unknown, &run, &err) == ACCEL_EUSAGE && err.message == 205, "%s",
           err.text);
    tap_ok(open_with(ranks, &run, &err) == ACCEL_EINVAL && err.message == 976 &&
               !strcmp(err.where, "the program's num_processes"),
           "%s: %s", err.where, err.text);
    tap_ok(open_with(unsupported, &run, &err) == ACCEL_EUNSUPPORTED &&
               !strcmp(err.where, "the program's distributed_type"),
           "%s: %s", err.where, err.text);
}

/* A program that saves nothing is not stopped by the signals that its job asked for. */
static void test_unsaved(void)
{
    static const char *const set[] = { "accel.checkpoint.save=false", NULL };
    char *text = calloc(1, 16 << 10);
    accel_options_t o = { sizeof(o), .threads = 1, .set = set };
    struct config c;
    struct sigaction now;
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    config_defaults(&c);
    c.use_cpu = true;
    config_encode(&c, text, 16 << 10, NULL);
    setenv("ACCEL_CONFIG_RESOLVED", text, 1);
    tap_ok(!accel_open(&run, &o, &err) && !run->config.preempt_enabled, "%s", err.text);
    sigaction(SIGUSR1, NULL, &now);
    tap_ok(now.sa_handler == SIG_DFL, "no handler of a warning");
    accel_close(run, NULL);
    unsetenv("ACCEL_CONFIG_RESOLVED");
    free(text);
}

/* ---- ranks ----------------------------------------------------------------------- */

struct ranks {
    const char *const *first, *const *others;
    bool same;
};

static int rank_opens(struct boot *b, void *arg)
{
    const struct ranks *r = arg;
    accel_error_t err;
    accel_t *run = NULL;
    accel_status_t st;
    int wrong = 0;

    st = open_with(b->rank ? r->others : r->first, &run, &err);
    if (r->same)
        wrong = st != ACCEL_OK;
    else
        wrong = st != ACCEL_EMISMATCH ||
                (b->rank == b->size - 1 && b->size == 2 &&
                 (err.message != 905 || !strstr(err.text, "'debug=true' on rank 1")));
    if (wrong)
        fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
    if (st == ACCEL_OK)
        accel_close(run, NULL);
    return wrong;
}

static void test_ranks(void)
{
    static const char *const debug[] = { "debug=true", NULL };
    static const char *const more[] = { "debug=true", "accel.track=csv", NULL };
    static const char *const none[] = { NULL };
    static const struct {
        struct ranks r;
        const char *what;
    } all[] = {
        { { debug, debug, true }, "the same on all" },
        { { NULL, none, true }, "no list and an empty one" },
        { { NULL, debug, false }, "only the first sets nothing" },
        { { more, debug, false }, "one key more" },
    };

    run_folder_write(config, "distributed_type: FSDP\nuse_cpu: true\n"
                             "accel: {topology: {bind: false}}\n");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++)
        for (int n = 2; n <= 3; n++)
            tap_is_int(open_world(n, 1, rank_opens, (void *)&all[i].r, HANG_S), 0,
                       "%d ranks: %s", n, all[i].what);
}

#ifdef HAVE_UCX
/* 1 in rank order, 0 by nodes: 1e8 has no room for a 1. */
static int rank_sums(struct boot *b, void *arg)
{
    static const float numbers[] = { 1e8f, 1, -1e8f, 1 };
    static const char *const by_nodes[] = { "accel.precision.sums=nodes", NULL };
    const bool nodes = *(const bool *)arg;
    const size_t n = 1 << 18;
    float *x = malloc(n * sizeof(*x));
    accel_error_t err;
    accel_t *run = NULL;
    int wrong = open_with(nodes ? by_nodes : NULL, &run, &err) != ACCEL_OK;

    for (size_t i = 0; i < n; i++)
        x[i] = numbers[b->rank];
    wrong = wrong || comm_all_reduce(run->comm, x, n, ACCEL_F32, COMM_SUM, &err);
    for (size_t i = 0; !wrong && i < n; i++)
        wrong = x[i] != (nodes ? 0 : 1);
    if (wrong)
        fprintf(stderr, "# rank %d: %g %s\n", b->rank, (double)x[0], err.text);
    accel_close(run, NULL);
    free(x);
    return wrong;
}

static void test_sums(void)
{
    bool nodes[] = { false, true };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(nodes); i++)
        tap_is_int(open_world(4, 2, rank_sums, &nodes[i], HANG_S), 0,
                   "2 x 2 ranks: sums %s",
                   nodes[i] ? "of the nodes first" : "in rank order");
}
#endif

int main(void)
{
    run_folder_make(dir,
                    "distributed_type: 'NO'\nuse_cpu: true\nmixed_precision: 'no'\n",
                    config, sizeof(config));
    test_said();
    test_levels();
    test_bad();
    test_unsaved();
    test_ranks();
#ifdef HAVE_UCX
    test_sums();
#endif
    run_folder_remove(dir);
    return tap_done();
}
