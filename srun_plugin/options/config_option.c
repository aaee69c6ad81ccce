/* SPDX-License-Identifier: Apache-2.0
 *
 * --accel-config=FILE. The value of the option comes in, in srun, sbatch and salloc.
 * The file is read and validated with the user's rights; a bad one is refused (exit
 * 255, nothing queued). Launch options and the hash of the config go out, in the
 * environment of this client and of the job.
 */
#include "srun_plugin/options/plugin_options.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/plugstack.h"
#include "srun_plugin/restart/restart.h"
#include "srun_plugin/messages.h"
#include "srun_plugin/step/plugin_step.h"

/* Hexadecimal digits of the config's hash. */
#define DIGEST_DIGITS 16

/* Writes the absolute path of `name`. */
static bool resolve_path(const char *name, bool inherited, char *out, size_t len)
{
    const char *base = typed_base(inherited);
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

/* salloc starts its own shell through srun --interactive; that is no program
 * to launch. */
bool config_option_uses(const struct client *c, const char *arg)
{
    return arg && strcmp(arg, CONFIG_OFF) != 0 &&
           !cmdline_gives(c->typed.words, 0, "interactive", 4);
}

/* Writes the place of the plugin's line, "/etc/slurm/plugstack.conf:3". Only for
 * messages: the controller is asked for the file. Returns buf. */
static const char *plugin_line(char *buf, size_t len)
{
    struct plugstack p = { 0 };
    slurm_conf_t *conf = NULL;

    if (slurm_load_ctl_conf(0, &conf) == SLURM_SUCCESS && conf && conf->plugstack)
        plugstack_read(&p, conf->plugstack);
    slurm_free_ctl_conf(conf);
    if (p.found)
        snprintf(buf, len, "%s:%d", p.file, p.line);
    else
        snprintf(buf, len, "plugstack.conf");
    return buf;
}

/* With wrong words of the site its locks may be gone, and two lines would start each
 * task twice over: nothing is launched by a config. False: all is well. */
static bool refuse_arguments(const struct arguments *a)
{
    char line[PATH_MAX + 16];

    if (!a->wrong[0] && a->lines < 2)
        return false;
    if (a->lines > 1)
        plugin_error(A0207, plugin_line(line, sizeof(line)),
                     "ask the administrator to keep one line",
                     "%d lines load accel_spank.so", a->lines);
    else
        plugin_error(
            A0207, plugin_line(line, sizeof(line)),
            "ask the administrator to write site=/ABSOLUTE/PATH there, once and "
            "without blanks, or no argument",
            "wrong argument '%s' of accel_spank.so", a->wrong);
    return true;
}

/* The user has not named the site file. */
static void say_who_names_site(const struct client *c)
{
    char line[PATH_MAX + 16];

    if (c->file.site_failed && c->arguments.site[0])
        slurm_error("accel: the site file %s is named in %s: ask the administrator",
                    c->arguments.site, plugin_line(line, sizeof(line)));
}

/* The option callbacks come too late for the launch defaults, so the file is read here
 * as well. A mistake then comes up again in the callback, which can refuse it. */
bool config_option_foresee(struct client *c, bool *inherited_out)
{
    const char *own = typed_value(&c->typed, OPTION_CONFIG);
    const char *name = own ? own : typed_inherited(OPTION_CONFIG);
    char path[PATH_MAX];

    *inherited_out = !own;
    if (!name || !*name || !config_option_uses(c, name) || c->arguments.wrong[0])
        return false;
    user_env_keep(&c->env);
    return resolve_path(name, !own, path, sizeof(path)) &&
           job_file_load(&c->file, c->arguments.site, path, path, true);
}

/* Messages name a file that the user typed as it was typed. */
bool config_option_load(struct client *c, const char *arg, bool inherited)
{
    char path[PATH_MAX];

    if (refuse_arguments(&c->arguments))
        return false;
    user_env_keep(&c->env);
    if (!resolve_path(arg, inherited, path, sizeof(path)))
        return plugin_error(A0309, arg,
                            "cd to a directory that exists, or give a shorter path",
                            "cannot make the path absolute");
    if (job_file_load(&c->file, c->arguments.site, inherited ? path : arg, path, false))
        return true;
    say_who_names_site(c);
    return false;
}

/* "srun -n1 cp ..." inside a job whose config has another size. */
bool config_option_is_other_step(const struct client *c)
{
    const struct config *cfg = &c->file.config;
    uint32_t tasks, nodes;

    if (c->allocates || !size_is_typed(c->typed.words))
        return false;
    size_typed(c, &tasks, &nodes);
    return (tasks && cfg->num_processes > 0 && tasks != cfg->num_processes) ||
           (nodes && cfg->num_machines > 0 && nodes != cfg->num_machines);
}

/* slurmstepd gets the option all the same; the carrier tells it. */
void config_option_leave_alone(struct client *c)
{
    c->in_use = false;
    setenv(ENV_CARRIER, CARRIER_OFF, 1);
    slurm_info("accel: this step does not have the size of %s, which it inherits: it "
               "runs without accel (srun --" OPTION_CONFIG
               "=FILE enforces the config, =none turns it off)",
               c->file.path);
}

void config_option_set_defaults(struct client *c)
{
    if (c->allocates)
        defaults_for_allocator(&c->defaults, &c->file.config, &c->typed);
    else
        defaults_for_srun(&c->defaults, &c->file.config, &c->typed, &c->env);
}

/* A job and each restart read the file again. If it has changed since the submission,
 * the new content counts, and a line says so. */
static void compare_digest(const struct client *c, const char *digest)
{
    const char *before = user_env_get(&c->env, ENV_DIGEST);

    if (before && strcmp(before, digest) != 0 && !c->allocates)
        slurm_info("accel: %s has changed since the job was submitted: this start uses "
                   "its present contents",
                   c->file.path);
}

bool config_option_note_digest(struct client *c, bool inherited)
{
    struct config *cfg = &c->file.config;
    char *text = malloc(RESOLVED_MAX + 1), name = cfg->job_path[0];
    accel_error_t err = { 0 };
    accel_status_t st;

    if (!text) {
        accel_fail_nomem(&err, "the resolved config", RESOLVED_MAX + 1);
        return plugin_report(&err);
    }
    /* Hash what the file says, not how it is named here: "two.yaml" is
     * "/dir/two.yaml" later. */
    cfg->job_path[0] = '\0';
    st = c->file.api->encode(cfg, text, RESOLVED_MAX + 1, &err);
    cfg->job_path[0] = name;
    if (st != ACCEL_OK) {
        plugin_report(&err);
        free(text);
        return false;
    }
    /* The canonical text ends with its hash. */
    const char *digest = text + strlen(text) - DIGEST_DIGITS;
    if (inherited || restarts_count(&c->env) > 0)
        compare_digest(c, digest);
    else
        setenv(ENV_DIGEST, digest, 1);
    free(text);
    return true;
}
