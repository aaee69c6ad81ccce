/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that trains the same model, as a child process that works on request:
 *     it says   ready ABOUT                 when the model is built
 *     "step"    one training step; it says  step FORWARD BACKWARD OPTIMIZER  (ms)
 *     "report"  what else it knows, lines up to one that says  end
 * At the end of its input it ends. In: a command. Out: times, memory, processor time.
 */
#ifndef ACCEL_TESTS_BENCH_PEER_H
#define ACCEL_TESTS_BENCH_PEER_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct peer {
    const char *name;
    char about[160];
    pid_t pid;
    FILE *to, *from;
};

struct step_time { /* ms */
    double forward, backward, optimizer, total, cpu;
};

/* False: it did not say that it is ready. argv ends with NULL. */
bool peer_start(struct peer *p, const char *name, char *const *argv);
/* PEER_SLOW: it took more than `most_cpu_s` seconds of all processors together, which
 * other programs do not change, and was ended. */
enum peer_answer { PEER_OK, PEER_LOST, PEER_SLOW };
enum peer_answer peer_step(struct peer *p, struct step_time *out, int most_cpu_s);
/* Copies the report to stdout. */
void peer_report(struct peer *p);
long peer_peak_kib(const struct peer *p);
void peer_stop(struct peer *p);

#endif
