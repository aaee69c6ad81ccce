/* SPDX-License-Identifier: Apache-2.0
 *
 * mbarrier objects of a block, after the PTX ISA: a phase ends when as many have arrived
 * as were said at first, and all bytes that were announced have come. Their state is
 * kept here; in shared memory only their place counts. A wait sleeps until its phase is
 * over; where nobody can go on, the block says so.
 */
#include "fake_ptx.h"

struct barrier {
    unsigned count, pending, phase;
    int64_t bytes;   /* announced and not there yet; less than none: not announced */
    unsigned thread; /* who made it */
    bool fenced;     /* copies see it: its maker's fence is over */
};

static std::map<uint64_t, struct barrier> barriers;

void fake_barriers_begin(void)
{
    barriers.clear();
}

static struct barrier *at(uint64_t address)
{
    auto found = barriers.find(address);

    if (found == barriers.end())
        fake_give_up("an mbarrier that nobody has made");
    return &found->second;
}

static void end_phase(struct barrier *b)
{
    if (b->pending || b->bytes)
        return;
    b->phase++;
    b->pending = b->count;
    fake_wake_all();
}

/* address, count */
void fake_mbarrier_init(uint64_t *v)
{
    const unsigned count = (unsigned)v[1];

    if (v[0] % 8 || !count)
        fake_give_up("an mbarrier that is not aligned to 8, or that nobody arrives at");
    fake_shared_at(v[0] / 16 * 16, 16);
    barriers[v[0]] = { count, count, 0, 0, fake_thread(), false };
}

static void arrive(struct barrier *b)
{
    if (!b->pending)
        fake_give_up("more threads arrive at an mbarrier than were said");
    b->pending--;
    end_phase(b);
}

/* address */
void fake_mbarrier_arrive(uint64_t *v)
{
    arrive(at(v[0]));
}

/* address, bytes */
void fake_mbarrier_expect(uint64_t *v)
{
    struct barrier *b = at(v[0]);

    b->bytes += (int64_t)v[1];
    arrive(b);
}

/* Is it over?, address, the phase's parity. The answer may be late, never no. */
void fake_mbarrier_wait(uint64_t *v)
{
    struct barrier *b = at(v[1]);

    if (v[2] > 1)
        fake_give_up("a parity that is not 0 or 1");
    while ((b->phase & 1) == v[2])
        fake_sleep();
    v[0] = 1;
}

void fake_fence_async(uint64_t *)
{
    for (auto &b : barriers)
        b.second.fenced = b.second.fenced || b.second.thread == fake_thread();
}

bool fake_barrier_fenced(uint64_t address)
{
    return at(address)->fenced;
}

void fake_barrier_complete(uint64_t address, size_t bytes)
{
    struct barrier *b = at(address);

    b->bytes -= (int64_t)bytes;
    end_phase(b);
}
