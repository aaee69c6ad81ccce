/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibers. A switch swaps the registers that a function must keep. Where we have no code for
 * that, ucontext and _longjmp do it; with the address sanitizer they are slow, because each
 * _longjmp clears the marks of a whole stack. A guard page lies below each stack.
 */
#include "fake_fiber.h"

#include <stdlib.h>
#include <sys/mman.h>

#if FAKE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = FAKE_ASAN ? 512 << 10 : 128 << 10, GUARD_BYTES = 64 << 10 };

#ifdef __x86_64__
/* Keeps what a function must keep on this stack, and its top in *from; goes on at the top
 * *to, where the same lies. Both may be the same: a fiber that waited may be the next. */
extern "C" void fakecuda_swap(void **from, void **to);
__asm__(".text\n"
        ".type fakecuda_swap, @function\n"
        "fakecuda_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fakecuda_swap, . - fakecuda_swap\n");

/* A stack as fakecuda_swap leaves it: six registers, and above them where to return to. */
static void prepare(struct fiber *f, void (*main)(void))
{
    void **top = (void **)(f->stack + STACK_BYTES) - 8;

    for (int i = 0; i < 6; i++)
        top[i] = NULL;
    top[6] = (void *)main;
    top[7] = NULL;
    f->top = top;
}

static void swap(struct fiber *from, struct fiber *to)
{
    fakecuda_swap(&from->top, &to->top);
}
#else
static void prepare(struct fiber *f, void (*main)(void))
{
    getcontext(&f->begin);
    f->begin.uc_stack.ss_sp = f->stack;
    f->begin.uc_stack.ss_size = STACK_BYTES;
    f->begin.uc_link = NULL;
    makecontext(&f->begin, main, 0);
    f->prepared = true;
}

static void swap(struct fiber *from, struct fiber *to)
{
    bool first = to->prepared;

    if (_setjmp(from->at) != 0)
        return;
    to->prepared = false;
    if (first)
        setcontext(&to->begin);
    else
        _longjmp(to->at, 1);
}
#endif

void fiber_restart(struct fiber *f, void (*main)(void))
{
#if FAKE_ASAN
    /* frames of a kernel that was stopped in them still guard their arrays */
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
    prepare(f, main);
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
    swap(from, to);
    fiber_arrived(from);
}
