/* SPDX-License-Identifier: Apache-2.0
 *
 * slurmstepd, in the task and as the user: unpacks the carrier that srun made and sets
 * the variables of this task. What the user exported stays. The warning signal that
 * accel asked for is ignored until the program handles it. Opens none of the user's
 * files, parses no YAML, does nothing as root. A task's end is remote_exit.c's.
 */
#include <signal.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "common/port.h"
#include "common/repeat_list.h"
#include "config/python/environ.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/messages.h"

/* --accel-config came with the step, and it was not "none". Static, because Slurm's
 * call for an option has no argument of ours; slurmstepd forks the tasks afterwards. */
static bool active;

/* The task while its environment is made. */
struct task {
    spank_t sp;
    struct task_place place;
    struct environ_ops ops;
    /* Port of our rendezvous; empty: none. */
    char port[16];
    /* The signal that accel asked Slurm for; 0: none. */
    int warning;
    /* The carrier told the rank of this task. */
    bool placed;
};

/* ---- the task's environment, as environ_apply wants it --------------------------- */

/* Of a value that is too long Slurm gives the beginning, which is what
 * `get` promises. */
static bool get_variable(void *where, const char *name, char *buf, size_t len)
{
    struct task *t = where;
    spank_err_t rc = spank_getenv(t->sp, name, buf, (int)len);

    return rc == ESPANK_SUCCESS || rc == ESPANK_NOSPACE;
}

static void set_variable(void *where, const char *name, const char *value)
{
    struct task *t = where;

    spank_setenv(t->sp, name, value, 1);
}

static void unset_variable(void *where, const char *name)
{
    struct task *t = where;

    spank_unsetenv(t->sp, name);
}

/* ---- what srun sent -------------------------------------------------------------- */

/* The carrier, in one malloc; NULL with the reason reported. */
static char *take_carrier(spank_t sp)
{
    char *text = malloc(CARRIER_MAX + 1);
    spank_err_t rc;

    if (!text) {
        plugin_error(A0001, NULL, "request more memory for the job (--mem)",
                     "out of memory: the environment needs %d bytes", CARRIER_MAX + 1);
        return NULL;
    }
    rc = spank_getenv(sp, ENV_CARRIER, text, CARRIER_MAX + 1);
    if (rc == ESPANK_SUCCESS)
        return text;
    if (rc == ESPANK_ENV_NOEXIST)
        plugin_error(A0310, ENV_CARRIER,
                     "check that the plugin of the submit host has the same version "
                     "(accel doctor)",
                     "the config did not reach the task");
    else
        plugin_error(A0311, ENV_CARRIER,
                     "do not edit the variable; start the step again",
                     "the config is damaged (too long)");
    free(text);
    return NULL;
}

/* The task's place as Slurm knows it. The rank is not among it: it comes with
 * the carrier. */
static bool read_place(spank_t sp, struct task_place *place_out)
{
    uint32_t index, world, local_world, node, nodes;
    int local_id = 0;

    if (spank_get_item(sp, S_TASK_GLOBAL_ID, &index) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_TASK_ID, &local_id) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &world) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &local_world) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_NODEID, &node) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS)
        return false;
    *place_out = (struct task_place){ .index = index,
                                      .world = world,
                                      .local_rank = local_id,
                                      .local_world = local_world,
                                      .node = node,
                                      .nodes = nodes };
    return true;
}

/* A number from one of Slurm's variables; 0: not set. */
static long slurm_long(struct task *t, const char *name)
{
    char text[24] = "";

    return get_variable(t, name, text, sizeof(text)) ? strtol(text, NULL, 10) : 0;
}

/* A program that does not know the warning must not die of it. libaccel and every
 * handler replace this. A disposition that somebody else has set stays. */
static void ignore_warning(int sig)
{
    struct sigaction now;

    if (sig && sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        now = (struct sigaction){ .sa_handler = SIG_IGN };
        sigaction(sig, &now, NULL);
    }
}

/* A config_env_f: sets one variable. The first item tells the rank, on which the
 * others depend. */
static void apply(void *user, const char *name, const char *value, bool task)
{
    struct task *t = user;
    int64_t first;

    if (strcmp(name, ENV_TASKS_PER_NODE) == 0) {
        first = repeat_list_sum(value, t->place.node);
        t->place.rank = first + t->place.local_rank;
        t->placed = first >= 0;
        return;
    }
    if (strcmp(name, ENV_WARNING) == 0)
        t->warning = strncmp(value, "USR1@", 5) == 0   ? SIGUSR1
                     : strncmp(value, "USR2@", 5) == 0 ? SIGUSR2
                                                       : 0;
    /* Only when it is asked for: it reads a file per CPU. */
    if (task && strcmp(value, "cores") == 0)
        t->place.cores =
            environ_cores(t->place.local_world, slurm_long(t, "SLURM_CPUS_PER_TASK"),
                          slurm_long(t, "SLURM_CPUS_ON_NODE"));
    /* For hold_port, since the user's own MASTER_PORT may win below. */
    if (!task && strcmp(name, "MASTER_PORT") == 0)
        snprintf(t->port, sizeof(t->port), "%s", value);
    environ_apply(&t->ops, &t->place, name, value, task);
}

/* Rank 0 keeps the name of the port for as long as its program lives, so that no other
 * run on the node takes the port. A port that the user chose is the user's affair. */
static bool hold_port(struct task *t)
{
    char text[sizeof(t->port)];

    if (t->place.rank != 0 || !t->port[0] ||
        !get_variable(t, "MASTER_PORT", text, sizeof(text)) ||
        strcmp(text, t->port) != 0 || port_hold((unsigned)strtoul(text, NULL, 10)))
        return true;
    return plugin_error(A0315, "MASTER_PORT",
                        "start the step again: it will use another port",
                        "port %s is already used by another run on this node", text);
}

void remote_take_config(const char *arg)
{
    active = arg && strcmp(arg, CONFIG_OFF) != 0;
}

/* The batch script, the extern step and salloc's shell are no tasks of a run. */
static bool is_run(spank_t sp)
{
    uint32_t step_id = 0;

    return active && spank_get_item(sp, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS &&
           step_id < FIRST_SPECIAL_ID;
}

void remote_task_exit(spank_t sp)
{
    if (is_run(sp))
        remote_note_end(sp);
}

/* Every failure is reported and ends the task; see dispatch.c for why only here. */
int remote_task_init(spank_t sp)
{
    struct task t = { .sp = sp,
                      .ops = { get_variable, set_variable, unset_variable, NULL } };
    accel_error_t err = { 0 };
    accel_status_t st;
    char *text;

    if (!is_run(sp))
        return 0;
    text = take_carrier(sp);
    if (!text)
        return -1;
    /* The program does not need them, and the carrier is up to 60 KiB. */
    spank_unsetenv(sp, ENV_CARRIER);
    spank_unsetenv(sp, ENV_STEP_ENDS);
    /* A verdict of srun in place of a list; srun has reported why. */
    if (strcmp(text, CARRIER_OFF) == 0 || strcmp(text, CARRIER_REFUSED) == 0) {
        int verdict = strcmp(text, CARRIER_OFF) == 0 ? 0 : -1;
        free(text);
        return verdict;
    }
    t.ops.where = &t;
    if (!read_place(sp, &t.place)) {
        plugin_error(A0312, NULL, "start the step again",
                     "Slurm does not report the rank of this task");
        free(text);
        return -1;
    }
    st = carrier_read(text, apply, &t, &err);
    free(text);
    if (st == ACCEL_OK && !t.placed)
        st = accel_fail(&err, A0312, "start the step again",
                        "Slurm reports two different numbers of tasks");
    if (st != ACCEL_OK) {
        plugin_report(&err);
        return -1;
    }
    environ_apply_place(&t.ops, &t.place);
    ignore_warning(t.warning);
    return hold_port(&t) ? 0 : -1;
}
