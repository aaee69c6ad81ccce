/* SPDX-License-Identifier: Apache-2.0
 *
 * See peer.h.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/step/peer.h"

bool peer_start(struct peer *p, const char *name, char *const *argv)
{
    int in[2], out[2];
    char line[256];

    memset(p, 0, sizeof(*p));
    p->name = name;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return false;
    p->pid = fork();
    if (p->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    if (p->pid > 0 && fgets(line, sizeof(line), p->from) &&
        strncmp(line, "ready ", 6) == 0) {
        snprintf(p->about, sizeof(p->about), "%.*s", (int)strcspn(line + 6, "\n"),
                 line + 6);
        return true;
    }
    peer_stop(p);
    return false;
}

/* User and system time of the process so far. */
static double cpu_ms(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    const char *at;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    at = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
    fclose(f);
    if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                      &user, &system) != 2)
        return 0;
    return (double)(user + system) * 1e3 / (double)sysconf(_SC_CLK_TCK);
}

enum peer_answer peer_step(struct peer *p, struct step_time *out, int most_cpu_s)
{
    struct pollfd answer = { .fd = fileno(p->from), .events = POLLIN };
    double before = cpu_ms(p->pid);
    char line[256];

    fputs("step\n", p->to);
    fflush(p->to);
    /* nothing is buffered: it answers only what it is asked */
    while (poll(&answer, 1, 1000) == 0)
        if (cpu_ms(p->pid) - before > most_cpu_s * 1e3) {
            kill(p->pid, SIGKILL);
            return PEER_SLOW;
        }
    if (!fgets(line, sizeof(line), p->from) ||
        sscanf(line, "step %lf %lf %lf", &out->forward, &out->backward,
               &out->optimizer) != 3)
        return PEER_LOST;
    out->total = out->forward + out->backward + out->optimizer;
    out->cpu = cpu_ms(p->pid) - before;
    return PEER_OK;
}

void peer_report(struct peer *p)
{
    char line[256];

    fputs("report\n", p->to);
    fflush(p->to);
    while (fgets(line, sizeof(line), p->from) && strcmp(line, "end\n") != 0)
        fputs(line, stdout);
}

long peer_peak_kib(const struct peer *p)
{
    char path[64], line[256];
    long kib = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)p->pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

void peer_stop(struct peer *p)
{
    if (p->to)
        fclose(p->to);
    if (p->from)
        fclose(p->from);
    p->to = p->from = NULL;
    if (p->pid > 0)
        waitpid(p->pid, NULL, 0);
    p->pid = 0;
}
