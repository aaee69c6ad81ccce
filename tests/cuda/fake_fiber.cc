/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibers: the first switch to one is by ucontext, which makes the stack; all later ones are
 * by _setjmp and _longjmp. A guard page lies below each stack.
 */
#include "fake_fiber.h"

#include <stdlib.h>
#include <sys/mman.h>

#if FAKE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = FAKE_ASAN ? 512 << 10 : 128 << 10, GUARD_BYTES = 64 << 10 };

void fiber_restart(struct fiber *f, void (*main)(void))
{
#if FAKE_ASAN
    /* frames of a kernel that was stopped in them still guard their arrays */
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
    getcontext(&f->begin);
    f->begin.uc_stack.ss_sp = f->stack;
    f->begin.uc_stack.ss_size = STACK_BYTES;
    f->begin.uc_link = NULL;
    makecontext(&f->begin, main, 0);
    f->started = false;
    f->fake_stack = NULL;
}

struct fiber *fiber_new(void (*main)(void))
{
    struct fiber *f = (struct fiber *)calloc(1, sizeof(*f));
    char *p = (char *)mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (!f || p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE) != 0)
        abort();
    f->stack = p + GUARD_BYTES;
    f->bottom = f->stack;
    f->size = STACK_BYTES;
    fiber_restart(f, main);
    return f;
}

/* How the sanitizer hears of it: before the switch, where the new stack is; after it, that
 * we are there. */
static void leave(struct fiber *from, struct fiber *to)
{
#if FAKE_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->size);
#else
    (void)from;
    (void)to;
#endif
}

void fiber_arrived(struct fiber *self)
{
#if FAKE_ASAN
    struct fiber *from = self->came_from;
    const void *bottom;
    size_t size;

    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size);
    if (!from->stack) {
        from->bottom = bottom;
        from->size = size;
    }
#else
    (void)self;
#endif
}

__attribute__((noinline)) void fiber_switch(struct fiber *from, struct fiber *to)
{
    to->came_from = from;
    leave(from, to);
    if (_setjmp(from->at) == 0) {
        if (to->started)
            _longjmp(to->at, 1);
        to->started = true;
        setcontext(&to->begin);
    }
    fiber_arrived(from);
}
