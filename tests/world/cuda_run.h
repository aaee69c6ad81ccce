/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of the library on a test's device (cuda_device.h), and on the CPU beside it: a
 * folder with a config for each, and on the stand-in its driver.
 */
#ifndef ACCEL_TESTS_CUDA_RUN_H
#define ACCEL_TESTS_CUDA_RUN_H

#include <stdbool.h>

#include "accel.h"

/* Configs in the folder, bfloat16 both, without checkpoints. */
#define CUDA_RUN_GPU "gpu.yaml"
#define CUDA_RUN_CPU "cpu.yaml"

/* The folder. */
extern char cuda_run_dir[64];

/* First in main. Skips the test where there is no device. The stand-in's driver is
 * found by its name when a process starts: this one may start again. */
void cuda_run_begin(char **argv);
/* Writes a file of the folder; the test ends where that fails. */
void cuda_run_write(const char *name, const void *text, size_t bytes);
/* Opens a run with one thread and that config. log: NULL, or where its lines go. */
accel_status_t cuda_run_open(accel_t **run_out, const char *config, accel_log_f log,
                             accel_error_t *err);
/* Last: removes the folder. */
void cuda_run_end(void);

#endif
