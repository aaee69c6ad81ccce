/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of this srun's step say of its end (common/step_reports.h). The step's
 * ids come in, and a directory for the tasks goes out; at the end the reports
 * come in, and what they say goes out: a verdict, a line, srun's exit code.
 */
#include <dlfcn.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

#include "srun_plugin/restart/restart.h"

/* Ids are unique inside a cluster only, and several may share a home directory. */
static const char *cluster_name(void)
{
    const slurm_conf_t *conf = dlsym(RTLD_DEFAULT, "slurm_conf");
    const char *name = conf ? conf->cluster_name : NULL;

    return name && name[0] && !strchr(name, '/') ? name : "cluster";
}

void rank_reports_make(struct client *c, uint32_t step_id)
{
    char name[NAME_MAX];

    snprintf(name, sizeof(name), "%.128s.%u.%u.%ld", cluster_name(), c->job_id, step_id,
             restarts_count(&c->env));
    if (!step_reports_choose(name, c->reports, sizeof(c->reports)) ||
        !step_reports_make(c->reports))
        c->reports[0] = '\0';
}

void rank_reports_take(const struct client *c, struct step_report *report_out)
{
    *report_out = (struct step_report){ 0 };
    if (!c->reports[0])
        return;
    step_reports_take(c->reports, c->tasks_per_node, report_out);
    step_reports_sweep(c->reports);
}

/* A step whose ranks agreed to stop has its own code, whatever happened besides. When
 * the others are killed after the first failure, srun's own code is that of the signal
 * (143). */
int rank_reports_exit_code(const struct step_report *report, int exit_code)
{
    return !report->first.known || exit_code == 0 || exit_code == EXIT_RESUME ||
                   exit_code == EXIT_STOPPED
               ? exit_code
               : report->first.code;
}

/* An exception that the program has caught after all is no failure. */
void rank_reports_say_failure(const struct client *c, const struct step_report *report,
                              int exit_code)
{
    char text[768];

    if (report->first.known && exit_code != 0)
        slurm_info("accel: job %u: %s", c->job_id,
                   step_report_text(report, text, sizeof(text)));
}

/* A failure that is told explains more: the program may not have come as far as
 * its Trainer. */
void rank_reports_say_trainer(const struct client *c, const struct step_report *report)
{
    if (!c->file.config.python_trainer || report->opened || report->first.known)
        return;
    slurm_info(
        "accel: job %u: accel.python.trainer is true, but no Trainer reported to "
        "accel: `python -I` and `python -E` ignore PYTHONPATH, a container may hide "
        "accel's modules, and a script without transformers.Trainer has none; start "
        "the script with python alone, mount $ACCEL_ROOT, or call accel_slurm.job in "
        "it (see doc/python.md)",
        c->job_id);
}
