/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a step tell its launcher, srun or accel launch, in a directory that
 * it makes for them (ENV_STEP_REPORTS):
 *
 *   job          of rank 0, a line for each: "opened DIRECTORY", "saved STEP"
 *   error.RANK   the exception that ended a rank, in the JSON of torch's ErrorHandler
 *
 * The launcher reads them at its end and removes them. Programs of the user's write
 * them, so everything is bounded and only regular files are read; what is missing or
 * cannot be read counts as not known.
 */
#ifndef ACCEL_COMMON_STEP_REPORTS_H
#define ACCEL_COMMON_STEP_REPORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The exception that ended one rank. All texts are printable, "" is not known. */
struct step_failure {
    bool known;
    int64_t rank;
    /* When: seconds since 1970 as the rank tells them, most often whole ones; then the
     * time of its file, in nanoseconds. */
    double seconds;
    int64_t written_ns;
    /* "ValueError: bad shape", cut. */
    char text[256];
    /* The line of the program that raised it: a file without its directories, and a
     * number; 0: not known. */
    char file[128];
    int64_t line;
    char host[64];
};

/* What is known of a step. */
struct step_report {
    /* A process has opened the job; it has saved, last at that step. */
    bool opened, saved;
    int64_t saved_step;
    /* The rank that failed first. */
    struct step_failure first;
};

/* ---- step_reports.c -------------------------------------------------------------- */

/* Writes the directory of a step with this name: below XDG_STATE_HOME, else below
 * .local/state of HOME, else a hidden one of the current directory. Makes nothing.
 * False: there is none whose name a task can be given. */
bool step_reports_choose(const char *name, char *buf, size_t len);
/* Makes it, with all above it, for this user alone. It must be there before a rank
 * fails: torch writes its error file only into a directory that exists, and without one
 * its own failure hides that of the program. False, with errno: it cannot be made. */
bool step_reports_make(const char *path);
/* Reads what the ranks have left in the directory `path` and removes it. Not where it
 * belongs to another user. */
void step_reports_take(const char *path, struct step_report *report_out);
/* Removes what earlier starts of a job have left beside `path`: directories whose name
 * is that of `path` up to its last two numbers, STEP.RESTART, with a smaller
 * RESTART. */
void step_reports_sweep(const char *path);
/* "rank 2 (n2) failed first: ValueError: bad shape (train.py:12)", of a known failure.
 * Returns buf. */
const char *step_failure_text(const struct step_failure *f, char *buf, size_t len);

/* ---- error_file.c ---------------------------------------------------------------- */

/* Reads the JSON of one error file. text[len] ends with a NUL and is written to. Sets
 * what it finds in *f_out, which is all 0. False: there is no message. */
bool error_file_parse(char *text, size_t len, struct step_failure *f_out);

#endif
