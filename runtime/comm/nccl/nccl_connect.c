/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the NCCL backend. In: a device on every rank. Out: a communicator, or one
 * reason on all ranks why there is none. All that can be known beforehand is told in
 * one exchange, so that nobody waits in NCCL for a rank that will not come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl.h"
#include "plan/exchange.h"

/* What each rank tells the others before NCCL connects anything. */
struct card {
    struct nccl_id id; /* of rank 0: how NCCL's ranks find each other */
    int32_t version;   /* of its NCCL */

    int32_t code; /* enum message: why this rank cannot go on; 0: it can */
    char why[400], hint[200];
    char bus_id[32]; /* of its GPU; empty: unknown */
};

/* Everything that needs no peer: loads the library and allocates what calls work with.
 * nccl_close_comm frees it, also after an error. */
static accel_status_t nccl_prepare_local(struct comm *c, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    size_t words = c->size > NCCL_WORDS ? (size_t)c->size : NCCL_WORDS;
    accel_status_t st;
    void *mem = NULL;

    ACCEL_CHECK(st, nccl_open(&n->api, err));
    n->reached = n->be->host_alloc(n->be, QUEUE_COUNT * sizeof(*n->reached));
    if (!n->reached)
        return accel_fail_nomem(err, "communicator", QUEUE_COUNT * sizeof(*n->reached));
    st = n->be->alloc(n->be, MEMORY_WORK, words * sizeof(*n->words), &mem, err);
    n->words = mem;
    n->scratch_free = n->be->event_new(n->be);
    return st;
}

/* Fills what depends on NCCL. Only rank 0 makes an id: it starts a thread in NCCL that
 * listens for the ranks. */
static accel_status_t write_card(struct comm *c, struct card *own, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    accel_status_t st = nccl_prepare_local(c, err);
    int rc;

    own->version = n->api.version;
    if (st != ACCEL_OK || c->rank != 0)
        return st;
    rc = n->api.unique_id(&own->id);
    if (rc != NCCL_SUCCESS)
        return accel_fail(err, A0515,
                          "set NCCL_DEBUG=WARN to see more; NCCL_SOCKET_IFNAME selects "
                          "the network interface",
                          "ncclGetUniqueId: %s", n->api.error_string(rc));
    return ACCEL_OK;
}

/* Do two ranks share a GPU? NCCL would only say that its usage is invalid. */
static accel_status_t check_gpus(const struct boot *b, const struct card *card,
                                 accel_error_t *err)
{
    for (int a = 0; a < b->size; a++) {
        for (int z = a + 1; z < b->size; z++) {
            if (b->node_of[a] == b->node_of[z] && card[a].bus_id[0] &&
                strcmp(card[a].bus_id, card[z].bus_id) == 0)
                return accel_fail(
                    err, A0425,
                    "give every rank its own GPU: --gpus-per-task=1, or as many "
                    "--gpus-per-node as ranks per node",
                    "ranks %d and %d share GPU %s: NCCL "
                    "connects one rank per GPU",
                    a, z, card[a].bus_id);
        }
    }
    return ACCEL_OK;
}

/* The verdict on all cards, the same on every rank: nobody failed, all have one version
 * of NCCL , each has its own GPU. */
static accel_status_t check_cards(const struct boot *b, const struct card *card,
                                  accel_error_t *err)
{
    char first[16], other[16];

    for (int r = 0; r < b->size; r++)
        if (card[r].code && r != b->rank)
            return accel_fail(err, (enum message)card[r].code, card[r].hint,
                              "rank %d: %s", r, card[r].why);
    for (int r = 1; r < b->size; r++)
        if (card[r].version != card[0].version)
            return accel_fail(err, A0514, "use the same version of NCCL on all nodes",
                              "rank %d has NCCL %s, rank 0 has %s", r,
                              nccl_version_text(card[r].version, other),
                              nccl_version_text(card[0].version, first));
    return check_gpus(b, card, err);
}

/* Either all ranks go on or none. `mine` and `why`: how this rank fared. It returns its
 * own failure unchanged, and others' failures with their rank. */
static accel_status_t nccl_agree_cards(struct boot *b, struct card *own,
                                       accel_status_t mine, const accel_error_t *why,
                                       struct nccl_id *id_out, accel_error_t *err)
{
    struct boot_blobs all = { 0 };
    struct card *card = calloc((size_t)b->size, sizeof(*card));
    accel_status_t st;

    if (!card)
        return accel_fail_nomem(err, "communicator", (size_t)b->size * sizeof(*card));
    if (mine != ACCEL_OK) {
        own->code = (int32_t)message_of(why);
        snprintf(own->why, sizeof(own->why), "%.*s", (int)sizeof(own->why) - 1,
                 why->text);
        snprintf(own->hint, sizeof(own->hint), "%.*s", (int)sizeof(own->hint) - 1,
                 why->hint);
    }
    st = boot_exchange(b, own, sizeof(*own), &all, err);
    for (int r = 0; st == ACCEL_OK && r < b->size; r++) {
        if (all.bytes[r] == sizeof(*card))
            memcpy(&card[r], all.data[r], sizeof(*card));
        else
            st =
                accel_fail(err, A0433, "start all ranks with the same version of accel",
                           "rank %d sent its NCCL version in a format that this "
                           "version does not know",
                           r);
    }
    boot_blobs_free(&all);
    if (st == ACCEL_OK && mine != ACCEL_OK) {
        st = mine;
        if (err)
            *err = *why;
    } else if (st == ACCEL_OK) {
        st = check_cards(b, card, err);
    }
    *id_out = card[0].id;
    free(card);
    return st;
}

/* Non-blocking (config.blocking is 0), so that a missing rank ends at the deadline. */
static accel_status_t connect_ranks(struct comm *c, struct nccl_id id,
                                    accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    struct nccl_config config = { .size = sizeof(config),
                                  .magic = NCCL_CONFIG_MAGIC,
                                  .version = NCCL_CONFIG_VERSION };
    int rc;

    c->args.call = COMM_CALL_OPEN;
    c->deadline_ns = 0;
    rc = n->api.init(&n->comm, c->size, id, c->rank, &config);
    return nccl_settle(c, rc, "ncclCommInitRankConfig", err);
}

/* From here on comm_close frees what there is, whatever fails next. */
static accel_status_t nccl_begin_state(struct comm *c, struct backend *device,
                                       accel_error_t *err)
{
    struct nccl_state *n = calloc(1, sizeof(*n));

    if (!n)
        return accel_fail_nomem(err, "communicator", sizeof(*n));
    n->be = device;
    c->impl = n;
    c->ops = nccl_operations();
    c->device = device;
    return ACCEL_OK;
}

accel_status_t comm_nccl_open(struct comm *c, struct boot *b, accel_error_t *err)
{
    const struct comm_options *o = c->options;
    struct nccl_state *n;
    struct card own = { 0 };
    accel_error_t why = { 0 };
    struct nccl_id id;
    accel_status_t st;

    if (!o->device)
        return accel_fail(err, A0507, "use shm or ucx for host memory",
                          "comm backend nccl is for GPUs");
    ACCEL_CHECK(st, nccl_begin_state(c, o->device, err));
    n = c->impl;
    n->library_sums = o->library_sums;
    n->scratch_most = o->scratch_bytes ? o->scratch_bytes : EXCHANGE_MOST;
    if (n->be->bus_id)
        snprintf(own.bus_id, sizeof(own.bus_id), "%s", n->be->bus_id);
    st = write_card(c, &own, &why);
    st = nccl_agree_cards(b, &own, st, &why, &id, err);
    ACCEL_TRY(st, connect_ranks(c, id, err));
    if (st != ACCEL_OK)
        c->failed = true; /* closing aborts what there is */
    else
        nccl_watch(c);
    return st;
}

/* ---- groups ---------------------------------------------------------------------- */

/* Two waits: the split is a call on the parent, and the group's communicator is set up
 * in the background like any other. Size and rank are then asked from NCCL. */
static accel_status_t split_off(struct comm *c, int color, int key, struct comm *part,
                                accel_error_t *err)
{
    struct nccl_state *n = c->impl, *own = part->impl;
    int rc =
        n->api.split(n->comm, color < 0 ? NCCL_NO_COLOR : color, key, &own->comm, NULL);
    accel_status_t st = nccl_settle(c, rc, "ncclCommSplit", err);

    if (st != ACCEL_OK || color < 0)
        return st;
    part->args.call = COMM_CALL_OPEN;
    ACCEL_CHECK(st, nccl_settle(part, NCCL_IN_PROGRESS, "ncclCommSplit", err));
    rc = own->api.count(own->comm, &part->size);
    if (rc == NCCL_SUCCESS)
        rc = own->api.user_rank(own->comm, &part->rank);
    return nccl_settle(part, rc, "ncclCommUserRank", err);
}

/* What a rank asks of a split, in the 64 bits that NCCL gathers. */
static int64_t pack_wish(int color, int key)
{
    return (int64_t)((uint64_t)(uint32_t)color << 32 | (uint32_t)key);
}

/* On which nodes the ranks of this rank's group are: NCCL does not say who is in a
 * group. Its ranks are in the order of their keys, equal ones in that of c. */
static accel_status_t find_group_nodes(struct comm *c, int color, int key,
                                       struct comm *part, accel_error_t *err)
{
    int64_t *wish = calloc((size_t)c->size, sizeof(*wish));
    int *member = calloc((size_t)c->size, sizeof(*member));
    accel_status_t st = ACCEL_OK;
    int members = 0;

    if (!wish || !member)
        st = accel_fail_nomem(err, "communicator", (size_t)c->size * sizeof(*wish));
    ACCEL_TRY(st, nccl_gather_words(c, pack_wish(color, key), wish, err));
    for (int r = 0; st == ACCEL_OK && r < c->size; r++) {
        int at = members;

        if ((int32_t)(wish[r] >> 32) != color)
            continue;
        for (; at > 0 && (int32_t)wish[member[at - 1]] > (int32_t)wish[r]; at--)
            member[at] = member[at - 1];
        member[at] = r;
        members++;
    }
    for (int i = 0; i < members; i++)
        part->node_of[i] = c->node_of[member[i]];
    free(member);
    free(wish);
    return st;
}

/* The backend's split. NCCL requires that nothing is in flight on a communicator
 * while it is split: find_group_nodes waits for the device. The group gets a state of
 * its own: workspace, watch and hash. */
accel_status_t nccl_split(struct comm *c, int color, int key, struct comm **comm_out,
                          accel_error_t *err)
{
    struct nccl_state *n = c->impl, *own;
    /* The group's size is not known yet; it is not larger than c. */
    const struct boot like = { .rank = c->rank, .size = c->size };
    struct comm *part = NULL;
    accel_status_t st =
        comm_begin(c, (struct comm_args){ .call = COMM_CALL_SPLIT }, err);

    ACCEL_TRY(st, comm_new(&part, &like, (int)(c->timeout_ns / 1000000), err));
    if (st == ACCEL_OK) {
        part->root = c->root;
        st = nccl_begin_state(part, c->device, err);
    }
    ACCEL_TRY(st, nccl_prepare_local(part, err));
    ACCEL_TRY(st, find_group_nodes(c, color, key, part, err));
    if (st == ACCEL_OK) {
        part->nodes_first = c->nodes_first;
        own = part->impl;
        own->library_sums = n->library_sums;
        own->scratch_most = n->scratch_most;
        st = split_off(c, color, key, part, err);
    }
    if (st != ACCEL_OK || color < 0) {
        if (part)
            part->failed = true; /* no peers: closing must not finalize */
        comm_close(part);
        return st;
    }
    nccl_watch(part);
    *comm_out = part;
    return ACCEL_OK;
}
