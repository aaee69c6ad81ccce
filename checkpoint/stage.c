/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging memory for reading and writing: page aligned for O_DIRECT, on huge pages
 * where there are any. The kernel pins every page of each O_DIRECT request, and with
 * small pages that alone costs a third of the time.
 */
#include <sys/mman.h>

#include "ckpt_internal.h"

#define HUGE_BYTES ((size_t)2 << 20)

/* up to whole huge pages */
static size_t rounded(size_t bytes)
{
    return (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

/* Maps a huge page more than needed, since mmap aligns to small pages only, and gives
 * back what is outside. */
void *ckpt_stage_map(size_t bytes)
{
    size_t want = rounded(bytes), head;
    char *map = mmap(NULL, want + HUGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED)
        return NULL;
    /* Huge pages begin at multiples of their size: cut off what is before and after. */
    head = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
    if (head)
        munmap(map, head);
    munmap(map + head + want, HUGE_BYTES - head);
    madvise(map + head, want, MADV_HUGEPAGE); /* a wish: small pages work as well */
    return map + head;
}

void ckpt_stage_unmap(void *p, size_t bytes)
{
    if (p)
        munmap(p, rounded(bytes));
}
