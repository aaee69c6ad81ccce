/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_text.h: tokenizers that are none, and generation with any module.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/calls_world.h"

static void call_tokenizer(struct world *w)
{
    accel_tokenizer_t *t = NULL;
    int32_t ids[4] = { 0 };
    size_t n = 0;
    char text[8];

    CALL(w, true,
         accel_tokenizer_open(calls_once_in(w, 4) ? NULL : &t,
                              calls_once_in(w, 2) ? NULL : "/nonexistent",
                              calls_error(w)));
    accel_tokenizer_close(t);
    (void)accel_tokenizer_vocab(NULL);
    (void)accel_tokenizer_id(NULL, calls_name(w));
    CALL(w, true, accel_tokenize(NULL, "text", 4, 0, ids, 4, &n, calls_error(w)));
    CALL(w, true, accel_detokenize(NULL, ids, 1, text, 8, &n, calls_error(w)));
    (void)accel_utf8_whole("\xe2\x82", calls_random(w, 3));
    (void)accel_utf8_whole(NULL, 0);
}

static int see_token(void *user, int32_t token)
{
    (void)user;
    if (calls_now->ranks == 1)
        calls_inside(calls_now);
    return token == 3;
}

static void call_generate(struct world *w)
{
    bool none = false, bad = !w->now->prepared || w->inside > 0;
    accel_module_t *m = PICK(w, module, &none);
    const accel_sampling_t s = { sizeof(s), .temperature = (float)calls_real(w),
                                 .top_k = (int)calls_number(w),
                                 .top_p = (float)calls_real(w), .token = see_token };
    const int32_t prompt[3] = { 1, 2, calls_once_in(w, 4) ? 99 : 3 };
    int n = (int)calls_number(w), count = (int)calls_number(w);
    int32_t out[4];

    if (calls_once_in(w, 2))
        calls_train(w);
    if (none && m)
        return; /* its run has its own rules */
    if (n > 3)
        n = 3;
    if (count > 4)
        count = 4;
    CALL(w, (bad && count > 0) || !m,
         accel_generate(m, calls_once_in(w, 20) ? NULL : prompt, n,
                        calls_once_in(w, 20) ? NULL : out, count,
                        calls_once_in(w, 2) ? NULL : &s, calls_error(w)));
}

const struct calls_action calls_of_text[] = {
    { call_tokenizer, 1, true },
    { call_generate, 3, false },
    { NULL, 0, false },
};
