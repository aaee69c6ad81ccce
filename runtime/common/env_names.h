/* SPDX-License-Identifier: Apache-2.0
 *
 * Every variable of accel's own in an environment, once: no other source file spells
 * one out. Variables that set a key of the config are made from its name, see
 * config_env_name. Macros, so that they can stand inside a longer literal.
 */
#ifndef ACCEL_COMMON_ENV_NAMES_H
#define ACCEL_COMMON_ENV_NAMES_H

/* In front of all of them, except for the two that srun hands to what it starts. */
#define ENV_PREFIX "ACCEL_"

/* ---- what a user may set --------------------------------------------------------- */

/* Path of the job's config. srun and accel launch set it as well. */
#define ENV_CONFIG "ACCEL_CONFIG"
/* What the run resumes from: auto, none, best or an absolute path. */
#define ENV_RESUME "ACCEL_RESUME"
/* How long a rank waits for the others, in milliseconds: at the start, and in
 * a collective. */
#define ENV_BOOT_TIMEOUT "ACCEL_BOOT_TIMEOUT_MS"
#define ENV_COMM_TIMEOUT "ACCEL_COMM_TIMEOUT_MS"
/* Paths to load from: the CUDA module of a build that is not installed, and NCCL. */
#define ENV_CUDA_MODULE  "ACCEL_CUDA_MODULE"
#define ENV_NCCL_LIBRARY "ACCEL_NCCL_LIBRARY"
/* How the CUDA module works, for comparing. */
#define ENV_CUDA_ATTENTION "ACCEL_CUDA_ATTENTION"
#define ENV_CUDA_EPILOGUES "ACCEL_CUDA_EPILOGUES"
#define ENV_CUDA_GRAPHS    "ACCEL_CUDA_GRAPHS"
#define ENV_CUDA_TUNE      "ACCEL_CUDA_TUNE"

/* ---- srun or accel launch to the tasks ------------------------------------------- */

/* The canonical config, which the tasks take in place of the file. */
#define ENV_RESOLVED "ACCEL_CONFIG_RESOLVED"
/* A task's place: numbers and counts of its step. */
#define ENV_RANK             "ACCEL_RANK"
#define ENV_WORLD_SIZE       "ACCEL_WORLD_SIZE"
#define ENV_LOCAL_RANK       "ACCEL_LOCAL_RANK"
#define ENV_LOCAL_WORLD_SIZE "ACCEL_LOCAL_WORLD_SIZE"
#define ENV_NODE_RANK        "ACCEL_NODE_RANK"
#define ENV_NUM_NODES        "ACCEL_NUM_NODES"
/* OMP_NUM_THREADS where accel has chosen it; unset where the user has. */
#define ENV_OMP_THREADS "ACCEL_OMP_NUM_THREADS"
/* The directory in which the ranks of a step tell its launcher what happened. See
 * step_reports.h. */
#define ENV_STEP_REPORTS "ACCEL_STEP_REPORTS"
/* The same directory, for slurmstepd: the list below is for the tasks to read. */
#define ENV_STEP_ENDS "SLURM_ACCEL_REPORTS"
/* "PARTITION MODE GRACE KILLWAIT": what a preempted job is given, times in seconds. */
#define ENV_NOTICE "ACCEL_PREEMPTION_NOTICE"
/* The warning signal that accel asked Slurm for. In the job's environment, for its
 * steps: "USR1@120". In a task's, which ignores the signal at first:
 * "USR1@SECONDS-SINCE-1970". */
#define ENV_JOB_WARNING "SLURM_ACCEL_WARNING"
#define ENV_WARNING     "ACCEL_WARNING"
/* The rules of accel.preemption, for libacceljob, which has no reader of configs:
 * "signal=USR1 lead_seconds=120 max_restarts=100 requeue=true", or "enabled=false". */
#define ENV_PREEMPTION "ACCEL_PREEMPTION"
/* The list of all variables, sealed: srun's, and the one of accel launch with its
 * rendezvous port. srun's begins with SLURM_ because --export leaves such names
 * alone. */
#define ENV_CARRIER            "SLURM_ACCEL_ENVIRONMENT"
#define ENV_LAUNCH_ENVIRONMENT "ACCEL_LAUNCH_ENVIRONMENT"
#define ENV_LAUNCH_PORT        "ACCEL_LAUNCH_PORT"
/* In srun's list only: tasks of each node, "2(x3),1". */
#define ENV_TASKS_PER_NODE "ACCEL_TASKS_PER_NODE"

/* ---- from one start of a run to the next ----------------------------------------- */

/* Hash of the config at submission, hexadecimal. */
#define ENV_DIGEST "ACCEL_CONFIG_DIGEST"
/* Restarts, the first job, and short runs in a row: a bare srun counts by them, since
 * each restart is a new process image. The tasks get the first two. */
#define ENV_RESTART_COUNT "ACCEL_RESTART_COUNT"
#define ENV_FIRST_JOB     "ACCEL_FIRST_JOB_ID"
#define ENV_SHORT_RUNS    "ACCEL_RESTART_SHORT"
/* Marks the second start of sbatch or salloc, so that there is no third; removed before
 * the job gets the environment. */
#define ENV_SIZED "ACCEL_SIZED"

/* ---- nobody reads these ---------------------------------------------------------- */

/* Set by the module files; and near to names of torch, so that a typing error of a key
 * is not suspected in them. */
#define ENV_ROOT         "ACCEL_ROOT"
#define ENV_MASTER_ADDR  "ACCEL_MASTER_ADDR"
#define ENV_MASTER_PORT  "ACCEL_MASTER_PORT"
#define ENV_MAX_RESTARTS "ACCEL_MAX_RESTARTS"

#endif
