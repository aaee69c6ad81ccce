/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives every rank its place: GPU, cores, interface. In: what each rank was given, told
 * to all by the bootstrap. Out: run->place.topo, and the process bound to it. Every
 * rank comes to the same verdict: a contradiction ends all of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place/place.h"
#include "config/python/environ.h"
#include "handle/run.h"

/* ---- what this rank was given ---------------------------------------------------- */

/* Fills own->device with the devices that the step gave to this rank. A GPU that was
 * given is used or refused, never ignored: silence would waste it. *first_out: index of
 * the first one among the visible devices. */
static accel_status_t take_devices(const struct boot *b, const struct topo_gpus *gpus,
                                   struct topo_rank *own, int *first_out,
                                   accel_error_t *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int on_node = (int)env_long("SLURM_GPUS_ON_NODE", 0), first = 0;
    accel_status_t st = topo_gpu_map(visible, on_node, b->local_rank, b->local_size,
                                     &first, &own->devices, err);

    if (st != ACCEL_OK || own->devices == 0)
        return st;
    if (!gpus->known)
        return accel_fail_at(err, A0423, b->host,
                             "run nvidia-smi on that node; to train on the CPU, "
                             "request no GPU or set use_cpu: true in the config",
                             "this task was given %d GPU%s, but the "
                             "driver cannot be used: %s",
                             own->devices, own->devices == 1 ? "" : "s", gpus->why);
    st = topo_check_unset(gpus, visible, on_node, err);
    if (own->devices > TOPO_RANK_GPUS)
        own->devices = TOPO_RANK_GPUS;
    for (int i = 0; st == ACCEL_OK && i < own->devices; i++)
        st = topo_visible_device(gpus, visible, first + i, &own->device[i], err);
    *first_out = first;
    return st;
}

/* ---- telling each other ---------------------------------------------------------- */

/* What a rank tells the others, as text: "STATUS DEVICES MASK [BUS-ID ID]...". Only
 * what the map needs of other ranks. */
static void write_card(accel_status_t st, const struct topo_rank *own,
                       struct strbuf *out)
{
    strbuf_printf(out, "%d %d %s", (int)st, own->devices, own->mask);
    for (int i = 0; i < own->devices; i++)
        strbuf_printf(out, " %s %s", own->device[i].bus_id, own->device[i].id);
    strbuf_append(out, "", 1); /* the NUL travels, too */
}

/* Cuts `text` into words, in place. False: not such a card. */
static bool read_card(char *text, size_t bytes, accel_status_t *status_out,
                      struct topo_rank *rank_out)
{
    char *save = NULL, *word[3];

    if (bytes == 0 || text[bytes - 1] != '\0')
        return false;
    for (int i = 0; i < 3; i++)
        if (!(word[i] = strtok_r(i ? NULL : text, " ", &save)))
            return false;
    *status_out = (accel_status_t)strtol(word[0], NULL, 10);
    rank_out->devices = (int)strtol(word[1], NULL, 10);
    snprintf(rank_out->mask, sizeof(rank_out->mask), "%s", word[2]);
    if (rank_out->devices < 0 || rank_out->devices > TOPO_RANK_GPUS)
        return false;
    for (int i = 0; i < rank_out->devices; i++) {
        const char *bus = strtok_r(NULL, " ", &save), *id = strtok_r(NULL, " ", &save);

        if (!bus || !id)
            return false;
        snprintf(rank_out->device[i].bus_id, sizeof(rank_out->device[i].bus_id), "%s",
                 bus);
        snprintf(rank_out->device[i].id, sizeof(rank_out->device[i].id), "%s", id);
    }
    return true;
}

/* Collective: rank_out[size] and status_out[size], what every rank was given and how
 * it fared so far. A rank that failed takes part, too: otherwise the others would
 * wait for it. */
static accel_status_t exchange(struct boot *b, accel_status_t mine,
                               const struct topo_rank *own, struct topo_rank *rank_out,
                               accel_status_t *status_out, accel_error_t *err)
{
    struct boot_blobs all = { 0 };
    struct strbuf card = { 0 };
    accel_status_t st;

    write_card(mine, own, &card);
    if (card.failed) {
        strbuf_free(&card);
        return accel_fail_nomem(err, "the map", sizeof(*own));
    }
    st = boot_exchange(b, card.s, card.len, &all, err);
    for (int r = 0; st == ACCEL_OK && r < b->size; r++)
        if (!read_card(all.data[r], all.bytes[r], &status_out[r], &rank_out[r]))
            st = accel_fail(
                err, A0433, "start all ranks with the same version of accel",
                "rank %d sent its place in a format that this version does not know",
                r);
    boot_blobs_free(&all);
    strbuf_free(&card);
    return st;
}

/* ---- one verdict ----------------------------------------------------------------- */

/* Ends all ranks with st, but only rank `speaker` keeps the text: one
 * message is enough. */
static accel_status_t as_said_by(const struct boot *b, int speaker, accel_status_t st,
                                 accel_error_t *err)
{
    if (err && b->rank != speaker)
        *err = (accel_error_t){ .code = st };
    return st;
}

/* The ranks of a node by local rank: rank_out[] what they were given, world_rank_out[]
 * their ranks. Returns how many. */
static int pick_node(const struct boot *b, int node, const struct topo_rank *rank,
                     struct topo_rank *rank_out, int *world_rank_out)
{
    int n = 0;

    for (int r = 0; r < b->size; r++)
        if (b->node_of[r] == node) {
            rank_out[n] = rank[r];
            world_rank_out[n++] = r;
        }
    return n;
}

/* The verdict on all ranks, the same on each: nobody failed, no device was given twice,
 * and all have GPUs or none has. scratch and world_rank have room for [size]. */
static accel_status_t place_judge(const struct boot *b, const struct topo_rank *rank,
                                  const accel_status_t *status,
                                  struct topo_rank *scratch, int *world_rank,
                                  accel_error_t *err)
{
    for (int r = 0; r < b->size; r++)
        if (status[r] != ACCEL_OK)
            return as_said_by(b, r, status[r], err);
    for (int node = 0; node < b->nodes; node++) {
        int n = pick_node(b, node, rank, scratch, world_rank), a, c;
        accel_status_t st = topo_check_devices(scratch, n, &a, &c, err);

        if (st != ACCEL_OK) {
            if (err)
                snprintf(err->where, sizeof(err->where), "%s", b->host);
            return as_said_by(b, world_rank[a], st, err);
        }
    }
    for (int r = 1; r < b->size; r++)
        if ((rank[r].devices > 0) != (rank[0].devices > 0)) {
            bool has = rank[r].devices > 0;
            accel_status_t st = accel_fail(
                err, A0413,
                "request GPUs on every node (--gpus-per-node), or set use_cpu: true",
                "rank %d has a GPU, but rank %d has none", has ? r : 0, has ? 0 : r);

            return as_said_by(b, r, st, err);
        }
    return ACCEL_OK;
}

/* ---- binding --------------------------------------------------------------------- */

/* Counts the hardware threads in a mask such as "0x0000000f,0xffffffff". */
static long count_bits(const char *mask)
{
    long n = 0;

    for (; *mask; mask++) {
        if (mask[0] == '0' && mask[1] == 'x')
            mask += 2;
        if (*mask >= '0' && *mask <= '9')
            n += __builtin_popcount((unsigned)(*mask - '0'));
        else if (*mask >= 'a' && *mask <= 'f')
            n += __builtin_popcount((unsigned)(*mask - 'a' + 10));
    }
    return n;
}

/* Why binding would do harm, or NULL. */
static const char *why_unbound(const accel_t *run, const char *mask)
{
    long given = env_long("SLURM_CPUS_ON_NODE", 0);

    if (!run->config.topo_bind)
        return "accel.topology.bind is false";
    if (getenv("OMP_PROC_BIND") || getenv("GOMP_CPU_AFFINITY"))
        return "OpenMP's own binding is set";
    if (run->place.topo.shared)
        return "more ranks than cores";
    /* Which CPUs are ours is unknown, and another job may be using the ones
     * we would take. */
    if (given > 0 && given < count_bits(mask))
        return "the job has some of the node's CPUs, but Slurm does not say which";
    return NULL;
}

/* Binds the threads, unless that would do harm. Without permission the run continues
 * unbound: it is only slower. */
static void bind_process(accel_t *run, const char *mask)
{
    accel_error_t err = { 0 };

    run->place.unbound = why_unbound(run, mask);
    if (run->place.unbound || strcmp(mask, run->place.topo.mask) == 0)
        return;
    if (topo_bind(mask, run->place.topo.mask, &err) != ACCEL_OK) {
        accel_logf(&run->log, ACCEL_LOG_WARN, "%s (%s)", err.text, err.hint);
        run->place.unbound = "binding is not allowed";
        return;
    }
    memcpy(run->place.mask_before, mask, sizeof(run->place.mask_before));
}

/* Without cgroups a task sees all CPUs of its node, those of other jobs too. A thread
 * more than was granted waits actively for a core that somebody else computes on. */
int place_cores(const accel_t *run)
{
    long per_task = env_long("SLURM_CPUS_PER_TASK", 0);
    long on_node = env_long("SLURM_CPUS_ON_NODE", 0);
    int cores = run->place.topo.cores > 1 ? run->place.topo.cores : 1;
    int64_t granted = cores;

    if (per_task > 0 || on_node > 0)
        granted = environ_cores(run->boot.local_size, per_task, on_node);
    return granted < cores ? (int)granted : cores;
}

/* ---- the list of visible devices ------------------------------------------------- */

/* Sets CUDA_VISIBLE_DEVICES to this rank's device, before CUDA reads it. CUDA shows a
 * process only one slice, the first of the list; and for a chosen GPU the UUID is
 * needed, since CUDA numbers GPUs by speed and the map does not. */
static accel_status_t narrow_list(accel_t *run, accel_error_t *err)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    bool named = run->place.chosen && run->place.topo.device[0].id[0];

    if (run->place.topo.devices == 0 ||
        !(named || topo_is_slice(&run->place.topo.device[0])) ||
        (list && strcmp(list, run->place.topo.device[0].id) == 0))
        return ACCEL_OK;
    run->place.no_list_before = !list;
    run->place.list_before = strdup(list ? list : "");
    if (!run->place.list_before ||
        setenv("CUDA_VISIBLE_DEVICES", run->place.topo.device[0].id, 1) != 0)
        return accel_fail_nomem(err, "the list of visible devices", TOPO_ID);
    run->place.first_device = 0;
    return ACCEL_OK;
}

/* Puts CUDA_VISIBLE_DEVICES back as it was. */
static void restore_list(accel_t *run)
{
    if (run->place.list_before && run->place.no_list_before)
        unsetenv("CUDA_VISIBLE_DEVICES");
    else if (run->place.list_before)
        setenv("CUDA_VISIBLE_DEVICES", run->place.list_before, 1);
    free(run->place.list_before);
    run->place.list_before = NULL;
}

/* ---- all of it ------------------------------------------------------------------- */

void place_undo(accel_t *run)
{
    restore_list(run);
    if (run->place.mask_before[0])
        topo_bind(run->place.topo.mask, run->place.mask_before, NULL);
    run->place.mask_before[0] = '\0';
}

/* Number of the interface that accel.topology.nic names; -1: the key is not set. The
 * error lists the node's interfaces. */
static accel_status_t find_nic(const accel_t *run, const struct topo_machine *m,
                               int *nic_out, accel_error_t *err)
{
    const char *want = run->config.topo_nic, *name;
    struct strbuf known = { 0 };
    accel_status_t st;

    *nic_out = -1;
    if (!want[0])
        return ACCEL_OK;
    for (int i = 0; (name = topo_machine_nic(m, i)); i++) {
        if (strcmp(name, want) == 0)
            *nic_out = i;
        strbuf_printf(&known, "%s%s", i ? ", " : "", name);
    }
    if (*nic_out >= 0) {
        strbuf_free(&known);
        return ACCEL_OK;
    }
    st =
        accel_fail_at(err, A0435, "accel.topology.nic",
                      "name one of the node's interfaces, or remove the key",
                      "%s has no interface '%s' that is up; it has: %s", run->boot.host,
                      want, known.s && !known.failed ? known.s : "none");
    strbuf_free(&known);
    return st;
}

/* Maps this rank's node. Its own entry is `own` in place of its card, which does not
 * have all that the rank knows of its devices. */
static accel_status_t map_node(accel_t *run, const struct topo_machine *m,
                               const struct topo_rank *own,
                               const struct topo_rank *rank, struct topo_rank *scratch,
                               int *world_rank, accel_error_t *err)
{
    const struct boot *b = &run->boot;
    int n = pick_node(b, b->node, rank, scratch, world_rank);
    struct topo_place *place = calloc((size_t)n, sizeof(*place));
    accel_status_t st;

    if (!place)
        return accel_fail_nomem(err, "the map", (size_t)n * sizeof(*place));
    scratch[b->local_rank] = *own;
    st = topo_map(m, scratch, n, place, err);
    if (st == ACCEL_OK)
        run->place.topo = place[b->local_rank];
    free(place);
    return st;
}

/* Collective: exchanges the cards, judges them and maps the node. `st` and `err`: how
 * this rank fared so far. */
static accel_status_t place_agree(accel_t *run, const struct topo_machine *m,
                                  accel_status_t st, const struct topo_rank *own,
                                  accel_error_t *err)
{
    struct boot *b = &run->boot;
    size_t n = (size_t)b->size;
    struct topo_rank *rank = calloc(n, sizeof(*rank));
    struct topo_rank *scratch = calloc(n, sizeof(*scratch));
    accel_status_t *status = calloc(n, sizeof(*status)), sent;
    int *world_rank = calloc(n, sizeof(*world_rank));
    accel_error_t e = { 0 };

    if (!rank || !scratch || !status || !world_rank) {
        st = accel_fail_nomem(err, "the map", n * 2 * sizeof(*rank));
        goto out;
    }
    sent = exchange(b, st, own, rank, status, &e);
    if (sent != ACCEL_OK) {
        if (st == ACCEL_OK && err)
            *err = e;
        st = st == ACCEL_OK ? sent : st;
        goto out;
    }
    st = place_judge(b, rank, status, scratch, world_rank, err);
    if (st == ACCEL_OK)
        st = map_node(run, m, own, rank, scratch, world_rank, err);
    else
        boot_end_after_speaker(b, err && err->text[0]);
out:
    free(rank);
    free(scratch);
    free(status);
    free(world_rank);
    return st;
}

/* No GPU was given: an error only if the config is for GPUs. */
static accel_status_t check_cpu_wanted(const struct config *c, const char *host,
                                       accel_error_t *err)
{
    if (c->distributed_type != DIST_MULTI_GPU || c->device == DEVICE_CPU)
        return ACCEL_OK;
    return accel_fail_at(err, A0426, host,
                         "request GPUs (--gpus-per-node), or set distributed_type: "
                         "MULTI_CPU or use_cpu: true",
                         "distributed_type is MULTI_GPU, but this task has no GPU");
}

/* Warns that a node has GPUs that the run does not use: the user should not have to
 * find out from the speed. */
static void tell_idle_gpus(const accel_t *run, const struct topo_machine *m)
{
    int present = topo_machine_gpus_present(m), shown = topo_machine_gpus(m)->count;
    int gpus = shown > present ? shown : present;

    if (gpus == 0 || run->boot.rank != 0)
        return;
    if (run->place.choice[0])
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "this node has %d NVIDIA GPU%s, but the run computes on the CPU: %s "
                   "(set use_cpu: true if this is intended)",
                   gpus, gpus == 1 ? "" : "s", run->place.choice);
    else
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "this node has %d NVIDIA GPU%s, but the run has none and computes "
                   "on the CPU (request GPUs from Slurm or set CUDA_VISIBLE_DEVICES; "
                   "set use_cpu: true if this is intended)",
                   gpus, gpus == 1 ? "" : "s");
}

/* Ranks of one node that compute on the CPU meet in shared memory: devices are nothing
 * to them. */
static enum topo_want what_to_read(const accel_t *run, bool gpus, bool driver)
{
    if (gpus)
        return driver ? TOPO_GPUS_TOO : TOPO_DEVICES;
    return run->boot.nodes > 1 || run->config.topo_nic[0] ? TOPO_DEVICES : TOPO_CORES;
}

accel_status_t place_open(accel_t *run, accel_error_t *err)
{
    const struct config *c = &run->config;
    bool gpus = !c->use_cpu && c->device != DEVICE_CPU,
         given =
             getenv("CUDA_VISIBLE_DEVICES") || env_long("SLURM_GPUS_ON_NODE", 0) > 0,
         choose = gpus && place_may_choose(run);
    struct topo_machine *m = NULL;
    struct topo_rank *own = calloc(1, sizeof(*own));
    accel_status_t st;
    int nic = -1;

    if (!own)
        return accel_fail_nomem(err, "the map", sizeof(*own));
    st = topo_machine_open(&m, NULL, what_to_read(run, gpus, choose || given), err);
    ACCEL_TRY(st, topo_own_mask(m, own->mask, err));
    if (st == ACCEL_OK && choose)
        place_choose(run, topo_machine_gpus(m), own);
    else if (st == ACCEL_OK && gpus)
        st = take_devices(&run->boot, topo_machine_gpus(m), own,
                          &run->place.first_device, err);
    if (st == ACCEL_OK && own->devices == 0)
        st = check_cpu_wanted(c, run->boot.host, err);
    ACCEL_TRY(st, find_nic(run, m, &nic, err));
    if (st != ACCEL_OK) /* the others get the status without details */
        *own = (struct topo_rank){ .mask = "0x0" };
    st = place_agree(run, m, st, own, err);
    if (st == ACCEL_OK) {
        if (nic >= 0)
            topo_use_nic(m, nic, &run->place.topo);
        bind_process(run, own->mask);
        if (gpus && !given && own->devices == 0)
            tell_idle_gpus(run, m);
        st = narrow_list(run, err);
    }
    topo_machine_close(m);
    free(own);
    return st;
}

const char *place_net_devices(const accel_t *run)
{
    const char *user = getenv("UCX_NET_DEVICES");

    if (!user)
        return run->place.topo.net_devices[0] ? run->place.topo.net_devices : NULL;
    if (run->config.topo_nic[0] && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "UCX_NET_DEVICES=%s is set and overrides accel.topology.nic: %s",
                   user, run->config.topo_nic);
    return NULL;
}
