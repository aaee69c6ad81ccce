/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of libacceljob: an attempt in a temporary folder, with no job around it, on
 * a clock that stands still.
 */
#ifndef ACCEL_TESTS_ATTEMPT_WORLD_H
#define ACCEL_TESTS_ATTEMPT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "accel_job.h"

/* All clocks of this program, in nanoseconds since 1970. Pauses and tests move them. */
extern int64_t world_ns;
#define WORLD_BEGIN      INT64_C(1769860800) /* 2026-01-31T12:00:00Z */
#define WORLD_SECOND     INT64_C(1000000000)
#define WORLD_SECONDS(n) (world_ns += (n)*WORLD_SECOND)
/* errno of each read, write or pwrite of the libraries; 0: they work. EINTR of a read
 * comes once. */
extern int world_read_error, world_write_error;
/* A signal that comes in each pause; 0: none. */
extern int world_pause_signal;
/* What the attempts of this process have logged, "LINE | LINE"; world_try clears it. */
extern char world_said[8192];

/* Makes the folder. Ends a test that hangs. */
void world_begin(void);
/* Removes it. */
void world_end(void);
/* The next test begins at WORLD_BEGIN: no file, no variable of Slurm's or accel's, and
 * no scontrol. */
void world_new(void);

/* A path in the folder; valid until the fourth call after this one. */
const char *world_path(const char *name);
/* The checkpoint directory of world_open, and its file of that name. */
const char *world_ckpt(const char *name);
bool world_has(const char *path);
/* The text of a file without its last newline, "" if there is none; valid until the
 * next call. */
const char *world_text(const char *path);
void world_write(const char *path, const char *text);
/* The lines of the file that contain `part`. */
int world_count(const char *path, const char *part);

/* Sets $SLURM_JOB_ID to `job`, and the number of this attempt. */
void world_job(const char *job, int restart);
/* Stands in for scontrol: `show` and `requeue` are what it does, for sh. The file calls
 * of the folder has its arguments, a line per call. */
void world_scontrol(const char *show, const char *requeue);

/* accel_attempt_open of that directory, with SIGINT; NULL: it failed, as *err says. */
accel_attempt_t *world_try(int rank, int size, accel_error_t *err);
/* The same, which must succeed, or the test ends. */
accel_attempt_t *world_open(int rank, int size);
/* Sends `sig` to this process, and all ranks agree on what it asks for. */
void world_stop(accel_attempt_t *attempt, int sig);
/* A save of `seconds` by the clock. Returns what accel_attempt_note_save does. */
accel_status_t world_save(accel_attempt_t *attempt, int64_t step, double seconds);

#endif
