/* SPDX-License-Identifier: Apache-2.0
 *
 * The options, and --accel-config=FILE itself. In srun, sbatch and salloc the file is
 * read and validated with the user's rights, once per path; a bad one is refused in the
 * option callback (exit 255, nothing queued). In slurmstepd only the presence of the
 * option counts. Loads the parser when the option is used and at no other time.
 */
#include <dlfcn.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "srun_plugin/config_api.h"
#include "srun_plugin/plugin.h"

/* "--accel-c": shorter prefixes are ambiguous to getopt. */
#define MIN_PREFIX 7
/* Switches an inherited option off for one step. */
#define OPTION_OFF "none"

static struct config config;
static char config_path[PATH_MAX];
/* Sources of `config`. Their job_path is not kept: it may be Slurm's own string. */
static struct config_sources sources;
/* Storage for the user and site path in `sources`. */
static struct config_paths paths;
/* `config` is the valid content of config_path. */
static bool config_ready;
/* The callback accepted it, and it was not "none". */
static bool option_in_use;
/* In slurmstepd: the same. */
static bool remote_active;
/* Our command line, while the option may be on it. */
static char **words;
/* sbatch: the words of its script's #SBATCH lines, or NULL. */
static char **script;
static const struct config_api *api;
static void *api_handle;

/* The value that an outer sbatch, salloc or srun hands down; Slurm uses one of two
 * names for it. NULL: none. */
static const char *inherited_value(const char *option)
{
    char name[80] = "SLURM_SPANK_";
    int prefix = (int)strlen(name);

    snprintf(name + prefix, sizeof(name) - (size_t)prefix,
             "_SLURM_SPANK_OPTION_accel_%s", option);
    for (char *c = name + prefix; *c; c++)
        if (*c == '-')
            *c = '_';
    const char *v = getenv(name + prefix);
    return v ? v : getenv(name);
}

/* Opens the parser that is installed next to this file. Not by name: a library path of
 * the user's must not choose it. Refuses one of another build, since both sides share
 * struct config. */
static bool load_api(void)
{
    Dl_info self;
    char path[PATH_MAX];

    if (api)
        return true;
    if (!dladdr((void *)opts_config, &self) || !self.dli_fname) {
        plugin_error(A0308, NULL, "ask the administrator to install accel again",
                     "cannot find where the plugin was loaded from");
        return false;
    }
    const char *slash = strrchr(self.dli_fname, '/');
    int dir = slash ? (int)(slash - self.dli_fname + 1) : 0;
    /* The directory of this file, with its slash. */
    if (snprintf(path, sizeof(path), "%.*s%s", dir, self.dli_fname, CONFIG_API_FILE) >=
        (int)sizeof(path))
        return false;
    api_handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct config_api *found =
        api_handle ? dlsym(api_handle, CONFIG_API_SYMBOL) : NULL;
    if (!found) {
        plugin_error(A0308, path,
                     "ask the administrator to install it next to accel_spank.so",
                     "cannot load the config reader: %s", dlerror());
        return false;
    }
    if (found->config_bytes != sizeof(struct config) ||
        strcmp(found->version, PACKAGE_VERSION) != 0) {
        plugin_error(A0308, path,
                     "ask the administrator to install both from one build",
                     "it is of version %s, accel_spank.so of %s", found->version,
                     PACKAGE_VERSION);
        return false;
    }
    api = found;
    return true;
}

/* Reports all errors of the file, or `err` when it is not one of the file. */
static void say_problems(const struct config_diags *diags, const accel_error_t *err)
{
    size_t said = 0;

    for (size_t i = 0; i < diags->count; i++) {
        if (!diags->item[i].is_error || !diags->item[i].text)
            continue;
        plugin_lines("", diags->item[i].text);
        said++;
    }
    if (!said)
        plugin_report(err);
}

const char *opts_base(bool inherited)
{
    return inherited ? getenv("SLURM_SUBMIT_DIR") : NULL;
}

/* Writes the absolute path of `name`. An inherited one starts from the directory of the
 * submission, also when the job runs elsewhere (--chdir). */
static bool resolve_path(const char *name, bool inherited, char *out, size_t len)
{
    const char *base = opts_base(inherited);
    char cwd[PATH_MAX];
    int n;

    if (name[0] == '/')
        n = snprintf(out, len, "%s", name);
    else if (base || (base = getcwd(cwd, sizeof(cwd))))
        n = snprintf(out, len, "%s/%s", base, name);
    else
        return false;
    return n >= 0 && (size_t)n < len;
}

/* Reads `name`, whose absolute path is `path`, unless it is the one we have. A file
 * that the user typed is named in messages as it was typed. `quiet`: at init, where a
 * mistake is left to the callback to report. */
static bool load_config(const char *name, const char *path, bool quiet)
{
    struct config_diags diags = { 0 };
    accel_error_t err = { 0 };

    if (config_ready && strcmp(path, config_path) == 0)
        return true;
    config_ready = false;
    if (!load_api())
        return false;
    sources = (struct config_sources){ .job_path = name };
    api->sources_default(&sources, &paths);
    if (arguments_site())
        sources.site_path = arguments_site();
    if (api->resolve(&sources, &config, &diags, &err) == ACCEL_OK) {
        snprintf(config_path, sizeof(config_path), "%s", path);
        config_ready = true;
        hints_take(&diags);
    } else if (!quiet) {
        say_problems(&diags, &err);
    }
    api->diags_free(&diags);
    return config_ready;
}

/* A job and each restart read the file again. If it has changed since the submission,
 * the new content counts, and a line says so. */
static void compare_digest(const char *digest)
{
    const char *before = defaults_user_env(ENV_DIGEST);

    if (before && strcmp(before, digest) != 0 && spank_context() == S_CTX_LOCAL)
        slurm_info(
            "accel: %s is not what it was when the job was submitted: this start "
            "goes by what it says now",
            config_path);
}

/* Notes the hash of the config at the submission, or compares with it. False, with the
 * reason reported: the config does not fit a task's environment, or out of memory. */
static bool note_digest(bool inherits)
{
    char *text = malloc(RESOLVED_MAX + 1), name = config.job_path[0];
    accel_error_t err = { 0 };
    accel_status_t st;

    if (!text) {
        accel_fail_nomem(&err, "the resolved config", RESOLVED_MAX + 1);
        plugin_report(&err);
        return false;
    }
    /* Hash what the file says, not how it is named here: "two.yaml" is
     * "/dir/two.yaml" later. */
    config.job_path[0] = '\0';
    st = api->encode(&config, text, RESOLVED_MAX + 1, &err);
    config.job_path[0] = name;
    if (st != ACCEL_OK) {
        plugin_report(&err);
        free(text);
        return false;
    }
    /* The canonical text ends with its hash. */
    const char *digest = text + strlen(text) - DIGEST_DIGITS;
    if (inherits || resubmit_count() > 0)
        compare_digest(digest);
    else
        setenv(ENV_DIGEST, digest, 1);
    free(text);
    return true;
}

/* Sets the environment inputs of this client. */
static void apply_defaults(void)
{
    if (spank_context() == S_CTX_LOCAL)
        defaults_for_srun(&config, words);
    else
        defaults_for_allocator(&config, words, script);
}

/* salloc starts its own shell through srun --interactive; that is no program
 * to launch. */
static bool is_interactive(void)
{
    return words && cmdline_option(words, "interactive", 4);
}

/* The value the user gave this very client, on its command line or in its script;
 * NULL: none. */
static const char *own_value(const char *option)
{
    const char *own = words ? cmdline_option(words, option, MIN_PREFIX) : NULL;

    return own || !script ? own : cmdline_option(script, option, MIN_PREFIX);
}

/* Slurm calls back for both values without saying which is which. Ours wins, so a value
 * equal to the outer one and different from ours is not it. */
bool opts_is_ours(const char *option, const char *arg, bool *inherited_out)
{
    if (!words)
        words = cmdline_read();
    const char *own = own_value(option), *outer = inherited_value(option);
    *inherited_out = !own && outer;
    return !(own && outer && strcmp(arg, own) != 0 && strcmp(arg, outer) == 0);
}

char **opts_words(void)
{
    if (!words)
        words = cmdline_read();
    return words;
}

char **opts_script(void)
{
    return script;
}

/* A step with a size of its own, inside a job whose config has another size, is not the
 * training of that config: "srun -n1 cp ...". */
static bool is_other_step(void)
{
    uint32_t tasks, nodes;

    if (!words || spank_context() != S_CTX_LOCAL)
        return false;
    if (!size_is_typed(words))
        return false;
    size_typed(words, NULL, &tasks, &nodes);
    return (tasks && config.num_processes > 0 && tasks != config.num_processes) ||
           (nodes && config.num_machines > 0 && nodes != config.num_machines);
}

/* Runs the step without accel. slurmstepd gets the option all the same; the carrier
 * tells it. */
static void leave_alone(void)
{
    option_in_use = false;
    setenv(ENV_CARRIER, CARRIER_OFF, 1);
    slurm_info("accel: this step has not the size of %s, which it inherits: it runs "
               "without accel (srun --" OPTION_CONFIG "=FILE insists, =none says so)",
               config_path);
}

/* Slurm calls this for the command line, for #SBATCH lines and for an inherited value,
 * and in slurmstepd twice for one step. -1 refuses the option and ends the client. */
static int option_callback(int val, const char *arg, int remote)
{
    char path[PATH_MAX];
    bool inherits = false;
    (void)val;
    if (remote) {
        remote_active = arg && strcmp(arg, OPTION_OFF) != 0;
        return 0;
    }
    if (arg && !opts_is_ours(OPTION_CONFIG, arg, &inherits))
        return 0;
    option_in_use = arg && strcmp(arg, OPTION_OFF) != 0 && !is_interactive();
    if (!option_in_use)
        return 0;
    defaults_snapshot();
    if (!resolve_path(arg, inherits, path, sizeof(path))) {
        plugin_error(A0309, arg,
                     "cd to a directory that exists, or give a shorter path",
                     "no absolute path can be made of it");
        return -1;
    }
    if (!load_config(inherits ? path : arg, path, false))
        return -1;
    if (inherits && is_other_step()) {
        leave_alone();
        return 0;
    }
    /* In time for #SBATCH lines: sbatch reads its environment after them. */
    apply_defaults();
    setenv(ENV_CONFIG, config_path, 1);
    return note_digest(inherits) ? 0 : -1;
}

static struct spank_option option = {
    .name = OPTION_CONFIG,
    .arginfo = "FILE",
    .usage = "[accel] launch the program as FILE (Accelerate YAML) says; 'none' "
             "switches an inherited file off",
    .has_arg = 1,
    .val = 0,
    .cb = option_callback,
};

/* Frees the words: at the end, or at once when the option is not in use. */
static void forget_words(void)
{
    free(words);
    free(script);
    words = script = NULL;
}

void opts_register(spank_t sp, struct spank_option *o)
{
    if (spank_option_register(sp, o) != ESPANK_SUCCESS)
        plugin_error(A0319, "plugstack.conf",
                     "ask the administrator whether another plugin has this option",
                     "cannot register --%s", o->name);
}

/* The option callbacks come too late for the launch defaults, so the file is read
 * here as well, quietly. A mistake then comes up again in the callback, which can
 * refuse it. */
int opts_init(spank_t sp)
{
    bool allocates = spank_context() == S_CTX_ALLOCATOR;
    char path[PATH_MAX];

    opts_register(sp, &option);
    resume_register(sp);
    dry_run_register(sp);
    if (spank_context() == S_CTX_REMOTE)
        return 0;
    if (allocates)
        /* Belongs to the job that this client may run in. */
        unsetenv(ENV_JOB_WARNING);
    words = cmdline_read();
    /* salloc has no script. */
    if (words && allocates && cmdline_is_sbatch())
        script = script_read(words);
    const char *own = own_value(OPTION_CONFIG);
    const char *name = own ? own : inherited_value(OPTION_CONFIG);
    if (!name || !*name || strcmp(name, OPTION_OFF) == 0 || is_interactive()) {
        forget_words();
        return 0;
    }
    defaults_snapshot();
    if (resolve_path(name, !own, path, sizeof(path)) && load_config(path, path, true)) {
        if (own && allocates)
            size_ask_again(&config, words, script);
        if (own || !is_other_step())
            apply_defaults();
    }
    size_forget_guard();
    return 0;
}

/* Only in srun: an allocation may be larger than the step. */
void opts_check_size(void)
{
    if (!opts_config() || spank_context() != S_CTX_LOCAL)
        return;
    size_refuse_early(&config, words);
    size_hint(&config, words);
}

const struct config *opts_config(void)
{
    return option_in_use && config_ready ? &config : NULL;
}

const char *opts_path(void)
{
    return config_path;
}

const struct config_api *opts_api(void)
{
    return api;
}

/* The job file is named by its absolute path, since the name as typed is not kept. */
const char *opts_place(const char *name, char *buf, size_t len)
{
    struct config_sources named = sources;
    size_t count = 0, row = 0;
    const struct config_key *keys = api ? api->schema(&count) : NULL;

    named.job_path = config_path;
    while (row < count && (keys[row].section[0] || strcmp(keys[row].name, name) != 0))
        row++;
    if (row < count && config.origin[row] != ORIGIN_DEFAULT)
        return api->place(&config, &named, row, buf, len);
    snprintf(buf, len, "%s", config_path);
    return buf;
}

/* Goes through the parser's table, since accel_spank.so has none of its own. */
void opts_value(const struct config *cfg, const char *name, char *buf, size_t len)
{
    size_t count = 0;
    const struct config_key *keys = api ? api->schema(&count) : NULL;

    buf[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i].name, name) == 0)
            api->value_text(cfg, &keys[i], buf, len);
}

/* slurmstepd never reads the file, so this is all it knows. */
bool opts_remote_active(void)
{
    return remote_active;
}

void opts_free(void)
{
    forget_words();
    hints_free();
    if (api_handle)
        dlclose(api_handle);
    api_handle = NULL;
    api = NULL;
}
