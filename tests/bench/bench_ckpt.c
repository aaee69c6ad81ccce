/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint speed: bench_ckpt [DIR] [REPEATS]. One rank, a state like a small GPT in
 * float32 (146 tensors, 1 GB), interleaved with the save of the same by two ranks, and
 * with raw O_DIRECT pwrite + fsync of the same bytes; loads cold and warm, beside raw O_DIRECT pread and memcpy; 2000 tiny tensors.
 * DIR must be on a disk. Others on the machine only add time: minima are shown, too.
 * In turns with both, where $ACCEL_TORCH_PYTHON (python3) has torch: its distributed
 * checkpoints (DCP), and safetensors (ckpt_torch.py).
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/save/ckpt_commit.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/bench/median.h"
#include "tests/bench/step/peer.h"
#include "tests/world/ckpt_world.h"

#define REPEATS_MAX 20
#define IO_BYTES    (4 << 20)

static double now(void)
{
    return (double)clock_ns() * 1e-9;
}

/* Of an even number the mean of the two in the middle. */
static double middle_of(double *v, int n)
{
    median_sort(v, n);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void die(const accel_error_t *err)
{
    char text[2048];

    accel_error_format(err, text, sizeof(text));
    fprintf(stderr, "bench_ckpt: %s\n", text);
    exit(1);
}

struct set {
    accel_ckpt_box_t *box;
    char (*name)[64];
    size_t n;
    char *memory;
    int64_t bytes;
};

/* Data start 64 bytes off a page, as a tensor inside a flat shard does. */
static void allocate(struct set *s)
{
    int64_t at = 64;
    uint64_t x = 88172645463325252u;

    s->memory = aligned_alloc(4096, (size_t)(s->bytes + 8192) / 4096 * 4096);
    if (!s->memory)
        exit(1);
    for (int64_t i = 0; i < s->bytes / 8; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(s->memory + 64 + 8 * i, &x, 8);
    }
    for (size_t i = 0; i < s->n; i++) {
        s->box[i].data = s->memory + at;
        at += s->box[i].shape[0] * s->box[i].shape[1] * 4;
    }
}

static void add(struct set *s, const char *name, int64_t rows, int64_t cols)
{
    accel_ckpt_box_t *b = &s->box[s->n];

    snprintf(s->name[s->n], sizeof(s->name[0]), "%s", name);
    b->name = s->name[s->n++];
    b->dtype = ACCEL_F32;
    b->ndim = 2;
    b->global_shape[0] = b->shape[0] = rows;
    b->global_shape[1] = b->shape[1] = cols;
    s->bytes += rows * cols * 4;
}

static struct set make_set(int tiny)
{
    struct set s = { calloc(2048, sizeof(*s.box)), calloc(2048, 64), 0, NULL, 0 };
    char name[64];

    if (!s.box || !s.name)
        exit(1);
    for (int i = 0; i < tiny; i++) {
        snprintf(name, sizeof(name), "model/t%d.weight", i);
        add(&s, name, 16, 16);
    }
    if (!tiny)
        add(&s, "model/wte.weight", 32000, 1024);
    for (int i = 0; !tiny && i < 112; i++) {
        snprintf(name, sizeof(name), "model/h.%d.w%d", i / 7, i % 7);
        add(&s, name, i % 7 < 4 ? 1024 : 2816, i % 7 < 4 ? 1024 : 1024);
    }
    for (int i = 0; !tiny && i < 33; i++) {
        snprintf(name, sizeof(name), "model/norm.%d", i);
        add(&s, name, 1, 1024);
    }
    allocate(&s);
    return s;
}

/* coll NULL: one rank. */
static accel_ckpt_stats_t save_boxes(const char *root, int64_t step,
                                     const accel_ckpt_box_t *boxes, size_t n,
                                     const accel_ckpt_coll_t *coll)
{
    const accel_ckpt_save_t s = { sizeof(s),         .root = root,
                                  .step = step,      .owner = "bench.0",
                                  .run_id = "bench", .sharding = "NO_SHARD",
                                  .boxes = boxes,    .box_count = n,
                                  .keep = 1 };
    accel_ckpt_stats_t stats;
    accel_error_t err = { 0 };

    if (accel_ckpt_save(&s, coll, &stats, &err))
        die(&err);
    return stats;
}

static double save_once(const char *root, int64_t step, const struct set *set,
                        int *direct)
{
    const accel_ckpt_stats_t stats = save_boxes(root, step, set->box, set->n, NULL);

    *direct = stats.direct_io;
    return stats.seconds;
}

/* Of two ranks: rank 0 has the upper half of the rows of each tensor, rank 1 the lower
 * one. */
static size_t half_of(const struct set *set, int rank, accel_ckpt_box_t *boxes)
{
    size_t n = 0;

    for (size_t i = 0; i < set->n; i++) {
        accel_ckpt_box_t b = set->box[i];
        const int64_t rows = b.shape[0], upper = rows - rows / 2;

        b.offset[0] = rank ? upper : 0;
        b.shape[0] = rank ? rows - upper : upper;
        b.data = (char *)b.data + b.offset[0] * b.shape[1] * 4;
        if (b.shape[0] > 0)
            boxes[n++] = b;
    }
    return n;
}

/* By two processes; seconds of the slower. */
static double save_by_two(const char *root, int64_t step, const struct set *set)
{
    double seconds = -1;
    int end[2], status;
    pid_t pid;

    fflush(NULL);
    if (pipe(end) || (pid = fork()) < 0)
        exit(1);
    if (pid == 0) {
        accel_ckpt_box_t *boxes = calloc(set->n, sizeof(*boxes));
        struct world w;

        world_start(&w, 2);
        seconds =
            save_boxes(root, step, boxes, half_of(set, w.rank, boxes), &w.coll).seconds;
        if (w.rank == 0 && write(end[1], &seconds, sizeof(seconds)) < 0)
            exit(1);
        _exit(world_end(&w, 0));
    }
    close(end[1]);
    if (read(end[0], &seconds, sizeof(seconds)) != sizeof(seconds) ||
        waitpid(pid, &status, 0) != pid || status)
        exit(1);
    close(end[0]);
    return seconds;
}

/* The best this machine does: whole requests from huge pages, as the save makes
 * them. */
static double raw_once(const char *root, const struct set *set)
{
    char path[400], *from = ckpt_stage_map(4 * IO_BYTES);
    double begun, took;
    int fd;

    if (!from)
        exit(1);
    memcpy(from, set->memory, 4 * IO_BYTES);
    begun = now();

    snprintf(path, sizeof(path), "%s/raw", root);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, 0666);
    if (fd < 0)
        return -1;
    for (int64_t at = 0; at + IO_BYTES <= set->bytes; at += IO_BYTES)
        if (pwrite(fd, from + at % (4 * IO_BYTES), IO_BYTES, at) != IO_BYTES) {
            perror("raw pwrite");
            exit(1);
        }
    if (fsync(fd))
        exit(1);
    close(fd);
    took = now() - begun;
    ckpt_stage_unmap(from, 4 * IO_BYTES);
    unlink(path);
    return took;
}

/* O_DIRECT pread of the same bytes, a request at a time. */
static double raw_read(const char *root, int64_t step, const struct set *set)
{
    char path[400], *to = ckpt_stage_map(4 * IO_BYTES);
    double begun;
    int fd;

    snprintf(path, sizeof(path), "%s/step_%08lld/rank_00000-of-00001.h5", root,
             (long long)step);
    fd = open(path, O_RDONLY | O_DIRECT);
    if (fd < 0 || !to)
        return -1;
    memset(to, 1, 4 * IO_BYTES);
    begun = now();
    for (int64_t at = 0; at + IO_BYTES <= set->bytes; at += IO_BYTES)
        if (pread(fd, to + at % (4 * IO_BYTES), IO_BYTES, at) != IO_BYTES) {
            perror("raw pread");
            exit(1);
        }
    begun = now() - begun;
    close(fd);
    ckpt_stage_unmap(to, 4 * IO_BYTES);
    return begun;
}

/* Seconds of a copy of as many bytes, from memory to memory. */
static double copy_once(const struct set *set)
{
    const size_t half = (size_t)set->bytes / 2;
    double begun = now();

    memcpy(set->memory + half, set->memory, half);
    return 2 * (now() - begun);
}

/* Processor time of all threads, which others on the machine change least. */
static double processor(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double least_processor = 1e9;

static double load_once(const char *root, int64_t step, const struct set *set,
                        bool cold)
{
    accel_ckpt_t *c = NULL;
    accel_error_t err = { 0 };
    char dir[400], file[440];
    double begun, busy;
    int fd;

    snprintf(dir, sizeof(dir), "%s/step_%08lld", root, (long long)step);
    snprintf(file, sizeof(file), "%s/rank_00000-of-00001.h5", dir);
    fd = open(file, O_RDONLY);
    posix_fadvise(fd, 0, 0, cold ? POSIX_FADV_DONTNEED : POSIX_FADV_WILLNEED);
    if (!cold) { /* every page in the cache */
        static char buf[1 << 20];

        while (read(fd, buf, sizeof(buf)) > 0)
            ;
    }
    close(fd);
    begun = now();
    busy = processor();
    if (accel_ckpt_open(&c, dir, &err) || accel_ckpt_read(c, set->box, set->n, &err))
        die(&err);
    accel_ckpt_close(c);
    busy = processor() - busy;
    if (!cold && busy < least_processor)
        least_processor = busy;
    return now() - begun;
}

/* ---- others ---------------------------------------------------------------------- */

enum { DCP, SAFETENSORS, KINDS };
static const char *const kinds[KINDS] = { "dcp", "safetensors" };

/* The same tensors in another program. */
static struct rivals {
    struct peer peer;
    bool there[KINDS];
    double save[KINDS][REPEATS_MAX], cold[KINDS][REPEATS_MAX], warm[KINDS][REPEATS_MAX];
} rivals;

/* Seconds of what is asked for. */
static double __attribute__((format(printf, 1, 2))) rival_does(const char *fmt, ...)
{
    struct peer *p = &rivals.peer;
    double seconds = 0;
    char line[256];
    va_list ap;

    va_start(ap, fmt);
    vfprintf(p->to, fmt, ap);
    va_end(ap);
    fputc('\n', p->to);
    fflush(p->to);
    if (!fgets(line, sizeof(line), p->from) || sscanf(line, "%*s %lf", &seconds) != 1) {
        fprintf(stderr, "bench_ckpt: torch has ended\n");
        exit(1);
    }
    return seconds;
}

static void rivals_start(const struct set *set)
{
    const char *python = getenv("ACCEL_TORCH_PYTHON");
    char *argv[] = { (char *)(uintptr_t)(python ? python : "python3"),
                     (char *)CKPT_TORCH, NULL };

    if (!peer_start(&rivals.peer, "torch", argv)) {
        printf("no torch in %s (set ACCEL_TORCH_PYTHON): nothing to compare with\n",
               argv[0]);
        return;
    }
    for (int k = 0; k < KINDS; k++)
        rivals.there[k] = strstr(rivals.peer.about, kinds[k]);
    for (size_t i = 0; i < set->n; i++)
        fprintf(rivals.peer.to, "tensor %s %lld %lld\n", set->name[i],
                (long long)set->box[i].shape[0], (long long)set->box[i].shape[1]);
}

/* The one before is removed: there is one of each kind. */
static void rivals_save(const char *root, int i)
{
    char dir[400];

    for (int k = 0; k < KINDS; k++) {
        if (!rivals.there[k])
            continue;
        snprintf(dir, sizeof(dir), "%s/%s", root, kinds[k]);
        world_rmtree(dir);
        rivals.save[k][i] = rival_does("save %s %s", kinds[k], dir);
    }
}

static void rivals_load(const char *root, int i)
{
    for (int k = 0; k < KINDS; k++) {
        if (!rivals.there[k])
            continue;
        rival_does("cold %s/%s", root, kinds[k]);
        rivals.cold[k][i] = rival_does("load %s %s/%s", kinds[k], root, kinds[k]);
        rival_does("warm %s/%s", root, kinds[k]);
        rivals.warm[k][i] = rival_does("load %s %s/%s", kinds[k], root, kinds[k]);
    }
}

/* ---- */

static void show_load(const char *what, double *v, int n, double gb)
{
    double middle = middle_of(v, n); /* sorts */

    printf("%-34s %8.3f s median, %.3f s least  (%.2f / %.2f GB/s)\n", what, middle,
           v[0], gb / middle, gb / v[0]);
}

static struct {
    double save[REPEATS_MAX], raw[REPEATS_MAX], ratio[REPEATS_MAX], two[REPEATS_MAX],
        ratio_two[REPEATS_MAX], cold[REPEATS_MAX], warm[REPEATS_MAX], read[REPEATS_MAX],
        copy[REPEATS_MAX];
} t;

static void measure(const char *root, const struct set *set, int n, double gb)
{
    int direct = 0;

    printf("%-34s %8s %8s %8s %8s %8s\n", "", "save s", "raw s", "raw/save", "2 ranks",
           "raw/that");
    for (int i = 0; i < n; i++) {
        t.raw[i] = raw_once(root, set);
        t.two[i] = save_by_two(root, 2 * i, set);
        t.save[i] = save_once(root, 2 * i + 1, set, &direct);
        rivals_save(root, i);
        t.ratio[i] = t.raw[i] / t.save[i];
        t.ratio_two[i] = t.raw[i] / t.two[i];
        printf("%.2f GB, %zu tensors, repeat %-6d %8.3f %8.3f %8.2f %8.3f %8.2f\n", gb,
               set->n, i, t.save[i], t.raw[i], t.ratio[i], t.two[i], t.ratio_two[i]);
    }
    for (int i = 0; i < n; i++) {
        t.read[i] = raw_read(root, 2 * n - 1, set);
        t.cold[i] = load_once(root, 2 * n - 1, set, true);
        t.copy[i] = copy_once(set);
        t.warm[i] = load_once(root, 2 * n - 1, set, false);
        rivals_load(root, i);
    }
    printf("median of %d%-23s %8.3f %8.3f %8.2f %8.3f %8.2f\n", n,
           direct ? " (O_DIRECT)" : "", middle_of(t.save, n), middle_of(t.raw, n),
           middle_of(t.ratio, n), middle_of(t.two, n), middle_of(t.ratio_two, n));
}

static void show_rivals(int n, double gb)
{
    char text[64];

    if (rivals.peer.about[0])
        printf("against %s\n", rivals.peer.about);
    for (int k = 0; k < KINDS; k++) {
        if (!rivals.there[k])
            continue;
        snprintf(text, sizeof(text), "%s, save", kinds[k]);
        show_load(text, rivals.save[k], n, gb);
        printf("%-34s %8.2f of accel's\n", "",
               middle_of(rivals.save[k], n) / middle_of(t.save, n));
        snprintf(text, sizeof(text), "%s, load, cold", kinds[k]);
        show_load(text, rivals.cold[k], n, gb);
        snprintf(text, sizeof(text), "%s, load, warm", kinds[k]);
        show_load(text, rivals.warm[k], n, gb);
    }
}

static void measure_tiny(const char *root, const struct set *set, int n)
{
    int direct;

    for (int i = 0; i < n; i++) {
        t.save[i] = save_once(root, 100 + i, set, &direct);
        t.warm[i] = load_once(root, 100 + i, set, false);
        t.cold[i] = load_once(root, 100 + i, set, true);
    }
    printf("2000 tiny tensors: save %.1f ms, load warm %.1f ms, cold %.1f ms",
           1e3 * middle_of(t.save, n), 1e3 * middle_of(t.warm, n),
           1e3 * middle_of(t.cold, n));
    printf("; least %.1f, %.1f, %.1f ms\n", 1e3 * t.save[0], 1e3 * t.warm[0],
           1e3 * t.cold[0]);
}

int main(int argc, char **argv)
{
    int repeats = argc > 2 ? atoi(argv[2]) : 5;
    struct set big = make_set(0), tiny = make_set(2000);
    char root[256];
    double gb;

    if (repeats < 1 || repeats > REPEATS_MAX)
        repeats = 5;
    if (argc > 1)
        setenv("TMPDIR", argv[1], 1);
    world_tmpdir(root, "bench-ckpt");
    rivals_start(&big);
    gb = (double)big.bytes * 1e-9;
    measure(root, &big, repeats, gb);
    show_load("verified load, cold", t.cold, repeats, gb);
    show_load("raw O_DIRECT pread", t.read, repeats, gb);
    show_load("verified load, warm", t.warm, repeats, gb);
    printf("%-34s %8.3f s of processor time, least\n", "", least_processor);
    show_load("memcpy", t.copy, repeats, gb);
    show_rivals(repeats, gb);
    measure_tiny(root, &tiny, repeats);
    if (rivals.peer.pid > 0)
        peer_stop(&rivals.peer);
    world_rmtree(root);
    return 0;
}
