/* SPDX-License-Identifier: Apache-2.0
 *
 * run/: the handle behind accel_t, which ties the stages together. It is made of one struct
 * per room (place, life, state, loop); their files include this header, programs never do.
 */
#ifndef ACCEL_RUN_H
#define ACCEL_RUN_H

#include "bootstrap/boot.h"
#include "comm/comm.h"
#include "common/common.h"
#include "config/config.h"
#include "life/life.h"
#include "loop/loop.h"
#include "nn/nn.h"
#include "observe/observe.h"
#include "place/place.h"
#include "plan/plan.h"
#include "shard/shard.h"
#include "state/state.h"
#include "tensor/graph.h"

struct backend;

#define RUN_MAX_TREES 16
#define RUN_MAX_HOOKS 8

struct gradient_hook {
    char *match; /* glob of parameter names; NULL: every parameter */
    accel_gradient_f fn;
    void *user;
};

struct accel {
    /* set by accel_open */
    struct config config;
    const char *config_source; /* file, "srun" or "built-in" */
    char config_path[1024];
    struct accel_log log; /* its level depends on the rank */
    struct boot boot;
    struct place place;
    unsigned long long files_before; /* soft limit of open files; 0: not raised */
    struct comm *comm;               /* all ranks */
    struct comm *data; /* collectives on device memory; NULL: `comm` does them */
    struct comm *group, *copies, *reduce; /* meshes.c; NULL: not needed */
    struct backend *backend;
    struct backend *home; /* the CPU, for offloaded shards; NULL: not offloaded */
    struct graph graph;
    bool graph_open;
    char run_name[128];

    /* set by the program between accel_open and accel_prepare */
    accel_module_t *tree[RUN_MAX_TREES];
    int trees;
    accel_unit_t **own; /* units of own compute */
    int own_units;
    struct gradient_hook hook[RUN_MAX_HOOKS];
    int hooks;

    /* set by accel_prepare */
    bool prepared;
    accel_job_t job; /* strings point to the members below */
    char out_dir[1024];
    char ckpt_dir[2048];
    struct units units;
    struct shard *shard;
    struct plan plan;
    struct observe observe;
    int64_t base_bytes;        /* memory of the process before the model */
    int64_t device_base_bytes; /* device memory in use that we did not allocate */
    struct progress progress;
    struct loop loop;
    struct life life;

    accel_status_t status; /* first failure; ACCEL_OK while running */
    accel_error_t failure;
};

/* ---- status.c -------------------------------------------------------------------- */

/* Keeps the first failure in the run, copies it to `err` (may be NULL), returns st. */
accel_status_t run_report(accel_t *run, accel_status_t st, const accel_error_t *e,
                          accel_error_t *err);
/* ACCEL_EINVAL if the program passed no run. */
accel_status_t run_given(const accel_t *run, const char *call, accel_error_t *err);
/* For calls that are allowed only between accel_prepare and the first failure, and not
 * inside a module's forward, because they begin and end micro-batches. */
accel_status_t run_ready(accel_t *run, const char *call, accel_error_t *err);
/* Gives all ranks one outcome: the worst `st` of any rank. A rank that did not report it
 * itself gets it with an empty error. Collective. */
accel_status_t run_agree(accel_t *run, accel_status_t st, accel_error_t *err);

/* Where the shards live. */
static inline const struct backend *run_home(const accel_t *run)
{
    return run->home ? run->home : run->backend;
}

/* ---- meshes.c: communicators of the sharding strategy ---------------------------- */

/* Needs the first communicators, which must outlive the meshes. Collective. */
accel_status_t meshes_open(accel_t *run, accel_error_t *err);
void meshes_close(accel_t *run);

/* ---- prepare.c ------------------------------------------------------------------- */

/* True if masters, optimizer state and gradients live on the host. */
bool run_offloads(const accel_t *run);

/* ---- descriptors.c: the soft limit of open files, raised while the run is open --- */

void descriptors_raise(accel_t *run);
void descriptors_restore(const accel_t *run);

/* ---- own_compute.c --------------------------------------------------------------- */

/* Lays out the units that the program declared. A0609: there are none. */
accel_status_t own_units_build(accel_t *run, struct units *units_out,
                               accel_error_t *err);
void own_units_free(accel_t *run);
/* A0912 if the program still holds one of them. */
accel_status_t own_units_done(const accel_t *run, accel_error_t *err);

/* ---- planning.c ------------------------------------------------------------------ */

/* Makes and prints run->plan. A0904: it does not fit. */
accel_status_t plan_make(accel_t *run, accel_error_t *err);

/* ---- groups.c -------------------------------------------------------------------- */

/* Assigns the job's parameter groups to the parameters of run->units. A0911. */
accel_status_t groups_apply(accel_t *run, accel_error_t *err);
/* A number that identifies the set of trained parameters. */
uint64_t groups_trained(const accel_t *run);

/* ---- hooks.c --------------------------------------------------------------------- */

/* Calls the program's hooks with the gradients of this step. */
accel_status_t hooks_call(accel_t *run, accel_error_t *err);
void hooks_free(accel_t *run);

#endif
