/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies from global to shared memory beside a kernel (cp.async). In every other block
 * they happen at once, else only when they are waited for: a kernel that reads too
 * early, or copies over what others still read, is wrong in one of the two.
 */
#include <string.h>

#include "fake_ptx.h"

struct async_copy {
    char *to;
    const char *from;
    size_t bytes; /* to read; zeros up to 16 */
    int group;
};

/* One thread's: groups that it committed, and copies that it has not waited for. */
struct async_copies {
    int groups;
    std::vector<struct async_copy> left;
};

static std::vector<struct async_copies> threads;
static bool late;

static void copy_now(const struct async_copy *c)
{
    memset(c->to, 0, 16);
    memcpy(c->to, c->from, c->bytes);
}

void fake_copies_begin(unsigned count, bool wait)
{
    if (threads.size() < count)
        threads.resize(count);
    for (struct async_copies &t : threads) {
        t.groups = 0;
        t.left.clear();
    }
    late = wait;
}

bool fake_copies_left(unsigned thread)
{
    return !threads[thread].left.empty();
}

/* to, from, 16, bytes to read */
void fake_cp_async(uint64_t *v)
{
    struct async_copies *t = &threads[fake_thread()];
    struct async_copy c = { fake_shared_at(v[0], 16), (const char *)(uintptr_t)v[1],
                            (size_t)v[3], t->groups };

    if (v[2] != 16 || c.bytes > 16)
        fake_give_up("cp.async.cg copies 16 bytes");
    if (v[1] % 16)
        fake_give_up("cp.async reads from an address that is no multiple of 16");
    if (c.bytes && !fake_on_device(c.from, c.bytes))
        fake_give_up("cp.async reads outside of what was allocated");
    if (!late)
        copy_now(&c);
    t->left.push_back(c);
}

void fake_cp_async_commit(uint64_t *)
{
    threads[fake_thread()].groups++;
}

/* Copies that no group has yet are not waited for. */
void fake_cp_async_wait(uint64_t *v)
{
    struct async_copies *t = &threads[fake_thread()];
    size_t kept = 0;

    for (const struct async_copy &c : t->left) {
        if (c.group >= t->groups - (int)v[0])
            t->left[kept++] = c;
        else if (late)
            copy_now(&c);
    }
    t->left.resize(kept);
}
