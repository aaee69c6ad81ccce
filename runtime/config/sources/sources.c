/* SPDX-License-Identifier: Apache-2.0
 *
 * Site file, user file, job file, environment and flags in; one config out. Each source
 * overrides the weaker ones key by key, but for size and device (shape.c); keys are held
 * against each other once, when all sources are in. Never prints, never changes the
 * environment.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/read/validate.h"

enum { NAME_BYTES = 96 };
static const char env_prefix[] = "ACCEL_";
enum { PREFIX = sizeof(env_prefix) - 1 };

/* Variables of accel that are no keys: a name near one of them is no misspelt key. */
static const char *const own_names[] = {
    "BOOT_TIMEOUT_MS",
    "COMM_TIMEOUT_MS",
    "CONFIG",
    "CONFIG_DIGEST",
    "CONFIG_RESOLVED",
    "CUDA_GRAPHS",
    "CUDA_MODULE",
    "CUDA_TUNE",
    "FIRST_JOB_ID",
    "LAUNCH_ENVIRONMENT",
    "LAUNCH_PORT",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MAX_RESTARTS",
    "NODE_RANK",
    "NUM_NODES",
    "OMP_NUM_THREADS",
    "PREEMPTION_NOTICE",
    "RANK",
    "RESTART_COUNT",
    "RESTART_SHORT",
    "RESUME",
    "ROOT",
    "SIZED",
    "TASKS_PER_NODE",
    "WARNING",
    "WORLD_SIZE",
};

/* Texts that places point at live as long as the resolving. */
struct resolve {
    struct validator v;
    struct config_report report;
    struct config cfg;
    struct config_text file[ORIGIN_FILE + 1];   /* by origin */
    struct shape_layer before[ORIGIN_FILE];     /* the same */
    char env_name[CONFIG_MAX_KEYS][NAME_BYTES]; /* once a variable may be a key's */
    bool by_env[CONFIG_MAX_KEYS];               /* taken from the environment */
    struct lone {
        struct config_text in;
        char label[NAME_BYTES + 20];
    } * lone; /* one per variable and flag that gives a value */
    size_t lone_count;
    bool complete; /* every file was readable and well formed */
};

void config_defaults(struct config *cfg)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    memset(cfg, 0, sizeof(*cfg));
    for (size_t i = 0; i < n; i++)
        if (k[i].offset != SIZE_MAX && k[i].default_text)
            value_set(cfg, &k[i], k[i].default_text);
}

/* ---- names ----------------------------------------------------------------------------- */

const char *config_env_name(size_t row, char *buf, size_t len)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    const char *section = k[row].section;
    int used;

    /* Names of Accelerate are unique; ours are not without their map. */
    section = !strncmp(section, "accel.", 6) ? section + 6 : "";
    buf[0] = '\0';
    if (k[row].moved_to)
        return buf;
    used = snprintf(buf, len, "%s%s%s%s", env_prefix, section, section[0] ? "_" : "",
                    k[row].name);
    for (int i = 0; i < used && (size_t)i < len; i++)
        buf[i] = buf[i] == '.'                    ? '_'
                 : buf[i] >= 'a' && buf[i] <= 'z' ? (char)(buf[i] - 'a' + 'A')
                                                  : buf[i];
    return buf;
}

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
    default:
        snprintf(buf, len, "built-in");
        break;
    }
    return buf;
}

/* Is `name` set to an absolute path? */
static const char *absolute_env(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] == '/' ? value : NULL;
}

/* "DIR" + `tail` into buf[1024], or NULL. */
static const char *path_below(const char *dir, const char *tail, char *buf)
{
    int n = dir ? snprintf(buf, 1024, "%s%s", dir, tail) : -1;

    return n > 0 && n < 1024 ? buf : NULL;
}

/* Where accelerate config writes when no file is named, by the rules of its library; NULL:
 * not known. */
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

void config_sources_default(struct config_sources *src, struct config_paths *paths)
{
    const char *theirs;
    int n;

    /* A relative XDG_CONFIG_HOME is to be ignored, says its specification. */
    src->user_path = absolute_env("XDG_CONFIG_HOME")
                         ? path_below(absolute_env("XDG_CONFIG_HOME"),
                                      "/accel/config.yaml", paths->user)
                         : path_below(absolute_env("HOME"),
                                      "/.config/accel/config.yaml", paths->user);
    if (!src->user_path)
        paths->user[0] = '\0';
    theirs = src->job_path ? NULL : accelerates_file(paths->accelerate);
    src->user_is_accelerates =
        theirs && access(theirs, F_OK) == 0 &&
        (!src->user_path || (access(src->user_path, F_OK) && errno == ENOENT));
    if (src->user_is_accelerates)
        src->user_path = theirs;
    n = snprintf(paths->site, sizeof(paths->site), "%s", SYSCONFDIR "/accel/site.yaml");
    src->site_path = (size_t)n < sizeof(paths->site) ? paths->site : NULL;
    src->env = environ;
}

/* ---- sources --------------------------------------------------------------------------- */

static void take_file(struct resolve *s, const char *path, enum config_origin origin)
{
    struct config_text *in = &s->file[origin];
    struct yaml_tree tree;

    if (!path)
        return;
    s->report.in = (struct config_text){ .path = path, .origin = origin };
    if (origin < ORIGIN_FILE)
        shape_before(&s->before[origin], &s->v);
    config_file_read(&s->report);
    *in = s->report.in;
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

/* One line: the reader may not know that there is such a file. */
static void note_accelerates(struct resolve *s)
{
    report_add(&s->report, MESSAGE_NOTE, (struct place){ 0 },
               "accel config writes a file of accel's own, which then counts instead",
               "Accelerate's own file is read: no other file was given");
    report_tell(&s->report);
}

/* Reports and values that follow come from this variable or flag. */
static const struct config_text *enter(struct resolve *s, struct lone *l,
                                       enum config_origin origin, const char *name,
                                       size_t len)
{
    char shown[NAME_BYTES];

    snprintf(l->label, sizeof(l->label), "%s %s",
             origin == ORIGIN_ENV ? "environment" : "flag",
             printable(shown, sizeof(shown), name, len));
    l->in = (struct config_text){ .path = l->label, .origin = origin };
    s->report.in = l->in;
    return &l->in;
}

static bool is_own_name(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(own_names); i++)
        if (!strcmp(own_names[i], name))
            return true;
    return false;
}

/* ACCEL_MIXED_PRECISON: a note, because the variable may be somebody else's. */
static void note_misspelt(struct resolve *s, const char *name, size_t len)
{
    const char *near[CONFIG_MAX_KEYS + ACCEL_ARRAY_SIZE(own_names)], *found;
    char word[NAME_BYTES], hint[NAME_BYTES + 20];
    struct lone here;
    size_t n = 0;

    snprintf(word, sizeof(word), "%.*s", (int)(len - PREFIX), name + PREFIX);
    if (is_own_name(word))
        return;
    for (size_t i = 0; i < s->v.keys; i++)
        if (s->env_name[i][0])
            near[n++] = s->env_name[i] + PREFIX;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(own_names); i++)
        near[n++] = own_names[i];
    found = suggest_nearest(word, near, n);
    if (!found || is_own_name(found))
        return;
    snprintf(hint, sizeof(hint), "did you mean %s%s?", env_prefix, found);
    enter(s, &here, ORIGIN_ENV, name, len);
    report_add(&s->report, MESSAGE_NOTE, (struct place){ 0 }, hint,
               "it is not read: no key has this name");
}

static void name_variables(struct resolve *s)
{
    for (size_t i = 0; i < s->v.keys; i++)
        config_env_name(i, s->env_name[i], sizeof(s->env_name[i]));
}

static void take_environment(struct resolve *s, char *const *env)
{
    bool named = false;

    for (; env && *env && !report_full(&s->report); env++) {
        size_t len = strcspn(*env, "="), row = 0;

        if (strncmp(*env, env_prefix, PREFIX) != 0 || len >= NAME_BYTES || !(*env)[len])
            continue;
        if (!named)
            name_variables(s);
        named = true;
        while (row < s->v.keys &&
               (strncmp(s->env_name[row], *env, len) != 0 || s->env_name[row][len]))
            row++;
        if (row == s->v.keys)
            note_misspelt(s, *env, len);
        else if (!s->by_env[row])
            validate_value(&s->v, row, *env + len + 1,
                           enter(s, &s->lone[s->lone_count++], ORIGIN_ENV, *env, len));
        if (row < s->v.keys)
            s->by_env[row] = true; /* as getenv: the first of two counts */
    }
}

static void unknown_flag(struct resolve *s, const char *name)
{
    const char *near[CONFIG_MAX_KEYS], *found, *dot = strrchr(name, '.');
    char hint[160] = "`accel check --keys` lists all keys";

    for (size_t i = 0; i < s->v.keys; i++)
        near[i] = s->v.schema[i].name;
    found = suggest_nearest(dot ? dot + 1 : name, near, s->v.keys);
    if (found)
        snprintf(hint, sizeof(hint), "did you mean '%s'?", found);
    report_add(&s->report, A0205, (struct place){ 0 }, hint, "no key has this name");
}

static void take_flags(struct resolve *s, const struct config_setting *flags,
                       size_t count)
{
    for (size_t i = 0; i < count && !report_full(&s->report); i++) {
        const struct config_text *in = enter(s, &s->lone[s->lone_count++], ORIGIN_FLAG,
                                             flags[i].name, strlen(flags[i].name));
        int row = config_row(flags[i].name);

        if (row >= 0)
            validate_value(&s->v, (size_t)row, flags[i].value, in);
        else
            unknown_flag(s, flags[i].name);
    }
}

/* ---- all of them ----------------------------------------------------------------------- */

static void take_all(struct resolve *s, const struct config_sources *src)
{
    s->complete = true;
    take_file(s, src->site_path, ORIGIN_SITE);
    take_file(s, src->user_path, ORIGIN_USER);
    if (src->user_is_accelerates && s->file[ORIGIN_USER].text)
        note_accelerates(s);
    take_file(s, src->job_path, ORIGIN_FILE);
    take_environment(s, src->env);
    take_flags(s, src->flags, src->flag_count);
    s->report.in = s->file[ORIGIN_FILE];
    if (!src->job_path)
        s->report.in.path = "the configuration";
    if (!s->complete)
        return;
    shape_settle(&s->v, s->before);
    validate_across(&s->v);
}

/* Of a path that is too long the end is kept. */
static void name_job(struct config *cfg, const char *path)
{
    const size_t room = sizeof(cfg->job_path) - 4;
    size_t n = strlen(path), from = n > room ? n - room : 0;

    while (from && from < n && ((unsigned char)path[from] & 0xc0) == 0x80)
        from++; /* not within a character */
    printable(cfg->job_path, sizeof(cfg->job_path), path + from, n - from);
    if (from) {
        memmove(cfg->job_path + 3, cfg->job_path, strlen(cfg->job_path) + 1);
        memcpy(cfg->job_path, "...", 3);
    }
}

static bool prepare(struct resolve *s, const struct config_sources *src,
                    struct config_diags *diags)
{
    const char *shown = src->job_path ? src->job_path : "the configuration";

    memset(diags, 0, sizeof(*diags));
    printable(diags->path, sizeof(diags->path), shown, strlen(shown));
    config_defaults(&s->cfg);
    if (src->job_path)
        name_job(&s->cfg, src->job_path);
    s->report.diags = diags;
    s->v.cfg = &s->cfg;
    s->v.report = &s->report;
    s->v.schema = config_schema(&s->v.keys);
    s->v.without_slurm = src->without_slurm;
    s->v.needs_type = src->job_path != NULL;
    s->lone = calloc(s->v.keys + src->flag_count, sizeof(*s->lone));
    return s->lone != NULL;
}

accel_status_t config_resolve(const struct config_sources *src, struct config *cfg,
                              struct config_diags *diags, accel_error_t *err)
{
    struct resolve *s = calloc(1, sizeof(*s));
    accel_status_t status;

    if (!s || !prepare(s, src, diags)) {
        memset(diags, 0, sizeof(*diags));
        free(s);
        return accel_fail_nomem(err, "reading the configuration", sizeof(*s));
    }
    take_all(s, src);
    status = report_finish(&s->report, err);
    if (status == ACCEL_OK)
        *cfg = s->cfg;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(s->file); i++)
        free((char *)s->file[i].text);
    free(s->lone);
    free(s);
    return status;
}
