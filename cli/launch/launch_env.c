/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of the tasks that `accel launch` starts: the list that srun makes,
 * with this machine in the place of Slurm's nodes. In: the config and the number of
 * processes. Out: variables of this process, or text on stdout.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "common/port.h"
#include "common/step_reports.h"
#include "cli/launch/launch.h"

/* Bytes of the encoded config, as the plugin allows. */
enum { RESOLVED_MAX = 16 << 10 };
static const char loopback[] = "127.0.0.1";
static const char error_file[] = "TORCHELASTIC_ERROR_FILE";

/* A config_env_f: adds one variable to the carrier and notes where the
 * user's own differs. */
static void take_variable(void *user, const char *name, const char *value, bool task)
{
    struct launch_env *env = user;

    carrier_add(&env->carrier, name, value, task);
    environ_note_kept(&env->kept, name, value, task, getenv(name));
}

/* Places this machine among all. Machines are alike, as with Accelerate: processes
 * / machines on each. */
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
                             "machine_rank less than num_machines",
                             "%lld processes on %lld machines, with machine_rank %lld",
                             (long long)processes, (long long)env->nodes,
                             (long long)env->node);
    return ACCEL_OK;
}

/* The rendezvous address: the config's, else this machine's loopback and a port of our
 * choice. Several machines must be told, since none can know what another chose. A
 * single process needs no port. */
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
                             "several machines need an address and a port to meet at");
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

/* The resolved config and the file's absolute path: a task may
 * have another directory. */
static accel_status_t add_resolved_config(const struct config *cfg, const char *path,
                                          struct strbuf *carrier, accel_error_t *err)
{
    char *text = malloc(RESOLVED_MAX + 1), *full = path ? realpath(path, NULL) : NULL;
    accel_status_t st = ACCEL_OK;

    if (!text || (path && !full && errno == ENOMEM))
        st = accel_fail_nomem(err, "the resolved config", RESOLVED_MAX + 1);
    else
        st = config_encode(cfg, text, RESOLVED_MAX + 1, err);
    if (st == ACCEL_OK) {
        carrier_add(carrier, ENV_RESOLVED, text, false);
        if (path)
            carrier_add(carrier, ENV_CONFIG, full ? full : path, false);
    }
    free(full);
    free(text);
    return st;
}

/* A single process takes the place of this one, which could read nothing afterwards. */
static void add_reports(struct launch_env *env)
{
    char host[65] = "", name[NAME_MAX], word[PATH_MAX + 16];

    if (env->local_world == 1)
        return;
    gethostname(host, sizeof(host) - 1);
    snprintf(name, sizeof(name), "launch.%s.%d", host, (int)getpid());
    if (!step_reports_choose(name, env->reports, sizeof(env->reports))) {
        env->reports[0] = '\0';
        return;
    }
    snprintf(word, sizeof(word), "error_file=%s", env->reports);
    take_variable(env, ENV_STEP_REPORTS, env->reports, false);
    take_variable(env, error_file, word, true);
}

/* Makes the list in its order: the resolved config first, then what follows from it.
 * The seal at the end tells a task that the list is complete. */
accel_status_t launch_env_make(const struct config *cfg, const char *config_path,
                               int64_t processes, long threads, struct launch_env *env,
                               accel_error_t *err)
{
    struct config_world w = { .tasks = processes, .threads = threads };
    char addr[256], python_dir[PATH_MAX];
    accel_status_t st;

    w.python_dir = python_modules_dir(python_dir, sizeof(python_dir));
    memset(env, 0, sizeof(*env));
    env->claim = -1;
    st = place_machine(cfg, processes, env, err);
    w.nodes = env->nodes;
    ACCEL_TRY(st, choose_address(cfg, env, addr, &w, err));
    carrier_start(&env->carrier);
    ACCEL_TRY(st, add_resolved_config(cfg, config_path, &env->carrier, err));
    ACCEL_TRY(st, config_environment(cfg, &w, take_variable, env, err));
    add_reports(env);
    return st == ACCEL_OK ? carrier_seal(&env->carrier, err) : st;
}

/* Where it cannot be made, nothing is reported. */
void launch_env_begin(const struct launch_env *env)
{
    if (env->reports[0])
        step_reports_make(env->reports);
}

void launch_env_end(const struct launch_env *env, int exit_code)
{
    struct step_report report;
    char text[768];

    if (!env->reports[0])
        return;
    step_reports_take(env->reports, NULL, &report);
    if (report.first.known && exit_code != 0)
        fprintf(stderr, "accel: %s\n", step_report_text(&report, text, sizeof(text)));
}

void launch_env_free(struct launch_env *env)
{
    port_release(env->claim);
    strbuf_free(&env->carrier);
    strbuf_free(&env->kept);
}

/* ---- a task's own ---------------------------------------------------------------- */

/* The three operations of environ_ops on this process's environment. `where` of
 * set_variable is a bool that becomes true on a failure. */
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

/* What applying a list needs: where variables go, and whose they are. */
struct applying {
    struct environ_ops ops;
    struct task_place place;
};

/* The cores of a task are known only when its place is, so they are filled in here. */
static void apply_variable(void *user, const char *name, const char *value, bool task)
{
    struct applying *a = user;

    /* "cores" stands for a number of threads that only the task can know. */
    if (task && !strcmp(value, "cores"))
        a->place.cores = environ_cores(a->place.local_world, 0, 0);
    environ_apply(&a->ops, &a->place, name, value, task);
}

/* Sets every variable of the list, then those that follow from the place
 * (RANK and the like). */
static accel_status_t apply_list(const char *list, const struct task_place *place,
                                 accel_error_t *err)
{
    bool failed = false;
    struct applying a = { { get_variable, set_variable, unset_variable, &failed },
                          *place };
    accel_status_t st = carrier_read(list, apply_variable, &a, err);

    if (st == ACCEL_OK)
        environ_apply_place(&a.ops, &a.place);
    return failed ? accel_fail_nomem(err, "the environment", 0) : st;
}

/* Ranks count machine by machine, as torchrun's do. */
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

/* The rank that opens the port of our choice takes over the claim on it. A port of the
 * user's is not claimed. */
static accel_status_t hold_port(unsigned port, accel_error_t *err)
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
    accel_status_t st = apply_list(env->carrier.s, &place, err);

    if (st == ACCEL_OK && place.rank == 0 && !users)
        st = hold_port(env->port, err);
    return st;
}

/* mpirun tells the place through Open MPI's variables. One machine only: run_mpirun is
 * not used with several. The list is copied before its variable goes, so that the
 * program does not inherit it. */
accel_status_t launch_env_as_task(accel_error_t *err)
{
    const char *list = getenv(ENV_LAUNCH_ENVIRONMENT);
    struct task_place place = { .rank = env_long("OMPI_COMM_WORLD_RANK", -1),
                                .world = env_long("OMPI_COMM_WORLD_SIZE", -1),
                                .local_rank =
                                    env_long("OMPI_COMM_WORLD_LOCAL_RANK", -1),
                                .local_world =
                                    env_long("OMPI_COMM_WORLD_LOCAL_SIZE", -1),
                                .nodes = 1 };
    bool users = getenv("MASTER_PORT") != NULL;
    char *copy;
    accel_status_t st;

    place.index = place.rank;
    if (!list || place.rank < 0 || place.world < 1 || place.local_rank < 0 ||
        place.local_world < 1)
        return accel_fail(err, A0310, "use accel launch, which starts mpirun itself",
                          "mpirun set no rank, or did not pass on the environment");
    copy = strdup(list);
    if (!copy)
        return accel_fail_nomem(err, "the environment", strlen(list));
    unsetenv(ENV_LAUNCH_ENVIRONMENT);
    st = apply_list(copy, &place, err);
    free(copy);
    if (st == ACCEL_OK && place.rank == 0 && !users)
        st = hold_port((unsigned)env_long(ENV_LAUNCH_PORT, 0), err);
    unsetenv(ENV_LAUNCH_PORT);
    return st;
}

/* ---- the list as text ------------------------------------------------------------ */

/* environ_ops that print instead of setting. */
static void print_word(void *where, const char *name, const char *value)
{
    (void)where;
    printf(" %s=%s", name, value);
}

/* Variables that are the same for all tasks. The resolved config is left out: it is
 * long and not for reading; the name of the reports' directory is this process's. A
 * user's own value wins, except for ACCEL_ names. */
static void print_common(void *user, const char *name, const char *value, bool task)
{
    const char *users = getenv(name);

    (void)user;
    if (!strcmp(name, ENV_STEP_REPORTS))
        printf("%s: a directory of this launch, for what ranks report\n", name);
    else if (!strcmp(name, error_file) && !users)
        printf("%s: error.RANK in that directory\n", name);
    else if (!task && strcmp(name, ENV_RESOLVED) != 0)
        printf("%s=%s\n", name,
               users && strncmp(name, ENV_PREFIX, strlen(ENV_PREFIX)) ? users : value);
}

/* Variables that depend on the task. */
static void print_own(void *user, const char *name, const char *value, bool task)
{
    if (task && strcmp(name, error_file) != 0)
        apply_variable(user, name, value, task);
}

static void print_unset(void *where, const char *name)
{
    (void)where;
    (void)name;
}

accel_status_t launch_env_print(const struct launch_env *env, accel_error_t *err)
{
    accel_status_t st = carrier_read(env->carrier.s, print_common, NULL, err);

    for (int64_t i = 0; st == ACCEL_OK && i < env->local_world; i++) {
        struct applying a = { { get_variable, print_word, print_unset, NULL },
                              place_of(env, i) };

        printf("task %lld:", (long long)a.place.rank);
        st = carrier_read(env->carrier.s, print_own, &a, err);
        printf("\n");
    }
    return st;
}
