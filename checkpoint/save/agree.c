/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a save are at one about: whether all is well, and the manifest that
 * their fragments make.
 */
#include <stdio.h>
#include <string.h>

#include "manifest/ckpt_manifest.h"
#include "save/ckpt_commit.h"
#include "ckpt_internal.h"

/* The vote is size - rank, so that one maximum finds the lowest failing rank; 0 means
 * that all are well. */
accel_status_t ckpt_agree_whose(const accel_ckpt_coll_t *c, accel_status_t mine,
                                int *failed_out, accel_error_t *err)
{
    int64_t vote = mine ? c->size - c->rank : 0;
    accel_error_t shared = { 0 };
    accel_status_t st;
    int rank;

    *failed_out = c->size == 1 && mine ? 0 : -1;
    if (c->size == 1)
        return mine;
    st = c->max_i64(c->user, &vote, err);
    if (st || vote == 0)
        return st;
    *failed_out = rank = c->size - (int)vote;
    if (rank == c->rank) {
        shared = *err;
        shared.code = mine;
    }
    ACCEL_CHECK(st, c->broadcast(c->user, &shared, sizeof(shared), rank, err));
    return accel_fail_from(err, &shared, "rank %d: %.700s", rank, shared.text);
}

accel_status_t ckpt_agree(const accel_ckpt_coll_t *c, accel_status_t mine,
                          accel_error_t *err)
{
    int failed;

    return ckpt_agree_whose(c, mine, &failed, err);
}

/* Fragments come from other processes. On failure *m holds what the caller frees. */
static accel_status_t join_parts(const struct ckpt_manifest *mine, const char *all,
                                 const size_t *sizes, struct ckpt_manifest *m,
                                 accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int r = 0; r < m->world && !st; all += sizes[r], r++) {
        struct ckpt_manifest part = { 0 };
        char where[48];

        snprintf(where, sizeof(where), "records of rank %d", r);
        st = ckpt_manifest_parse(&part, all, sizes[r], true, where, err);
        if (!st && (part.world != m->world || strcmp(part.run_id, mine->run_id) != 0 ||
                    !part.file[r].name[0]))
            st = accel_fail(err, A0816, "save the same run on all ranks",
                            "rank %d of %d saves run '%s', but rank 0 of %d saves '%s'",
                            r, part.world, part.run_id, m->world, mine->run_id);
        ACCEL_TRY(st, ckpt_manifest_merge(m, &part, r, err));
        ckpt_manifest_free(&part);
    }
    ACCEL_TRY(st, ckpt_manifest_sort(m, err));
    return st ? st : ckpt_manifest_check(m, A0816, err);
}

accel_status_t ckpt_join_fragments(const struct ckpt_manifest *mine, const char *all,
                                   const size_t *sizes, struct ckpt_manifest *m_out,
                                   accel_error_t *err)
{
    struct ckpt_manifest m;
    accel_status_t st = ckpt_manifest_start(&m, mine->step, mine->world, mine->owner,
                                            mine->sharding, mine->run_id, err);

    ACCEL_TRY(st, join_parts(mine, all, sizes, &m, err));
    if (st)
        ckpt_manifest_free(&m);
    else
        *m_out = m;
    return st;
}
