/* SPDX-License-Identifier: Apache-2.0
 *
 * Site file, program, user file, job file, environment and flags come in; one config
 * goes out. Each source overrides the weaker ones key by key, except for size and
 * device (rules/shape.c). Keys are checked against each other once, when all sources
 * are in. Never prints, never changes the environment.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "config/read/validate.h"
#include "config/sources/single_value.h"

/* Longest name of a variable that can be a key's, with its NUL. */
enum { NAME_BYTES = 96 };
static const char env_prefix[] = ENV_PREFIX;
enum { PREFIX = sizeof(env_prefix) - 1 };

/* Variables of accel that are not keys. A name near one of them is not reported as a
 * misspelt key. */
static const char *const own_names[] = {
    ENV_BOOT_TIMEOUT,
    ENV_COMM_TIMEOUT,
    ENV_CONFIG,
    ENV_CUDA_ATTENTION,
    ENV_CUDA_EPILOGUES,
    ENV_CUDA_GRAPHS,
    ENV_CUDA_MODULE,
    ENV_CUDA_TUNE,
    ENV_DIGEST,
    ENV_FIRST_JOB,
    ENV_LAUNCH_ENVIRONMENT,
    ENV_LAUNCH_PORT,
    ENV_LOCAL_RANK,
    ENV_LOCAL_WORLD_SIZE,
    ENV_MASTER_ADDR,
    ENV_MASTER_PORT,
    ENV_MAX_RESTARTS,
    ENV_NCCL_LIBRARY,
    ENV_NODE_RANK,
    ENV_NOTICE,
    ENV_NUM_NODES,
    ENV_OMP_THREADS,
    ENV_PREEMPTION,
    ENV_RANK,
    ENV_RESOLVED,
    ENV_RESTART_COUNT,
    ENV_RESUME,
    ENV_ROOT,
    ENV_SHORT_RUNS,
    ENV_SIZED,
    ENV_STEP_REPORTS,
    ENV_TASKS_PER_NODE,
    ENV_WARNING,
    ENV_WORLD_SIZE,
};

/* The state of one config_resolve. It is large (more than 100 KiB), so it is on the
 * heap. Places point to the texts in here, which therefore live until the end. */
struct resolve {
    struct validator v;
    struct config_report report;
    struct config cfg;
    /* The files, by origin, with their bytes; and what there was before each
     * of them. */
    struct config_text file[ORIGIN_FILE + 1];
    struct shape_layer before[ORIGIN_FILE];
    /* Names of the keys' variables; filled in only when some ACCEL_ variable
     * is seen. */
    char env_name[CONFIG_MAX_KEYS][NAME_BYTES];
    /* Rows that the environment has set already. */
    bool by_env[CONFIG_MAX_KEYS];
    struct lones lones;
    /* Every file was readable and well formed. If not, checks between keys would only
     * report consequences. */
    bool complete;
};

/* ---- names ----------------------------------------------------------------------- */

/* The paths are in `src`: struct config keeps only the one of the job file. */
const char *config_place(const struct config *cfg, const struct config_sources *src,
                         size_t row, char *buf, size_t len)
{
    const char *path = cfg->origin[row] == ORIGIN_SITE   ? src->site_path
                       : cfg->origin[row] == ORIGIN_USER ? src->user_path
                                                         : src->job_path;
    char name[NAME_BYTES];

    switch (cfg->origin[row]) {
    case ORIGIN_SITE:
    case ORIGIN_USER:
    case ORIGIN_FILE:
        snprintf(buf, len, "%s:%d", path ? path : "", cfg->line[row]);
        break;
    case ORIGIN_ENV:
        snprintf(buf, len, "environment %s", config_env_name(row, name, sizeof(name)));
        break;
    case ORIGIN_FLAG:
        snprintf(buf, len, "flag");
        break;
    case ORIGIN_PROGRAM:
        snprintf(buf, len, "the program");
        break;
    default:
        snprintf(buf, len, "built-in");
        break;
    }
    return buf;
}

/* The value of `name` if it is an absolute path, else NULL. */
static const char *absolute_env(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] == '/' ? value : NULL;
}

/* Writes `dir` and `tail` into buf[1024]; NULL when there is no dir, or no room. */
static const char *path_below(const char *dir, const char *tail, char *buf)
{
    int n = dir ? snprintf(buf, 1024, "%s%s", dir, tail) : -1;

    return n > 0 && n < 1024 ? buf : NULL;
}

/* Where `accelerate config` writes when no file is named, by the rules of
 * huggingface_hub: HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
 * NULL: not known. */
static const char *accelerates_file(char *buf)
{
    static const char name[] = "/accelerate/default_config.yaml";
    const char *home = absolute_env("HOME"), *hub = getenv("HF_HOME"),
               *cache = getenv("XDG_CACHE_HOME");
    char dir[1024], expanded[1024];

    if (!hub || !*hub)
        hub = path_below(cache && *cache ? cache : "~/.cache", "/huggingface", dir);
    if (hub && hub[0] == '~' && (hub[1] == '/' || !hub[1]))
        hub = path_below(home, hub + 1, expanded);
    return path_below(hub, name, buf);
}

/* Accelerate's file counts only if accel's own user file does not exist. One that
 * exists but cannot be read must be reported, not replaced. */
void config_sources_default(struct config_sources *src, struct config_paths *paths_out)
{
    const char *theirs;
    int n;

    /* The XDG specification says to ignore a relative XDG_CONFIG_HOME. */
    src->user_path = absolute_env("XDG_CONFIG_HOME")
                         ? path_below(absolute_env("XDG_CONFIG_HOME"),
                                      "/accel/config.yaml", paths_out->user)
                         : path_below(absolute_env("HOME"),
                                      "/.config/accel/config.yaml", paths_out->user);
    if (!src->user_path)
        paths_out->user[0] = '\0';
    /* Not looked for beside a job file: accelerate launch does not either. */
    theirs = src->job_path ? NULL : accelerates_file(paths_out->accelerate);
    src->user_is_accelerates =
        theirs && access(theirs, F_OK) == 0 &&
        (!src->user_path || (access(src->user_path, F_OK) && errno == ENOENT));
    if (src->user_is_accelerates)
        src->user_path = theirs;
    n = snprintf(paths_out->site, sizeof(paths_out->site), "%s",
                 SYSCONFDIR "/accel/site.yaml");
    src->site_path = (size_t)n < sizeof(paths_out->site) ? paths_out->site : NULL;
    src->env = environ;
}

/* ---- sources --------------------------------------------------------------------- */

/* Reads one file and takes its values; site and user file between shape_before and
 * shape_after, so that rules/shape.c can undo them. NULL: no such source. */
static void take_file(struct resolve *s, const char *path, enum config_origin origin)
{
    struct config_text *in = &s->file[origin];
    struct yaml_tree tree;

    if (!path)
        return;
    /* The reader fills in the text; messages need the path before. */
    s->report.in = (struct config_text){ .path = path, .origin = origin };
    if (origin < ORIGIN_FILE)
        shape_before(&s->before[origin], &s->v);
    config_file_read(&s->report);
    *in = s->report.in;
    /* A file that is missing and may be is no problem; any other one is in
     * the report. */
    if (!in->text) {
        s->complete &= s->report.diags->errors == 0;
        return;
    }
    if (yaml_tree_read(&tree, &s->report))
        validate_tree(&s->v, &tree, in);
    else
        s->complete = false;
    if (origin < ORIGIN_FILE)
        shape_after(&s->before[origin], &s->v, origin);
    yaml_tree_free(&tree);
}

/* One line, because the user may not know that this file exists. */
static void note_accelerates(struct resolve *s)
{
    report_add(&s->report, MESSAGE_NOTE, (struct place){ 0 },
               "run accel config to write accel's own file, which takes precedence",
               "using Accelerate's own config file: no other file was given");
    report_tell(&s->report);
}

/* Is it, without its prefix, in the list above? */
static bool is_own_name(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(own_names); i++)
        if (!strcmp(own_names[i] + PREFIX, name))
            return true;
    return false;
}

/* ACCEL_MIXED_PRECISON: only a note, because the variable may be somebody else's.
 * `here` may be local: a message copies what it shows. */
static void note_misspelt(struct resolve *s, const char *name, size_t len)
{
    const char *near[CONFIG_MAX_KEYS + ACCEL_ARRAY_SIZE(own_names)], *found;
    char word[NAME_BYTES], hint[NAME_BYTES + 20];
    struct lone here;
    size_t n = 0;

    /* The name without its prefix. */
    snprintf(word, sizeof(word), "%.*s", (int)(len - PREFIX), name + PREFIX);
    if (is_own_name(word))
        return;
    for (size_t i = 0; i < s->v.keys; i++)
        if (s->env_name[i][0])
            near[n++] = s->env_name[i] + PREFIX;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(own_names); i++)
        near[n++] = own_names[i] + PREFIX;
    found = suggest_nearest(word, near, n);
    /* Nearest to one of accel's own variables: that is not a misspelt key. */
    if (!found || is_own_name(found))
        return;
    snprintf(hint, sizeof(hint), "did you mean %s%s?", env_prefix, found);
    lone_enter(&s->v, &here, ORIGIN_ENV, name, len);
    report_add(&s->report, MESSAGE_NOTE, (struct place){ 0 }, hint,
               "ignored: there is no such key");
}

/* An empty environment costs one comparison per variable: names are made only when the
 * first ACCEL_ variable with a value is met. */
static void take_environment(struct resolve *s, char *const *env)
{
    bool named = false;

    for (; env && *env && !report_full(&s->report); env++) {
        size_t len = strcspn(*env, "="), row = 0;

        /* "NAME" without "=" is no variable; a longer name can be no key. */
        if (strncmp(*env, env_prefix, PREFIX) != 0 || len >= NAME_BYTES || !(*env)[len])
            continue;
        for (size_t i = 0; !named && i < s->v.keys; i++)
            config_env_name(i, s->env_name[i], sizeof(s->env_name[i]));
        named = true;
        while (row < s->v.keys &&
               (strncmp(s->env_name[row], *env, len) != 0 || s->env_name[row][len]))
            row++;
        if (row == s->v.keys)
            note_misspelt(s, *env, len);
        else if (!s->by_env[row])
            validate_value(
                &s->v, row, *env + len + 1,
                lone_enter(&s->v, lone_next(&s->lones), ORIGIN_ENV, *env, len));
        if (row < s->v.keys)
            /* Of two variables with one name the first counts, as for getenv. */
            s->by_env[row] = true;
    }
}

/* ---- all of them ----------------------------------------------------------------- */

/* The canonical text must fit one environment variable of a task. Found here, on the
 * submit host, and not when the step starts. */
static void check_room(struct validator *v)
{
    char text[16 << 10];
    accel_error_t err;

    if (config_encode(v->cfg, text, sizeof(text), &err) == ACCEL_ECONFIG)
        report_add(v->report, A0125, (struct place){ 0 }, "shorten the values",
                   "the values together are longer than %zu bytes", sizeof(text));
}

/* Between shape_before and shape_after, as the files: the device that a program chooses
 * goes with the type that it sets. */
static void take_program(struct resolve *s, const char *const *settings)
{
    if (!settings)
        return;
    shape_before(&s->before[ORIGIN_PROGRAM], &s->v);
    program_take(&s->v, &s->lones, settings);
    shape_after(&s->before[ORIGIN_PROGRAM], &s->v, ORIGIN_PROGRAM);
}

/* The sources above the program. */
static void take_users(struct resolve *s, const struct config_sources *src)
{
    take_file(s, src->user_path, ORIGIN_USER);
    if (src->user_is_accelerates && s->file[ORIGIN_USER].text)
        note_accelerates(s);
    take_file(s, src->job_path, ORIGIN_FILE);
    take_environment(s, src->env);
    /* Of two flags with one name the last one counts. */
    for (size_t i = 0; i < src->flag_count && !report_full(&s->report); i++)
        lone_setting(&s->v, &s->lones, ORIGIN_FLAG, src->flags[i].name,
                     src->flags[i].value);
}

/* Weakest source first. After a file that could not be read, the checks between keys
 * are left out. */
static void take_all(struct resolve *s, const struct config_sources *src)
{
    s->complete = true;
    if (src->resolved) {
        /* What the site gives may give way to the type that the program sets. */
        shape_before(&s->before[ORIGIN_SITE], &s->v);
        resolved_take(&s->v, &s->lones, src->resolved, false);
    } else {
        take_file(s, src->site_path, ORIGIN_SITE);
    }
    take_program(s, src->program);
    if (src->resolved)
        resolved_take(&s->v, &s->lones, src->resolved, true);
    else
        take_users(s, src);
    /* From here on messages without a place of their own are about the job file, or
     * about "the configuration" where there is none. */
    s->report.in = s->file[ORIGIN_FILE];
    if (!src->job_path)
        s->report.in.path = "the configuration";
    if (!s->complete)
        return;
    shape_settle(&s->v, s->before);
    validate_across(&s->v);
    /* A config with errors goes nowhere, so its size does not matter. */
    if (!s->report.diags->errors)
        check_room(&s->v);
}

/* Keeps the job file's path for messages in the tasks. Of a path that is too long the
 * end is kept, because the file name is there. */
static void name_job(struct config *cfg, const char *path)
{
    const size_t room = sizeof(cfg->job_path) - 4;
    size_t n = strlen(path), from = n > room ? n - room : 0;

    while (from && from < n && ((unsigned char)path[from] & 0xc0) == 0x80)
        /* Not from the middle of a UTF-8 character. */
        from++;
    printable(cfg->job_path, sizeof(cfg->job_path), path + from, n - from);
    if (from) {
        /* 4 bytes were left for "..." and the NUL. */
        memmove(cfg->job_path + 3, cfg->job_path, strlen(cfg->job_path) + 1);
        memcpy(cfg->job_path, "...", 3);
    }
}

/* Sets the state up before the first source. False: out of memory. */
static bool resolve_prepare(struct resolve *s, const struct config_sources *src,
                            struct config_diags *diags_out)
{
    /* What messages call the whole. */
    const char *shown = src->job_path ? src->job_path : "the configuration";

    memset(diags_out, 0, sizeof(*diags_out));
    printable(diags_out->path, sizeof(diags_out->path), shown, strlen(shown));
    config_defaults(&s->cfg);
    if (src->job_path)
        name_job(&s->cfg, src->job_path);
    s->report.diags = diags_out;
    s->report.needs_site = src->site_is_named;
    s->v.cfg = &s->cfg;
    s->v.report = &s->report;
    s->v.schema = config_schema(&s->v.keys);
    s->v.without_slurm = src->without_slurm;
    s->v.needs_type = src->job_path != NULL;
    s->v.is_resolved = src->resolved != NULL;
    /* One for every key that the environment may set or that is resolved already, and
     * one for every flag and setting. */
    return lones_open(&s->lones,
                      s->v.keys + src->flag_count + program_count(src->program));
}

accel_status_t config_resolve(const struct config_sources *src, struct config *cfg_out,
                              struct config_diags *diags_out, accel_error_t *err)
{
    struct resolve *s = calloc(1, sizeof(*s));
    accel_status_t st;

    if (!s || !resolve_prepare(s, src, diags_out)) {
        memset(diags_out, 0, sizeof(*diags_out));
        free(s);
        return accel_fail_nomem(err, "reading the configuration", sizeof(*s));
    }
    take_all(s, src);
    st = report_finish(&s->report, err);
    if (st == ACCEL_OK)
        *cfg_out = s->cfg;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(s->file); i++)
        free((char *)s->file[i].text);
    lones_close(&s->lones);
    free(s);
    return st;
}
