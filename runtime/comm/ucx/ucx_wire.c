/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the UCX backend: connect, post, wait, close.
 * In: buffers and tags. Out: delivered, or which rank is to blame. Waits poll the
 * worker, then yield, then sleep in short steps; never past the deadline of the call.
 * Sets no UCX variable in the environment.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/ucx/ucx.h"

/* Polls without progress before a wait yields, and before it sleeps. A sleep grows with
 * the wait from SLEEP_MIN to SLEEP_MAX, in ns. */
#define IDLE_SPINS  200
#define IDLE_YIELDS 400
#define SLEEP_MIN   10000
#define SLEEP_MAX   500000
/* Time for closing in good order, in ns; a quarter of it for cancelling messages. */
#define CLOSE_NS INT64_C(4000000000)
/* For telling why this rank gives up. */
#define TELL_NS INT64_C(500000000)

/* Attempts to open UCX, with pauses of 5, 10, ... 320 ms between them. */
#define OPEN_ATTEMPTS 8

/* ---- tags ------------------------------------------------------------------------ */

#define TAG_WHAT_SHIFT 12
#define TAG_RANK_SHIFT 24
#define TAG_SEQ_SHIFT  40
#define TAG_WHAT_MASK  ((ucp_tag_t)0xfff << TAG_WHAT_SHIFT)

/* Call, dtype and operation in 12 bits, 4 each. comm_args_pack needs 16:
 * too many here. */
static ucp_tag_t what_of(const struct comm_args *a)
{
    return (ucp_tag_t)a->call | (ucp_tag_t)a->dtype << 4 | (ucp_tag_t)a->op << 8;
}

/* In place of the operation, in a greeting's tag. Only sums and calls without an
 * operation begin with greetings. */
#define TAG_GREETING ((ucp_tag_t)0xf << 8)

/* The tag of a message of the running call. 24 bits of the number are enough: no rank
 * is 2^24 calls away from its peers. */
static ucp_tag_t tag_of(const struct comm *c, int sender, int step)
{
    return (c->seq & 0xffffff) << TAG_SEQ_SHIFT | (ucp_tag_t)sender << TAG_RANK_SHIFT |
           what_of(&c->args) << TAG_WHAT_SHIFT | (ucp_tag_t)step;
}

/* The step that no message of a call has: a reason, of any rank. */
#define TAG_REASON    ((ucp_tag_t)UCX_STEPS)
#define TAG_STEP_MASK ((ucp_tag_t)0xfff)
_Static_assert(UCX_STEPS < 0x1000, "a step fits into a tag");

/* ---- posting --------------------------------------------------------------------- */

/* A zeroed entry for a message, or NULL when out of memory; ucx_wait then fails. The
 * array may move, so no pointer to an entry is kept across this call. */
static struct ucx_op *new_op(struct ucx *u)
{
    if (u->op_count == u->op_capacity) {
        int capacity = u->op_capacity ? 2 * u->op_capacity : 64;
        struct ucx_op *ops = realloc(u->ops, (size_t)capacity * sizeof(*ops));

        if (!ops) {
            accel_fail_nomem(&u->post_error, "messages in flight",
                             (size_t)capacity * sizeof(*ops));
            u->post_failed = true;
            return NULL;
        }
        u->ops = ops;
        u->op_capacity = capacity;
    }
    memset(&u->ops[u->op_count], 0, sizeof(*u->ops));
    return &u->ops[u->op_count++];
}

/* What UCX returned for a posted message: a request to poll, or, if it is done already
 * or failed at once, a status. */
static void take_request(struct ucx_op *op, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        op->request = request;
    } else {
        op->finished = true;
        op->status = UCS_PTR_STATUS(request);
    }
}

/* buf must not be NULL for UCX, also with 0 bytes. */
static void post_send(struct comm *c, int peer, ucp_tag_t tag, const void *buf,
                      size_t bytes)
{
    struct ucx *u = c->impl;
    const ucp_request_param_t param = { 0 };
    struct ucx_op *op = new_op(u);

    if (!op)
        return;
    op->peer = peer;
    op->bytes = bytes;
    take_request(op,
                 ucp_tag_send_nbx(u->ep[peer], bytes ? buf : "", bytes, tag, &param));
}

static void post_recv(struct comm *c, int peer, int step, bool greeting, void *buf,
                      size_t bytes)
{
    static char nothing;
    struct ucx *u = c->impl;
    /* Forces a request: for messages that had already arrived, UCX 1.13 would complete
     * at once and not tell the sender's tag. */
    const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL };
    struct ucx_op *op = new_op(u);

    if (!op)
        return;
    op->peer = peer;
    op->bytes = bytes;
    op->is_recv = true;
    op->greeting = greeting;
    op->buf = buf;
    take_request(op, ucp_tag_recv_nbx(u->worker, bytes ? buf : &nothing, bytes,
                                      tag_of(c, peer, step), ~TAG_WHAT_MASK, &param));
}

void ucx_send(struct comm *c, int peer, int step, const void *buf, size_t bytes)
{
    post_send(c, peer, tag_of(c, c->rank, step), buf, bytes);
}

void ucx_recv(struct comm *c, int peer, int step, void *buf, size_t bytes)
{
    post_recv(c, peer, step, false, buf, bytes);
}

void ucx_greet(struct comm *c)
{
    struct ucx_greeting *said = ((struct ucx *)c->impl)->greetings;
    const ucp_tag_t tag = tag_of(c, c->rank, 0) | TAG_GREETING << TAG_WHAT_SHIFT;

    said[c->rank] = (struct ucx_greeting){ c->args.elems, c->args.root };
    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;

        post_recv(c, from, 0, true, &said[from], sizeof(*said));
        post_send(c, to, tag, &said[c->rank], sizeof(*said));
    }
}

/* ---- waiting --------------------------------------------------------------------- */

/* True once the message is complete; its result is then in op and the
 * request is freed. */
static bool poll_op(struct ucx_op *op)
{
    ucp_tag_recv_info_t info = { 0 };

    if (op->finished)
        return true;
    if (op->is_recv)
        op->status = ucp_tag_recv_request_test(op->request, &info);
    else
        op->status = ucp_request_check_status(op->request);
    if (op->status == UCS_INPROGRESS)
        return false;
    op->finished = true;
    op->sender_tag = info.sender_tag;
    op->received = info.length;
    ucp_request_free(op->request);
    op->request = NULL;
    return true;
}

/* The sender's call, as far as the message tells it: a greeting says all, other data
 * only how many elements came. */
static struct comm_args their_call(const struct comm *c, const struct ucx_op *op,
                                   bool *greeting_out)
{
    const ucp_tag_t what = (op->sender_tag & TAG_WHAT_MASK) >> TAG_WHAT_SHIFT;
    struct comm_args theirs = { .call = what & 0xf,
                                .dtype = what >> 4 & 0xf,
                                .op = what >> 8 & 0xf,
                                .root = c->args.root };
    const size_t es = accel_dtype_bytes(theirs.dtype);

    *greeting_out = (what & TAG_GREETING) == TAG_GREETING;
    if (*greeting_out)
        theirs.op = COMM_SUM;
    theirs.elems = op->received / (es ? es : 1);
    if (*greeting_out && op->status == UCS_OK) {
        struct ucx_greeting said;

        memcpy(&said, op->buf, sizeof(said));
        theirs.elems = said.elems;
        theirs.root = (int)said.root;
    }
    return theirs;
}

/* Was the completed message the expected one? A receive accepts any call (see
 * ucx.h), so it compares the sender's tag with the own call, and the length with
 * what was posted. */
static accel_status_t ucx_judge_message(struct comm *c, const struct ucx_op *op,
                                        accel_error_t *err)
{
    const struct comm_args *own = &c->args;
    struct comm_args theirs;
    bool greeting, differs;
    char text[128];

    if (op->status != UCS_OK && op->status != UCS_ERR_MESSAGE_TRUNCATED) {
        snprintf(text, sizeof(text), "cannot be reached: %s",
                 ucs_status_string(op->status));
        return comm_fail_peer(c, op->peer, text, err);
    }
    if (!op->is_recv)
        return ACCEL_OK;
    theirs = their_call(c, op, &greeting);
    differs = theirs.call != own->call || theirs.dtype != own->dtype ||
              theirs.op != own->op || (op->greeting && !greeting);
    if (greeting && op->status == UCS_OK)
        differs |=
            !op->greeting || theirs.elems != own->elems || theirs.root != own->root;
    if (differs)
        return comm_fail_differs(c, op->peer, &theirs, err);
    if (op->status == UCS_OK && op->received == op->bytes)
        return ACCEL_OK;
    return accel_fail(err, A0505,
                      "every rank must make the same calls with the same sizes",
                      "collective #%" PRIu64 ": rank %d sent %zu bytes "
                      "where rank %d expects %zu",
                      c->seq, op->peer, op->received, c->rank, op->bytes);
}

/* One pass over the incomplete messages. *first_open: all before it are complete and
 * judged; moved on here. Later ones may be complete, too. */
static accel_status_t poll_all(struct comm *c, int *first_open, accel_error_t *err)
{
    struct ucx *u = c->impl;

    for (int i = *first_open; i < u->op_count; i++) {
        struct ucx_op *op = &u->ops[i];

        if (!poll_op(op))
            continue;
        if (!op->judged) {
            accel_status_t st = ucx_judge_message(c, op, err);

            if (st != ACCEL_OK)
                return st;
            op->judged = true;
        }
        if (i == *first_open)
            (*first_open)++;
    }
    return ACCEL_OK;
}

/* Is a rank that we still wait for known to be gone? */
static accel_status_t check_lost(struct comm *c, int first_open, accel_error_t *err)
{
    struct ucx *u = c->impl;

    for (int i = first_open; i < u->op_count; i++)
        if (!u->ops[i].finished && u->lost[u->ops[i].peer])
            return comm_fail_peer(c, u->ops[i].peer, "died or closed its connection",
                                  err);
    return ACCEL_OK;
}

/* The silent ranks are those with incomplete messages. */
static accel_status_t fail_late(struct comm *c, accel_error_t *err)
{
    struct ucx *u = c->impl;
    bool silent[c->size];

    memset(silent, 0, sizeof(silent));
    for (int i = 0; i < u->op_count; i++)
        if (!u->ops[i].finished)
            silent[u->ops[i].peer] = true;
    return comm_fail_silent(c, silent, err);
}

/* Pauses after `idle` polls in a row without progress. */
static void back_off(int idle)
{
    struct timespec nap = { 0, SLEEP_MIN };

    if (idle <= IDLE_SPINS)
        return;
    if (idle <= IDLE_SPINS + IDLE_YIELDS) {
        sched_yield();
        return;
    }
    idle -= IDLE_SPINS + IDLE_YIELDS;
    nap.tv_nsec = idle > SLEEP_MAX / SLEEP_MIN ? SLEEP_MAX : (long)idle * SLEEP_MIN;
    nanosleep(&nap, NULL);
}

/* Asks about lost ranks and the deadline only in the sleeping phase or every 64 idle
 * polls: a wait that makes progress costs no clock. A message that completed is judged
 * before a lost rank is reported, since it may have been sent just before the end. */
static accel_status_t wait_all(struct comm *c, accel_error_t *err)
{
    struct ucx *u = c->impl;
    int first_open = 0, idle = 0;

    for (;;) {
        accel_status_t st = poll_all(c, &first_open, err);

        if (st != ACCEL_OK || first_open == u->op_count)
            return st;
        if (ucp_worker_progress(u->worker) != 0) {
            idle = 0;
            continue;
        }
        back_off(++idle);
        if (idle > IDLE_SPINS + IDLE_YIELDS) {
            ACCEL_CHECK(st, comm_hear(c, check_lost(c, first_open, err), err));
        }
        if (idle % 64 == 0 && comm_expired(c))
            return fail_late(c, err);
    }
}

/* After a failure nothing may touch the callers' buffers any more: receives are
 * cancelled, and sends end when their endpoint is closed by force. Waits at most a
 * second for that. Peers notice the closed endpoints. */
static void give_up_messages(struct ucx *u, int size)
{
    int64_t until = clock_ns() + CLOSE_NS / 4;
    const ucp_request_param_t force = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                        .flags = UCP_EP_CLOSE_FLAG_FORCE };
    bool open = true;

    for (int i = 0; i < u->op_count; i++)
        if (u->ops[i].request && u->ops[i].is_recv)
            ucp_request_cancel(u->worker, u->ops[i].request);
    if (u->hearing.request)
        ucp_request_cancel(u->worker, u->hearing.request);
    for (int r = 0; r < size; r++) {
        ucs_status_ptr_t request = NULL;

        if (u->ep[r])
            request = ucp_ep_close_nbx(u->ep[r], &force);
        if (UCS_PTR_IS_PTR(request))
            ucp_request_free(request);
        u->ep[r] = NULL;
    }
    while (open && clock_ns() < until) {
        open = u->hearing.request && !poll_op(&u->hearing);
        ucp_worker_progress(u->worker);
        for (int i = 0; i < u->op_count; i++)
            open |= !poll_op(&u->ops[i]);
    }
    u->op_count = 0;
}

accel_status_t ucx_wait(struct comm *c, accel_error_t *err)
{
    struct ucx *u = c->impl;
    accel_status_t st;

    if (u->post_failed) {
        if (err)
            *err = u->post_error;
        st = u->post_error.code;
    } else {
        st = wait_all(c, err);
    }
    if (st != ACCEL_OK && err) /* while there are connections */
        comm_tell(c, err);
    if (st != ACCEL_OK)
        give_up_messages(u, c->size);
    u->op_count = 0;
    return st;
}

accel_status_t ucx_room(struct comm *c, size_t bytes, accel_error_t *err)
{
    struct ucx *u = c->impl;
    char *p;

    if (bytes <= u->room_bytes)
        return ACCEL_OK;
    p = malloc(bytes);
    if (!p)
        return accel_fail_nomem(err, "communication buffer", bytes);
    free(u->room);
    u->room = p;
    u->room_bytes = bytes;
    return ACCEL_OK;
}

void ucx_fail(struct comm *c)
{
    give_up_messages(c->impl, c->size);
}

/* ---- reasons --------------------------------------------------------------------- */

/* Between calls a flush makes what was sent before arrive as well: this rank may have
 * learned of a failure earlier than its peers, from the same call. Not within a call:
 * UCX 1.13 over TCP aborts when a flush follows a long message that is cut off. */
void ucx_tell(struct comm *c, const struct comm_reason *why)
{
    const ucp_request_param_t param = { 0 };
    const int64_t until = clock_ns() + TELL_NS;
    struct ucx *u = c->impl;
    const int first = u->op_count;
    bool open = true;

    u->said = *why;
    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size;

        struct ucx_op *op;

        if (!u->ep[to] || u->lost[to])
            continue;
        post_send(c, to, TAG_REASON, &u->said, sizeof(u->said));
        op = first == 0 ? new_op(u) : NULL;
        if (op)
            take_request(op, ucp_ep_flush_nbx(u->ep[to], &param));
    }
    while (open && clock_ns() < until) {
        open = false;
        ucp_worker_progress(u->worker);
        for (int i = first; i < u->op_count; i++)
            open |= !poll_op(&u->ops[i]);
    }
}

/* A message that has begun to arrive is asked for again. */
bool ucx_hear(struct comm *c, struct comm_reason *why_out)
{
    const ucp_request_param_t param = { 0 };
    struct ucx *u = c->impl;
    ucp_tag_message_h message;
    ucp_tag_recv_info_t info;

    ucp_worker_progress(u->worker);
    if (!u->hearing.is_recv) {
        message = ucp_tag_probe_nb(u->worker, TAG_REASON, TAG_STEP_MASK, 1, &info);
        if (!message)
            return false;
        u->hearing.is_recv = true;
        take_request(&u->hearing,
                     ucp_tag_msg_recv_nbx(u->worker, &u->reason, sizeof(u->reason),
                                          message, &param));
    }
    if (!poll_op(&u->hearing) || u->hearing.status != UCS_OK)
        return false;
    *why_out = u->reason;
    return true;
}

/* ---- connecting ------------------------------------------------------------------ */

/* UCX calls this during progress when an endpoint breaks. It only notes the fact:
 * messages that have arrived are still delivered. */
static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    *(bool *)arg = true;
}

static accel_status_t ucx_says(ucs_status_t rc, const char *what, accel_error_t *err)
{
    return accel_fail(err, A0509,
                      "check UCX_TLS and UCX_NET_DEVICES if they are set; ucx_info -d "
                      "lists the available transports",
                      "UCX: %s: %s", what, ucs_status_string(rc));
}

/* One attempt to make context and worker; *what_out names the step that failed. The
 * interfaces are set in UCX's config and not by setenv, which would affect other users
 * of UCX in this process. */
static ucs_status_t try_worker(struct ucx *u, int ranks, const char *net_devices,
                               const char **what_out)
{
    const ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES |
                                                UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                  .features = UCP_FEATURE_TAG,
                                  .estimated_num_eps = (size_t)ranks };
    const ucp_worker_params_t worker = { .field_mask =
                                             UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SINGLE };
    ucp_config_t *config;
    ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

    *what_out = "configuration";
    if (rc != UCS_OK)
        return rc;
    *what_out = "initialization";
    if (net_devices)
        rc = ucp_config_modify(config, "NET_DEVICES", net_devices);
    if (rc == UCS_OK)
        rc = ucp_init(&params, config, &u->context);
    ucp_config_release(config);
    if (rc != UCS_OK) {
        u->context = NULL;
        return rc;
    }
    *what_out = "worker";
    rc = ucp_worker_create(u->context, &worker, &u->worker);
    if (rc != UCS_OK) {
        u->worker = NULL;
        ucp_cleanup(u->context);
        u->context = NULL;
    }
    return rc;
}

/* Retries what a fresh context can mend: UCX lists the network interfaces first and
 * opens them later, and an interface that vanished in between fails all of it. UCX
 * (1.13 to 1.20) then does not free a struct of 600 bytes for each interface that it
 * opened before. */
static accel_status_t make_worker(struct comm *c, int64_t deadline_ns,
                                  accel_error_t *err)
{
    struct timespec pause = { 0, 5000000 };
    const char *what = NULL;
    ucs_status_t rc = UCS_OK;

    for (int i = 0; i < OPEN_ATTEMPTS; i++) {
        rc = try_worker(c->impl, c->size, c->options->net_devices, &what);
        if (rc != UCS_ERR_NO_DEVICE && rc != UCS_ERR_IO_ERROR &&
            rc != UCS_ERR_UNREACHABLE)
            break;
        if (clock_ns() > deadline_ns || i == OPEN_ATTEMPTS - 1)
            break;
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 2;
    }
    return rc == UCS_OK ? ACCEL_OK : ucx_says(rc, what, err);
}

/* One endpoint per peer. Creating them sends nothing yet: who cannot be reached
 * shows in first_contact. A rank without an address is looked for first: the others end
 * because of it, and what was theirs may be gone already. */
static accel_status_t make_endpoints(struct comm *c, const struct boot_blobs *addresses,
                                     accel_error_t *err)
{
    struct ucx *u = c->impl;

    for (int r = 0; r < c->size; r++)
        if (r != c->rank && addresses->bytes[r] == 0)
            return accel_fail(err, A0509, "see the output of that rank",
                              "rank %d could not start UCX", r);
    for (int r = 0; r < c->size; r++) {
        const ucp_ep_params_t params = {
            .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                          UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
            .address = addresses->data[r],
            .err_mode = UCP_ERR_HANDLING_MODE_PEER,
            .err_handler = { .cb = on_error, .arg = &u->lost[r] },
        };
        char what[64];
        ucs_status_t rc;

        if (r == c->rank)
            continue;
        snprintf(what, sizeof(what), "endpoint to rank %d", r);
        rc = ucp_ep_create(u->worker, &params, &u->ep[r]);
        if (rc != UCS_OK) {
            u->ep[r] = NULL;
            return ucx_says(rc, what, err);
        }
    }
    return ACCEL_OK;
}

/* Every rank to every other one. UCX connects lazily, in part only for the first long
 * message; a synchronous send makes it do all of it. */
static accel_status_t connect_all(struct comm *c, accel_error_t *err)
{
    const ucp_request_param_t param = { 0 };
    struct ucx *u = c->impl;

    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
        struct ucx_op *op;

        ucx_recv(c, from, 0, NULL, 0);
        op = new_op(u);
        if (!op)
            break;
        op->peer = to;
        take_request(
            op, ucp_tag_send_sync_nbx(u->ep[to], "", 0, tag_of(c, c->rank, 0), &param));
    }
    return ucx_wait(c, err);
}

/* Connects, so that a rank that cannot be reached shows now and not in the first
 * collective. It runs until the bootstrap's deadline, which also stands in the error.
 * Nobody leaves before all have connected: a request to connect to a rank that has
 * failed by then makes UCX 1.13 abort that rank. */
static accel_status_t first_contact(struct comm *c, struct boot *b, accel_error_t *err)
{
    int64_t timeout_ns = c->timeout_ns;
    accel_status_t st;

    c->args = (struct comm_args){ .call = COMM_CALL_BARRIER, .dtype = ACCEL_U8 };
    c->timeout_ns = b->deadline_ns - clock_ns();
    comm_set_deadline(c, b->deadline_ns);
    st = connect_all(c, err);
    ACCEL_TRY(st, c->ops->barrier(c, err));
    c->timeout_ns = timeout_ns;
    return st;
}

/* A rank without a worker still takes part in the exchange, with an empty address, so
 * that the others need not wait for it and can name it. */
accel_status_t ucx_connect(struct comm *c, struct boot *b, accel_error_t *err)
{
    struct ucx *u = c->impl;
    accel_status_t st = make_worker(c, b->deadline_ns, err), exchanged;
    ucp_address_t *address = NULL;
    struct boot_blobs all;
    size_t bytes = 0;

    if (st == ACCEL_OK) {
        ucs_status_t rc = ucp_worker_get_address(u->worker, &address, &bytes);

        if (rc != UCS_OK) {
            address = NULL;
            bytes = 0;
            st = ucx_says(rc, "worker address", err);
        }
    }
    exchanged = boot_exchange(b, address, bytes, &all, st == ACCEL_OK ? err : NULL);
    if (address)
        ucp_worker_release_address(u->worker, address);
    ACCEL_TRY(st, exchanged);
    if (st == ACCEL_OK && c->size > UCX_RANKS)
        st = accel_fail(err, A0511, "start fewer ranks", "%d ranks; the limit is %d",
                        c->size, UCX_RANKS);
    ACCEL_TRY(st, make_endpoints(c, &all, err));
    if (exchanged == ACCEL_OK)
        boot_blobs_free(&all);
    return st == ACCEL_OK ? first_contact(c, b, err) : st;
}

/* ---- closing --------------------------------------------------------------------- */

/* Closes all endpoints after flushing their last messages, until the deadline. */
static void flush_and_close(struct comm *c, int64_t until)
{
    const ucp_request_param_t flush = { 0 };
    struct ucx *u = c->impl;
    int idle = 0;

    for (int r = 0; r < c->size; r++) {
        struct ucx_op *op;

        if (!u->ep[r] || !(op = new_op(u)))
            continue;
        op->peer = r;
        take_request(op, ucp_ep_close_nbx(u->ep[r], &flush));
        u->ep[r] = NULL;
    }
    for (bool open = true; open && clock_ns() < until;) {
        open = false;
        for (int i = 0; i < u->op_count; i++)
            open |= !poll_op(&u->ops[i]);
        if (ucp_worker_progress(u->worker) != 0)
            idle = 0;
        else if (open)
            back_off(++idle);
    }
}

void ucx_close(struct comm *c)
{
    struct ucx *u = c->impl;
    int64_t until = clock_ns() + CLOSE_NS;

    if (u->worker && !c->failed) {
        /* A barrier first: a peer may still be receiving what this rank sent last, and
         * would take a closed endpoint for a lost rank. */
        c->args = (struct comm_args){ .call = COMM_CALL_BARRIER, .dtype = ACCEL_U8 };
        c->seq++;
        comm_set_deadline(c, until);
        if (c->ops->barrier(c, NULL) == ACCEL_OK)
            flush_and_close(c, until);
    }
    if (u->worker) {
        if (u->ep)
            give_up_messages(u, c->size);
        /* of peers that gave up as well: UCX warns of messages that nobody takes */
        while (ucx_hear(c, &u->said))
            memset(&u->hearing, 0, sizeof(u->hearing));
        ucp_worker_destroy(u->worker);
    }
    if (u->context)
        ucp_cleanup(u->context);
    free(u->ops);
    free(u->room);
    free(u->begin);
    free(u->greetings);
    free(u->nodes.begin);
    free(u->nodes.rank);
    free(u->lost);
    free(u->ep);
    free(u);
    c->impl = NULL;
}
