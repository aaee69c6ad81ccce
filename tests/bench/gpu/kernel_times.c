/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a program's time no kernel runs, without a profiler: CUDA's driver loads
 * this into a program that has its path in CUDA_INJECTION64_PATH. In: CUPTI's records
 * of kernels, copies and fills. Out, when the program ends, to the file that
 * $KERNEL_TIMES names: the nanoseconds of the second half of what was recorded, those
 * in which a kernel ran, and those in which anything ran. Loads libcupti at run time;
 * without it nothing is written.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_COPY = 1, KIND_FILL = 2, KIND_KERNEL = 10, BUFFER_BYTES = 1 << 20 };
enum { FLUSH_FORCED = 1 };

/* The beginning of every such record, in all versions; 8-byte aligned. */
struct record {
    uint32_t kind;
    uint32_t rest[3];
    uint64_t start, end; /* ns */
};

struct interval {
    uint64_t start, end;
    bool kernel;
};

static struct {
    int (*enable)(int kind);
    int (*callbacks)(void (*request)(uint8_t **, size_t *, size_t *),
                     void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t));
    int (*next)(uint8_t *buffer, size_t bytes, struct record **record);
    int (*flush)(uint32_t how);
} cupti;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct interval *all;
static size_t count, space;

static void request(uint8_t **buffer, size_t *bytes, size_t *records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *records = 0; /* as many as fit */
}

static void keep(const struct record *r)
{
    if (count == space) {
        size_t more = space ? 2 * space : 4096;
        struct interval *p = realloc(all, more * sizeof(*all));

        if (!p)
            return;
        all = p;
        space = more;
    }
    all[count++] = (struct interval){ r->start, r->end, r->kind == KIND_KERNEL };
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                     size_t valid)
{
    struct record *r = NULL;

    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&lock);
    while (cupti.next(buffer, valid, &r) == 0)
        if (r->kind == KIND_COPY || r->kind == KIND_FILL || r->kind == KIND_KERNEL)
            keep(r);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static int by_start(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

/* Time behind `from` in which any, or any kernel, ran; they are in order of their
 * starts. */
static uint64_t covered(uint64_t from, bool kernels_only)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t start = all[i].start > from ? all[i].start : from;

        if ((kernels_only && !all[i].kernel) || all[i].end <= start)
            continue;
        sum += all[i].end - start;
        from = all[i].end;
    }
    return sum;
}

static void report(void)
{
    const char *path = getenv("KERNEL_TIMES");
    uint64_t last = 0, middle;
    FILE *f;

    cupti.flush(FLUSH_FORCED);
    pthread_mutex_lock(&lock);
    f = count && path ? fopen(path, "w") : NULL;
    if (f) {
        qsort(all, count, sizeof(*all), by_start);
        for (size_t i = 0; i < count; i++)
            last = all[i].end > last ? all[i].end : last;
        middle = all[0].start + (last - all[0].start) / 2;
        fprintf(f, "%llu %llu %llu\n", (unsigned long long)(last - middle),
                (unsigned long long)covered(middle, true),
                (unsigned long long)covered(middle, false));
        fclose(f);
    }
    pthread_mutex_unlock(&lock);
}

/* ISO C has no conversion from data to functions. */
static bool find(void *library, const char *name, void *function)
{
    void *p = dlsym(library, name);

    memcpy(function, &p, sizeof(p));
    return p != NULL;
}

__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void)
{
    static const char *const names[] = { "libcupti.so.13", "libcupti.so.12",
                                         "libcupti.so" };
    void *library = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library || !find(library, "cuptiActivityEnable", &cupti.enable) ||
        !find(library, "cuptiActivityRegisterCallbacks", &cupti.callbacks) ||
        !find(library, "cuptiActivityGetNextRecord", &cupti.next) ||
        !find(library, "cuptiActivityFlushAll", &cupti.flush) ||
        cupti.callbacks(request, complete) || cupti.enable(KIND_KERNEL) ||
        cupti.enable(KIND_COPY) || cupti.enable(KIND_FILL) || atexit(report))
        return 0;
    return 1;
}
