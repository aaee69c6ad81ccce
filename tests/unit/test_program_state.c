/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program adds to the state of a run, on 1 to 4 ranks: registered objects and
 * hooks through save_state and load_state, also at another number of ranks; automatic
 * numbers and their limit; parts under other names; what fails on one rank or is damaged
 * is the same error on all.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "state/state.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/world/fork_world.h"
#include "tests/world/model_run.h"
#include "tests/world/run_folder.h"

#define NAME "h.0.attn.c_attn.weight"
#define BIAS "h.0.attn.c_attn.bias"
#define SAID "said by the program"

enum failing { NOTHING, SAVE, HOOK, LOAD, SILENT };

static char root[] = "/tmp/accel-state.XXXXXX";

/* The program of one rank. */
struct program {
    /* what it does with its run; 0: all is well */
    int (*act)(accel_t *run, struct program *p);
    int rank, size;
    int common; /* rank 0's value counts */
    int own;    /* this rank's */
    int sum;    /* of all old ranks' own, after a load */
    int old_ranks;
    int saved_by; /* ranks */
    int saves, loads;
    int version;          /* of the common object; 0: 2 */
    enum failing failing; /* on the last rank */
    bool fewer;           /* without the object per rank */
    bool same;            /* which needs the same ranks */
    char dir[300];        /* the hook's */
};

static bool fails(const struct program *p, enum failing what)
{
    return p->rank == p->size - 1 && p->failing == what;
}

/* The same bytes where memory ends: who reads beyond them is killed. */
static const void *at_end(const void *data, size_t bytes)
{
    static char *page;
    const size_t all = (size_t)sysconf(_SC_PAGESIZE);

    if (!page) {
        page = mmap(NULL, 2 * all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
        if (page == MAP_FAILED || mprotect(page + all, all, PROT_NONE))
            abort();
    }
    return memcpy(page + all - bytes, data, bytes);
}

static accel_status_t save_common(void *user, accel_bytes_t *to, accel_error_t *err)
{
    struct program *p = user;

    if (fails(p, SAVE))
        return accel_error_set(err, ACCEL_EIO, SAID, NULL);
    if (fails(p, SILENT))
        return ACCEL_EIO;
    return accel_bytes_put(to, at_end(&p->common, sizeof(p->common)), sizeof(p->common),
                           err);
}

static accel_status_t load_common(void *user, const accel_saved_t *from,
                                  accel_error_t *err)
{
    struct program *p = user;
    size_t bytes = 0;
    const void *data = accel_saved_bytes(from, 0, &bytes);

    if (fails(p, LOAD))
        return accel_error_set(err, ACCEL_EINVAL, SAID, NULL);
    if (accel_saved_version(from) != 2 || accel_saved_ranks(from) != 1 ||
        bytes != sizeof(p->common) || accel_saved_bytes(from, 1, &bytes))
        return accel_error_set(err, ACCEL_ECORRUPT, "another common object", NULL);
    memcpy(&p->common, data, sizeof(p->common));
    return ACCEL_OK;
}

/* As many copies of the value as the rank's number, so that sizes differ. */
static accel_status_t save_own(void *user, accel_bytes_t *to, accel_error_t *err)
{
    struct program *p = user;
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < p->rank && !st; i++)
        st = accel_bytes_put(to, at_end(&p->own, sizeof(p->own)), sizeof(p->own), err);
    return st;
}

static accel_status_t load_own(void *user, const accel_saved_t *from,
                               accel_error_t *err)
{
    struct program *p = user;

    p->sum = 0;
    p->old_ranks = accel_saved_ranks(from);
    for (int r = 0; r < p->old_ranks; r++) {
        size_t bytes = 99;
        const char *data = accel_saved_bytes(from, r, &bytes);
        int value;

        if (bytes != (size_t)r * sizeof(value))
            return accel_error_set(err, ACCEL_ECORRUPT, "another size", NULL);
        for (int i = 0; i < r; i++) {
            memcpy(&value, data + (size_t)i * sizeof(value), sizeof(value));
            p->sum += value;
        }
    }
    return ACCEL_OK;
}

static accel_status_t note_save(void *user, const char *dir, accel_error_t *err)
{
    struct program *p = user;

    p->saves++;
    snprintf(p->dir, sizeof(p->dir), "%s", dir);
    return fails(p, HOOK) ? accel_error_set(err, ACCEL_EIO, SAID, NULL) : ACCEL_OK;
}

static accel_status_t note_load(void *user, const char *dir, accel_error_t *err)
{
    struct program *p = user;

    p->loads++;
    (void)dir;
    (void)err;
    return ACCEL_OK;
}

static accel_status_t open_run(accel_t *run, struct boot *b, struct program *p,
                               accel_error_t *err)
{
    struct model_request r = { .dir = "", .strategy = SHARD_FULL };

    p->rank = b->rank;
    p->size = b->size;
    run->preemption.lease.fd = run->observe.file.fd = -1;
    run->config.ckpt_save = true;
    run->config.ckpt_keep = 2;
    strcpy(run->config.ckpt_metric, "eval_loss");
    retention_open(run);
    snprintf(run->ckpt_dir, sizeof(run->ckpt_dir), "%s/own", root);
    if (accel_register(run, "common", p->version ? p->version : 2, ACCEL_STATE_COMMON,
                       save_common, load_common, p, err) ||
        (!p->fewer &&
         accel_register(run, "own", 0,
                        p->same ? ACCEL_STATE_SAME_RANKS : ACCEL_STATE_PER_RANK,
                        save_own, load_own, p, err)) ||
        accel_on_save(run, note_save, p, err) ||
        accel_on_load(run, note_load, p, err) || backend_cpu_open(&r.backend, 1, err) ||
        model_run_open(run, b, &r, err))
        return err->code;
    return state_identity(run, err);
}

static int64_t elems_of(const accel_t *run, const char *name)
{
    return accel_param_find(run->job.model, name)->elems;
}

/* Sets, or compares with, one value in all elements of a parameter. */
static accel_status_t set_all(accel_t *run, const char *name, float value,
                              accel_error_t *err)
{
    static float all[1 << 16];
    int64_t n = elems_of(run, name);

    for (int64_t i = 0; i < n; i++)
        all[i] = value;
    return accel_param_write(run, name, all, n, err);
}

static bool has_all(accel_t *run, const char *name, float value)
{
    static float all[1 << 16];
    int64_t n = elems_of(run, name);

    if (accel_param_read(run, name, ACCEL_ALL_RANKS, all, n, NULL))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (all[i] != value)
            return false;
    return true;
}

/* ---- on every rank --------------------------------------------------------------- */

/* Returns the number of the check that failed. */
#define MUST(n, x)                                                                     \
    do {                                                                               \
        if (!(x)) {                                                                    \
            fprintf(stderr, "# rank %d, check %d: %s: %s\n", run->boot.rank, n,        \
                    err.where, err.text);                                              \
            return n;                                                                  \
        }                                                                              \
    } while (0)

/* For fork_world; arg: the program. */
static int program_rank(struct boot *b, void *arg)
{
    struct program p = *(const struct program *)arg;
    accel_t run = { 0 };
    accel_error_t err = { 0 };
    int bad = -1;

    if (open_run(&run, b, &p, &err))
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    else
        bad = p.act(&run, &p);
    registered_free(&run);
    background_close(&run);
    model_run_close(&run);
    return bad;
}

/* On this rank no file can be longer than a few bytes, as on a full disk. */
static void full_disk(bool full)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = full ? 100 : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

/* Saves at step 5, goes on, and is set back; the four automatic ones are two. */
static int save_and_load(accel_t *run, struct program *p)
{
    accel_error_t err = { 0 };
    char dir[300], text[400];

    p->common += p->rank;
    p->own += p->rank;
    snprintf(dir, sizeof(dir), "%s/mine/deep", root);
    run->progress.step = 5;
    run->progress.cursor = 40;
    MUST(2, !set_all(run, NAME, 1.5f, &err) && !set_all(run, BIAS, -2, &err));
    MUST(3, !accel_save_state(run, dir, &err) && p->saves == 1 && !strcmp(p->dir, dir));
    MUST(4, accel_save_state(run, dir, &err) == ACCEL_EINVAL);
    MUST(5, p->rank || strstr(err.text, "holds a checkpoint already (step_00000005)"));
    run->progress.step = 6;
    MUST(6, !save_checkpoint(run, &err));
    run->progress.cursor = 48;
    p->common = p->own = 0;
    MUST(7, !set_all(run, NAME, 9, &err));
    MUST(8, !accel_load_state(run, dir, &err) && p->loads == 1);
    MUST(9, run->progress.step == 5 && run->progress.cursor == 40);
    MUST(10, has_all(run, NAME, 1.5f) && has_all(run, BIAS, -2));
    MUST(11, p->common == 7 && p->old_ranks == p->size);
    for (int r = 0; r < p->size; r++)
        p->sum -= r * (100 + r);
    MUST(12, p->sum == 0);
    snprintf(text, sizeof(text), "%s/own/step_00000006", root);
    MUST(13, access(text, F_OK) != 0 && run->progress.saved_step == -1);
    for (int n = 0; n < 4; n++) {
        run->progress.step = 10 + n;
        MUST(14, !accel_save_state(run, NULL, &err));
    }
    MUST(15, !accel_load_state(run, NULL, &err) && run->progress.step == 13);
    /* what a save leaves that is killed is passed over, and does not count */
    snprintf(text, sizeof(text), "mkdir -p %s/own/checkpoint_7/.tmp-step_00000099.x.0",
             root);
    MUST(18, p->rank || system(text) == 0);
    run->progress.step = 20;
    MUST(19, !accel_load_state(run, NULL, &err) && run->progress.step == 13);
    full_disk(true);
    run->progress.step = 14;
    MUST(20, accel_save_state(run, NULL, &err) == ACCEL_EIO && !run->status);
    full_disk(false);
    MUST(21, !accel_save_state(run, NULL, &err));
    run->loop.in_micro = true;
    MUST(16, accel_save_state(run, NULL, &err) == ACCEL_EINVAL &&
                 accel_load_state(run, NULL, &err) == ACCEL_EINVAL);
    run->loop.in_micro = false;
    MUST(17, run->status == ACCEL_OK);
    return 0;
}

/* Another number of ranks, and programs that do not fit. */
static int load_saved(accel_t *run, struct program *p)
{
    const bool fits = p->version != 1 && (!p->same || p->saved_by == p->size);
    accel_error_t err = { 0 };
    char dir[300];

    snprintf(dir, sizeof(dir), "%s/mine/deep", root);
    MUST(1, !set_all(run, NAME, 3, &err));
    MUST(2, accel_load_state(run, dir, &err) == (fits ? ACCEL_OK : ACCEL_EMISMATCH));
    MUST(3, fits || p->rank ||
                strstr(err.text, p->same ? "cannot be loaded by"
                                         : "saved with version 2, but this program "
                                           "reads version 1"));
    MUST(4, !run->status && has_all(run, NAME, fits ? 1.5f : 3));
    MUST(5, !fits || p->common == 7);
    MUST(6, !fits || p->fewer || p->old_ranks == p->saved_by);
    return 0;
}

static int other_rank(struct boot *b, void *arg)
{
    static const struct program programs[] = {
        { .version = 3 }, { .version = 1 }, { .same = true }, { .fewer = true }
    };
    int bad = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(programs) && !bad; i++) {
        struct program p = programs[i];

        p.act = load_saved;
        p.saved_by = *(const int *)arg;
        bad = program_rank(b, &p);
    }
    return bad;
}

/* What fails on the last rank is said by it, ends the call on all, and leaves nothing
 * behind. */
static int fail_once(accel_t *run, struct program *p)
{
    const enum failing failing = p->failing;
    accel_error_t err = { 0 };
    char dir[300];
    const char *says = failing == SILENT ? "returned ACCEL_EIO" : SAID;
    accel_status_t st;

    snprintf(dir, sizeof(dir), "%s/%s", root, failing == LOAD ? "mine/deep" : "failed");
    st = failing == LOAD ? accel_load_state(run, dir, &err)
                         : accel_save_state(run, dir, &err);
    MUST(2, st == (failing == LOAD ? ACCEL_EINVAL : ACCEL_EIO) && err.code == st);
    MUST(3, strstr(err.text, says));
    MUST(4, failing != SAVE || p->rank < p->size - 1 ||
                !strcmp(err.where, "object common"));
    /* a load had written already */
    MUST(5, run->status == (failing == LOAD ? st : ACCEL_OK));
    MUST(6, failing == LOAD || access(dir, F_OK) != 0);
    return 0;
}

static char part_line[500];

static void note_part(void *user, accel_log_level_t level, const char *line)
{
    (void)user, (void)level;
    if (strstr(line, " read from "))
        snprintf(part_line, sizeof(part_line), "%s", line);
}

/* Rank 0 says what the report has, once in a load, and nobody else does. */
static bool part_is_said(int rank, const char *dir, const accel_part_report_t *report)
{
    char want[500] = "";
    bool good;

    if (rank == 0)
        snprintf(want, sizeof(want),
                 "%zu parameters and buffers read from %s; %zu of the run without "
                 "values, %zu of the part unused",
                 report->loaded, dir, report->missing_count, report->unexpected_count);
    good = strcmp(part_line, want) == 0;
    if (!good)
        fprintf(stderr, "# rank %d: '%s'\n", rank, part_line);
    part_line[0] = '\0';
    return good;
}

/* Parts of the checkpoint of save_rank. */
static int load_parts(accel_t *run, struct program *p)
{
    const accel_rename_t swap[] = { { BIAS, "h.1.attn.c_attn.bias" },
                                    { "h.0.", "elsewhere." } };
    const accel_rename_t twice[] = { { "h.0.", "h.1." } };
    const accel_rename_t away[] = { { NAME, "elsewhere" } };
    const accel_rename_t shape[] = { { BIAS, "ln_f.weight" } };
    accel_part_t one = { sizeof(one), .match = NAME },
                 moved = { sizeof(moved), .match = "h.0.*", .rename = swap,
                           .rename_count = 2 },
                 strict = moved,
                 both = { sizeof(both), .rename = twice, .rename_count = 1 },
                 gone = { sizeof(gone), .rename = away, .rename_count = 1,
                          .strict = 1 },
                 wrong = { sizeof(wrong), .match = BIAS, .rename = shape,
                           .rename_count = 1 };
    accel_part_report_t report = { .bytes = sizeof(report) };
    accel_error_t err = { 0 };
    char dir[300];

    strict.strict = 1;
    snprintf(dir, sizeof(dir), "%s/mine/deep/step_00000005", root);
    MUST(1, !set_all(run, BIAS, 4, &err));
    run->log = (struct accel_log){ .fn = note_part, .level = ACCEL_LOG_INFO };
    MUST(2, !accel_load_part(run, dir, &one, &report, &err));
    MUST(18, part_is_said(p->rank, dir, &report));
    MUST(3, has_all(run, NAME, 1.5f) && has_all(run, BIAS, 4));
    MUST(4, report.loaded == 1 && report.unexpected_count == 0 &&
                report.missing_count > 3 && run->progress.step == 0 && !p->loads);
    accel_part_report_free(&report);
    MUST(5, accel_load_part(run, dir, &strict, &report, &err) == ACCEL_EMISMATCH);
    MUST(6, p->rank || strstr(err.text, "are not in the run (h.0."));
    MUST(7, !run->status && !has_all(run, "h.1.attn.c_attn.bias", -2));
    accel_part_report_free(&report);
    MUST(8, !accel_load_part(run, dir, &moved, &report, &err) && report.loaded == 1);
    MUST(19, part_is_said(p->rank, dir, &report));
    MUST(9, has_all(run, "h.1.attn.c_attn.bias", -2) && has_all(run, BIAS, 4));
    MUST(10,
         report.unexpected_count > 3 && strncmp(report.unexpected[0], "h.0.", 4) == 0);
    accel_part_report_free(&report);
    MUST(11, accel_load_part(run, dir, &both, NULL, &err) == ACCEL_EMISMATCH);
    MUST(12, p->rank || strstr(err.text, "would both be this one"));
    MUST(13, accel_load_part(run, dir, &wrong, NULL, &err) == ACCEL_EMISMATCH);
    MUST(14, p->rank || (strstr(err.text, BIAS " of the checkpoint is float32 [") &&
                         strstr(err.text, "], but the run takes float32 [")));
    MUST(21, accel_load_part(run, dir, &gone, NULL, &err) == ACCEL_EMISMATCH);
    MUST(22,
         p->rank || strstr(err.text, "1 parameters of the run have no values in the "
                                     "part (" NAME "), and 1 of the part are not in "
                                     "the run (" NAME ")"));
    MUST(15, accel_load_part(run, "/nonexistent", NULL, NULL, &err) == ACCEL_ENOENT);
    MUST(16, accel_load_part(run, NULL, NULL, NULL, &err) == ACCEL_EINVAL);
    MUST(17, !accel_load_part(run, dir, NULL, &report, &err) && !run->status &&
                 report.missing_count == 0 && has_all(run, BIAS, -2));
    MUST(20, part_is_said(p->rank, dir, &report));
    accel_part_report_free(&report);
    return 0;
}

static void save_local(struct config *c)
{
    static const char word[] = "LOCAL_STATE_DICT";

    c->distributed_type = DIST_FSDP;
    memcpy(c->given + c->given_used, word, sizeof(word));
    c->given_at[config_row("fsdp_state_dict_type")] = (uint16_t)(c->given_used + 1);
    c->given_used += sizeof(word);
}

/* Flat shards come back as a whole; by name there is nothing. */
static int load_flat(accel_t *run, struct program *p)
{
    accel_error_t err = { 0 };
    char dir[300];

    snprintf(dir, sizeof(dir), "%s/flat", root);
    MUST(1, !set_all(run, BIAS, 4, &err));
    save_local(&run->config);
    MUST(2, !accel_save_state(run, dir, &err) && !set_all(run, BIAS, 5, &err));
    MUST(3, accel_load_part(run, dir, NULL, NULL, &err) == ACCEL_EMISMATCH);
    MUST(4, p->rank || strstr(err.text, "flat shards"));
    MUST(5, !run->status && has_all(run, BIAS, 5));
    MUST(6, !accel_load_state(run, dir, &err) && has_all(run, BIAS, 4));
    return 0;
}

/* The weights of that checkpoint, exported to safetensors and imported again. */
static int load_imported(accel_t *run, struct program *p)
{
    const accel_part_t all = { sizeof(all), .strict = 1 };
    accel_part_report_t report = { .bytes = sizeof(report) };
    accel_error_t err = { 0 };
    char dir[300];

    snprintf(dir, sizeof(dir), "%s/imported/step_00000000", root);
    MUST(1, !set_all(run, BIAS, 4, &err) && !set_all(run, NAME, 4, &err));
    MUST(2, !accel_load_part(run, dir, &all, &report, &err));
    MUST(3, report.loaded > 5 && has_all(run, BIAS, -2) && has_all(run, NAME, 1.5f));
    MUST(4, run->progress.step == 0 && !p->loads);
    accel_part_report_free(&report);
    return 0;
}

/* Every shard file has one other byte in its middle. */
static int load_damaged(accel_t *run, struct program *p)
{
    accel_error_t err = { 0 };
    char dir[300];

    (void)p;
    snprintf(dir, sizeof(dir), "%s/mine/deep", root);
    MUST(2, accel_load_part(run, dir, NULL, NULL, &err) == ACCEL_ECORRUPT);
    MUST(3, run->status == ACCEL_ECORRUPT);
    return 0;
}

/* ---- here ------------------------------------------------------------------------ */

/* A TAP line: the program on each of these ranks. */
static void on_ranks(int ranks, struct program p, const char *what)
{
    tap_is_int(fork_world(ranks, program_rank, &p, HANG_S), 0, "%d ranks: %s", ranks,
               what);
}

static void shell(const char *cmd)
{
    char all[1000];

    snprintf(all, sizeof(all), "cd '%s' && %s", root, cmd);
    if (system(all) != 0)
        tap_ok(false, "%s", all);
}

static const char *names(const char *dir)
{
    return world_output(
        "cd '%s/%s' && ls -d *_* | sed 's/-[0-9TZ]*$/-T/' | tr '\\n' ' '", root, dir);
}

static void test_register(void)
{
    struct program p = { .size = 1 };
    accel_error_t err = { 0 };
    accel_t run = { 0 };
    struct {
        const char *name;
        int version;
        int kind;
        accel_state_save_f save;
        const char *says, *cure;
    } bad[] = {
        { NULL, 0, 0, save_own, "'': the name does not fit", "use 1 to 63" },
        { "", 0, 0, save_own, "'': the name does not fit", "use 1 to 63" },
        { "a b", 0, 0, save_own, "'a b': the name does not fit", "use 1 to 63" },
        { "a/b", 0, 0, save_own, "'a/b': the name does not fit", "use 1 to 63" },
        { "good", -1, 0, save_own, "'good': a function is NULL, the v", "pass both" },
        { "good", 0, 3, save_own, "'good': a function is NULL, the v", "pass both" },
        { "good", 0, 0, NULL, "'good': a function is NULL, the v", "pass both" },
        { "here", 0, 0, save_own, "'here': there is one of this name",
          "register each" },
    };

    tap_ok(!accel_register(&run, "here", 0, ACCEL_STATE_COMMON, save_own, load_own, &p,
                           &err),
           "registered %s", err.text);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++)
        tap_ok(accel_register(&run, bad[i].name, bad[i].version,
                              (accel_state_kind_t)bad[i].kind, bad[i].save, load_own,
                              &p, &err) == ACCEL_EINVAL &&
                   strstr(err.text, "accel_register, object") == err.text &&
                   strstr(err.text, bad[i].says) &&
                   strstr(err.hint, bad[i].cure) == err.hint,
               "%s (%s)", err.text, err.hint);
    for (int i = 0; i < 8; i++)
        accel_on_save(&run, note_save, &p, &err);
    tap_ok(accel_on_save(&run, note_save, &p, &err) == ACCEL_EINVAL &&
               accel_on_load(&run, NULL, &p, &err) == ACCEL_EINVAL,
           "a ninth hook, and none: %s", err.text);
    registered_free(&run);
}

static const float start[4] = { 1, 2, 3, 4 };

/* A run of one unit of the program's own, with its object. */
static accel_t *open_life(const char *config, struct program *p, accel_unit_t **unit)
{
    static char out[300];
    const int64_t four[] = { 4 };
    const accel_init_t zeros = { ACCEL_INIT_ZEROS, 0 };
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_job_t j = { sizeof(j), .steps = 20, .batch = 4, .out_dir = out };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    snprintf(out, sizeof(out), "%s/life", root);
    j.optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t), .kind = ACCEL_ADAMW,
                                        .lr = 0.1f };
    p->size = 1;
    tap_ok(!accel_open(&run, &o, &err) &&
               !accel_register(run, "common", 2, ACCEL_STATE_COMMON, save_common,
                               load_common, p, &err) &&
               !accel_on_load(run, note_load, p, &err) &&
               (*unit = accel_unit_new(run, "u", &err)) &&
               !accel_unit_param(*unit, "w", 1, four, zeros, start, &err) &&
               !accel_prepare(run, &j, &err),
           "a life begins %s", err.text);
    tap_ok(accel_register(run, "late", 2, ACCEL_STATE_COMMON, save_common, load_common,
                          p, &err) == ACCEL_EINVAL &&
               strstr(err.text, "'late': the run is prepared already") &&
               strstr(err.hint, "register before accel_prepare") == err.hint,
           "%s (%s)", err.text, err.hint);
    return run;
}

/* One step; returns its first sample, or -1. */
static int64_t one_step(accel_t *run, accel_unit_t *unit)
{
    accel_error_t err = { 0 };
    int64_t index[4];
    float *g;

    if (accel_next_samples(run, index, 4, &err) ||
        accel_unit_gradient(unit, 0, &g, &err))
        return -1;
    for (int i = 0; i < 4; i++)
        g[i] += (float)(index[0] + i);
    return accel_finish_backward(run, 1, &err) || accel_step(run, &err) ? -1 : index[0];
}

/* Set back in the middle, a run goes on with the same samples to the same bits; and the
 * next life has the object again. */
static void test_lives(void)
{
    struct program p = { .common = 3 }, q = { 0 };
    float first[4], second[4], third[4] = { 0 };
    accel_error_t err = { 0 };
    char config[300];
    accel_unit_t *unit;
    accel_t *run;

    snprintf(config, sizeof(config), "%s/one.yaml", root);
    run_folder_write(config, "distributed_type: 'NO'\nuse_cpu: true\n");
    run = open_life(config, &p, &unit);
    tap_ok(one_step(run, unit) == 0 && one_step(run, unit) == 4, "two steps");
    tap_ok(!accel_save_state(run, NULL, &err), "saved %s", err.text);
    p.common = 8;
    tap_ok(one_step(run, unit) == 8 && one_step(run, unit) == 12 &&
               !accel_param_read(run, "u.w", 0, first, 4, &err) &&
               !accel_save(run, &err),
           "two more %s", err.text);
    tap_ok(!accel_unit_want(unit, &err) &&
               accel_load_state(run, NULL, &err) == ACCEL_EINVAL,
           "not with a unit in hand: %s", err.text);
    accel_unit_done(unit);
    tap_ok(!accel_load_state(run, NULL, &err) && accel_steps_done(run) == 2 &&
               p.common == 3,
           "set back %s", err.text);
    tap_ok(one_step(run, unit) == 8 && one_step(run, unit) == 12 &&
               !accel_param_read(run, "u.w", 0, second, 4, &err) &&
               memcmp(first, second, sizeof(first)) == 0,
           "the same samples, the same bits %s", err.text);
    p.common = 5;
    tap_ok(!accel_save(run, &err), "saved again under the same step %s", err.text);
    accel_close(run, &err);
    tap_is_str(names("life/checkpoints"),
               "checkpoint_0 step_00000004 step_00000004.aside-T ",
               "what it had saved before was moved aside");
    run = open_life(config, &q, &unit);
    tap_ok(q.common == 5 && q.loads == 1 && accel_steps_done(run) == 4 &&
               !accel_param_read(run, "u.w", 0, third, 4, &err) &&
               memcmp(second, third, sizeof(third)) == 0,
           "the next life has all of it %s", err.text);
    accel_close(run, &err);
}

/* A program that validates and saves after the periodic save of that step, twice, and
 * once more when it has just resumed: what it changed since is in the checkpoint. */
static void test_again(void)
{
    const float new[4] = { 7, 7, 7, 7 };
    struct program p = { .common = 3 };
    accel_error_t err = { 0 };
    float read[4] = { 0 };
    char config[300];
    accel_unit_t *unit;
    accel_t *run;

    snprintf(config, sizeof(config), "%s/one.yaml", root);
    shell("rm -rf life");
    run = open_life(config, &p, &unit);
    tap_ok(one_step(run, unit) == 0 && !accel_save(run, &err), "a step, saved %s",
           err.text);
    p.common = 21;
    tap_ok(!accel_param_write(run, "u.w", new, 4, &err) && !accel_save(run, &err),
           "changed and saved again %s", err.text);
    accel_close(run, &err);
    for (int life = 0; life < 2; life++) {
        struct program q = { 0 };

        run = open_life(config, &q, &unit);
        tap_ok(q.common == 21 + life && accel_steps_done(run) == 1 &&
                   !accel_param_read(run, "u.w", 0, read, 4, &err) &&
                   memcmp(read, new, sizeof(new)) == 0,
               "life %d finds what was changed: %d, %g %s", life, q.common,
               (double)read[0], err.text);
        q.common = 22;
        tap_ok(!accel_save(run, &err), "and replaces what it went on from %s",
               err.text);
        accel_close(run, &err);
        tap_is_str(names("life/checkpoints"), "step_00000001 ",
                   "nothing is left of it");
    }
}

int main(void)
{
    static const struct {
        enum failing failing;
        const char *what;
    } rows[] = { { SAVE, "a save of the last one fails" },
                 { HOOK, "a hook of the last one fails" },
                 { SILENT, "a save of the last one fails without a text" },
                 { LOAD, "a load of the last one fails" } };

    run_folder_new(root);
    test_register();
    for (int ranks = 1; ranks <= 4; ranks += ranks == 1 ? 1 : 2) {
        shell("rm -rf * && mkdir own");
        on_ranks(ranks,
                 (struct program){ .act = save_and_load, .common = 7, .own = 100 },
                 "they save, go on and are set back");
        on_ranks(ranks, (struct program){ .act = load_flat },
                 "they save flat shards and are set back");
        tap_is_str(names("own"),
                   "checkpoint_3 checkpoint_7 checkpoint_8 step_00000006.aside-T ",
                   "two of the five are kept");
        tap_is_str(names("mine/deep"), "step_00000005 ", "and the program's own");
        for (int other = 1; other <= 4; other += other == 1 ? 1 : 2)
            tap_is_int(fork_world(other, other_rank, &ranks, HANG_S), 0,
                       "loaded by %d ranks", other);
        on_ranks(ranks, (struct program){ .act = load_parts }, "and in parts");
        shell("\"$ACCEL_BUILD/accel\" ckpt export mine/deep weights >/dev/null && "
              "\"$ACCEL_BUILD/accel\" ckpt import weights imported --shards 3 "
              ">/dev/null");
        on_ranks(ranks, (struct program){ .act = load_imported },
                 "and after a way through safetensors");
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
            on_ranks(ranks,
                     (struct program){ .act = fail_once, .failing = rows[i].failing },
                     rows[i].what);
    }
    test_lives();
    test_again();
    shell(
        "for f in mine/deep/step_*/*.h5; do for i in 1 2 3 4 5 6 7; do printf "
        "'\\377\\377\\377\\377' | dd of=$f "
        "bs=1 seek=$(($(stat -c %s $f) * i / 8)) conv=notrunc 2>/dev/null; done; done");
    on_ranks(2, (struct program){ .act = load_damaged }, "a damaged part ends the run");
    run_folder_remove(root);
    return tap_done();
}
