/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a step tell its launcher, srun or accel launch, in a directory that
 * it makes for them (ENV_STEP_REPORTS):
 *
 *   job          of rank 0, a line for each: "opened DIRECTORY", "saved STEP"
 *   error.RANK   the exception that ended a rank, in the JSON of torch's ErrorHandler
 *   end.NODE.TASK   of slurmstepd: how a task of that node ended, when, and the node's
 *                name, "9 1796067805123456789 n2"; the first number is that of wait()
 *
 * The launcher reads them at its end and removes them. Programs of the user's can write
 * them all, so everything is bounded and only regular files are read; what is missing
 * or cannot be read counts as not known.
 */
#ifndef ACCEL_COMMON_STEP_REPORTS_H
#define ACCEL_COMMON_STEP_REPORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What ended one rank. All texts are printable, "" is not known. */
struct step_failure {
    bool known;
    int64_t rank;
    /* When, in nanoseconds since 1970; then the time of its file. */
    int64_t when_ns, written_ns;
    /* When as torch tells it, in seconds and most often whole ones; 0: not known. */
    double seconds;
    /* It only says that another rank is gone or late. */
    bool blames_another;
    /* The exit code of the rank. */
    int code;
    /* "ValueError: bad shape", cut; "killed by SIGSEGV". */
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
    /* The rank that failed first; and the first of those that raised an exception of
     * their own, which counts where something else ended the ranks. */
    struct step_failure first, raised;
    /* If that one blames another: the ranks that told nothing, the lowest of them. */
    int64_t silent_count, silent[8];
};

/* The end of one rank's process. */
struct step_end {
    int64_t rank, when_ns;
    /* That of wait(). */
    int status;
    char host[64];
    /* The rank has told its exception. */
    bool raised;
};

enum step_end_kind {
    END_GOOD,
    /* By SIGTERM and the like, or with its state saved: somebody wanted it. */
    END_WANTED,
    /* By SIGKILL: of the kernel when memory is short, or of Slurm, which ends the other
     * ranks after the first. */
    END_KILLED,
    END_FAILED
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
 * belongs to another user. `tasks_per_node` ("2(x3),1") tells the ranks of the ends;
 * NULL: none are noted. */
void step_reports_take(const char *path, const char *tasks_per_node,
                       struct step_report *report_out);
/* Removes what earlier starts of a job have left beside `path`: directories whose name
 * is that of `path` up to its last two numbers, STEP.RESTART, with a smaller
 * RESTART. */
void step_reports_sweep(const char *path);
/* "rank 2 (n2) failed first: ValueError: bad shape (train.py:12)", of a report whose
 * first failure is known. Returns buf. */
const char *step_report_text(const struct step_report *r, char *buf, size_t len);

/* ---- step_end.c ------------------------------------------------------------------ */

enum step_end_kind step_end_kind(int wait_status);
/* 128 and the number of a signal, or the exit code. */
int step_end_code(int wait_status);
/* "killed by SIGSEGV", "exited with code 3". Returns buf. */
const char *step_end_text(int wait_status, char *buf, size_t len);
/* Writes the name and the content of the file of an end. */
void step_end_file(const struct step_end *e, uint32_t node, int task, char name[32],
                   char text[128]);
/* Reads the file `name` of the directory `dir`. False: it is none, or tells nothing. */
bool step_end_read(int dir, const char *name, const char *tasks_per_node,
                   struct step_end *e_out);

/* ---- error_file.c ---------------------------------------------------------------- */

/* Reads the JSON of one error file. text[len] ends with a NUL and is written to. Sets
 * what it finds in *f_out, which is all 0. False: there is no message. */
bool error_file_parse(char *text, size_t len, struct step_failure *f_out);

#endif
