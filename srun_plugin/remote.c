/* SPDX-License-Identifier: Apache-2.0
 *
 * slurmstepd, in the task and as the user: checks that the config srun resolved arrived
 * whole, then sets ACCEL_* and the torch contract of this task. What the user exported
 * stays. Opens none of the user's files, parses no YAML, does nothing as root.
 */
#include <errno.h>
#include <netinet/in.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "srun_plugin/plugin.h"

static const char text_start[] = "accel1;";
static const char hash_key[] = ";xxh3=";
#define HASH_DIGITS 16

struct task {
    uint32_t rank, world, local_rank, local_world, node, nodes;
};

/* The frame of config_encode: start, hash of all before ";xxh3=". */
static bool frame_is_whole(const char *text)
{
    size_t len = strlen(text), tail = strlen(hash_key) + HASH_DIGITS;
    char hash[HASH_DIGITS + 1];

    if (strncmp(text, text_start, strlen(text_start)) != 0 ||
        len < strlen(text_start) + tail ||
        strncmp(text + len - tail, hash_key, strlen(hash_key)) != 0)
        return false;
    snprintf(hash, sizeof(hash), "%016llx",
             (unsigned long long)XXH3_64bits(text, len - tail));
    return strcmp(text + len - HASH_DIGITS, hash) == 0;
}

static bool config_arrived(spank_t sp)
{
    char *text = malloc(RESOLVED_MAX + 1);
    spank_err_t rc = ESPANK_NOSPACE;
    bool whole = false;

    if (!text) {
        plugin_error(A0001, NULL, "give the job more memory (--mem)",
                     "out of memory: the config needs %d bytes", RESOLVED_MAX + 1);
        return false;
    }
    rc = spank_getenv(sp, ENV_RESOLVED, text, RESOLVED_MAX + 1);
    if (rc == ESPANK_ENV_NOEXIST) {
        plugin_error(A0310, ENV_RESOLVED,
                     "start the step with --export=ALL, or name the variable in "
                     "--export; check that the plugin of the submit host has the same "
                     "version",
                     "the config did not reach the task");
    } else if (rc != ESPANK_SUCCESS || !frame_is_whole(text)) {
        plugin_error(A0311, ENV_RESOLVED,
                     "do not edit the variable; start the step again",
                     "the config is damaged (wrong hash)");
    } else {
        whole = true;
    }
    free(text);
    return whole;
}

static bool read_task(spank_t sp, struct task *t)
{
    int local_id = 0;
    bool ok =
        spank_get_item(sp, S_TASK_GLOBAL_ID, &t->rank) == ESPANK_SUCCESS &&
        spank_get_item(sp, S_TASK_ID, &local_id) == ESPANK_SUCCESS &&
        spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &t->world) == ESPANK_SUCCESS &&
        spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &t->local_world) == ESPANK_SUCCESS &&
        spank_get_item(sp, S_JOB_NODEID, &t->node) == ESPANK_SUCCESS &&
        spank_get_item(sp, S_JOB_NNODES, &t->nodes) == ESPANK_SUCCESS;

    t->local_rank = (uint32_t)local_id;
    return ok;
}

/* `keep`: a value of the user's stays. */
static void set_number(spank_t sp, const char *name, uint32_t value, bool keep)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", value);
    spank_setenv(sp, name, text, !keep);
}

static void set_address(spank_t sp)
{
    char text[1024];

    if (spank_getenv(sp, "ACCEL_MASTER_ADDR", text, sizeof(text)) == ESPANK_SUCCESS) {
        spank_setenv(sp, "MASTER_ADDR", text, 0);
        return;
    }
    /* srun could not ask the controller: the name of the first node has to do. */
    if (spank_getenv(sp, "SLURM_STEP_NODELIST", text, sizeof(text)) != ESPANK_SUCCESS)
        return;
    hostlist_t hosts = slurm_hostlist_create(text);
    char *first = hosts ? slurm_hostlist_shift(hosts) : NULL;
    if (first)
        spank_setenv(sp, "MASTER_ADDR", first, 0);
    free(first);
    slurm_hostlist_destroy(hosts);
}

/* On the node of rank 0: says so when the agreed port was taken meanwhile. No reason to
 * stop, since a program may never open it. */
static void look_at_port(const char *text)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0)
        return;
    a.sin_port = htons((uint16_t)strtoul(text, NULL, 10));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 && errno == EADDRINUSE)
        plugin_error(
            A0315, "MASTER_PORT", "export MASTER_PORT with a free one",
            "port %s is in use on this node; a program that needs it will fail", text);
    close(fd);
}

static void set_port(spank_t sp, const struct task *t)
{
    char text[32], user[32];

    if (spank_getenv(sp, "ACCEL_MASTER_PORT", text, sizeof(text)) != ESPANK_SUCCESS)
        return;
    if (t->rank == 0 &&
        spank_getenv(sp, "MASTER_PORT", user, sizeof(user)) == ESPANK_ENV_NOEXIST)
        look_at_port(text);
    spank_setenv(sp, "MASTER_PORT", text, 0);
}

int remote_task_init(spank_t sp)
{
    struct task t = { 0 };
    uint32_t step_id = 0;

    /* The batch script, the extern step and salloc's shell are no tasks of a run. */
    if (spank_get_item(sp, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS ||
        step_id >= FIRST_SPECIAL_ID)
        return 0;
    if (!config_arrived(sp))
        return -1;
    if (!read_task(sp, &t)) {
        plugin_error(A0312, NULL, "start the step again",
                     "Slurm does not tell the rank of this task");
        return -1;
    }
    set_number(sp, "ACCEL_RANK", t.rank, false);
    set_number(sp, "ACCEL_WORLD_SIZE", t.world, false);
    set_number(sp, "ACCEL_LOCAL_RANK", t.local_rank, false);
    set_number(sp, "ACCEL_LOCAL_WORLD_SIZE", t.local_world, false);
    set_number(sp, "ACCEL_NODE_RANK", t.node, false);
    set_number(sp, "ACCEL_NUM_NODES", t.nodes, false);
    set_number(sp, "RANK", t.rank, true);
    set_number(sp, "WORLD_SIZE", t.world, true);
    set_number(sp, "LOCAL_RANK", t.local_rank, true);
    set_number(sp, "LOCAL_WORLD_SIZE", t.local_world, true);
    set_address(sp);
    set_port(sp, &t);
    return 0;
}
