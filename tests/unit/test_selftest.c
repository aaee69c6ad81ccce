/* SPDX-License-Identifier: Apache-2.0
 *
 * The self-test's checks find what they are there for: one changed value of each
 * collective, a rank that stands elsewhere, a directory that is not shared, a loss that
 * differs, a checkpoint with another bit. Each time all ranks get the same status, and
 * rank 0 the code and the rank.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/selftest/selftest.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"

/* ---- faults ---------------------------------------------------------------------- */

static bool spoil;      /* this process, what it calls next */
static bool spoil_loss; /* one per mille off */
static bool poor;       /* calloc fails */

void *__real_calloc(size_t n, size_t each), *__wrap_calloc(size_t n, size_t each);
__typeof__(comm_all_gather) __real_comm_all_gather, __wrap_comm_all_gather;
__typeof__(comm_reduce_scatter) __real_comm_reduce_scatter, __wrap_comm_reduce_scatter;
__typeof__(comm_all_reduce) __real_comm_all_reduce, __wrap_comm_all_reduce;
__typeof__(comm_broadcast) __real_comm_broadcast, __wrap_comm_broadcast;
__typeof__(comm_barrier) __real_comm_barrier, __wrap_comm_barrier;
__typeof__(accel_ckpt_read) __real_accel_ckpt_read, __wrap_accel_ckpt_read;

void *__wrap_calloc(size_t n, size_t each)
{
    return poor ? NULL : __real_calloc(n, each);
}

/* The last bit of the last byte. */
static void flip(void *buf, size_t bytes)
{
    if (spoil && bytes > 1000) /* what the checks say to each other stays whole */
        ((unsigned char *)buf)[bytes - 1] ^= 1;
}

accel_status_t __wrap_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err)
{
    accel_status_t st = __real_comm_all_gather(c, buf, elems, t, err);

    flip(buf, elems * (size_t)comm_size(c) * accel_dtype_bytes(t));
    return st;
}

accel_status_t __wrap_comm_reduce_scatter(struct comm *c, const void *in, float *out,
                                          size_t elems, accel_dtype_t t, float scale,
                                          bool accumulate, accel_error_t *err)
{
    accel_status_t st =
        __real_comm_reduce_scatter(c, in, out, elems, t, scale, accumulate, err);

    flip(out, elems * sizeof(float));
    return st;
}

accel_status_t __wrap_comm_all_reduce(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, enum comm_op op,
                                      accel_error_t *err)
{
    accel_status_t st = __real_comm_all_reduce(c, buf, elems, t, op, err);

    flip(buf, elems * accel_dtype_bytes(t));
    if (spoil_loss && t == ACCEL_F64 && op == COMM_SUM && elems == 1)
        *(double *)buf *= 1.001;
    return st;
}

accel_status_t __wrap_comm_broadcast(struct comm *c, void *buf, size_t bytes, int root,
                                     accel_error_t *err)
{
    accel_status_t st = __real_comm_broadcast(c, buf, bytes, root, err);

    flip(buf, bytes);
    return st;
}

accel_status_t __wrap_comm_barrier(struct comm *c, accel_error_t *err)
{
    return c ? __real_comm_barrier(c, err) : ACCEL_EPEER;
}

accel_status_t __wrap_accel_ckpt_read(accel_ckpt_t *c, const accel_ckpt_box_t *boxes,
                                      size_t n, accel_error_t *err)
{
    accel_status_t st = __real_accel_ckpt_read(c, boxes, n, err);

    if (spoil && n > 0)
        ((unsigned char *)boxes[n - 1].data)[0] ^= 1;
    return st;
}

/* ---- checks of several ranks ----------------------------------------------------- */

struct fault {
    const char *name; /* of the check, and after a comma what is wrong */
    selftest_f check;
    bool spoiled;     /* rank 1 gets a wrong value */
    const char *says; /* rank 1's launcher says it is rank 7 */
    bool elsewhere;   /* rank 1 does not see the directory */
    int code;         /* 0: all is well */
    accel_status_t status;
};

/* Rank 1 counts one rank too many on its node, which rank 0 finds. */
static accel_status_t check_miscount(struct selftest *t, struct check *c,
                                     accel_error_t *err)
{
    t->run->boot.local_size += t->run->boot.rank == 1;
    return check_map(t, c, err);
}

static const struct fault faults[] = {
    { "map", check_map, false, NULL, false, 0, ACCEL_OK },
    { "map, a launcher that disagrees", check_map, false, "OMPI_COMM_WORLD_RANK", false,
      61, ACCEL_EMISMATCH },
    { "map, a rank that miscounts", check_miscount, false, NULL, false, 61,
      ACCEL_EMISMATCH },
    { "all_gather", check_collective, false, NULL, false, 0, ACCEL_OK },
    { "all_gather, one bit", check_collective, true, NULL, false, 62, ACCEL_EBUG },
    { "reduce_scatter", check_collective, false, NULL, false, 0, ACCEL_OK },
    { "reduce_scatter, one bit", check_collective, true, NULL, false, 62, ACCEL_EBUG },
    { "all_reduce", check_collective, false, NULL, false, 0, ACCEL_OK },
    { "all_reduce, one bit", check_collective, true, NULL, false, 62, ACCEL_EBUG },
    { "broadcast", check_collective, false, NULL, false, 0, ACCEL_OK },
    { "broadcast, one bit", check_collective, true, NULL, false, 62, ACCEL_EBUG },
    { "barrier", check_barrier, false, NULL, false, 0, ACCEL_OK },
    { "directory", check_dir, false, NULL, false, 0, ACCEL_OK },
    { "directory, not shared", check_dir, false, NULL, true, 66, ACCEL_ECREATE },
};

/* Ranks without the rights of root see no directory of rank 0's own. */
static bool leave_rights(const struct fault *f, const struct boot *b)
{
    return !f->elsewhere || b->rank != 1 || (setgid(65534) == 0 && setuid(65534) == 0);
}

/* Each rank sends what it has for itself to both others, a sum's parts twice; only
 * collectives have a rate. */
static bool is_rate(const struct check *c)
{
    const double times = strcmp(c->name, "all_reduce") ? 2 : 4;
    size_t elems = 0;

    if (sscanf(c->found, "%zu float32", &elems) != 1 || !strstr(c->found, "float32"))
        return c->gb_per_s == 0;
    return fabs(c->gb_per_s * c->ms * 1e6 / (times * (double)elems * 4) - 1) < 1e-9;
}

static bool right(const struct selftest *t, const struct fault *f, int rank)
{
    const struct check *c = &t->check[0];
    const char *where = f->check == check_miscount ? "rank 0 on " : "rank 1 on ";
    bool as_said = t->status == f->status && !t->broken &&
                   (c->verdict == VERDICT_FAIL) == (f->code != 0) && is_rate(c);

    if (rank == 0 && f->code)
        as_said = as_said && c->error.message == f->code &&
                  strncmp(c->error.where, where, strlen(where)) == 0;
    if (!as_said)
        fprintf(stderr, "# rank %d: status %d, A%04d, %s: %s\n", rank, t->status,
                c->error.message, c->error.where, c->error.text);
    return as_said;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct fault *f = arg;
    struct comm_options o = { .timeout_ms = HANG_S * 1000 };
    accel_t *run = calloc(1, sizeof(*run));
    struct selftest t = { .run = run, .parent = "/tmp" };
    accel_error_t err = { 0 };
    char name[32];
    bool good;

    if (!run || comm_open(&run->comm, b, &o, &err) != ACCEL_OK)
        return 2;
    run->boot = *b;
    run->boot.method = "pmix";
    if (f->says && b->rank == 1) {
        setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
        setenv(f->says, "7", 1);
    }
    spoil = f->spoiled && b->rank == 1;
    if (!leave_rights(f, b))
        return 3;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(f->name, ","), f->name);
    selftest_check(&t, name, f->check);
    good = right(&t, f, b->rank);
    if (b->rank == 0)
        workdir_remove(t.dir);
    comm_close(run->comm);
    free(run);
    return !good;
}

/* ---- steps and checkpoint -------------------------------------------------------- */

/* `steps` and `checkpoint`: the codes of the two checks; 0: good. `child`: what goes
 * wrong in the process for comparison. */
static void one_process(const char *name, const char *child, int steps, int checkpoint)
{
    struct selftest t = { .parent = "/tmp" };
    accel_error_t err = { 0 };

    if (accel_open(&t.run, NULL, &err) != ACCEL_OK) {
        tap_ok(false, "%s: %s", name, err.text);
        return;
    }
    setenv("SPOIL", child, 1);
    selftest_check(&t, "directory", check_dir);
    selftest_check(&t, "steps", check_steps);
    spoil = checkpoint != 0;
    selftest_check(&t, "checkpoint", check_checkpoint);
    spoil = false;
    unsetenv("SPOIL");
    tap_is_int(t.check[1].error.message, steps, "%s: steps %s", name,
               t.check[1].error.text);
    tap_is_int(t.check[2].error.message, checkpoint, "%s: checkpoint %s", name,
               t.check[2].error.text);
    accel_close(t.run, NULL);
    workdir_remove(t.dir);
    tap_ok(access(t.dir, F_OK) != 0 && errno == ENOENT, "%s: nothing is left", name);
}

static accel_status_t check_poor(struct selftest *t, struct check *c,
                                 accel_error_t *err)
{
    (void)t, (void)c, (void)err;
    poor = true;
    return ACCEL_OK;
}

static void no_memory(void)
{
    accel_t run = { .boot.size = 3 };
    struct selftest t = { .run = &run };

    selftest_check(&t, "poor", check_poor);
    poor = false;
    tap_is_str(t.check[0].error.text, "out of memory: the findings needs 24 B",
               "no memory for what three ranks find");
}

static void no_barrier(void)
{
    accel_t run = { 0 };
    struct selftest t = { .run = &run };
    struct check c = { 0 };

    tap_is_int(check_barrier(&t, &c, NULL), ACCEL_EPEER, "a barrier that fails");
}

static int reference(int world, const char *out)
{
    const char *child = getenv("SPOIL");

    if (child && strcmp(child, "fails") == 0)
        return 3;
    spoil_loss = child && strcmp(child, "differs") == 0;
    return selftest_reference(world, out);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--reference") == 0)
        return reference(atoi(argv[2]), argv[3]);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(faults); i++) {
        if (faults[i].elsewhere && geteuid() != 0)
            tap_ok(true, "%s # SKIP needs a second user: root", faults[i].name);
        else
            tap_is_int(fork_world(3, rank_main, (void *)&faults[i], 240), 0, "%s",
                       faults[i].name);
    }
    no_memory();
    no_barrier();
    one_process("all is well", "", 0, 0);
    one_process("no comparison", "fails", 63, 0);
    one_process("another loss", "differs", 64, 0);
    one_process("another bit", "", 0, 67);
    return tap_done();
}
