/* SPDX-License-Identifier: Apache-2.0
 *
 * With $FAKE_CUDA_WATCH the devices' memory is closed to the process but while work of a
 * stream is done: host code that follows a pointer of the device dies of it, as on a machine
 * with a GPU.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "fakecuda.h"

static int depth; /* how many have opened it */

static void protect(const struct block *b, int how)
{
    if (b->kind == MEMORY_DEVICE || b->kind == MEMORY_MAPPED)
        mprotect(b->map, b->map_bytes, how);
}

static void protect_all(int how)
{
    for (const auto &entry : fake.blocks)
        if (entry.second.map)
            protect(&entry.second, how);
}

void fake_memory_open(void)
{
    if (fake.watch && depth++ == 0)
        protect_all(PROT_READ | PROT_WRITE);
}

void fake_memory_close(void)
{
    if (fake.watch && --depth == 0)
        protect_all(PROT_NONE);
}

void fake_watch_protect(const struct block *b)
{
    if (fake.watch && depth == 0 && b->map)
        protect(b, PROT_NONE);
}

/* The last page is never accessible. */
char *fake_watch_take(size_t bytes, struct block *b)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t all = (bytes + page - 1) / page * page;
    void *p = mmap(NULL, all + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    b->map = (char *)p;
    b->map_bytes = all;
    mprotect(b->map + all, page, PROT_NONE);
    return b->map + all - bytes;
}

void fake_watch_drop(const struct block *b)
{
    munmap(b->map, b->map_bytes + (size_t)sysconf(_SC_PAGESIZE));
}
