/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole plugin in an srun of its own, from the option to the end, by what the
 * controller answers: nothing, odd things, refusals. This program is that srun: it
 * starts itself under that name and stands in for Slurm. A row has one step, its exit
 * code and the controller's answers; wanted is every line that srun shows, every
 * request, and what a second start of srun begins with.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/common.h"
#include "common/env_names.h"
#include "srun_plugin/plugin.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/unit/srun_rows.h"

#define JOB 12u
/* Without a home directory the ranks report here: cluster, job, step, restart. */
#define REPORTS ".accel-step.blue.12.3.0"
/* The row of a process that is srun. */
#define ROW "TEST_SRUN_ROW"

static char dir[64] = "/tmp/accel-srun-end.XXXXXX";

/* ---- this srun's Slurm ----------------------------------------------------------- */

static const struct srun_row *row;
static time_t now = 1000;
static int refused;
static bool at_end; /* of the step */
static sem_t killed;
static struct spank_option *options[8];
static size_t option_count;

__attribute__((format(printf, 2, 0))) static void say(const char *prefix,
                                                      const char *fmt, va_list ap)
{
    char text[2048];

    vsnprintf(text, sizeof(text), fmt, ap);
    dprintf(STDOUT_FILENO, "%s%s\n", prefix, text);
}

/* The first requests of a row are refused. */
static int answer(void)
{
    return refused++ < row->refusals ? SLURM_ERROR : SLURM_SUCCESS;
}

#pragma GCC visibility push(default)

slurm_conf_t slurm_conf = { .preempt_type = (char *)"preempt/partition_prio",
                            .preempt_mode = PREEMPT_MODE_REQUEUE,
                            .kill_wait = 7,
                            .cluster_name = (char *)"blue" };

time_t time(time_t *out)
{
    if (out)
        *out = now;
    return now;
}

int nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void)left;
    dprintf(STDOUT_FILENO, "waits %ld ms\n",
            (long)pause->tv_sec * 1000 + pause->tv_nsec / 1000000);
    return 0;
}

spank_context_t spank_context(void)
{
    return S_CTX_LOCAL;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *o)
{
    (void)sp;
    options[option_count++] = o;
    return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    va_list ap;

    (void)sp;
    va_start(ap, item);
    *va_arg(ap, uint32_t *) = item == S_JOB_ID       ? JOB
                              : item == S_JOB_STEPID ? 3
                              : row->tasks           ? row->tasks
                                                     : 2;
    va_end(ap);
    return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int len)
{
    (void)sp, (void)name, (void)buf, (void)len;
    return ESPANK_ENV_NOEXIST;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    (void)sp, (void)name, (void)value, (void)overwrite;
    return ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    (void)sp, (void)name;
    return ESPANK_ERROR;
}

void slurm_error(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say("error: ", fmt, ap);
    va_end(ap);
}

void slurm_info(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

int slurm_load_ctl_conf(time_t update, slurm_conf_t **out)
{
    (void)update;
    *out = &slurm_conf;
    return SLURM_SUCCESS;
}

void slurm_free_ctl_conf(slurm_conf_t *conf)
{
    (void)conf;
}

/* While the step starts the controller answers, unless the row has it silent. Before the
 * job it may show one of another id, as for an array. */
int slurm_load_job(job_info_msg_t **out, uint32_t id, uint16_t flags)
{
    static slurm_job_info_t jobs[2];
    static job_info_msg_t msg = { .record_count = 2, .job_array = jobs };

    (void)flags;
    if (row->silent || (at_end && row->answers == NOTHING))
        return SLURM_ERROR;
    jobs[0] = (slurm_job_info_t){ .job_id = id + 1, .job_state = JOB_CANCELLED };
    jobs[1] = row->job;
    jobs[1].job_id = at_end && row->answers == ANOTHER_JOB ? id + 2 : id;
    jobs[1].job_state = row->state;
    jobs[1].partition = (char *)"low";
    if (!jobs[1].time_limit)
        jobs[1].time_limit = INFINITE;
    if (!jobs[1].array_job_id)
        jobs[1].array_task_id = NO_VAL;
    *out = &msg;
    return SLURM_SUCCESS;
}

void slurm_free_job_info_msg(job_info_msg_t *msg)
{
    (void)msg;
}

int slurm_load_partitions(time_t update, partition_info_msg_t **out, uint16_t flags)
{
    (void)update, (void)out, (void)flags;
    return SLURM_ERROR;
}

void slurm_free_partition_info_msg(partition_info_msg_t *msg)
{
    (void)msg;
}

int slurm_load_node_single(node_info_msg_t **out, char *node, uint16_t flags)
{
    (void)out, (void)node, (void)flags;
    return SLURM_ERROR;
}

void slurm_free_node_info_msg(node_info_msg_t *msg)
{
    (void)msg;
}

hostlist_t slurm_hostlist_create(const char *list)
{
    return (hostlist_t)(uintptr_t)list;
}

char *slurm_hostlist_shift(hostlist_t list)
{
    (void)list;
    return strdup("localhost");
}

void slurm_hostlist_destroy(hostlist_t list)
{
    (void)list;
}

slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *id)
{
    static uint32_t ids[3] = { 0, 1, 2 }, *tids = ids;
    static uint16_t tasks;
    static slurm_step_layout_t layout = {
        .node_cnt = 1, .node_list = (char *)"n1", .tasks = &tasks, .tids = &tids
    };

    (void)id;
    layout.task_cnt = tasks = (uint16_t)(row->tasks ? row->tasks : 2);
    return row->no_layout ? NULL : &layout;
}

void slurm_job_step_layout_free(slurm_step_layout_t *layout)
{
    (void)layout;
}

int slurm_requeue(uint32_t id, uint32_t flags)
{
    dprintf(STDOUT_FILENO, "requeue of job %u%s\n", id, flags ? " with flags" : "");
    return answer();
}

int slurm_signal_job_step(uint32_t id, uint32_t step, uint32_t sig)
{
    dprintf(STDOUT_FILENO, "signal %u to step %u.%u\n", sig, id, step);
    return answer();
}

int slurm_kill_job(uint32_t id, uint16_t sig, uint16_t flags)
{
    (void)sig, (void)flags;
    dprintf(STDOUT_FILENO, "job %u is cancelled\n", id);
    return SLURM_SUCCESS;
}

int slurm_get_errno(void)
{
    return ESLURM_ACCESS_DENIED;
}

char *slurm_strerror(int number)
{
    return (char *)(number == ESLURM_ACCESS_DENIED ? "Access/permission denied" : "?");
}

#pragma GCC visibility pop

/* ---- one srun -------------------------------------------------------------------- */

/* Is each signal as a shell starts programs? */
static bool signals_are_new(void)
{
    static const int looked_at[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE };
    struct sigaction now_set;
    sigset_t blocked;
    bool all = sigprocmask(SIG_SETMASK, NULL, &blocked) == 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(looked_at); i++)
        all = all && !sigismember(&blocked, looked_at[i]) &&
              sigaction(looked_at[i], NULL, &now_set) == 0 &&
              now_set.sa_handler == SIG_DFL;
    return all;
}

/* The second srun: shows what it starts with. */
static int begin_again(void)
{
    char line[64] = "";
    ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);
    int open_fds = 0;

    line[n > 0 ? strcspn(line, "\n") : 0] = '\0';
    for (int fd = STDERR_FILENO + 1; fd < 256; fd++)
        open_fds += fcntl(fd, F_GETFD) >= 0;
    dprintf(STDOUT_FILENO,
            "again: restart %s, short %s, first job %s, reads the %s line, signals as "
            "%s, %s open\n",
            getenv(ENV_RESTART_COUNT), getenv(ENV_SHORT_RUNS), getenv(ENV_FIRST_JOB),
            line[0] ? line : "no", signals_are_new() ? "at first" : "they were",
            open_fds ? "something" : "nothing");
    return 0;
}

static void *wait_for_kill(void *set)
{
    int sig;

    sigwait(set, &sig);
    dprintf(STDOUT_FILENO, "srun kills the tasks\n");
    sem_post(&killed);
    return NULL;
}

/* srun blocks its signals and takes them in a thread. */
static void take_signals(void)
{
    static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    static sigset_t set;
    pthread_t thread;

    sigemptyset(&set);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(taken); i++)
        sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    sem_init(&killed, 0, 0);
    if (pthread_create(&thread, NULL, wait_for_kill, &set) == 0)
        pthread_detach(thread);
}

static int plugin_call(void *plugin, const char *name)
{
    int (*f)(spank_t, int, char **);

    *(void **)&f = dlsym(plugin, name);
    return f ? f(NULL, 0, (char *[]){ NULL }) : -2;
}

static void run_step(void)
{
    char rest[64];

    /* the tasks read all of it */
    while (read(STDIN_FILENO, rest, sizeof(rest)) > 0)
        ;
    if (row->reports || row->error || row->end)
        mkdir(REPORTS, 0700);
    if (row->reports)
        run_folder_write(REPORTS "/job", row->reports);
    if (row->error)
        run_folder_write(REPORTS "/error.1", row->error);
    if (row->end)
        run_folder_write(REPORTS "/end.0.1", row->end);
    if (!row->raises)
        return;
    kill(getpid(), row->raises);
    while (sem_wait(&killed) != 0 && errno == EINTR)
        ;
}

static int be_srun(void)
{
    char path[512];
    void *plugin;

    if (getenv(ENV_RESTART_COUNT) && (!strstr(row->env, ENV_RESTART_COUNT) ||
                                      !strstr(row->env, getenv(ENV_RESTART_COUNT))))
        return begin_again();
    take_signals();
    if (row->no_preemption)
        slurm_conf.preempt_type = (char *)"preempt/none";
    snprintf(path, sizeof(path), "%s/srun_plugin/.libs/accel_spank.so",
             getenv("ACCEL_BUILD"));
    plugin = dlopen(path, RTLD_NOW);
    if (!plugin)
        return dprintf(STDOUT_FILENO, "%s\n", dlerror()), 1;
    if (plugin_call(plugin, "slurm_spank_init") ||
        options[0]->cb(options[0]->val, "two.yaml", 0) ||
        plugin_call(plugin, "slurm_spank_init_post_opt"))
        return 1;
    const int rc = plugin_call(plugin, "slurm_spank_local_user_init");
    dprintf(STDOUT_FILENO, "the step %s\n", rc ? "is refused" : "starts");
    if (!rc && strcmp(getenv(ENV_CARRIER), CARRIER_REFUSED) == 0)
        dprintf(STDOUT_FILENO, "its tasks refuse\n");
    if (!rc)
        run_step();
    at_end = true;
    now += row->seconds ? row->seconds : 100;
    plugin_call(plugin, "slurm_spank_exit");
    exit(row->code);
}

/* ---- the test -------------------------------------------------------------------- */

/* Nothing of this environment but what the build needs; then the row's. */
static void set_environment(size_t i)
{
    static const char *const kept[] = {
        "ACCEL_BUILD",  "LD_PRELOAD",    "ASAN_OPTIONS",
        "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"
    };
    char *value[ACCEL_ARRAY_SIZE(kept)], number[24], *rest = strdup(srun_rows[i].env),
                                                     *word;

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(kept); k++)
        value[k] = getenv(kept[k]) ? strdup(getenv(kept[k])) : NULL;
    clearenv();
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(kept); k++)
        if (value[k])
            setenv(kept[k], value[k], 1);
    snprintf(number, sizeof(number), "%zu", i);
    setenv(ROW, number, 1);
    while ((word = strsep(&rest, " ")))
        if (*word)
            putenv(word);
}

/* In a child: becomes srun. */
static void start_srun(size_t i, int out)
{
    char self[512] = "", *argv[] = { (char *)"srun", (char *)"--accel-config=two.yaml",
                                     (char *)"./a", NULL, NULL };

    if (srun_rows[i].option) {
        memmove(argv + 2, argv + 1, 2 * sizeof(*argv));
        argv[1] = (char *)srun_rows[i].option;
    }
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 || chdir(dir) != 0 ||
        dup2(out, STDOUT_FILENO) < 0 || dup2(open("in", O_RDONLY), STDIN_FILENO) < 0)
        _exit(2);
    set_environment(i);
    execv(self, argv);
    _exit(2);
}

/* Paths of the folder become names in it. */
static void shorten(char *text)
{
    const size_t n = strlen(dir) + 1;

    for (char *at = text; (at = strstr(at, dir));)
        memmove(at, at + n, strlen(at + n) + 1);
}

static void check_row(size_t i)
{
    char text[4096] = "", config[320];
    size_t have = 0;
    ssize_t n;
    int fd[2], status = 0, code;
    pid_t pid;

    snprintf(config, sizeof(config), "%s/two.yaml", dir);
    snprintf(text, sizeof(text),
             "distributed_type: MULTI_CPU\nnum_processes: 2\naccel:\n  preemption:\n"
             "    max_restarts: 9\n    %s",
             srun_rows[i].config);
    run_folder_write(config, text);
    if (pipe2(fd, O_CLOEXEC) != 0)
        return;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        start_srun(i, fd[1]);
    close(fd[1]);
    while (pid > 0 && (n = read(fd[0], text + have, sizeof(text) - 1 - have)) > 0)
        have += (size_t)n;
    text[have] = '\0';
    shorten(text);
    close(fd[0]);
    if (pid > 0)
        waitpid(pid, &status, 0);
    tap_is_str(text, srun_rows[i].want, "%s: what srun shows and asks for",
               srun_rows[i].what);
    code = srun_rows[i].own_code ? srun_rows[i].own_code : srun_rows[i].code;
    tap_is_int(status, strstr(srun_rows[i].want, "\nagain:") ? 0 : code << 8,
               "%s: its exit code", srun_rows[i].what);
    snprintf(config, sizeof(config), "%s/%s", dir, REPORTS);
    if (access(config, F_OK) == 0)
        tap_ok(false, "%s: the reports are still there", srun_rows[i].what);
}

int main(void)
{
    const char *number = getenv(ROW);
    char path[512];

    alarm(HANG_S);
    if (number) {
        row = &srun_rows[strtoul(number, NULL, 10) % srun_row_count];
        return be_srun();
    }
    snprintf(path, sizeof(path), "%s/srun_plugin/.libs/accel_spank.so",
             getenv("ACCEL_BUILD") ? getenv("ACCEL_BUILD") : "");
    if (access(path, R_OK) != 0)
        tap_skip_all("ACCEL_BUILD does not name a build with the plugin");
    run_folder_new(dir);
    snprintf(path, sizeof(path), "%s/in", dir);
    run_folder_write(path, "first\nsecond\n");
    snprintf(path, sizeof(path), "%s/accel", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/accel/config.yaml", dir);
    run_folder_write(path, "distributed_type: FSDP\nnum_machines: 2\nuse_cpu: true\n");
    for (size_t i = 0; i < srun_row_count; i++)
        check_row(i);
    run_folder_remove(dir);
    return tap_done();
}
