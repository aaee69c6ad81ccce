/* SPDX-License-Identifier: Apache-2.0
 *
 * One token from logits: temperature, then the k likeliest, then the likeliest whose
 * sum reaches p, then one draw. A heap sorts no more of the vocabulary than is needed.
 * No state.
 */
#include <math.h>

#include "numbers/bf16.h"
#include "models/causal.h"

/* Order of tokens: the likelier one, then the one of the smaller number. A total order,
 * so that every rank and every machine draws the same token. */
static bool before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Makes the subtree below `i` a heap with its likeliest token on top. */
static void sift(const float *logits, int32_t *heap, int n, int i)
{
    for (;;) {
        int child = 2 * i + 1, top = i;
        int32_t keep = heap[i];

        for (int c = child; c < n && c < child + 2; c++)
            if (before(logits, heap[c], heap[top]))
                top = c;
        if (top == i)
            return;
        heap[i] = heap[top];
        heap[top] = keep;
        i = top;
    }
}

/* Takes the top of heap[n] and puts it at heap[n - 1]: the tokens taken so far stand at
 * the end of the array, the likeliest last. */
static int32_t heap_take(const float *logits, int32_t *heap, int n)
{
    int32_t top = heap[0];

    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    sift(logits, heap, n - 1, 0);
    return top;
}

/* The likeliest token, of equal ones the first. -1: there is none, or a NaN. Two passes
 * without a branch on what they read, which the compiler can vectorise. */
ACCEL_MULTIVERSION
static int32_t likeliest(const float *logits, int vocab)
{
    float best = -INFINITY;
    int nans = 0;

#pragma omp simd reduction(max : best) reduction(+ : nans)
    for (int32_t i = 0; i < vocab; i++) {
        best = logits[i] > best ? logits[i] : best;
        nans += logits[i] != logits[i];
    }
    if (nans > 0 || isinf(best))
        return -1;
    for (int32_t i = 0; i < vocab; i++)
        if (logits[i] == best)
            return i;
    return -1;
}

/* exp of the distance from the best logit: at most 1, so nothing overflows. In double,
 * since a vocabulary of 100 000 of them is added up. */
static double weight(const float *logits, int32_t token, int32_t best,
                     float temperature)
{
    return exp(((double)logits[token] - (double)logits[best]) / (double)temperature);
}

/* Moves the tokens that stay to the end of rank[vocab], the likeliest last. Returns how
 * many stay. */
static int select(const float *logits, int vocab, const accel_sampling_t *o,
                  int32_t best, int32_t *rank)
{
    bool by_k = o->top_k > 0 && o->top_k < vocab;
    bool by_p = o->top_p > 0.0f && o->top_p < 1.0f;
    int most = by_k ? o->top_k : vocab, kept = 0;
    double total = 0, sum = 0;

    for (int i = 0; i < vocab; i++)
        rank[i] = i;
    for (int i = vocab / 2 - 1; i >= 0; i--)
        sift(logits, rank, vocab, i);
    /* top_p is a part of what top_k leaves; `total` is the weight of that */
    if (by_k)
        for (int i = 0; i < most; i++)
            total += weight(logits, heap_take(logits, rank, vocab - i), best,
                            o->temperature);
    else
        for (int32_t i = 0; i < vocab; i++)
            total += weight(logits, i, best, o->temperature);
    if (!by_p)
        return most;
    /* At least one token stays, whatever p. With by_k the tokens are in
     * order already. */
    for (; kept < most && !(kept > 0 && sum >= (double)o->top_p * total); kept++) {
        int32_t next =
            by_k ? rank[vocab - 1 - kept] : heap_take(logits, rank, vocab - kept);

        sum += weight(logits, next, best, o->temperature);
    }
    return kept;
}

/* Without top_k and top_p nothing is sorted: the draw goes over the tokens by
 * number. Rounding can leave u * sum just above the last `at`; then it is the
 * likeliest token. */
int32_t causal_draw(const float *logits, int vocab, const accel_sampling_t *o, double u,
                    int32_t *rank)
{
    bool all = (o->top_k <= 0 || o->top_k >= vocab) &&
               (!(o->top_p > 0.0f) || o->top_p >= 1.0f);
    int32_t best = likeliest(logits, vocab);
    double sum = 0, at = 0;
    int kept = vocab;

    if (best < 0 || o->temperature == 0.0f)
        return best;
    if (!all)
        kept = select(logits, vocab, o, best, rank);
    for (int i = 0; i < kept; i++)
        sum += weight(logits, all ? i : rank[vocab - 1 - i], best, o->temperature);
    for (int i = 0; i < kept; i++) {
        int32_t token = all ? i : rank[vocab - 1 - i];

        at += weight(logits, token, best, o->temperature);
        if (at > u * sum)
            return token;
    }
    return best;
}
