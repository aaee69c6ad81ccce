/* SPDX-License-Identifier: Apache-2.0
 *
 * How steps end, what the controller answers, and every line that srun must show then:
 * the rows of test_srun_end. Job 12 and its step 3 of two tasks, unless a row differs.
 */
#include "tests/unit/srun_rows.h"

#include "common/common.h"
#include "common/env_names.h"

#define BATCH   "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=1 SLURM_NODELIST=n1"
#define BATCHED .batch_flag = 1, .requeue = 1
#define STARTS  "the step starts\n"
#define UNSAVED                                                                        \
    "; accel knows of no checkpoint of this attempt; a program that saves on SIGUSR1 " \
    "and SIGTERM and then exits with 85 loses nothing (see doc/python.md)\n"
#define SAVED   "stopped with its state saved (exit 85)"
#define REQUEUE "requeue of job 12\n"
#define AGAIN   "; requesting a new allocation (restart 1 of at most 9)\n"
/* What the second srun begins with. */
#define SECOND(restart, shorts)                                                        \
    "again: restart " #restart ", short " #shorts                                      \
    ", first job 12, reads the first line, signals as at first, nothing open\n"
#define TO_RUN     "; to continue, run again: srun --accel-config=two.yaml ./a\n"
#define TO_RUN_PTY "; to continue, run again: srun --pty --accel-config=two.yaml ./a\n"
#define SIZE                                                                           \
    "error: accel: error[A0301]: two.yaml:2: num_processes is 2, but this step "       \
    "has 3 tasks\nerror:   cure: request 2 tasks (-n 2; in a batch job also #SBATCH "  \
    "--ntasks=2), or set num_processes: 3 in the file, or remove num_processes to "    \
    "accept any number; for a step without training: srun --accel-config=none ...\n"
#define NO_SIZE                                                                        \
    "error: accel: error[A0312]: Slurm does not report the size of this step\n"        \
    "error:   cure: check that `scontrol ping` answers, then start the step again\n"

#define ROW(name, ...)                                                                 \
    {                                                                                  \
        .what = name, __VA_ARGS__                                                      \
    }
/* What rank 1 tells of its end, and srun of it. */
#define SHAPE                                                                          \
    "{\"message\": {\"message\": \"ValueError: bad shape\", \"extraInfo\": {"          \
    "\"timestamp\": \"17\", \"file\": \"/data/a/train.py\", \"line\": \"12\", "        \
    "\"host\": \"n2\"}}}"
#define FIRST                                                                          \
    "accel: job 12: rank 1 (n2) failed first: ValueError: bad shape (train.py:12)\n"
#define LOST "accel: job 12: rank 1 (n1) failed first: "
#define NO_TRAINER                                                                     \
    "accel: job 12: accel.python.trainer is true, but no Trainer reported to accel: "  \
    "`python -I` and `python -E` ignore PYTHONPATH, a container may hide accel's "     \
    "modules, and a script without transformers.Trainer has none; start the script "   \
    "with python alone, mount $ACCEL_ROOT, or call accel_slurm.job in it (see "        \
    "doc/python.md)\n"
/* With the key, where there is nothing to run. */
#define TRAINER "enabled: true\n  python: {trainer: true}"
#define NO_SITE                                                                        \
    "accel: accel.python.trainer is true, but there is no /none/share/accel/"          \
    "python-site/sitecustomize.py: the script runs without it; install accel with "    \
    "its Python modules, or correct ACCEL_ROOT\n"
/* Of a batch script, and of an srun by itself: `says` follows the start of the step. */
#define IN_BATCH(name, code, state, says, ...)                                         \
    ROW(name, "", BATCH, code, state, STARTS says, __VA_ARGS__)
#define BARE(name, code, state, says, ...)                                             \
    ROW(name, "", "", code, state, STARTS says, __VA_ARGS__)
/* With two variables of the user's, of which --export keeps some. */
#define EXPORT(list, kept)                                                             \
    ROW("--export=" list, "", "MASTER_ADDR=h MASTER_PORT=77", 0, JOB_COMPLETE,         \
        kept STARTS, .option = "--export=" list)
/* A user file of another kind of run: test_srun_end writes it. */
#define USERS "XDG_CONFIG_HOME=/proc/self/cwd"
#define NOTE_AT(line, column, key, blanks, under)                                      \
    "accel: /proc/self/cwd/accel/config.yaml:" line ":" column ": note: '" key         \
    "' is not applied: it belongs to this file's distributed_type FSDP, but "          \
    "two.yaml:1 says MULTI_CPU\n  " line " | " key "\n    | " blanks under             \
    " if you need it, set it where that distributed_type is set\n"
#define NOTES                                                                          \
    NOTE_AT("2", "15", "num_machines: 2", "              ", "^")                       \
    NOTE_AT("3", "10", "use_cpu: true", "         ", "^^^^")
#define KEPT(vars)                                                                     \
    "accel: kept from your environment:" vars " (unset them to let accel set them)\n"

const struct srun_row srun_rows[] = {
    /* ---- a batch job: Slurm is asked to requeue it */
    IN_BATCH("batch, 85", 85, JOB_RUNNING,
             REQUEUE "accel: job 12 " SAVED "; requeued as restart 1 of at most 9\n",
             .job = { BATCHED }),
    IN_BATCH("BatchFlag 2", 85, JOB_RUNNING,
             REQUEUE "accel: job 12 " SAVED "; requeued as restart 1 of at most 9\n",
             .job = { .batch_flag = 2, .requeue = 1 }),
    IN_BATCH("an element of an array", 85, JOB_RUNNING,
             REQUEUE "accel: job 10_3 " SAVED "; requeued as restart 1 of at most 9\n",
             .job = { BATCHED, .array_job_id = 10, .array_task_id = 3 }),
    IN_BATCH("the job is completing", 85, JOB_FAILED | JOB_COMPLETING,
             REQUEUE "accel: job 12 " SAVED "; requeued as restart 1 of at most 9\n",
             .job = { BATCHED }),
    IN_BATCH("the requeue is refused", 85, JOB_RUNNING,
             REQUEUE
             "error: accel: error[A0317]: job 12 " SAVED
             "; requeue refused: Access/permission denied\nerror:   cure: run scontrol "
             "requeue 12, or submit the job again\n",
             .job = { BATCHED }, .refusals = 9),
    IN_BATCH("the controller does not answer", 85, JOB_RUNNING,
             "accel: job 12 " SAVED
             "; not restarted: srun did not create the allocation" TO_RUN,
             .job = { BATCHED }, .answers = NOTHING),
    IN_BATCH("it answers about another job", 85, JOB_RUNNING,
             "accel: job 12 " SAVED
             "; not restarted: srun did not create the allocation" TO_RUN,
             .job = { BATCHED }, .answers = ANOTHER_JOB),
    IN_BATCH("queued again already", 85, JOB_PENDING, "", .job = { BATCHED }),
    IN_BATCH("requeued and held", 85, JOB_PENDING | JOB_REQUEUE_HOLD, "",
             .job = { BATCHED }),
    IN_BATCH("it runs once more already", 85, JOB_RUNNING, "",
             .job = { BATCHED, .restart_cnt = 1 }),
    ROW("the second life", "", BATCH " SLURM_RESTART_COUNT=1", 85, JOB_RUNNING,
        STARTS REQUEUE "accel: job 12 " SAVED "; requeued as restart 2 of at most 9\n",
        .job = { BATCHED, .restart_cnt = 1 }),
    ROW("the last life", "", BATCH " SLURM_RESTART_COUNT=9", 85, JOB_RUNNING,
        STARTS "accel: job 12 " SAVED "; not requeued: the limit of 9 restarts is "
               "reached (accel.preemption.max_restarts)\n",
        .job = { BATCHED, .restart_cnt = 9 }),
    ROW("requeue: false", "requeue: false", BATCH, 85, JOB_RUNNING,
        STARTS "accel: job 12 " SAVED
               "; not requeued: accel.preemption.requeue is false\n",
        .job = { BATCHED }),
    IN_BATCH("--no-requeue", 85, JOB_RUNNING,
             "accel: job 12 " SAVED
             "; not requeued: it was submitted with --no-requeue\n",
             .job = { .batch_flag = 1 }),
    ROW("enabled: false", "enabled: false", BATCH, 85, JOB_RUNNING, STARTS,
        .job = { BATCHED }),
    IN_BATCH("a failure of its own", 1, JOB_RUNNING, "", .job = { BATCHED }),
    IN_BATCH("a failure after a preemption", 1, JOB_RUNNING,
             "accel: job 12: preempted with exit code 1" UNSAVED REQUEUE
             "accel: job 12 was preempted (exit 1); requeued as restart 1 of at most "
             "9\n",
             .job = { BATCHED, .preempt_time = 5 }),
    IN_BATCH("a lost node, 0", 0, JOB_NODE_FAIL,
             REQUEUE
             "accel: job 12 lost a node (exit 0); requeued as restart 1 of at most 9\n",
             .job = { BATCHED }),
    IN_BATCH(
        "a lost node, 137", 137, JOB_NODE_FAIL | JOB_COMPLETING,
        REQUEUE
        "accel: job 12 lost a node (exit 137); requeued as restart 1 of at most 9\n",
        .job = { BATCHED }, .end = "9 50 n1"),
    IN_BATCH("killed for a preemption, 0", 0, JOB_PREEMPTED,
             "accel: job 12: preempted with exit code 0" UNSAVED REQUEUE
             "accel: job 12 was preempted (exit 0); requeued as restart 1 of at most "
             "9\n",
             .job = { BATCHED }),
    IN_BATCH("0 after a preemption", 0, JOB_RUNNING,
             "accel: job 12: ended with exit code 0 after the notice of a preemption: "
             "it counts as finished and is not run again; a program that has saved and "
             "is not finished ends with 85 (see doc/python.md)\n",
             .job = { BATCHED, .preempt_time = 5 }),
    IN_BATCH("75 after a preemption", 75, JOB_RUNNING, "",
             .job = { BATCHED, .preempt_time = 5 }),
    IN_BATCH("cancelled, 85", 85, JOB_CANCELLED, "", .job = { BATCHED }),
    IN_BATCH("cancelled after a preemption", 143, JOB_CANCELLED, "",
             .job = { BATCHED, .preempt_time = 5 }),
    IN_BATCH("its time limit", 143, JOB_TIMEOUT,
             "accel: job 12: ended by the time limit with exit code 143" UNSAVED,
             .job = { BATCHED }, .end = "768 50 n1"),
    IN_BATCH(
        "warned while it starts", 138, JOB_RUNNING,
        "accel: job 12: ended by the warning signal with exit code 138" UNSAVED REQUEUE
        "accel: job 12 was told to stop while starting (exit 138); requeued "
        "as restart 1 of at most 9\n",
        .job = { BATCHED }, .seconds = 9),
    IN_BATCH("warned later", 138, JOB_RUNNING,
             "accel: job 12: ended by the warning signal with exit code 138" UNSAVED,
             .job = { BATCHED }, .seconds = 10),
    IN_BATCH(
        "0 after the notice of the time limit", 0, JOB_RUNNING,
        "accel: job 12: ended with exit code 0 after the notice of its time limit: "
        "it counts as finished and is not run again; a program that has saved and "
        "is not finished ends with 85 (see doc/python.md)\n",
        .job = { BATCHED, .time_limit = 5, .start_time = 1000 }, .seconds = 180),
    IN_BATCH("0 before it", 0, JOB_RUNNING, "",
             .job = { BATCHED, .time_limit = 5, .start_time = 1000 }, .seconds = 179),
    ROW("on this node, and nothing is preempted: nobody is asked", "",
        BATCH " SLURMD_NODENAME=localhost", 0, JOB_NODE_FAIL, STARTS,
        .job = { BATCHED }, .no_preemption = true),
    IN_BATCH("on another node, which is lost", 0, JOB_NODE_FAIL,
             REQUEUE
             "accel: job 12 lost a node (exit 0); requeued as restart 1 of at most 9\n",
             .job = { BATCHED }, .no_preemption = true),
    IN_BATCH("a finished run", 0, JOB_RUNNING, "", .job = { BATCHED }),

    /* ---- a bare srun: it runs its own command again */
    BARE("bare, 85", 85, JOB_FAILED, "accel: job 12 " SAVED AGAIN SECOND(1, 0)),
    BARE("bare, no answer", 85, JOB_FAILED, "accel: job 12 " SAVED AGAIN SECOND(1, 0),
         .answers = NOTHING),
    BARE("bare, a lost node", 1, JOB_NODE_FAIL,
         "accel: job 12 lost a node (exit 1)" AGAIN SECOND(1, 0)),
    BARE("bare, a failure of its own", 1, JOB_FAILED, ""),
    ROW("bare, a short run", "", ENV_SHORT_RUNS "=4 " ENV_FIRST_JOB "=12", 85,
        JOB_FAILED, STARTS "accel: job 12 " SAVED AGAIN SECOND(1, 5), .seconds = 9),
    ROW("bare, the sixth in a row", "", ENV_SHORT_RUNS "=5", 85, JOB_FAILED,
        STARTS "accel: job 12 " SAVED "; not restarted: too many consecutive runs were "
               "shorter than 10 s" TO_RUN,
        .seconds = 9),
    ROW("bare, a long one after five", "", ENV_SHORT_RUNS "=5", 85, JOB_FAILED,
        STARTS "accel: job 12 " SAVED AGAIN SECOND(1, 0), .seconds = 10),
    ROW("bare, one restart is left", "", ENV_RESTART_COUNT "=8", 85, JOB_FAILED,
        STARTS "accel: job 12 " SAVED
               "; requesting a new allocation (restart 9 of at most 9)\n" SECOND(9, 0)),
    ROW("bare, none is left", "", ENV_RESTART_COUNT "=9", 85, JOB_FAILED,
        STARTS "accel: job 12 " SAVED
               "; not restarted: the limit of restarts is reached "
               "(accel.preemption.max_restarts)" TO_RUN),
    ROW("resubmit: false", "resubmit: false", "", 85, JOB_FAILED,
        STARTS "accel: job 12 " SAVED
               "; not restarted: accel.preemption.resubmit is false" TO_RUN),
    BARE("--pty", 85, JOB_FAILED,
         "accel: job 12 " SAVED
         "; not restarted: the step has a terminal (--pty)" TO_RUN_PTY,
         .option = "--pty"),
    IN_BATCH("in salloc", 85, JOB_RUNNING,
             "accel: job 12 " SAVED
             "; not restarted: srun did not create the allocation" TO_RUN),

    /* ---- what the ranks have reported */
    IN_BATCH("preempted after a save", 1, JOB_RUNNING,
             "accel: job 12: preempted with exit code 1; it can resume from step 40, "
             "which it saved last\n" REQUEUE
             "accel: job 12 was preempted (exit 1); requeued as restart 1 of at most "
             "9\n",
             .job = { BATCHED, .preempt_time = 5 },
             .reports = "opened /data/out\nsaved 20\nsaved 40\n"),
    IN_BATCH("preempted, with a job that has not saved", 143, JOB_RUNNING,
             "accel: job 12: preempted with exit code 143" UNSAVED REQUEUE
             "accel: job 12 was preempted (exit 143); requeued as restart 1 of at most "
             "9\n",
             .job = { BATCHED, .preempt_time = 5 },
             .reports = "opened /data/out\nsaved 4x\nsaved -1\nsaved \nsaved\n"),
    IN_BATCH("an exception", 143, JOB_RUNNING, FIRST, .job = { BATCHED },
             .error = SHAPE, .own_code = 1),
    BARE("bare, an exception", 143, JOB_FAILED, FIRST, .error = SHAPE, .own_code = 1),
    BARE("bare, an exception at the end of a stop", 85, JOB_FAILED,
         FIRST "accel: job 12 " SAVED AGAIN SECOND(1, 0), .error = SHAPE),
    BARE("bare, an exception of a run that is stopped for good", 75, JOB_FAILED, FIRST,
         .error = SHAPE),
    BARE("an exception, and the step ended well", 0, JOB_COMPLETE, "", .error = SHAPE),
    BARE("an exception that is no JSON", 143, JOB_FAILED, "",
         .error = "{\"message\": "),
    ROW("an exception, enabled: false", "enabled: false", BATCH, 143, JOB_RUNNING,
        STARTS FIRST, .job = { BATCHED }, .error = SHAPE, .own_code = 1),
    BARE("killed", 143, JOB_FAILED,
         LOST "killed by SIGKILL (out of memory, or cancelled)\n", .end = "9 50 n1",
         .own_code = 137),
    BARE("ended with a code", 143, JOB_FAILED, LOST "exited with code 3\n",
         .end = "768 50 n1", .own_code = 3),
    ROW("killed, enabled: false", "enabled: false", BATCH, 143, JOB_RUNNING,
        STARTS LOST "killed by SIGSEGV\n", .job = { BATCHED }, .end = "11 50 n1",
        .own_code = 139),
    BARE("killed, and the controller does not answer", 143, JOB_FAILED,
         LOST "killed by SIGSEGV\n", .end = "11 50 n1", .own_code = 139,
         .answers = NOTHING),
    BARE("a code, and the step ended well", 0, JOB_COMPLETE, "", .end = "768 50 n1"),
    BARE("a code, and the step was cancelled", 143, JOB_CANCELLED, "",
         .end = "768 50 n1"),
    ROW("a code, cancelled, enabled: false", "enabled: false", BATCH, 143,
        JOB_CANCELLED, STARTS, .job = { BATCHED }, .end = "768 50 n1"),
    BARE("a code and an exception, cancelled", 143, JOB_CANCELLED, FIRST,
         .end = "768 50 n2", .error = SHAPE, .own_code = 3),
    IN_BATCH("a code, and preempted", 143, JOB_RUNNING,
             "accel: job 12: preempted with exit code 143" UNSAVED REQUEUE
             "accel: job 12 was preempted (exit 143); requeued as restart 1 of at most "
             "9\n",
             .job = { BATCHED, .preempt_time = 5 }, .end = "768 50 n1"),
    ROW("trainer, and no job", TRAINER, "ACCEL_ROOT=/none", 0, JOB_COMPLETE,
        NO_SITE STARTS NO_TRAINER),
    ROW("trainer, and a job", TRAINER, "ACCEL_ROOT=/none", 0, JOB_COMPLETE,
        NO_SITE STARTS, .reports = "opened /data/out\n"),
    ROW("trainer, and an exception before the job", TRAINER, "ACCEL_ROOT=/none", 143,
        JOB_FAILED, NO_SITE STARTS FIRST, .error = SHAPE, .own_code = 1),

    /* ---- srun is told to end */
    BARE("SIGTERM, 85", 85, JOB_FAILED,
         "accel: srun received SIGTERM: the tasks have 7 s to save and end; a "
         "second signal ends them at once\nsignal 15 to step 12.3\nwaits 7000 ms\n"
         "srun kills the tasks\naccel: job 12 " SAVED
         "; not restarted: srun received SIGTERM" TO_RUN,
         .raises = SIGTERM),
    BARE("SIGHUP, and the step is not up at once", 85, JOB_FAILED,
         "accel: srun received SIGHUP: the tasks have 7 s to save and end; a "
         "second signal ends them at once\nsignal 15 to step 12.3\nwaits 300 ms\n"
         "signal 15 to step 12.3\nwaits 300 ms\nsignal 15 to step 12.3\nwaits 7000 "
         "ms\nsrun kills the tasks\naccel: job 12 " SAVED
         "; not restarted: srun received SIGHUP" TO_RUN,
         .raises = SIGHUP, .refusals = 2),
    BARE("SIGTERM, and the step cannot be told", 143, JOB_FAILED,
         "accel: srun received SIGTERM: the tasks have 7 s to save and end; a "
         "second signal ends them at once\nsignal 15 to step 12.3\nwaits 300 ms\n"
         "signal 15 to step 12.3\nwaits 300 ms\nsignal 15 to step 12.3\nwaits 300 "
         "ms\nsignal 15 to step 12.3\nwaits 300 ms\nsignal 15 to step 12.3\nwaits "
         "300 ms\nsrun kills the tasks\naccel: job 12 stopped (exit 143); not "
         "restarted: srun received SIGTERM" TO_RUN,
         .raises = SIGTERM, .refusals = 9, .end = "768 50 n1"),

    /* ---- a step that may not run: in an allocation it has cores, and gives them back */
    ROW("bare, a wrong size", "", "", 1, JOB_RUNNING, SIZE "the step is refused\n",
        .tasks = 3),
    ROW("a wrong size", "", BATCH, 1, JOB_RUNNING, SIZE STARTS "its tasks refuse\n",
        .tasks = 3),
    ROW("no size", "", "SLURM_JOB_ID=12", 1, JOB_RUNNING,
        NO_SIZE STARTS "its tasks refuse\n", .no_layout = true),
    ROW("bare, no size", "", "", 1, JOB_RUNNING, NO_SIZE "the step is refused\n",
        .no_layout = true),

    /* ---- before the step: notes of the config, and what of the user's is kept */
    ROW("two notes, a line each", "enabled: true", USERS, 0, JOB_COMPLETE,
        NOTES STARTS),
    ROW("two notes, and -Q", "enabled: true", USERS, 0, JOB_COMPLETE, STARTS,
        .option = "-Q"),
    ROW("two notes, and -lu, letters without a value", "enabled: true", USERS, 0,
        JOB_COMPLETE, NOTES STARTS, .option = "-lu"),
    IN_BATCH("nothing is known of the job", 0, JOB_COMPLETE, "", .silent = true),
    EXPORT("ALL", KEPT(" MASTER_ADDR=h MASTER_PORT=77")),
    EXPORT("NONE", ""),
    EXPORT("MASTER_ADDR", KEPT(" MASTER_ADDR=h")),
    EXPORT("NOTHING,MASTER_ADDR", KEPT(" MASTER_ADDR=h")),
    EXPORT("MASTER_ADDR=g", KEPT(" MASTER_ADDR=g")),
    EXPORT("MASTER_ADDR=g,MASTER_PORT", KEPT(" MASTER_ADDR=g MASTER_PORT=77")),
    EXPORT("ALL,MASTER_ADDR=g", KEPT(" MASTER_ADDR=g MASTER_PORT=77")),
    EXPORT("MASTER_ADDR_TOO,MASTER", ""),
    EXPORT("ALLES,MASTER_POR", ""),
};

const size_t srun_row_count = ACCEL_ARRAY_SIZE(srun_rows);
