/* SPDX-License-Identifier: Apache-2.0
 *
 * slurmstepd, in the task and as the user: takes the carrier that srun made apart, and sets
 * the variables of this task. What the user exported stays. The warning signal that accel
 * asked for is ignored until the program handles it. Opens none of the user's files,
 * parses no YAML, does nothing as root.
 */
#include <signal.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/port.h"
#include "srun_plugin/plugin.h"

struct task {
    spank_t sp;
    struct task_place place;
    struct environ_ops ops;
    char port[16]; /* of our rendezvous; empty: none */
    int warning;   /* the signal that accel asked Slurm for; 0: none */
    bool placed;
};

/* ---- the task's environment, as environ_apply wants it ----------------------------------- */

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

/* ---- what srun sent ---------------------------------------------------------------------- */

/* One malloc, with the reason said when there is none. */
static char *take_carrier(spank_t sp)
{
    char *text = malloc(CARRIER_MAX + 1);
    spank_err_t rc;

    if (!text) {
        plugin_error(A0001, NULL, "give the job more memory (--mem)",
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

static bool read_place(spank_t sp, struct task_place *p)
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
    *p = (struct task_place){ .index = index,
                              .world = world,
                              .local_rank = local_id,
                              .local_world = local_world,
                              .node = node,
                              .nodes = nodes };
    return true;
}

static long slurm_long(struct task *t, const char *name)
{
    char text[24] = "";

    return get_variable(t, name, text, sizeof(text)) ? strtol(text, NULL, 10) : 0;
}

/* A program that does not know of the warning must not die of it. Libaccel and every handler
 * replace this; what somebody else has set stays. */
static void ignore_warning(int sig)
{
    struct sigaction now;

    if (sig && sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        now = (struct sigaction){ .sa_handler = SIG_IGN };
        sigaction(sig, &now, NULL);
    }
}

/* A config_env_f. The first item tells the rank. */
static void apply(void *user, const char *name, const char *value, bool task)
{
    struct task *t = user;
    int64_t first;

    if (strcmp(name, ENV_TASKS_PER_NODE) == 0) {
        first = rank_of_node(value, t->place.node);
        t->place.rank = first + t->place.local_rank;
        t->placed = first >= 0;
        return;
    }
    if (strcmp(name, ENV_WARNING) == 0)
        t->warning = strncmp(value, "USR1@", 5) == 0   ? SIGUSR1
                     : strncmp(value, "USR2@", 5) == 0 ? SIGUSR2
                                                       : 0;
    if (task && strcmp(value, "cores") == 0)
        t->place.cores =
            environ_cores(t->place.local_world, slurm_long(t, "SLURM_CPUS_PER_TASK"),
                          slurm_long(t, "SLURM_CPUS_ON_NODE"));
    if (!task && strcmp(name, "MASTER_PORT") == 0)
        snprintf(t->port, sizeof(t->port), "%s", value);
    environ_apply(&t->ops, &t->place, name, value, task);
}

/* Rank 0 keeps the name of the port for as long as its program lives. A port of the user's
 * own is the user's affair. */
static bool hold_port(struct task *t)
{
    char text[sizeof(t->port)];

    if (t->place.rank != 0 || !t->port[0] ||
        !get_variable(t, "MASTER_PORT", text, sizeof(text)) ||
        strcmp(text, t->port) != 0 || port_hold((unsigned)strtoul(text, NULL, 10)))
        return true;
    plugin_error(A0315, "MASTER_PORT", "start the step again: it gets another port",
                 "port %s is the rendezvous of another run on this node", text);
    return false;
}

int remote_task_init(spank_t sp)
{
    struct task t = { .sp = sp,
                      .ops = { get_variable, set_variable, unset_variable, NULL } };
    uint32_t step_id = 0;
    accel_error_t err = { 0 };
    accel_status_t status;
    char *text;

    /* The batch script, the extern step and salloc's shell are no tasks of a run. */
    if (spank_get_item(sp, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS ||
        step_id >= FIRST_SPECIAL_ID)
        return 0;
    text = take_carrier(sp);
    if (!text)
        return -1;
    spank_unsetenv(sp, ENV_CARRIER);
    /* A verdict of srun's in place of a list; it has said why. */
    if (strcmp(text, CARRIER_OFF) == 0 || strcmp(text, CARRIER_REFUSED) == 0) {
        int verdict = strcmp(text, CARRIER_OFF) == 0 ? 0 : -1;
        free(text);
        return verdict;
    }
    t.ops.where = &t;
    if (!read_place(sp, &t.place)) {
        plugin_error(A0312, NULL, "start the step again",
                     "Slurm does not tell the rank of this task");
        free(text);
        return -1;
    }
    status = carrier_read(text, apply, &t, &err);
    free(text);
    if (status == ACCEL_OK && !t.placed)
        status = accel_fail(&err, A0312, "start the step again",
                            "Slurm's two ways of counting the tasks disagree");
    if (status != ACCEL_OK) {
        plugin_report(&err);
        return -1;
    }
    environ_apply_place(&t.ops, &t.place);
    ignore_warning(t.warning);
    return hold_port(&t) ? 0 : -1;
}
