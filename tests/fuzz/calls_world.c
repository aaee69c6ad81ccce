/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers, choices and judgements of the fuzzer of call sequences. See
 * calls_world.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/calls_world.h"
#include "tests/tap.h"

struct world *calls_now;

uint64_t calls_random(struct world *w, uint64_t n)
{
    uint64_t *state = &w->random;

    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state >> 11) % n;
}

bool calls_once_in(struct world *w, uint64_t n)
{
    return calls_random(w, n) == 0;
}

int64_t calls_number(struct world *w)
{
    static const int64_t odd[] = { -1,        0,         INT32_MAX, INT32_MIN,
                                   INT64_MAX, INT64_MIN, 1 << 20,   (1LL << 40) };

    if (calls_once_in(w, 12))
        return odd[calls_random(w, sizeof(odd) / sizeof(odd[0]))];
    return (int64_t)calls_random(w, 5);
}

double calls_real(struct world *w)
{
    static const double odd[] = { -1, 0, NAN, INFINITY, -INFINITY, 1e300, 1e-300 };

    if (calls_once_in(w, 10))
        return odd[calls_random(w, sizeof(odd) / sizeof(odd[0]))];
    return (double)(1 + calls_random(w, 8)) / 8;
}

const char *calls_name(struct world *w)
{
    static const char *const good[] = { "a", "b", "c", "weight" };
    static const char *const odd[] = { NULL,
                                       "",
                                       ".",
                                       "..",
                                       "a/b",
                                       "a b",
                                       "\001\033[2J",
                                       "%s%n",
                                       "012345678901234567890123456789012345678901234"
                                       "567890123456789012345678901234567890" };

    if (calls_once_in(w, 8))
        return odd[calls_random(w, sizeof(odd) / sizeof(odd[0]))];
    return good[calls_random(w, sizeof(good) / sizeof(good[0]))];
}

/* ---- actions --------------------------------------------------------------------- */

static const struct calls_action *const all_actions[] = {
    calls_of_run,   calls_of_models,  calls_of_ops,   calls_of_objects,
    calls_of_rules, calls_of_loaders, calls_of_ranks, calls_of_state,
    calls_of_files, calls_of_track,   calls_of_units, calls_of_text,
};

/* A local call of one rank may have arguments of its own. */
static void act_once(struct world *w, const struct calls_action *a)
{
    uint64_t same = w->random;
    bool apart = a->local && w->ranks > 1;

    if (apart) {
        w->random = w->own;
        w->local = true;
    }
    a->act(w);
    if (apart) {
        w->own = w->random;
        w->random = same;
        w->local = false;
    }
}

void calls_any(struct world *w)
{
    const struct calls_action *list =
        all_actions[calls_random(w, sizeof(all_actions) / sizeof(all_actions[0]))];
    int sum = 0, at;

    /* inside a function of the program calls go to the run that has called it */
    if (w->ranks == 1 && w->side[1].run && !w->inside && !w->allowed)
        w->now = &w->side[calls_once_in(w, 4)];
    for (int i = 0; list[i].act; i++)
        sum += list[i].weight;
    at = (int)calls_random(w, (uint64_t)sum);
    while (at >= list->weight)
        at -= list++->weight;
    act_once(w, list);
}

static void act_inside(struct world *w, int *count)
{
    if (w->inside + w->allowed >= 3 || !calls_once_in(w, 6))
        return;
    (*count)++;
    for (uint64_t n = 1 + calls_random(w, 3); n > 0; n--)
        calls_any(w);
    (*count)--;
}

void calls_inside(struct world *w)
{
    act_inside(w, &w->inside);
}

void calls_attempt(struct world *w)
{
    act_inside(w, &w->allowed);
}

/* ---- judgement ------------------------------------------------------------------- */

accel_t *calls_run(struct world *w, bool *bad_out)
{
    if (!calls_once_in(w, 40))
        return w->now->run;
    *bad_out = true;
    return NULL;
}

accel_error_t *calls_error(struct world *w)
{
    memset(&w->err, 0, sizeof(w->err));
    w->asked = !calls_once_in(w, 12);
    return w->asked ? &w->err : NULL;
}

void calls_say(struct world *w, const char *text)
{
    w->asked = false;
    if (w->trace)
        fprintf(stderr, "# %d.%d %6ld %*s%s\n", w->rank, w->now != w->side, w->calls,
                (w->inside + w->allowed) * 2, "", text);
}

void calls_finding(struct world *w, const char *text, const char *what)
{
    fprintf(stderr, "# rank %d, call %ld: %s: %s (%d: %s)\n", w->rank, w->calls, text,
            what, w->err.code, w->err.text);
    w->findings++;
}

/* Ranks that fail together may have no text; those of one rank have. */
static void judge_error(struct world *w, const char *text, accel_status_t st)
{
    if (!w->asked)
        return;
    if (w->err.code != st)
        calls_finding(w, text, "the error has another code than the status");
    if (w->ranks == 1 && !w->err.text[0])
        calls_finding(w, text, "an error without a text");
    for (const char *c = w->err.text; *c; c++)
        if ((unsigned char)*c < 0x20 && *c != '\n') {
            calls_finding(w, text, "the text of an error steers a terminal");
            break;
        }
}

bool calls_judge(struct world *w, const char *text, bool bad, accel_status_t st)
{
    if (w->trace)
        fprintf(stderr, "# %d.%d %6ld %*s-> %d %s\n", w->rank, w->now != w->side,
                w->calls, (w->inside + w->allowed) * 2, "", st,
                w->asked ? w->err.text : "");
    if (st == ACCEL_OK && bad)
        calls_finding(w, text, "a misuse that succeeds");
    if (st != ACCEL_OK)
        judge_error(w, text, st);
    if (st == ACCEL_EPEER || st == ACCEL_EBUG)
        calls_finding(w, text, "nothing of that kind has happened");
    if (w->outcome && !w->local && w->calls < CALLS_OUTCOMES)
        w->outcome[w->calls] = (short)st;
    w->calls += !w->local;
    w->asked = false;
    return st == ACCEL_OK;
}

bool calls_made(struct world *w, const char *text, bool bad, const void *object)
{
    accel_status_t st = object                    ? ACCEL_OK
                        : w->asked && w->err.code ? w->err.code
                                                  : ACCEL_EINVAL;

    return calls_judge(w, text, bad, st);
}

/* ---- objects --------------------------------------------------------------------- */

void *calls_pick(struct world *w, void **first, void **second, size_t n, bool *bad_out)
{
    size_t at = calls_random(w, n);
    void **own = w->now == &w->side[0] ? first : second;
    void **other = own == first ? second : first;

    if (calls_once_in(w, 30)) {
        *bad_out = true;
        return NULL;
    }
    if (calls_once_in(w, 20) && other[at]) {
        *bad_out = true;
        return other[at];
    }
    for (size_t i = 0; i < n; i++)
        if (own[(at + i) % n])
            return own[(at + i) % n];
    *bad_out = true;
    return NULL;
}

int calls_folder(struct world *w, const char *kind, unsigned holds, bool filled,
                 char *buf)
{
    const int first = (int)calls_random(w, CALLS_FOLDERS);
    int at = first;

    for (int i = 0; i < CALLS_FOLDERS && !calls_once_in(w, 20); i++) {
        at = (first + i) % CALLS_FOLDERS;
        if ((holds >> at & 1) == filled)
            break;
    }
    snprintf(buf, 256, "%s/%s%d", w->now->dir, kind, at);
    return at;
}

void calls_keep(struct world *w, void **list, size_t n, void *object)
{
    if (object)
        list[calls_random(w, n)] = object;
}
