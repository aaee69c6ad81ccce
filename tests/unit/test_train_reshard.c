/* SPDX-License-Identifier: Apache-2.0
 *
 * A change of the world size: parameters and Adam moments of a gpt2 saved by 4 ranks
 * come back bit for bit on 1, 2 and 3 ranks. No trainer runs here; only the pieces it is
 * made of.
 */
#include <stdio.h>
#include <stdlib.h>

#include "state/state.h"
#include "backend/device.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/model_run.h"
#include "tests/world/run_folder.h"

struct job {
    const char *root;
    bool save;
    enum sharding_strategy strategy;
};

/* Any bit pattern that tells every element of every tensor from the others. */
static uint32_t want_bits(const char *name, int64_t index)
{
    uint64_t h = 1469598103934665603ull;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211ull;
    h = (h + (uint64_t)index) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(h >> 32);
}

/* Fills (or compares) a box by the place of each element in the whole tensor. Returns
 * the number of elements that are not as they must be. */
static int64_t visit(const accel_ckpt_box_t *box, bool fill, int64_t *count)
{
    int64_t elems = 1, bad = 0;

    for (int d = 0; d < box->ndim; d++)
        elems *= box->shape[d];
    for (int64_t i = 0; i < elems; i++) {
        int64_t rest = i, global = 0, stride = 1;
        uint32_t want, *at = (uint32_t *)box->data + i;

        for (int d = box->ndim - 1; d >= 0; d--) {
            global += (box->offset[d] + rest % box->shape[d]) * stride;
            rest /= box->shape[d];
            stride *= box->global_shape[d];
        }
        want = want_bits(box->name, global);
        if (fill)
            *at = want;
        bad += *at != want;
    }
    *count += elems;
    return bad;
}

static accel_status_t open_run(accel_t *run, struct boot *b,
                               enum sharding_strategy strategy, accel_error_t *err)
{
    struct model_request r = {
        .dir = "",
        .sizes = { .layers = 3, .heads = 3, .width = 36, .context = 20, .vocab = 61 },
        .strategy = strategy,
        .compute = ACCEL_BF16,
    };

    return backend_cpu_open(&r.backend, 1, err) ? err->code
                                                : model_run_open(run, b, &r, err);
}

static accel_status_t transfer(const accel_t *run, const struct job *j,
                               accel_ckpt_box_t *box, size_t n, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    accel_ckpt_save_t save = {
        sizeof(save),    .root = j->root,     .step = 7,
        .owner = "test", .run_id = "reshard", .sharding = "FULL_SHARD",
        .boxes = box,    .box_count = n,      .keep = 1
    };
    accel_ckpt_t *c = NULL;
    char dir[256];
    accel_status_t st;

    if (j->save)
        return accel_ckpt_save(&save, &coll, NULL, err);
    snprintf(dir, sizeof(dir), "%s/step_00000007", j->root);
    st = accel_ckpt_open(&c, dir, err);
    ACCEL_TRY(st, accel_ckpt_read(c, box, n, err));
    accel_ckpt_close(c);
    return st;
}

/* One rank: 4 of them fill and save, others load and compare. */
static int rank_main(struct boot *b, void *arg)
{
    const struct job *j = arg;
    accel_t run = { 0 };
    accel_error_t err = { 0 };
    accel_ckpt_box_t *box = NULL;
    int64_t bad = 0, elems = 0, whole = 0;
    size_t n = 0;
    accel_status_t st = open_run(&run, b, j->strategy, &err);

    ACCEL_TRY(st, shard_boxes(run.shard, !j->save, &box, &n, &err));
    for (size_t i = 0; st == ACCEL_OK && j->save && i < n; i++)
        bad += visit(&box[i], true, &elems);
    ACCEL_TRY(st, transfer(&run, j, box, n, &err));
    for (size_t i = 0; st == ACCEL_OK && !j->save && i < n; i++)
        bad += visit(&box[i], false, &elems);
    /* Every element of all three tensors of every parameter is somewhere. */
    for (int u = 0; st == ACCEL_OK && u < run.units.count; u++)
        for (int p = 0; p < run.units.unit[u].param_count; p++)
            whole += 3 * run.units.unit[u].param[p]->elems;
    if (st == ACCEL_OK && j->strategy == SHARD_FULL)
        st = comm_all_reduce(run.comm, &elems, 1, ACCEL_I64, COMM_SUM, &err);
    if (st != ACCEL_OK || bad || elems != whole)
        fprintf(stderr, "# rank %d: %s; %lld wrong; %lld elements of %lld\n", b->rank,
                err.text, (long long)bad, (long long)elems, (long long)whole);
    free(box);
    model_run_close(&run);
    return st != ACCEL_OK || bad || elems != whole;
}

int main(void)
{
    char root[] = "/tmp/accel-reshard.XXXXXX";
    struct job j = { root, true, SHARD_FULL };

    run_folder_new(root);
    tap_is_int(fork_world(4, rank_main, &j, 240), 0, "4 ranks save");
    j.save = false;
    for (int n = 1; n <= 4; n++)
        tap_is_int(fork_world(n, rank_main, &j, 240), 0,
                   "%d rank(s) load: parameters and moments equal bit for bit", n);
    j.strategy = SHARD_NONE;
    tap_is_int(fork_world(2, rank_main, &j, 240), 0,
               "2 ranks of NO_SHARD load the whole");
    run_folder_remove(root);
    return tap_done();
}
