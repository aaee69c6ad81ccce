/* SPDX-License-Identifier: Apache-2.0
 *
 * The config of a run. In: the options of accel_open, and the environment. Out: a
 * checked config, the same on all ranks. Logs which keys the program sets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "preemption/preemption.h"
#include "run/run_impl.h"
#include "backend/device.h"
#include "common/env_names.h"
#include "handle/run.h"

/* ---- reading --------------------------------------------------------------------- */

/* All findings are logged, not only the one that fails. What srun has resolved it has
 * told, too: then only findings about the program are new. */
static accel_status_t resolve_here(accel_t *run, const struct config_sources *sources,
                                   accel_error_t *err)
{
    struct config_diags diags = { 0 };
    accel_status_t st = config_resolve(sources, &run->config, &diags, err);

    for (size_t i = 0; i < diags.count; i++) {
        const struct config_diag *d = &diags.item[i];

        if (d->is_error || !sources->resolved || d->source == ORIGIN_PROGRAM)
            accel_logf(&run->log, d->is_error ? ACCEL_LOG_ERROR : ACCEL_LOG_WARN, "%s",
                       d->text);
    }
    config_diags_free(&diags);
    return st;
}

/* srun has merged all sources but the program, where the job was started. */
static accel_status_t take_resolved(accel_t *run, const char *text,
                                    const char *const *settings, accel_error_t *err)
{
    const struct config_sources sources = { .resolved = &run->config,
                                            .program = settings };
    accel_status_t st = config_decode(text, &run->config, err);

    run->config_source = "srun";
    return st || !settings ? st : resolve_here(run, &sources, err);
}

/* The job file is the option, else the config that srun has resolved, else
 * $ACCEL_CONFIG, else none. What srun did not resolve is merged with the other
 * sources here. */
static accel_status_t read_config(accel_t *run, const accel_options_t *o,
                                  accel_error_t *err)
{
    const char *resolved = getenv(ENV_RESOLVED);
    const char *path = o->config_file;
    const char *const *settings = o->set;
    struct config_sources sources = { .program = settings };
    struct config_paths paths;

    if (!path && resolved && *resolved)
        return take_resolved(run, resolved, settings, err);
    if (!path)
        path = getenv(ENV_CONFIG);
    if (path && *path) {
        run->config_source = "file";
        snprintf(run->config_path, sizeof(run->config_path), "%s", path);
        sources.job_path = path;
    } else {
        run->config_source = "built-in";
    }
    config_sources_default(&sources, &paths);
    return resolve_here(run, &sources, err);
}

/* As accel.log_level says; errors are always logged. */
static accel_log_level_t wanted_level(const struct config *c)
{
    return c->log_level == LOG_WARN    ? ACCEL_LOG_WARN
           : c->log_level == LOG_DEBUG ? ACCEL_LOG_DEBUG
                                       : ACCEL_LOG_INFO;
}

/* Has an earlier setting of the list the same key? Of two the last counts, but a key is
 * listed once. */
static bool is_again(const char *const *settings, size_t i, size_t len)
{
    for (size_t j = 0; j < i; j++)
        if (!strncmp(settings[j], settings[i], len) && settings[j][len] == '=')
            return true;
    return false;
}

/* Lists the keys that count in run->config_set, and logs the settings: those that count
 * with their values, the others with the source that has precedence. */
static accel_status_t tell_settings(accel_t *run, const char *const *settings,
                                    accel_error_t *err)
{
    struct strbuf kept = { 0 };

    for (size_t i = 0; settings && settings[i]; i++) {
        char name[128], value[256], where[256];
        size_t len = strcspn(settings[i], "=");
        int row;

        snprintf(name, sizeof(name), "%.*s", (int)len, settings[i]);
        row = config_row(name);
        if (row < 0 || is_again(settings, i, len))
            continue;
        config_get(&run->config, name, value, sizeof(value));
        if (run->config.origin[row] == ORIGIN_PROGRAM) {
            accel_logf(&run->log, ACCEL_LOG_INFO, "the program sets %s: %s", name,
                       value);
            strbuf_printf(&kept, "%s%s", kept.len ? " " : "", name);
        } else {
            accel_logf(&run->log, ACCEL_LOG_INFO,
                       "the program sets %s, but %s has precedence: %s", name,
                       config_where(&run->config, name, where, sizeof(where)), value);
        }
    }
    run->config_set = kept.s;
    return kept.failed ? accel_fail_nomem(err, "the program's settings", kept.len)
                       : ACCEL_OK;
}

accel_status_t settings_open(accel_t *run, const accel_options_t *o, accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, read_config(run, o, err));
    run_preemption(run);
    if (run->boot.rank == 0)
        run->log.level = wanted_level(&run->config);
    /* A program that saves nothing is not told to stop and save. */
    if (!run->config.preempt_enabled)
        signals_restore();
    return tell_settings(run, o->set, err);
}

/* ---- checks ---------------------------------------------------------------------- */

/* Compares the config with what was started. */
static accel_status_t check_size(const accel_t *run, accel_error_t *err)
{
    int64_t want = run->config.num_processes;

    if (run->boot.rank == 0 && run->boot.size > 1 &&
        strcmp(run->config_source, "built-in") == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "no config given: %d processes train as MULTI_CPU with the defaults "
                   "(use srun --accel-config=FILE to change this)",
                   run->boot.size);
    /* Before the number of the config, which cannot be another one with NO. */
    if (run->config.distributed_type == DIST_NO && run->boot.size > 1)
        return accel_fail_at(err, A0303, "distributed_type",
                             "use distributed_type: FSDP or MULTI_CPU, or one task",
                             "distributed_type is NO, but %d processes were started",
                             run->boot.size);
    /* 0: the config does not say */
    if (want > 0 && want != run->boot.size)
        return accel_fail_at(
            err, A0301, "num_processes",
            "change num_processes in the config or the number of tasks "
            "(srun -n, mpirun -n)",
            "the config says %lld, but %d %s started", (long long)want, run->boot.size,
            run->boot.size == 1 ? "process was" : "processes were");
    return config_check_world(&run->config, run->boot.size, err);
}

accel_status_t settings_check(const accel_t *run, accel_error_t *err)
{
    accel_status_t st = config_supported(&run->config, err);

    return st ? st : check_size(run, err);
}

/* The hash of all settings in their order; 0: there are none. */
static uint64_t hash_settings(const char *const *settings)
{
    uint64_t hash = 0;

    for (; settings && *settings; settings++)
        hash = XXH3_64bits_withSeed(*settings, strlen(*settings), hash);
    return hash;
}

/* A broadcast of one text; `text` is rank 0's, settings_bytes long everywhere. */
static accel_status_t compare_settings(accel_t *run, const char *const *settings,
                                       accel_error_t *err)
{
    enum { ROOM = 4096 };
    struct strbuf mine = { 0 };
    char root[ROOM] = "";
    accel_status_t st;

    for (; settings && *settings; settings++)
        strbuf_printf(&mine, "%s%s", mine.len ? ", " : "", *settings);
    if (mine.s)
        snprintf(root, sizeof(root), "%s", mine.s);
    st = comm_broadcast(run->comm, root, ROOM, 0, err);
    if (st == ACCEL_OK && strncmp(root, mine.s ? mine.s : "", ROOM - 1) != 0)
        st = accel_fail_at(err, A0905, "accel_options.set",
                           "pass the same settings to accel_open on every rank",
                           "the program sets '%.200s' on rank %d and '%.200s' on "
                           "rank 0",
                           mine.s ? mine.s : "", run->boot.rank, root);
    strbuf_free(&mine);
    return run_agree(run, st, err);
}

/* One reduction where all is well. */
accel_status_t settings_same_on_all(accel_t *run, const accel_options_t *o,
                                    accel_error_t *err)
{
    const char *const *settings = o->set;
    int64_t hash = (int64_t)(hash_settings(settings) >> 1), most[2] = { hash, -hash };
    accel_status_t st;

    if (run->boot.size == 1)
        return ACCEL_OK;
    st = comm_all_reduce(run->comm, most, 2, ACCEL_I64, COMM_MAX, err);
    return st || most[0] == -most[1] ? st : compare_settings(run, settings, err);
}

/* ---- before the bootstrap -------------------------------------------------------- */

/* A signal during the bootstrap must not kill the task: what srun resolved names the
 * signals before anything is up. A config that does not decode is reported later. */
void settings_early_signals(accel_t *run)
{
    const char *resolved = getenv(ENV_RESOLVED);
    accel_error_t ignored = { 0 };

    if (resolved && *resolved &&
        config_decode(resolved, &run->config, &ignored) == ACCEL_OK) {
        const struct preemption_rules rules = preemption_rules_of(&run->config);

        signals_install(&rules);
    }
}
