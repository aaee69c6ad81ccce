/* SPDX-License-Identifier: Apache-2.0
 *
 * slurmstepd, when a task has ended: notes a bad end for srun, in the directory of the
 * step's reports (common/step_reports.h). Root must not open a directory of the user's,
 * and its file system may hang. So a child first becomes the user for good and then
 * writes, and slurmstepd waits for it two seconds at most. In: the task's status.
 * Out: a file, or nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/env_names.h"
#include "common/step_reports.h"
#include "srun_plugin/plugin.h"

/* Of a step of many tasks the first ends are enough. */
enum { MOST_NOTES = 16, WAIT_MS = 2000 };

/* A note while it is made; everything is ready before the fork. */
struct note {
    char folder[PATH_MAX], name[32], text[128];
    uid_t uid;
    gid_t gid, *groups;
    int group_count;
};

/* What this slurmstepd, which has one step, has noted. Slurm's call has no argument of
 * ours. */
static struct {
    int count;
    /* A note took too long. */
    bool stuck;
} noted;

/* Nothing of the user's may be touched with other rights. The child of a process with
 * threads may make system calls, and these are no more than that. */
static bool become_user(const struct note *n)
{
    if (geteuid() == 0 && (setgroups((size_t)n->group_count, n->groups) != 0 ||
                           setresgid(n->gid, n->gid, n->gid) != 0 ||
                           setresuid(n->uid, n->uid, n->uid) != 0))
        return false;
    return geteuid() == n->uid;
}

/* The child. It ends when it has written, and with it the pipe `done`. */
static void write_note(const struct note *n, int done)
{
    int dir, fd;

    /* Of slurmstepd's connections none stays open if this hangs. */
    dup2(done, STDIN_FILENO);
#ifdef SYS_close_range
    syscall(SYS_close_range, STDERR_FILENO + 1u, ~0u, 0);
#endif
    if (!become_user(n))
        _exit(1);
    dir = open(n->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    fd = openat(dir, n->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                0600);
    _exit(fd < 0 || write(fd, n->text, strlen(n->text)) < 0);
}

/* slurmstepd waits for any child, and passes over one that is not a task. So a child
 * that hangs may be left to it. */
static void note_it(const struct note *n)
{
    struct pollfd done = { .events = POLLIN };
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    pid = fork();
    if (pid == 0)
        write_note(n, ends[1]);
    close(ends[1]);
    done.fd = ends[0];
    if (pid > 0) {
        noted.stuck = TEMP_FAILURE_RETRY(poll(&done, 1, WAIT_MS)) != 1;
        if (noted.stuck)
            kill(pid, SIGKILL);
        waitpid(pid, NULL, noted.stuck ? WNOHANG : 0);
    }
    close(ends[0]);
}

/* After the first end on this node Slurm ends the other tasks: of that, nothing is
 * noted, nor of a step of many tasks that is cancelled. */
static bool is_worth_noting(int status)
{
    const enum step_end_kind kind = step_end_kind(status);

    return !noted.stuck && kind != END_GOOD &&
           (noted.count == 0 || (kind == END_FAILED && noted.count < MOST_NOTES));
}

void remote_note_end(spank_t sp)
{
    struct note n = { 0 };
    struct step_end end = { 0 };
    struct timespec now;
    uint32_t node = 0;
    int task = 0;

    clock_gettime(CLOCK_REALTIME, &now);
    end.when_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    if (spank_get_item(sp, S_TASK_EXIT_STATUS, &end.status) != ESPANK_SUCCESS ||
        !is_worth_noting(end.status) ||
        spank_getenv(sp, ENV_STEP_ENDS, n.folder, sizeof(n.folder)) != ESPANK_SUCCESS ||
        !n.folder[0] || spank_get_item(sp, S_JOB_NODEID, &node) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_UID, &n.uid) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_GID, &n.gid) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &n.groups, &n.group_count) !=
            ESPANK_SUCCESS)
        return;
    spank_getenv(sp, "SLURMD_NODENAME", end.host, sizeof(end.host));
    step_end_file(&end, node, task, n.name, n.text);
    noted.count++;
    note_it(&n);
}
