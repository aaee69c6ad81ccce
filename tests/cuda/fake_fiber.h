/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibers: stacks that hand the processor to one another, without a system call.
 */
#ifndef FAKE_FIBER_H
#define FAKE_FIBER_H

#include <stddef.h>
#ifndef __x86_64__
#undef _FORTIFY_SOURCE /* its longjmp refuses to leave one stack for another */
#include <setjmp.h>
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define FAKE_ASAN 1
#else
#define FAKE_ASAN 0
#endif

struct fiber {
#ifdef __x86_64__
    void *top; /* of its stack, while another one runs */
#else
    jmp_buf at;
    ucontext_t begin;
    bool prepared; /* begins at `begin` */
#endif
    char *stack;        /* NULL: the stack of the thread itself */
    const void *bottom; /* where the sanitizer believes it to be */
    size_t size;
    void *fake_stack;
    struct fiber *came_from; /* who switched to it */
    struct fiber *next;      /* in one of the caller's lists */
    unsigned thread;         /* which thread of the block it runs */
    unsigned x, y, z;        /* the same, as threadIdx */
};

struct fiber *fiber_new(void (*main)(void));
/* Forgets what it was doing: when switched to next it begins again. */
void fiber_restart(struct fiber *f, void (*main)(void));
/* Goes on in `to`; returns when somebody switches to `from`. */
void fiber_switch(struct fiber *from, struct fiber *to);
void fiber_arrived(struct fiber *self); /* first in a fiber's main */

#endif
