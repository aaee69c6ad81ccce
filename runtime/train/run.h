/* SPDX-License-Identifier: Apache-2.0
 *
 * train/: the run, the object that ties the stages together. This header is the inside of
 * accel_t, shared by the files of this stage only.
 */
#ifndef ACCEL_TRAIN_RUN_H
#define ACCEL_TRAIN_RUN_H

#include "bootstrap/boot.h"
#include "comm/comm.h"
#include "common/common.h"
#include "config/config.h"
#include "data/data.h"
#include "nn/nn.h"
#include "observe/observe.h"
#include "plan/plan.h"
#include "shard/shard.h"
#include "tensor/graph.h"
#include "topology/topo.h"

struct backend;

#define RUN_MAX_TREES 16
#define RUN_MAX_HOOKS 8

struct gradient_hook {
    char *match; /* NULL: every parameter */
    accel_gradient_f fn;
    void *user;
};

/* Which life of a job this is: the same job after a requeue, a later job after srun asked
 * for a new allocation. */
struct incarnation {
    long job, first_job, restart; /* 0, 0, 0: not in a Slurm job */
};

/* history.c: what the checkpoint directory says of the lives before. Rank 0's. */
struct history {
    int64_t restarts;    /* of this job so far */
    double save_seconds; /* of the last checkpoint; 0: not known */
    int64_t saves;       /* in this life */
    char reason[32];     /* why the last life stopped; empty: it did not say */
    bool broken;         /* cannot be written, warned of */
};

/* notice.c: the time between a preemption's notice and the kill. Rank 0's. */
struct notice {
    bool known, checked;
    char partition[64], mode[16];
    long long grace, kill_wait; /* seconds; grace < 0: not known */
};

struct accel {
    struct config config;
    const char *config_source; /* file, "srun" or "built-in" */
    char config_path[1024];
    struct accel_log log; /* level set by rank */
    struct boot boot;
    struct topo_place topo;
    char mask_before[TOPO_MASK]; /* what the threads had before they were bound; empty:
                                    they were not */
    const char *unbound;         /* why not; NULL */
    int threads;
    unsigned long long files_before; /* the soft limit of open files; 0: not changed */
    int threads_before; /* OpenMP's setting when the run was opened; 0: not changed */
    int first_device;   /* of this rank, among the visible ones */
    bool chosen;        /* nobody gave the GPU: the run took it */
    char choice
        [320]; /* which GPU was taken, or why none; empty: not this run's choice */
    char *
        list_before; /* CUDA_VISIBLE_DEVICES, where it was narrowed; NULL: it was not */
    bool no_list_before;
    struct topo_watch *watch; /* of this rank's GPU; NULL: none, or it does not tell */
    unsigned slow;            /* why its clocks were down when it was last looked at */
    struct comm *comm;        /* what the ranks tell each other */
    struct comm *data; /* collectives on a device's memory; NULL: `comm` does them */
    struct comm *group, *copies, *reduce; /* meshes.c; NULL: not needed */
    struct backend *backend;
    struct backend
        *home; /* the CPU, where offloaded shards live; NULL: not offloaded */
    struct graph graph;
    bool graph_open;
    char run_name[128];

    accel_module_t *tree[RUN_MAX_TREES];
    int trees;

    accel_unit_t **own; /* units that the program declared */
    int own_units;

    struct gradient_hook hook[RUN_MAX_HOOKS];
    int hooks;

    /* set by accel_prepare */
    bool prepared;
    accel_job_t job; /* strings point to the members below */
    char out_dir[1024];
    char ckpt_dir[2048];
    struct incarnation incarnation;
    struct history history;
    struct notice notice;
    int lease_fd;    /* rank 0: the lock of ckpt_dir; -1: none */
    char lease[256]; /* rank 0: what the lock's file says */
    bool lease_warned;
    bool announced;   /* what Ctrl-C does */
    char run_id[512]; /* identity: what must agree to resume */
    struct units units;
    struct shard *shard;
    struct plan plan;
    struct observe observe;
    char *host_batch; /* a micro-batch on its way to the backend */
    size_t host_batch_bytes;
    int64_t batch_at[DATA_MAX_FIELDS]; /* where each field begins in it */
    int64_t base_bytes;                /* memory of the process before the model */
    int64_t device_base_bytes; /* of the device, used by all, without our books */

    /* progress; everything below is part of a checkpoint or follows from it */
    int64_t step;     /* optimizer steps done */
    int64_t cursor;   /* training samples consumed by all ranks */
    int micro;        /* micro-batches done in the current step */
    double loss_sum;  /* of the micro-batches of this step, this rank */
    bool in_micro;    /* a micro-batch is open: its backward has to come */
    bool in_backward; /* and has begun (units) */

    bool resumed;         /* weights and progress came from a checkpoint */
    int64_t saved_step;   /* newest checkpoint in ckpt_dir; -1: none */
    int64_t failed_saves; /* in a row */
    int64_t last_save_ns, step_start_ns;
    accel_status_t status; /* first failure; ACCEL_OK while running */
    accel_error_t failure;
};

/* Keeps the first failure in the run, copies it to `err` (may be NULL), returns status. */
accel_status_t run_report(accel_t *run, accel_status_t status, const accel_error_t *e,
                          accel_error_t *err);
/* ACCEL_EINVAL where the program has no run. */
accel_status_t run_given(const accel_t *run, const char *call, accel_error_t *err);
/* Tasks that may be called only between accel_prepare and the first failure, and not by the
 * forward of a module: they begin and end micro-batches. */
accel_status_t run_ready(accel_t *run, const char *call, accel_error_t *err);
/* One outcome for all ranks: the worst `st` of them. A rank that was fine itself, or that
 * is not the first with that status, gets it with an empty error. Collective. */
accel_status_t run_agree(accel_t *run, accel_status_t st, accel_error_t *err);

/* Where the shards live. */
static inline const struct backend *run_home(const accel_t *run)
{
    return run->home ? run->home : run->backend;
}

/* ---- place.c: GPU, cores and interface of every rank ---------------------------------- */
/* Collective, before anything large is allocated: fills run->topo and binds the process.
 * All ranks fail together; one of them says why. */
accel_status_t place_open(accel_t *run, accel_error_t *err);
void place_undo(accel_t *run);
/* place_choose.c: may a run whose config does not say CPU look for a GPU by itself? */
bool place_may_choose(const accel_t *run);
/* Takes one into `own`, or none; run->choice says which or why. */
void place_choose(accel_t *run, const struct topo_gpus *gpus, struct topo_rank *own);
/* meshes.c: collective. The first communicators are open and stay open for longer. */
accel_status_t meshes_open(accel_t *run, accel_error_t *err);
void meshes_close(accel_t *run);
/* prepare.c: masters, state and gradients live on the host. */
bool run_offloads(const accel_t *run);
/* Interfaces to offer to UCX, NULL: all, or what the user told it. */
const char *place_net_devices(const accel_t *run);
/* Collective: rank 0 logs the map. */
accel_status_t place_print(accel_t *run, accel_error_t *err);

/* throttle.c: warns when this rank's GPU is slowed down by heat or power at the start, and
 * later when that changes. `throttle_check` is called where a step's line is due, while the
 * GPU works: the step does not wait for the answer. */
void throttle_open(accel_t *run);
void throttle_check(accel_t *run);
void throttle_close(accel_t *run);

/* ---- descriptors.c: the soft limit of open files, raised while the run is open -------- */
void descriptors_raise(accel_t *run);
void descriptors_restore(const accel_t *run);

/* ---- signals.c: the preemption flag ------------------------------------------------- */
/* Installs handlers for SIGTERM and the config's signal where the disposition is the
 * default, or ignored by accel's own doing. A second call keeps what the first one
 * installed, and a signal that came. */
void signals_install(const struct config *cfg);
void signals_restore(void);
/* From here on the first SIGINT asks to stop, and the second one ends the process at once;
 * where the disposition is the default. Until signals_leave_interrupt. */
void signals_take_interrupt(const struct config *cfg);
/* The ranks have agreed to stop for `sig`, which this one may not have got yet. */
void signals_agreed(int sig);
void signals_leave_interrupt(void);
/* Number of the signal that asked to stop, 0 if none. Async-signal-safe, any thread. */
int signals_pending(void);

/* ---- warning.c: the warning that accel asked Slurm for ------------------------------- */
/* Did accel ask for this signal, and start this task with it ignored? */
bool warning_is_ours(int sig);
/* Call once `sig` is handled. A warning that may have come before, while it was ignored,
 * then comes at the time when it was due. Idempotent. */
void warning_arm(int sig);
void warning_disarm(void);

/* ---- state.c: identity of a run and the trainer blob -------------------------------- */
accel_status_t state_identity(accel_t *run, accel_error_t *err);
/* Refuses ranks that were started with different jobs, models or configs, naming what
 * differs: they would train on different things without a sign of it. Collective. */
accel_status_t state_same_on_all(accel_t *run, accel_error_t *err);
/* Text of the trainer state; *out is one malloc. */
accel_status_t state_encode(const accel_t *run, char **out, size_t *bytes,
                            accel_error_t *err);
/* Is the optimizer state of the checkpoint what this run's optimizer wants? */
accel_status_t state_check_optimizer(const accel_t *run, const char *dir,
                                     const char *text, size_t bytes,
                                     accel_error_t *err);
/* Restores step and cursor; warns about settings that differ. */
accel_status_t state_decode(accel_t *run, const char *text, size_t bytes,
                            accel_error_t *err);

/* ---- units.c -------------------------------------------------------------------------- */
/* The units that the program declared, laid out. A0609: there are none. */
accel_status_t own_units_build(accel_t *run, struct units *out, accel_error_t *err);
void own_units_free(accel_t *run);
/* A0912 when one of them is still wanted. */
accel_status_t own_units_done(const accel_t *run, accel_error_t *err);

/* ---- planning.c ------------------------------------------------------------------------ */
/* run->plan, printed. A0904: it does not fit. */
accel_status_t plan_make(accel_t *run, accel_error_t *err);

/* ---- groups.c ------------------------------------------------------------------------- */
/* Hands the groups of the job to the parameters of run->units. A0911. */
accel_status_t groups_apply(accel_t *run, accel_error_t *err);
/* A number that tells which parameters are trained. */
uint64_t groups_trained(const accel_t *run);

/* ---- save.c: checkpoints through libaccelckpt ---------------------------------------- */
/* Collective; every rank gets the same status. The step before stays as it was. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err);
/* The same in the middle of a run: a save that fails (disk full) is counted and warned of,
 * and the training goes on with the older checkpoint. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err);
/* The same at the end of a life, where nothing saves after it: one that fails is tried
 * again, 4 times in all within 7 s of pauses; then it is the run's error. */
accel_status_t save_last(accel_t *run, accel_error_t *err);
/* ---- resume.c: what the run goes on from ------------------------------------------------ */
/* As ACCEL_RESUME says: the newest intact checkpoint of this run, none, or another one;
 * ACCEL_OK with step 0 and `resumed` false when it starts from the beginning. Goes back to an
 * older one only from proven damage, and moves that aside; what cannot be read now, or has
 * another format, is an error. Never deletes or overwrites a checkpoint. Collective. */
accel_status_t resume_run(accel_t *run, accel_error_t *err);

/* Place in the global sample order of the first sample that `rank` takes in micro-batch
 * `micro` of a step that starts at `cursor`: in each micro-batch the ranks take `batch`
 * samples one after another. With micro = the number of micro-batches and rank 0: where
 * the next step starts, whatever its number of ranks. */
static inline int64_t run_first_sample(int64_t cursor, int micro, int world, int rank,
                                       int batch)
{
    return cursor + ((int64_t)micro * world + rank) * batch;
}

/* ---- history.c: the lives of a job, kept beside its checkpoints ----------------------- */
struct incarnation incarnation_read(void);
/* Reads what is there. ACCEL_ESTOPPED when this restart is one too many. */
accel_status_t history_start(accel_t *run, accel_error_t *err);
/* One line; a file that cannot be written is warned of once. */
void history_add(accel_t *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Says which restart this is and why, if it is one. */
void history_say(const accel_t *run);

/* ---- notice.c ------------------------------------------------------------------------- */
void notice_read(accel_t *run);
/* Warns, once, when a checkpoint of `seconds` does not fit into the site's times. */
void notice_check(accel_t *run, double seconds);

/* ---- lease.c: one run at a time per checkpoint directory ----------------------------- */
/* Rank 0's alone. Locks run->ckpt_dir, which exists; waits some seconds for a run that is
 * ending. ACCEL_EUNAVAIL names the run that holds it. */
accel_status_t lease_take(accel_t *run, accel_error_t *err);
/* ACCEL_EUNAVAIL when somebody else took over. A file that was removed, emptied or filled with
 * something else is written again; one that cannot be used is warned of, once. */
accel_status_t lease_keep(accel_t *run, accel_error_t *err);
void lease_drop(accel_t *run);

/* ---- stop.c -------------------------------------------------------------------------- */
/* The state is saved and signal `sig` said to stop. ACCEL_ERESUME, or ACCEL_ESTOPPED when
 * the run is not to come back by itself; `err` says why and what comes next. Collective. */
accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err);
const char *stop_signal_name(int sig);
/* After the first Ctrl-C, once, on rank 0: says what happens, and what a second one keeps. */
void stop_announce(accel_t *run, int sig);

/* ---- batch.c ------------------------------------------------------------------------- */
/* Room for a micro-batch on the host. */
accel_status_t batch_open(accel_t *run, accel_error_t *err);
/* Samples first .. first + count of the order of the run, or of the held-out part, into
 * run->host_batch. */
accel_status_t batch_take(accel_t *run, int64_t first, int count, bool held_out,
                          accel_error_t *err);
/* One tensor per field with the first `count` samples of run->host_batch. */
accel_status_t batch_tensors(accel_t *run, int count, accel_tensor_t **batch,
                             accel_error_t *err);

/* ---- hooks.c ------------------------------------------------------------------------- */
/* On the gradients of this step. */
accel_status_t hooks_call(accel_t *run, accel_error_t *err);
void hooks_free(accel_t *run);

/* ---- boxes.c ------------------------------------------------------------------------- */
struct run_boxes {
    accel_ckpt_box_t *all, *shards; /* `all` has `count` boxes */
    size_t count, shard_count;      /* the shards' come first */
    /* On a device the boxes point to host memory: */
    char *image;
    void **device; /* [count] what each of them is a copy of; NULL: of nothing */
};
/* What this rank stores in a checkpoint, or with for_load wants of one, in host memory:
 * the run's own, or a copy of a device's. Free it in either case. */
accel_status_t run_boxes(accel_t *run, bool for_load, struct run_boxes *out,
                         accel_error_t *err);
/* After a load: what was read is in the run's memory. */
void run_boxes_store(accel_t *run, const struct run_boxes *b);
void run_boxes_free(struct run_boxes *b);

#endif
