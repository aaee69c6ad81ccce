/* SPDX-License-Identifier: Apache-2.0
 *
 * LOCAL_STATE_DICT in the text of a checkpoint: a line with the ranks and the layout of
 * its flat shards. Only a run with the same ranks and layout can load them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "state/state.h"
#include "training/moments_form.h"
#include "common/key_lines.h"
#include "handle/run.h"

#define LOCAL_KEY "state_dict"

/* Everything that decides which element lies where, and in what form. */
static uint64_t layout_hash(const accel_t *run)
{
    const int64_t whole[] = { config_strategy(&run->config), run->boot.size,
                              run->boot.local_size,
                              precision_of(&run->config).masters };
    uint64_t h = XXH3_64bits(whole, sizeof(whole));

    for (int i = 0; i < run->units.count; i++) {
        const struct unit *u = &run->units.unit[i];
        const int64_t moments =
            u->optim >= 0 ? (int64_t)moments_form(&run->optim[u->optim]) : 0;
        const int64_t unit[] = { u->elems, u->frozen, u->optim, moments };

        h = XXH3_64bits_withSeed(unit, sizeof(unit), h);
        for (int j = 0; j < u->param_count; j++) {
            const char *name = tensor_full_name(u->param[j]);

            h = XXH3_64bits_withSeed(name, strlen(name), h);
            h = XXH3_64bits_withSeed(&u->param[j]->param->unit_offset,
                                     sizeof(u->param[j]->param->unit_offset), h);
        }
    }
    return h;
}

void local_put(const accel_t *run, struct strbuf *b)
{
    if (config_state_dict(&run->config) == DICT_LOCAL)
        strbuf_printf(b, LOCAL_KEY "=local ranks %d layout %016" PRIx64 "\n",
                      run->boot.size, layout_hash(run));
}

accel_status_t local_find(const accel_t *run, const char *dir, const char *text,
                          bool *local_out, accel_error_t *err)
{
    char line[128];
    uint64_t layout;
    int ranks;

    *local_out = key_line(text, LOCAL_KEY, line, sizeof(line));
    if (!*local_out)
        return ACCEL_OK;
    if (sscanf(line, "local ranks %d layout %" SCNx64, &ranks, &layout) != 2)
        return accel_fail_at(err, A0847, dir, "use another checkpoint",
                             "its kind of state is not known: '%s'", line);
    if (ranks != run->boot.size)
        return accel_fail_at(err, A0847, dir,
                             "resume on as many ranks as wrote it, with "
                             "fsdp_state_dict_type: SHARDED_STATE_DICT; what is saved "
                             "then goes on at any number of ranks",
                             "the checkpoint has the flat shards of %d rank%s "
                             "(LOCAL_STATE_DICT), but this run has %d",
                             ranks, ranks == 1 ? "" : "s", run->boot.size);
    if (layout != layout_hash(run))
        return accel_fail_at(err, A0847, dir,
                             "resume with the fsdp_config and accel.precision that "
                             "wrote it, but fsdp_state_dict_type: SHARDED_STATE_DICT; "
                             "what is saved then goes on with others",
                             "the flat shards of the checkpoint (LOCAL_STATE_DICT) are "
                             "cut in another way than those of this run");
    return ACCEL_OK;
}

accel_status_t local_refuse(const char *dir, const accel_ckpt_t *c, accel_error_t *err)
{
    char line[128];
    size_t bytes = 0;
    const void *blob = accel_ckpt_blob(c, "trainer", &bytes);
    char *text = blob ? strndup(blob, bytes) : NULL;
    accel_status_t st = ACCEL_OK;

    if (blob && !text)
        st = accel_fail_nomem(err, "the trainer state", bytes);
    else if (text && key_line(text, LOCAL_KEY, line, sizeof(line)))
        st = accel_fail_at(err, A0847, dir,
                           "resume the run that wrote it, with fsdp_state_dict_type: "
                           "SHARDED_STATE_DICT, and take what it saves",
                           "the checkpoint has flat shards (LOCAL_STATE_DICT), whose "
                           "weights have no names");
    free(text);
    return st;
}
