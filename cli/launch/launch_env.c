/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of the tasks that `accel launch` starts: the same list as srun makes, with
 * this machine in the place of Slurm's nodes. In: the config and the number of processes.
 * Out: variables of this process or text on stdout.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/port.h"
#include "cli/launch/launch.h"

enum { RESOLVED_MAX = 16 << 10 };
static const char loopback[] = "127.0.0.1";

/* A config_env_f that fills carrier and kept. */
static void take(void *user, const char *name, const char *value, bool task)
{
    struct launch_env *env = user;

    carrier_add(&env->carrier, name, value, task);
    environ_note_kept(&env->kept, name, value, task, getenv(name));
}

/* Machines are all alike, as with Accelerate: processes / machines on each. */
static accel_status_t place_machine(const struct config *cfg, int64_t processes,
                                    struct launch_env *env, accel_error_t *err)
{
    char text[32];

    env->world = processes;
    env->nodes = cfg->num_machines > 0 ? cfg->num_machines : 1;
    env->node = strtol(config_get(cfg, "machine_rank", text, sizeof(text)), NULL, 10);
    env->local_world = processes / env->nodes;
    if (processes % env->nodes || env->node >= env->nodes)
        return accel_fail_at(err, A0390, "num_machines",
                             "make num_processes a multiple of num_machines, and "
                             "machine_rank smaller than that",
                             "%lld processes on %lld machines, this one being %lld",
                             (long long)processes, (long long)env->nodes,
                             (long long)env->node);
    return ACCEL_OK;
}

/* What the config says; else this machine and a port of our choice. */
static accel_status_t choose_address(const struct config *cfg, struct launch_env *env,
                                     char addr[256], struct config_world *w,
                                     accel_error_t *err)
{
    char port[32];

    config_get(cfg, "main_process_ip", addr, 256);
    config_get(cfg, "main_process_port", port, sizeof(port));
    w->master_port = (unsigned)strtoul(port, NULL, 10);
    if (env->nodes > 1 && (!addr[0] || !w->master_port))
        return accel_fail_at(err, A0324, "num_machines",
                             "give --main_process_ip and --main_process_port, the same "
                             "on each machine, or use srun",
                             "machines that meet need an address and a port");
    if (!addr[0])
        strcpy(addr, loopback);
    w->master_addr = addr;
    if (w->master_port || cfg->distributed_type == DIST_NO)
        return ACCEL_OK;
    if (port_claim(addr, (uint32_t)getpid(), 0, &env->port, &env->claim, err))
        return err ? err->code : ACCEL_EUNAVAIL;
    w->master_port = env->port;
    return ACCEL_OK;
}

static accel_status_t add_config(const struct config *cfg, const char *path,
                                 struct strbuf *carrier, accel_error_t *err)
{
    char *text = malloc(RESOLVED_MAX + 1), *full = path ? realpath(path, NULL) : NULL;
    accel_status_t status = ACCEL_OK;

    if (!text)
        status = accel_fail_nomem(err, "the resolved config", RESOLVED_MAX + 1);
    else
        status = config_encode(cfg, text, RESOLVED_MAX + 1, err);
    if (status == ACCEL_OK) {
        carrier_add(carrier, "ACCEL_CONFIG_RESOLVED", text, false);
        if (path)
            carrier_add(carrier, "ACCEL_CONFIG", full ? full : path, false);
    }
    free(full);
    free(text);
    return status;
}

accel_status_t launch_env_make(const struct config *cfg, const char *config_path,
                               int64_t processes, long threads, struct launch_env *env,
                               accel_error_t *err)
{
    struct config_world w = { .tasks = processes, .threads = threads };
    char addr[256];
    accel_status_t status;

    memset(env, 0, sizeof(*env));
    env->claim = -1;
    status = place_machine(cfg, processes, env, err);
    w.nodes = env->nodes;
    if (status == ACCEL_OK)
        status = choose_address(cfg, env, addr, &w, err);
    carrier_start(&env->carrier);
    if (status == ACCEL_OK)
        status = add_config(cfg, config_path, &env->carrier, err);
    if (status == ACCEL_OK)
        status = config_environment(cfg, &w, take, env, err);
    return status == ACCEL_OK ? carrier_seal(&env->carrier, err) : status;
}

void launch_env_free(struct launch_env *env)
{
    port_release(env->claim);
    strbuf_free(&env->carrier);
    strbuf_free(&env->kept);
}

/* ---- a task's own ------------------------------------------------------------------------ */

static bool get_variable(void *where, const char *name, char *buf, size_t len)
{
    const char *value = getenv(name);

    (void)where;
    if (value)
        snprintf(buf, len, "%s", value);
    return value != NULL;
}

static void set_variable(void *where, const char *name, const char *value)
{
    *(bool *)where |= setenv(name, value, 1) != 0;
}

static void unset_variable(void *where, const char *name)
{
    (void)where;
    unsetenv(name);
}

struct applying {
    struct environ_ops ops;
    struct task_place place;
};

static void apply(void *user, const char *name, const char *value, bool task)
{
    struct applying *a = user;

    if (task && !strcmp(value, "cores"))
        a->place.cores = environ_cores(a->place.local_world, 0, 0);
    environ_apply(&a->ops, &a->place, name, value, task);
}

static accel_status_t apply_list(const char *list, const struct task_place *place,
                                 accel_error_t *err)
{
    bool failed = false;
    struct applying a = { { get_variable, set_variable, unset_variable, &failed },
                          *place };
    accel_status_t status = carrier_read(list, apply, &a, err);

    if (status == ACCEL_OK)
        environ_apply_place(&a.ops, &a.place);
    return failed ? accel_fail_nomem(err, "the environment", 0) : status;
}

static struct task_place place_of(const struct launch_env *env, int64_t local_rank)
{
    int64_t rank = env->node * env->local_world + local_rank;

    return (struct task_place){ .rank = rank,
                                .index = rank,
                                .world = env->world,
                                .local_rank = local_rank,
                                .local_world = env->local_world,
                                .node = env->node,
                                .nodes = env->nodes };
}

/* The rank that will open a port of our choice keeps its name. */
static accel_status_t hold(unsigned port, accel_error_t *err)
{
    if (!port || port_hold(port))
        return ACCEL_OK;
    return accel_fail_at(err, A0315, "MASTER_PORT",
                         "start the run again: it gets another port",
                         "port %u is the rendezvous of another run", port);
}

accel_status_t launch_env_apply(const struct launch_env *env, int64_t local_rank,
                                accel_error_t *err)
{
    struct task_place place = place_of(env, local_rank);
    bool users = getenv("MASTER_PORT") != NULL;
    accel_status_t status = apply_list(env->carrier.s, &place, err);

    if (status == ACCEL_OK && place.rank == 0 && !users)
        status = hold(env->port, err);
    return status;
}

accel_status_t launch_env_as_task(accel_error_t *err)
{
    const char *list = getenv(LAUNCH_CARRIER);
    struct task_place place = { .rank = env_long("OMPI_COMM_WORLD_RANK", -1),
                                .world = env_long("OMPI_COMM_WORLD_SIZE", -1),
                                .local_rank =
                                    env_long("OMPI_COMM_WORLD_LOCAL_RANK", -1),
                                .local_world =
                                    env_long("OMPI_COMM_WORLD_LOCAL_SIZE", -1),
                                .nodes = 1 };
    bool users = getenv("MASTER_PORT") != NULL;
    char *copy;
    accel_status_t status;

    place.index = place.rank;
    if (!list || place.rank < 0 || place.world < 1 || place.local_rank < 0 ||
        place.local_world < 1)
        return accel_fail(err, A0310, "use accel launch, which starts mpirun itself",
                          "mpirun gave no rank, or no environment came with it");
    copy = strdup(list);
    if (!copy)
        return accel_fail_nomem(err, "the environment", strlen(list));
    unsetenv(LAUNCH_CARRIER);
    status = apply_list(copy, &place, err);
    free(copy);
    if (status == ACCEL_OK && place.rank == 0 && !users)
        status = hold((unsigned)env_long(LAUNCH_PORT, 0), err);
    unsetenv(LAUNCH_PORT);
    return status;
}

/* ---- the list as text -------------------------------------------------------------------- */

static void print_word(void *where, const char *name, const char *value)
{
    (void)where;
    printf(" %s=%s", name, value);
}

static void print_common(void *user, const char *name, const char *value, bool task)
{
    const char *users = getenv(name);

    (void)user;
    if (!task && strcmp(name, "ACCEL_CONFIG_RESOLVED") != 0)
        printf("%s=%s\n", name, users && strncmp(name, "ACCEL_", 6) ? users : value);
}

static void print_own(void *user, const char *name, const char *value, bool task)
{
    if (task)
        apply(user, name, value, task);
}

static void print_unset(void *where, const char *name)
{
    (void)where;
    (void)name;
}

accel_status_t launch_env_print(const struct launch_env *env, accel_error_t *err)
{
    accel_status_t status = carrier_read(env->carrier.s, print_common, NULL, err);

    for (int64_t i = 0; status == ACCEL_OK && i < env->local_world; i++) {
        struct applying a = { { get_variable, print_word, print_unset, NULL },
                              place_of(env, i) };

        printf("task %lld:", (long long)a.place.rank);
        status = carrier_read(env->carrier.s, print_own, &a, err);
        printf("\n");
    }
    return status;
}
