/* SPDX-License-Identifier: Apache-2.0
 *
 * srun, once the step exists and before its tasks start: refuses a step whose size is not
 * the config's, chooses the rendezvous address and port, says which of the user's own
 * variables stay. In: the validated config and Slurm's view of the step. Out: ACCEL_*
 * variables that travel with the step's environment.
 */
#include <netinet/in.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "srun_plugin/plugin.h"

/* Rendezvous ports: below Linux' ephemeral range (32768..60999), away from 29500. */
#define PORT_FIRST 15000u
#define PORT_COUNT 14000u
#define PORT_TRIES 64u

struct step {
    uint32_t job_id, step_id, tasks, nodes;
    char address[256]; /* of the node of rank 0; empty: not known here */
};

/* The address under which Slurm itself reaches `node`: it resolves on every node. */
static void node_address(char *node, char *out, size_t len)
{
    node_info_msg_t *msg = NULL;
    const char *addr = node;

    if (slurm_load_node_single(&msg, node, SHOW_ALL) == SLURM_SUCCESS && msg) {
        for (uint32_t i = 0; i < msg->record_count; i++)
            if (msg->node_array[i].name && strcmp(msg->node_array[i].name, node) == 0 &&
                msg->node_array[i].node_addr && msg->node_array[i].node_addr[0])
                addr = msg->node_array[i].node_addr;
    }
    snprintf(out, len, "%s", addr);
    slurm_free_node_info_msg(msg);
}

static void read_nodes(struct step *s, const char *list)
{
    hostlist_t hosts = slurm_hostlist_create(list);
    char *first;

    if (!hosts)
        return;
    s->nodes = (uint32_t)slurm_hostlist_count(hosts);
    first = slurm_hostlist_shift(hosts);
    if (first)
        node_address(first, s->address, sizeof(s->address));
    free(first);
    slurm_hostlist_destroy(hosts);
}

static bool read_step(spank_t sp, struct step *s)
{
    job_step_info_response_msg_t *msg = NULL;

    if (spank_get_item(sp, S_JOB_ID, &s->job_id) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_STEPID, &s->step_id) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &s->tasks) != ESPANK_SUCCESS)
        return false;
    if (s->step_id >= FIRST_SPECIAL_ID)
        return true;
    /* SLURM_NODELIST would be the job's nodes, of which the step may use a part. */
    if (slurm_get_job_steps(0, s->job_id, s->step_id, &msg, SHOW_ALL) ==
            SLURM_SUCCESS &&
        msg && msg->job_step_count > 0 && msg->job_steps[0].nodes)
        read_nodes(s, msg->job_steps[0].nodes);
    slurm_free_job_step_info_response_msg(msg);
    return true;
}

static bool port_is_free(unsigned port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0)
        return true;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    bool is_free = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    close(fd);
    return is_free;
}

/* Neighbouring jobs and steps get different ports. The check looks at this host, which is
 * the node of rank 0 in a batch job; otherwise that node looks again (remote.c). */
static unsigned choose_port(const struct step *s)
{
    unsigned at = (s->job_id * 131u + s->step_id) % PORT_COUNT;

    for (unsigned i = 0; i < PORT_TRIES; i++) {
        unsigned port = PORT_FIRST + (at + i * 7u) % PORT_COUNT;
        if (port_is_free(port))
            return port;
    }
    return PORT_FIRST + at;
}

/* One line for all variables of the torch contract that the user exported. */
static void say_kept(const struct step *s, const char *port)
{
    const char *const ours[][2] = {
        { "RANK", NULL },
        { "LOCAL_RANK", NULL },
        { "LOCAL_WORLD_SIZE", NULL },
        { "WORLD_SIZE", "" },
        { "MASTER_ADDR", s->address },
        { "MASTER_PORT", port },
    };
    struct strbuf kept = { 0 };
    char tasks[16];

    snprintf(tasks, sizeof(tasks), "%u", s->tasks);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ours); i++) {
        const char *user = defaults_user_env(ours[i][0]);
        const char *want = ours[i][1] && !ours[i][1][0] ? tasks : ours[i][1];
        if (user && !(want && strcmp(user, want) == 0))
            strbuf_printf(&kept, " %s=%s", ours[i][0], user);
    }
    if (kept.s)
        slurm_info("accel: kept from your environment:%s (unset to let accel set them)",
                   kept.s);
    strbuf_free(&kept);
}

static void export_step(const struct step *s, const char *port)
{
    char number[24];

    snprintf(number, sizeof(number), "%ld", resubmit_count());
    setenv("ACCEL_RESTART_COUNT", number, 1);
    snprintf(number, sizeof(number), "%ld", resubmit_first_job());
    setenv("ACCEL_FIRST_JOB_ID", number, 1);
    setenv("ACCEL_MASTER_PORT", port, 1);
    if (s->address[0])
        setenv("ACCEL_MASTER_ADDR", s->address, 1);
    else
        unsetenv("ACCEL_MASTER_ADDR");
}

int local_user_init(spank_t sp)
{
    struct step s = { 0 };
    char port[16];

    if (!read_step(sp, &s)) {
        plugin_error(A0312, NULL,
                     "see whether `scontrol ping` answers, and start the step again",
                     "Slurm does not tell the size of this step");
        return -1;
    }
    if (s.step_id >= FIRST_SPECIAL_ID)
        return 0;
    if (getenv("SLURM_HET_SIZE")) {
        plugin_error(A0313, "SLURM_HET_SIZE", "use one component",
                     "heterogeneous jobs are not supported yet");
        return -1;
    }
    if (!size_fits(opts_config(), s.tasks, s.nodes))
        return -1;
    resubmit_arm(s.job_id);
    notice_export(opts_config(), s.job_id);
    snprintf(port, sizeof(port), "%u", choose_port(&s));
    say_kept(&s, port);
    export_step(&s, port);
    return 0;
}
