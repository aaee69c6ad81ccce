/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_open and accel_close: config, bootstrap, topology, backend and collectives are
 * set up in this order and taken down in reverse order.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "preemption/preemption.h"
#include "place/place.h"
#include "loader/loader.h"
#include "state/save/staging.h"
#include "state/state.h"
#include "training/fp8_scaling.h"
#include "run/run_impl.h"
#include "loop/loop.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "backend/cuda_load.h"
#include "common/env_names.h"
#include "common/sized.h"
#include "handle/run.h"

/* Milliseconds; the first two are defaults of ACCEL_BOOT_TIMEOUT_MS and
 * ACCEL_COMM_TIMEOUT_MS. */
#define BOOT_TIMEOUT_MS 120000
#define COMM_TIMEOUT_MS 600000

/* OMP_NUM_THREADS counts when the user has set it. The launcher sets it as Accelerate
 * does, as a rule to 1, which is meant for Python's workers; it leaves a mark with the
 * same value. */
static long user_threads(void)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    const char *mark = getenv(ENV_OMP_THREADS);

    return threads && mark && !strcmp(threads, mark) ? 0
                                                     : env_long("OMP_NUM_THREADS", 0);
}

/* The option, else the user's variable, else the cores that this rank was granted. */
static int choose_threads(const accel_t *run, const accel_options_t *o)
{
    long asked = o->threads > 0 ? o->threads : user_threads();

    if (asked < 1)
        asked = place_cores(run);
    return asked < 1 ? 1 : asked > 1024 ? 1024 : (int)asked;
}

/* One matrix product that fills every thread's workspace (packed operands), so that it
 * is counted in the memory of the process before the model, and the plan is right from
 * the start. */
static accel_status_t warm_up(accel_t *run, accel_error_t *err)
{
    enum { M = 512, N = 384, K = 1024 };
    const struct backend *be = run->backend;
    accel_dtype_t t = run->graph.compute;
    size_t one = accel_dtype_bytes(t), n = (size_t)N * (size_t)run->place.threads * 2;
    struct arena *arena = NULL;
    struct gemm g = { .m = M,
                      .n = (int64_t)n,
                      .k = K,
                      .trans_b = true,
                      .lda = K,
                      .ldb = K,
                      .ldc = (int64_t)n };
    void *a, *b, *c;
    accel_status_t st;

    ACCEL_CHECK(st, arena_open(&arena, be, err));
    a = arena_alloc(arena, M * K * one);
    b = arena_alloc(arena, n * K * one);
    c = arena_alloc(arena, M * n * one);
    if (a && b && c) {
        be->fill(be, a, t, M * K, 0.0f);
        be->fill(be, b, t, (int64_t)n * K, 0.0f);
        g.a = a;
        g.b = b;
        g.c = c;
        g.a_type = g.b_type = g.c_type = t;
        be->gemm(be, &g);
    } else {
        st = accel_fail_nomem(err, "the workspace", (M * K + n * K + M * n) * one);
    }
    ACCEL_TRY(st, be->sync(be, err));
    arena_close(arena);
    return st;
}

/* Collective. A failure that all ranks have in common is reported once per node, by its
 * first rank. */
static void tell_once(accel_t *run, accel_error_t *err)
{
    if (run->boot.local_rank > 0 && err)
        err->text[0] = err->hint[0] = '\0';
    boot_end_after_speaker(&run->boot, run->boot.local_rank == 0);
}

/* Is the device that CUDA opened the GPU that this rank was given? CUDA numbers devices
 * by speed unless CUDA_DEVICE_ORDER says otherwise. */
static accel_status_t check_device(const accel_t *run, accel_error_t *err)
{
    const char *given = run->place.topo.device[0].bus_id,
               *opened = run->backend->bus_id;

    if (!given[0] || !opened || strcasecmp(given, opened) == 0)
        return ACCEL_OK;
    return accel_fail_at(err, A0414, run->boot.host,
                         "export CUDA_DEVICE_ORDER=PCI_BUS_ID before srun",
                         "rank %d was given the GPU %s, but CUDA's device %d is %s",
                         run->boot.rank, given, run->place.first_device, opened);
}

/* Kernels on the GPUs that were given, else on the cores. All ranks have one outcome: a
 * GPU that cannot be used is never replaced by the CPU. */
static accel_status_t open_compute(accel_t *run, int timeout_ms, accel_error_t *err)
{
    struct comm_options o = { .root = run->comm,
                              .timeout_ms = timeout_ms,
                              .backend = "nccl" };
    accel_status_t st;

    if (run->place.topo.devices == 0)
        return backend_cpu_open(&run->backend, run->place.threads, err);
    st = backend_cuda_open(&run->backend, run->place.first_device, err);
    ACCEL_TRY(st, check_device(run, err));
    ACCEL_TRY(st, run->backend->reserve_workspace(run->backend, err));
    st = run_agree(run, st, err);
    if (st != ACCEL_OK || run->boot.size == 1)
        return st;
    o.device = run->backend;
    /* Sums in rank order are the default: the same bits whatever NCCL's topology. */
    o.library_sums = run->config.sums == SUMS_NCCL;
    o.nodes_first = run->config.sums == SUMS_NODES;
    return comm_open(&run->data, &run->boot, &o, err);
}

static accel_status_t open_mesh(accel_t *run, accel_error_t *err)
{
    const struct mesh_comms c = { .host = run->comm,
                                  .device = run->data,
                                  .be = run->backend,
                                  .offloads = run_offloads(run) };

    return mesh_open(&run->mesh, &run->config, &run->boot, &c, err);
}

/* boot_leave comes after all communicators, which open through the bootstrap. */
static accel_status_t open_stages(accel_t *run, const accel_options_t *o,
                                  accel_error_t *err)
{
    struct comm_options comm = { .timeout_ms = COMM_TIMEOUT_MS };
    accel_status_t st;

    comm.timeout_ms = (int)env_long(ENV_COMM_TIMEOUT, COMM_TIMEOUT_MS);
    ACCEL_CHECK(st, boot_open(&run->boot,
                              (int)env_long(ENV_BOOT_TIMEOUT, BOOT_TIMEOUT_MS), err));
    /* only rank 0 says what goes well */
    if (run->boot.rank != 0)
        run->log.level = ACCEL_LOG_WARN;
    st = settings_open(run, o, err);
    if (st == ACCEL_OK) {
        st = settings_check(run, err);
        if (st != ACCEL_OK)
            tell_once(run, err);
    }
    ACCEL_TRY(st, place_open(run, err));
    if (st == ACCEL_OK) {
        comm.net_devices = place_net_devices(run);
        comm.nodes_first = run->config.sums == SUMS_NODES;
        st = comm_open(&run->comm, &run->boot, &comm, err);
    }
    ACCEL_TRY(st, settings_same_on_all(run, o, err));
    ACCEL_TRY(st, place_print(run, err));
    if (st != ACCEL_OK)
        return st;
    /* After place_open, which knows the cores of this rank. */
    run->place.threads = choose_threads(run, o);
    /* Every parallel region of this thread, the optimizer's too, keeps to the
     * rank's cores: one more worker per rank waits actively and takes a core from
     * another rank. */
    run->place.threads_before = omp_get_max_threads();
    omp_set_num_threads(run->place.threads);
    st = open_compute(run, comm.timeout_ms, err);
    ACCEL_TRY(st, open_mesh(run, err));
    if (st == ACCEL_OK)
        throttle_open(run);
    ACCEL_TRY(st, boot_leave(&run->boot, err));
    if (st != ACCEL_OK)
        return st;
    st = graph_open(&run->graph, run->backend, precision_of(&run->config).compute,
                    false, err);
    run->graph_open = st == ACCEL_OK;
    return st == ACCEL_OK ? warm_up(run, err) : st;
}

/* Also what accel_open has left half open: every call copes with NULL or zeros. */
static void free_run(accel_t *run)
{
    if (run->place.threads_before > 0)
        omp_set_num_threads(run->place.threads_before);
    /* First: work on the device may wait for a peer that is gone. */
    mesh_close(&run->mesh);
    comm_close(run->data);
    loaders_close(run);
    background_close(run);
    staging_close(run);
    shard_close(run->shard);
    units_free(&run->units);
    own_units_free(run);
    fp8_scales_free(run);
    hooks_free(run);
    registered_free(run);
    if (run->graph_open) {
        graph_close(&run->graph);
        for (int i = 0; i < run->trees; i++) {
            nn_module_free(run->tree[i]);
            free(run->tree_from[i]);
        }
    }
    if (run->backend)
        host_batch_close(&run->loop.host, run->backend);
    backend_close(run->home);
    backend_close(run->backend);
    comm_close(run->comm);
    boot_free(&run->boot);
    state_identity_free(run);
    free(run->config_set);
    lines_close(&run->observe.file);
    track_close(&run->track);
    lease_drop(&run->preemption);
    throttle_close(run);
    place_undo(run);
    descriptors_restore(run);
    free(run);
}

/* Device memory used before the model, by anybody: all that is not in our books. */
static int64_t device_base(const struct backend *be)
{
    struct backend_usage u;
    int64_t bytes;

    if (!be->usage)
        return 0;
    be->usage(be, &u);
    bytes = (int64_t)u.used;
    for (int k = 0; k < MEMORY_KINDS; k++)
        bytes -= (int64_t)u.held[k];
    return bytes > 0 ? bytes : 0;
}

/* Descriptors and signals first: the bootstrap needs many connections, and a warning
 * may come while it waits. base_bytes is measured last, when all libraries have
 * their buffers. */
accel_status_t accel_open(accel_t **run_out, const accel_options_t *options,
                          accel_error_t *err)
{
    accel_options_t own;
    accel_status_t st;
    accel_t *run;

    if (!run_out)
        return accel_fail(err, A0901, "pass the address of an accel_t *",
                          "accel_open: run_out is NULL");
    ACCEL_CHECK(st, sized_read(SIZED(accel_options_t, set), &own, options, err));
    run = calloc(1, sizeof(*run));
    if (!run)
        return accel_fail_nomem(err, "the run", sizeof(*run));
    run->observe.file.fd = -1;
    /* Zero is a descriptor, and a step that could have been saved: both need
     * another "none". */
    run->preemption.lease.fd = -1;
    run->progress.saved_step = -1;
    run->log.level = ACCEL_LOG_INFO;
    run->log.fn = own.log;
    run->log.user = own.log_user;
    snprintf(run->run_name, sizeof(run->run_name), "%s",
             own.run_name ? own.run_name : "run");
    run->preemption.incarnation = incarnation_read();
    descriptors_raise(run);
    notice_read(&run->preemption);
    settings_early_signals(run);
    st = open_stages(run, &own, err);
    if (st != ACCEL_OK) {
        if (err)
            run_tell(run, st, err);
        signals_restore();
        free_run(run);
        return st;
    }
    run->on_ready = stop_announce_pending;
    run->on_failure = loaders_blame;
    run->graph.run = run;
    run->track.inside = &run->graph.inside;
    run->graph.log = &run->log;
    run->base_bytes = observe_memory(NULL);
    run->device_base_bytes = device_base(run->backend);
    /* now with the whole config; until here only what srun resolved was known */
    signals_install(&run->preemption.rules);
    *run_out = run;
    return ACCEL_OK;
}

/* Returns the first failure of the run, so that a program that looks only here still
 * learns of it. A forward that failed may be why this rank closes: whoever waits for
 * its backward then learns it. */
accel_status_t accel_close(accel_t *run, accel_error_t *err)
{
    accel_status_t st;

    if (!run)
        return ACCEL_OK;
    if (run->attempting)
        return accel_fail(err, A0901, "call it when the function has returned",
                          "accel_close inside the attempt of accel_find_batch_size");
    ACCEL_CHECK(st, run_outside(run, "accel_close", err));
    st = run->status;
    if (st != ACCEL_OK && err)
        *err = run->failure;
    if (st == ACCEL_OK)
        run_tell(run, run->graph.error.code, &run->graph.error);
    /* A rank that ends with a failure commits nothing: the others may be elsewhere. */
    if (st == ACCEL_OK && run->graph.error.code == ACCEL_OK) {
        accel_error_t e = { 0 };

        st = save_finish(run, &e);
        ACCEL_TRY(st, staging_finish(run, &e));
        st = run_report(run, st, &e, err);
    }
    /* while a signal can still call their threads home */
    loaders_rest(run);
    signals_restore();
    free_run(run);
    return st;
}
