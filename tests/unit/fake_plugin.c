/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for Slurm and for the plugin's own messages.c: see fake_plugin.h. Never
 * talks to a controller.
 */
#include "tests/unit/fake_plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "srun_plugin/messages.h"

spank_context_t fake_context = S_CTX_LOCAL;
char fake_said[4096];
char *fake_words[32];
struct fake_slurm fake_slurm;

static void keep(const char *fmt, va_list ap)
{
    size_t n = strlen(fake_said);

    vsnprintf(fake_said + n, sizeof(fake_said) - n, fmt, ap);
}

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    keep(fmt, ap);
    va_end(ap);
}

/* ---- the plugin's other files ---------------------------------------------------- */

spank_context_t spank_context(void)
{
    return fake_context;
}

bool plugin_error(enum message code, const char *where, const char *cure,
                  const char *fmt, ...)
{
    va_list ap;

    (void)where;
    say("A%04d ", (int)code - MESSAGE_BASE);
    va_start(ap, fmt);
    keep(fmt, ap);
    va_end(ap);
    say(" | %s\n", cure ? cure : "");
    return false;
}

bool plugin_report(const accel_error_t *err)
{
    say("%s\n", err->text);
    return false;
}

void plugin_lines(const char *prefix, const char *text)
{
    say("%s%s\n", prefix, text);
}

/* 7 tasks fit no mesh. */
static accel_status_t check_world(const struct config *cfg, int64_t world,
                                  accel_error_t *err)
{
    (void)cfg;
    return world == 7 ? accel_fail(err, A0301, "use 8", "7 does not fit") : ACCEL_OK;
}

/* No key has a place: messages name the file. */
static const struct config_key *no_keys(size_t *count_out)
{
    *count_out = 0;
    return NULL;
}

static const struct config_api fake_api = { .check_world = check_world,
                                            .schema = no_keys };
struct client fake_client = { .typed = { .words = fake_words },
                              .file = { .path = "job.yaml", .api = &fake_api } };

/* ---- Slurm ----------------------------------------------------------------------- */

void slurm_info(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    keep(fmt, ap);
    va_end(ap);
    say("\n");
}

int slurm_load_ctl_conf(time_t update, slurm_conf_t **out)
{
    slurm_conf_t *conf = fake_slurm.silent ? NULL : calloc(1, sizeof(*conf));

    (void)update;
    if (!conf)
        return SLURM_ERROR;
    conf->requeue_exit = (char *)fake_slurm.requeue_exit;
    conf->requeue_exit_hold = (char *)fake_slurm.requeue_exit_hold;
    conf->preempt_type = (char *)"preempt/partition_prio";
    conf->preempt_mode = fake_slurm.preempt_mode;
    conf->kill_wait = fake_slurm.kill_wait;
    *out = conf;
    return SLURM_SUCCESS;
}

void slurm_free_ctl_conf(slurm_conf_t *conf)
{
    free(conf);
}

int slurm_load_job(job_info_msg_t **out, uint32_t job_id, uint16_t flags)
{
    job_info_msg_t *msg = fake_slurm.silent ? NULL : calloc(1, sizeof(*msg));
    size_t look = fake_slurm.looks;

    (void)flags;
    if (!msg)
        return SLURM_ERROR;
    fake_slurm.looks += look + 1 < ACCEL_ARRAY_SIZE(fake_slurm.states);
    fake_slurm.job.job_id = job_id;
    fake_slurm.job.job_state = fake_slurm.states[look];
    msg->record_count = 1;
    msg->job_array = &fake_slurm.job;
    *out = msg;
    return SLURM_SUCCESS;
}

void slurm_free_job_info_msg(job_info_msg_t *msg)
{
    free(msg);
}

int slurm_load_partitions(time_t update, partition_info_msg_t **out, uint16_t flags)
{
    partition_info_msg_t *msg = calloc(1, sizeof(*msg));

    (void)update;
    (void)flags;
    if (!msg)
        return SLURM_ERROR;
    msg->record_count = 1;
    msg->partition_array = &fake_slurm.partition;
    *out = msg;
    return SLURM_SUCCESS;
}

void slurm_free_partition_info_msg(partition_info_msg_t *msg)
{
    free(msg);
}

int slurm_kill_job(uint32_t job_id, uint16_t sig, uint16_t flags)
{
    (void)sig;
    (void)flags;
    if (fake_slurm.kill_fails)
        return SLURM_ERROR;
    fake_slurm.killed = job_id;
    return SLURM_SUCCESS;
}

int slurm_get_errno(void)
{
    return 2010;
}

char *slurm_strerror(int number)
{
    (void)number;
    return (char *)"Access/permission denied";
}

/* ---- helpers --------------------------------------------------------------------- */

char **fake_split(const char *line)
{
    static char text[1024];
    char *rest = text, *word;
    size_t n = 0;

    snprintf(text, sizeof(text), "%s", line);
    while ((word = strsep(&rest, " ")) && n + 1 < ACCEL_ARRAY_SIZE(fake_words))
        if (*word)
            fake_words[n++] = word;
    fake_words[n] = NULL;
    return fake_words;
}

const char *fake_child(void (*f)(const void *arg), const void *arg)
{
    static char text[4096];
    size_t have = 0;
    ssize_t n;
    int fd[2];

    fflush(NULL);
    if (pipe(fd) != 0)
        return "no pipe";
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], STDOUT_FILENO);
        close(fd[0]);
        close(fd[1]);
        f(arg);
        fflush(NULL);
        _exit(0);
    }
    close(fd[1]);
    while (pid > 0 && have + 1 < sizeof(text) &&
           (n = read(fd[0], text + have, sizeof(text) - 1 - have)) > 0)
        have += (size_t)n;
    text[have] = '\0';
    close(fd[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return text;
}
