/* SPDX-License-Identifier: Apache-2.0
 *
 * What srun, sbatch and salloc do, in order. Slurm's calls come in (dispatch.c); each
 * section below is one of them. Owns the only struct client. Runs with the user's
 * rights; never in slurmstepd.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "srun_plugin/client.h"
#include "srun_plugin/options/plugin_options.h"
#include "srun_plugin/restart/restart.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/messages.h"
#include "srun_plugin/step/plugin_step.h"

/* Slurm's calls and option callbacks have no argument of ours, so this one has to be
 * static. All else gets it, or its part of it, as an argument. */
static struct client the_client;

/* Does this client launch what a valid config says? */
static bool is_in_use(const struct client *c)
{
    return c->in_use && c->file.ready;
}

static void client_free(struct client *c)
{
    typed_free(&c->typed);
    free(c->tasks_per_node);
    job_file_close(&c->file);
    user_env_free(&c->env);
}

/* ---- 1. slurm_spank_init: before the client reads its environment ---------------- */

/* srun, sbatch and salloc read their environment right after this call, so the launch
 * defaults are set here. */
void client_init(int ac, char **av)
{
    struct client *c = &the_client;
    bool inherited;

    c->allocates = spank_context() == S_CTX_ALLOCATOR;
    arguments_take(&c->arguments, ac, av);
    if (c->allocates)
        /* Belongs to the job that this client may run in. */
        unsetenv(ENV_JOB_WARNING);
    typed_read(&c->typed, c->allocates);
    if (config_option_foresee(c, &inherited)) {
        if (!inherited && c->allocates)
            size_ask_again(&c->file.config, &c->typed);
        if (!inherited || !config_option_is_other_step(c))
            config_option_set_defaults(c);
    }
    size_forget_guard();
}

/* ---- 2. the options, as Slurm finds them ----------------------------------------- */

int client_take_config(const char *arg)
{
    struct client *c = &the_client;
    bool inherited = false;

    if (arg && !typed_is_ours(&c->typed, OPTION_CONFIG, arg, &inherited))
        return 0;
    c->in_use = config_option_uses(c, arg);
    if (!c->in_use)
        return 0;
    if (!config_option_load(c, arg, inherited))
        return -1;
    if (inherited && config_option_is_other_step(c)) {
        config_option_leave_alone(c);
        return 0;
    }
    /* In time for #SBATCH lines: sbatch reads its environment after them. */
    config_option_set_defaults(c);
    setenv(ENV_CONFIG, c->file.path, 1);
    return config_option_note_digest(c, inherited) ? 0 : -1;
}

int client_take_resume(const char *arg)
{
    return resume_option_take(&the_client, arg) ? 0 : -1;
}

/* Only notes it: the config may be given by a later option. */
void client_take_dry_run(void)
{
    the_client.dry_run = true;
}

/* ---- 3. slurm_spank_init_post_opt: all options are known ------------------------- */

void client_after_options(void)
{
    struct client *c = &the_client;

    if (is_in_use(c)) {
        /* Before the dry run, which shows the choice. */
        resume_option_export(c);
        hints_say(c);
    }
    if (c->dry_run && is_in_use(c))
        dry_run_show(c);
    if (c->dry_run)
        dry_run_refuse();
    /* Only in srun: an allocation may be larger than the step. */
    if (is_in_use(c) && !c->allocates) {
        size_refuse_early(c);
        size_hint(c);
    }
    defaults_withdraw(&c->defaults);
}

/* ---- 4. slurm_spank_local_user_init: srun has its step, no task runs ------------- */

/* Everything between the layout and the start of the tasks. Returns what
 * client_start_step returns. */
static int prepare_step(struct client *c, const struct srun_step *s,
                        struct notice_ask *ask)
{
    if (!srun_step_allowed(c, s))
        return srun_step_refuse(c);
    /* From here on client_exit watches the end. */
    c->job_id = s->job_id;
    c->started_at = time(NULL);
    c->tasks_per_node = strdup(s->tasks_per_node.s);
    rank_reports_make(c, s->step_id);
    hints_say_worlds(c, s->tasks);
    notice_export(ask, c);
    /* srun may well outlive a node, and end with 0 then */
    if (!s->here)
        c->undisturbed_until = 0;
    if (!srun_step_export(c, s))
        return srun_step_refuse(c);
    c->interrupt = (struct interrupt){ .job = s->job_id, .step = s->step_id };
    if (c->file.config.preempt_enabled)
        interrupt_watch(&c->interrupt);
    return 0;
}

int client_start_step(spank_t sp)
{
    struct client *c = &the_client;
    struct srun_step s = { 0 };
    struct notice_ask ask = { 0 };
    int rc = 0;

    if (!is_in_use(c))
        return 0;
    if (!srun_step_identify(sp, &s))
        return -1;
    if (s.step_id < FIRST_SPECIAL_ID) {
        notice_ask(&ask, c, s.job_id);
        rc = srun_step_read(sp, &s) ? prepare_step(c, &s, &ask) : srun_step_refuse(c);
    }
    notice_free(&ask);
    strbuf_free(&s.tasks_per_node);
    return rc;
}

/* ---- 5. slurm_spank_exit, and exit() itself -------------------------------------- */

/* The message about what was lost comes first, then what happens next. */
static void bring_back(const struct client *c, const struct outcome *o,
                       const struct step_report *report)
{
    outcome_say_unsaved(c, o, report);
    outcome_say_finished(o);
    if (outcome_comes_back(o) && o->batch)
        resubmit_batch(c, o);
    else if (outcome_comes_back(o))
        resubmit_bare(c, o);
    else if (outcome_was_told(o))
        resubmit_say_ended(o);
}

/* All that is said and done at the end of a step. Returns srun's exit code. */
static int end_step(struct client *c, int code)
{
    const bool may_return = c->file.config.preempt_enabled;
    struct step_report report;
    struct outcome o;

    rank_reports_take(c, &report);
    /* before the job is dropped, which changes its state */
    if (may_return || (code != 0 && report.first.known))
        outcome_read(c, code, &o);
    /* Ranks that Slurm has ended have not failed. An exception that a rank raised by
     * itself is still told. */
    if (code != 0 && report.first.known && outcome_is_disturbed(&o))
        report.first = report.raised;
    if (!user_env_get(&c->env, "SLURM_JOB_ID"))
        requeued_drop(c->job_id, code);
    rank_reports_say_failure(c, &report, code);
    rank_reports_say_trainer(c, &report);
    if (may_return)
        bring_back(c, &o, &report);
    return rank_reports_exit_code(&report, code);
}

/* Runs inside exit(), where srun's exit code is known and the allocation is over. There
 * is no other way to change the code from here; srun itself has nothing left to do. */
static void at_end(int status, void *client)
{
    struct client *c = client;
    const int code = status & 0xff, own = is_in_use(c) ? end_step(c, code) : code;

    client_free(c);
    if (own != code) {
        fflush(NULL);
        _exit(own);
    }
}

/* Without a step there is nothing to watch, and everything can be freed. */
void client_exit(void)
{
    Dl_info self = { 0 };

    if (the_client.job_id == 0) {
        client_free(&the_client);
        return;
    }
    /* Slurm may close the plugin before exit() calls us; this keeps it mapped. */
    if (!dladdr((void *)at_end, &self) || !self.dli_fname ||
        !dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE)) {
        plugin_error(A0318, self.dli_fname,
                     "after a preemption, run the same command again",
                     "cannot monitor the end of the step: %s", dlerror());
        return;
    }
    on_exit(at_end, &the_client);
}
