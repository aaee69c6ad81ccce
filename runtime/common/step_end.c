/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of one rank's process: what it means, how it is told, and the file in which
 * slurmstepd notes it for srun. The status of wait() comes in, or the file; words, a
 * code and a kind go out. Never prints.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/common.h"
#include "common/plain_file.h"
#include "common/repeat_list.h"
#include "common/step_reports.h"

/* More than the line of an end. */
enum { END_BYTES = 256 };

int step_end_code(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

/* The signal that ended the task, or, as shells tell it, its program; 0: none. */
static int signal_of(int wait_status)
{
    const int code = step_end_code(wait_status);

    return code > 128 && sigabbrev_np(code - 128) ? code - 128 : 0;
}

enum step_end_kind step_end_kind(int wait_status)
{
    static const int wanted[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
    const int code = step_end_code(wait_status), sig = signal_of(wait_status);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(wanted); i++)
        if (sig == wanted[i])
            return END_WANTED;
    if (code == accel_exit_code(ACCEL_ERESUME) ||
        code == accel_exit_code(ACCEL_ESTOPPED))
        return END_WANTED;
    return code == 0 ? END_GOOD : sig == SIGKILL ? END_KILLED : END_FAILED;
}

const char *step_end_text(int wait_status, char *buf, size_t len)
{
    const int sig = signal_of(wait_status);
    const char *name = sig ? sigabbrev_np(sig) : "RT",
               *why = sig == SIGKILL ? "out of memory, or cancelled" : NULL;

    if (WIFSIGNALED(wait_status))
        snprintf(buf, len, "killed by SIG%s%s%s%s", name, why ? " (" : "",
                 why ? why : "", why ? ")" : "");
    else if (sig)
        snprintf(buf, len, "exited with code %d (SIG%s%s%s)", 128 + sig, name,
                 why ? ": " : "", why ? why : "");
    else
        snprintf(buf, len, "exited with code %d", WEXITSTATUS(wait_status));
    return buf;
}

void step_end_file(const struct step_end *e, uint32_t node, int task, char name[32],
                   char text[128])
{
    snprintf(name, 32, "end.%u.%d", node, task);
    snprintf(text, 128, "%d %" PRId64 " %s\n", e->status, e->when_ns, e->host);
}

bool step_end_read(int dir, const char *name, const char *tasks_per_node,
                   struct step_end *e_out)
{
    unsigned node, task, status = 0;
    uint64_t when_ns = 0;
    char *text = NULL, more;
    size_t len;

    *e_out = (struct step_end){ 0 };
    /* Anything behind the numbers shows that the name is another one. */
    if (sscanf(name, "end.%9u.%9u%c", &node, &task, &more) != 2 ||
        task >= repeat_list_at(tasks_per_node, node) ||
        plain_tail(dir, name, END_BYTES, &text, &len) != 0)
        return false;
    sscanf(text, "%5u %19" SCNu64 " %63[A-Za-z0-9._-]", &status, &when_ns, e_out->host);
    free(text);
    e_out->rank = repeat_list_sum(tasks_per_node, node) + task;
    e_out->status = (int)status;
    e_out->when_ns = (int64_t)when_ns;
    return status <= 0xffff && (WIFEXITED(status) || WIFSIGNALED(status)) &&
           when_ns > 0 && when_ns < INT64_MAX && step_end_kind((int)status) != END_GOOD;
}
