/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls for memory of what is linked statically: each counts, and one fails.
 */
#include "tests/unit/scarce.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tensor/graph.h"

enum { MOST = 1 << 15 };

static atomic_int calls, strikes_at;
static atomic_bool armed, failed;
static const char *last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what is held */
static void *held[MOST];
static int count;

void scarce_begin(int nth)
{
    calls = 0;
    strikes_at = nth;
    armed = true;
    failed = false;
}

void scarce_pause(void)
{
    armed = false;
}

void scarce_resume(void)
{
    armed = true;
}

bool scarce_end(void)
{
    armed = false;
    return failed;
}

int scarce_calls(void)
{
    return calls;
}

const char *scarce_call(void)
{
    return last;
}

int scarce_held(void)
{
    return count;
}

static bool fails(const char *call)
{
    if (!armed || atomic_fetch_add(&calls, 1) + 1 != strikes_at)
        return false;
    last = call;
    errno = ENOMEM;
    return failed = true;
}

static void *took(void *p)
{
    pthread_mutex_lock(&lock);
    if (p && count < MOST)
        held[count++] = p;
    pthread_mutex_unlock(&lock);
    return p;
}

/* The latest is the likeliest. */
static void gave(void *p)
{
    pthread_mutex_lock(&lock);
    for (int i = count; p && i-- > 0;)
        if (held[i] == p) {
            held[i] = held[--count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

#define CALL(name, args, values, ...)                                                  \
    void *__real_##name(__VA_ARGS__);                                                  \
    void *__wrap_##name args                                                           \
    {                                                                                  \
        return fails(#name) ? NULL : took(__real_##name values);                       \
    }
CALL(malloc, (size_t n), (n), size_t)
CALL(calloc, (size_t n, size_t each), (n, each), size_t, size_t)
CALL(aligned_alloc, (size_t align, size_t n), (align, n), size_t, size_t)
CALL(strdup, (const char *s), (s), const char *)

/* What moves is another piece. */
#define AGAIN(name, args, values, ...)                                                 \
    void *__real_##name(__VA_ARGS__);                                                  \
    void *__wrap_##name args                                                           \
    {                                                                                  \
        if (fails(#name))                                                              \
            return NULL;                                                               \
        gave(p);                                                                       \
        return took(__real_##name values);                                             \
    }
AGAIN(realloc, (void *p, size_t n), (p, n), void *, size_t)
AGAIN(reallocarray, (void *p, size_t n, size_t each), (p, n, each), void *, size_t,
      size_t)

void __real_free(void *p);
void __wrap_free(void *p)
{
    gave(p);
    __real_free(p);
}

void *__real_mmap(void *at, size_t n, int access, int flags, int fd, off_t from);
void *__wrap_mmap(void *at, size_t n, int access, int flags, int fd, off_t from)
{
    void *p = fails("mmap") ? MAP_FAILED : __real_mmap(at, n, access, flags, fd, from);

    if (p != MAP_FAILED)
        took(p);
    return p;
}

int __real_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n)
{
    gave(p);
    return __real_munmap(p, n);
}

int __real_mprotect(void *p, size_t n, int access);
int __wrap_mprotect(void *p, size_t n, int access)
{
    return fails("mprotect") ? -1 : __real_mprotect(p, n, access);
}

void *__real_arena_alloc(struct arena *a, size_t bytes);
void *__wrap_arena_alloc(struct arena *a, size_t bytes)
{
    return fails("arena_alloc") ? NULL : __real_arena_alloc(a, bytes);
}
