/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of a kernel: its threads share the processor as fibers. A fiber runs thread after
 * thread; when one waits, the fiber is put aside and another goes on with the next thread, so
 * that a kernel which never waits never switches. Those who have waited go on in the reverse
 * order of their coming, which makes each stretch between two barriers run the other way
 * round than the one before.
 */
#include "fake_fiber.h"

#include <stdio.h>
#include <string.h>

#include "fake_ptx.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

enum { LANES = 32, MEETINGS = 8 };

/* Lanes of one warp that meet: open until all have come, in use until all have left.
 * together: what the last one that comes does for all; NULL for nothing. */
struct meeting {
    unsigned mask, came, inside;
    bool open;
    fake_together *together;
    struct fiber *waiting;
    uint64_t value[LANES];
};

struct warp {
    unsigned ended;
    struct meeting meeting[MEETINGS];
};

static struct {
    const std::function<void()> *thread;
    unsigned threads, taken, ended;
    bool backwards;
    char *shared;
    size_t shared_bytes;
    struct fiber home, *now;
    struct fiber *ready, *idle, *asleep;
    /* the block's barrier: */
    unsigned waiting;
    int line;
    struct fiber *waiters;
    std::vector<struct warp> warps;
    std::vector<struct fiber *> all;
    std::string trouble;
} b;

static void fiber_main(void);

static void push(struct fiber **list, struct fiber *f)
{
    f->next = *list;
    *list = f;
}

static struct fiber *pop(struct fiber **list)
{
    struct fiber *f = *list;

    if (f)
        *list = f->next;
    return f;
}

static void move_all(struct fiber **to, struct fiber **from)
{
    struct fiber *order = NULL, *f;

    /* Twice reversed: who came last goes first. */
    while ((f = pop(from)))
        push(&order, f);
    while ((f = pop(&order)))
        push(to, f);
}

static void set_thread(const struct fiber *f)
{
    threadIdx.x = f->x;
    threadIdx.y = f->y;
    threadIdx.z = f->z;
}

static void go_to(struct fiber *to)
{
    struct fiber *self = b.now;

    b.now = to;
    fiber_switch(self, to);
    set_thread(self);
}

/* Who may run: one that waited, one for the threads that have not begun, or the caller of
 * the block, who looks whether all have ended. */
static struct fiber *pick(void)
{
    struct fiber *f = b.trouble.empty() ? pop(&b.ready) : &b.home;

    while (!f && b.taken == b.threads && fake_bulk_comes())
        f = pop(&b.ready);
    if (!f && b.taken < b.threads) {
        f = pop(&b.idle);
        if (!f) {
            f = fiber_new(fiber_main);
            b.all.push_back(f);
        }
    }
    return f ? f : &b.home;
}

void fake_give_up(const std::string &why)
{
    b.trouble = why;
    for (;;)
        go_to(&b.home);
}

void fake_sleep(void)
{
    push(&b.asleep, b.now);
    go_to(pick());
}

void fake_wake_all(void)
{
    move_all(&b.ready, &b.asleep);
}

/* ---- the barrier of the block ----------------------------------------------------------- */

static void open_barrier(void)
{
    b.waiting = 0;
    move_all(&b.ready, &b.waiters);
}

void fakecuda_barrier(int line)
{
    if (b.waiting > 0 && b.line != line && b.trouble.empty()) {
        char text[96];

        snprintf(text, sizeof(text),
                 "threads wait at different barriers, of lines %d and %d", b.line,
                 line);
        b.trouble = text;
    }
    b.line = line;
    if (++b.waiting == b.threads - b.ended && b.trouble.empty()) {
        open_barrier();
    } else {
        push(&b.waiters, b.now);
        go_to(pick());
    }
}

/* ---- warps ------------------------------------------------------------------------------ */

unsigned fakecuda_lane(void)
{
    return b.now->thread % LANES;
}

/* Values are addresses: of what each lane brings, and takes. */
static void do_together(const struct meeting *m)
{
    uint64_t *lanes[LANES];

    if (m->came != ~0u)
        fake_give_up("an instruction of a whole warp lacks lanes that have ended");
    for (int i = 0; i < LANES; i++)
        lanes[i] = (uint64_t *)(uintptr_t)m->value[i];
    m->together(lanes);
}

/* All lanes of the mask that are left have come. */
static bool close_meeting(struct warp *w, struct meeting *m)
{
    if (!m->open || (m->mask & ~w->ended & ~m->came))
        return false;
    if (m->together)
        do_together(m);
    m->open = false;
    m->inside = m->came;
    move_all(&b.ready, &m->waiting);
    return true;
}

static struct meeting *find_meeting(struct warp *w, unsigned mask)
{
    struct meeting *empty = NULL;

    for (struct meeting &m : w->meeting) {
        if (m.open && m.mask == mask)
            return &m;
        if (!empty && !m.open && !m.inside)
            empty = &m;
    }
    if (!empty)
        return NULL;
    empty->mask = mask;
    empty->came = 0;
    empty->open = true;
    return empty;
}

static const struct meeting *meet(unsigned mask, uint64_t value,
                                  fake_together *together)
{
    unsigned thread = b.now->thread, lane = thread % LANES;
    struct warp *w = &b.warps[thread / LANES];
    struct meeting *m = find_meeting(w, mask);

    if (!m)
        fake_give_up("a warp waits in more places than the stand-in knows");
    if (!(mask >> lane & 1))
        fake_give_up("a thread is not in the mask of its own warp operation");
    if (m->came == 0)
        m->together = together;
    if (m->together != together)
        fake_give_up("the lanes of a warp are at different instructions");
    m->came |= 1u << lane;
    m->value[lane] = value;
    if (!close_meeting(w, m)) {
        push(&m->waiting, b.now);
        go_to(pick());
    }
    m->inside &= ~(1u << lane);
    return m;
}

const uint64_t *fakecuda_warp(unsigned mask, uint64_t value, unsigned *present)
{
    const struct meeting *m = meet(mask, value, NULL);

    *present = m->came;
    return m->value;
}

void fake_warp_together(fake_together *together, uint64_t *mine)
{
    meet(~0u, (uint64_t)(uintptr_t)mine, together);
}

/* ---- threads ---------------------------------------------------------------------------- */

void *fakecuda_shared(void)
{
    return b.shared;
}

/* The space of shared memory begins with what the system keeps for itself. */
enum { SHARED_FIRST = 1024 };

size_t __cvta_generic_to_shared(const void *p)
{
    size_t at = (size_t)((uintptr_t)p - (uintptr_t)b.shared);

    if (at >= b.shared_bytes)
        fake_give_up("an address that is not in dynamic shared memory");
    return SHARED_FIRST + at;
}

char *fake_shared_at(uint64_t address, size_t bytes)
{
    if (address % 16)
        fake_give_up("an address of shared memory that is no multiple of 16");
    if (address < SHARED_FIRST || address - SHARED_FIRST + bytes > b.shared_bytes)
        fake_give_up("an address outside of the block's shared memory");
    return b.shared + (address - SHARED_FIRST);
}

unsigned fake_thread(void)
{
    return b.now->thread;
}

void fakecuda_trap(void)
{
    fake_give_up("a thread trapped");
}

/* Those who wait need not wait for a thread that is no more. */
static void end_thread(unsigned thread)
{
    struct warp *w = &b.warps[thread / LANES];

    b.ended++;
    w->ended |= 1u << thread % LANES;
    for (struct meeting &m : w->meeting)
        close_meeting(w, &m);
    if (b.waiting > 0 && b.waiting == b.threads - b.ended)
        open_barrier();
}

static void run_threads(struct fiber *self)
{
    while (b.taken < b.threads) {
        unsigned i = b.taken++;

        self->thread = b.backwards ? b.threads - 1 - i : i;
        self->x = self->thread % blockDim.x;
        self->y = self->thread / blockDim.x % blockDim.y;
        self->z = self->thread / blockDim.x / blockDim.y;
        set_thread(self);
        (*b.thread)();
        if (fake_copies_left(self->thread))
            fake_give_up("a thread ended before its copies to shared memory");
        if (fake_wgmma_left(self->thread / LANES))
            fake_give_up("a thread ended before its products (wgmma)");
        end_thread(self->thread);
        if (b.ready)
            break;
    }
}

/* A fiber that has nothing left to run is idle; those that wait go first. */
static void fiber_main(void)
{
    struct fiber *self = b.now;

    fiber_arrived(self);
    for (;;) {
        run_threads(self);
        push(&b.idle, self);
        go_to(pick());
    }
}

/* What the threads that are left wait for. */
static void say_divergence(void)
{
    char text[160];

    snprintf(text, sizeof(text),
             "%u of %u threads wait for others that never come: %u at the barrier of "
             "line %d, the others in warp operations or at an mbarrier",
             b.threads - b.ended, b.threads, b.waiting, b.line);
    b.trouble = text;
}

static void forget_fibers(void)
{
    b.idle = b.ready = b.waiters = b.asleep = NULL;
    b.warps.clear();
    for (struct fiber *f : b.all) {
        fiber_restart(f, fiber_main);
        push(&b.idle, f);
    }
}

/* Lanes that the last warp has not count as ended. After a block that went well all
 * meetings are over. */
static void set_warps(unsigned warps)
{
    if (b.warps.size() < warps)
        b.warps.resize(warps);
    for (struct warp &w : b.warps)
        w.ended = 0;
    if (b.threads % LANES)
        b.warps[warps - 1].ended = ~0u << b.threads % LANES;
}

std::string fake_run_block(const std::function<void()> &thread, dim3 block,
                           size_t shared, void *shared_memory, bool backwards)
{
    b.thread = &thread;
    b.threads = block.x * block.y * block.z;
    b.taken = b.ended = b.waiting = 0;
    b.backwards = backwards;
    b.shared = (char *)shared_memory;
    b.shared_bytes = shared;
    b.trouble.clear();
    set_warps((b.threads + LANES - 1) / LANES);
    fake_copies_begin(b.threads, backwards);
    fake_barriers_begin();
    fake_bulk_begin(backwards);
    fake_wgmma_begin((b.threads + LANES - 1) / LANES, backwards);
    memset(shared_memory, 0xff, shared);
    blockDim = block;
    b.now = &b.home;
    while (b.trouble.empty() && b.ended < b.threads) {
        struct fiber *f = pick();

        if (f == &b.home)
            say_divergence();
        else
            go_to(f);
    }
    if (b.trouble.empty() && fake_bulk_left())
        b.trouble = "the block ended before its bulk copies";
    if (!b.trouble.empty())
        forget_fibers();
    return b.trouble;
}
