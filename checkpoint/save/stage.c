/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging memory for reading and writing: page aligned for O_DIRECT, on huge pages
 * where there are any. The kernel pins every page of each O_DIRECT request, and with
 * small pages that alone costs a third of the time.
 */
#include <sys/mman.h>

#include "save/ckpt_commit.h"
#include "ckpt_internal.h"

/* Maps a huge page more than needed, since mmap aligns to small pages only, and gives
 * back what is outside. */
void *ckpt_stage_map(size_t bytes)
{
    size_t want = ckpt_stage_bytes(bytes), head;
    char *map = mmap(NULL, want + CKPT_HUGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED)
        return NULL;
    /* Huge pages begin at multiples of their size: cut off what is before and after. */
    head = (CKPT_HUGE_BYTES - (uintptr_t)map % CKPT_HUGE_BYTES) % CKPT_HUGE_BYTES;
    if (head)
        munmap(map, head);
    munmap(map + head + want, CKPT_HUGE_BYTES - head);
    madvise(map + head, want, MADV_HUGEPAGE); /* a wish: small pages work as well */
    return map + head;
}

void ckpt_stage_unmap(void *p, size_t bytes)
{
    if (p)
        munmap(p, ckpt_stage_bytes(bytes));
}
