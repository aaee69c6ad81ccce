/* SPDX-License-Identifier: Apache-2.0
 *
 * The malloc family of a test program, by glibc's own names for it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/tap.h"
#include "tests/unit/malloc_count.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int malloc_calls(void)
{
    tap_skip_all("the sanitizer has its own malloc");
    return 0;
}
#else
static atomic_int calls;

int malloc_calls(void)
{
    return atomic_load(&calls);
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    atomic_fetch_add(&calls, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
    atomic_fetch_add(&calls, 1);
    return __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&calls, 1);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&calls, 1);
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    atomic_fetch_add(&calls, 1);
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}
#endif
