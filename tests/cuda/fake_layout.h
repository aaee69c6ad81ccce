/* SPDX-License-Identifier: Apache-2.0
 *
 * Register layouts of warp-wide PTX instructions, after the formulas of the PTX ISA
 * ("Matrix fragments for mma.m16n8k16 with floating point type", "ldmatrix"). There,
 * groupID is lane / 4 and threadID_in_group is lane % 4. Says nothing of what kernels
 * do with them.
 */
#ifndef FAKE_LAYOUT_H
#define FAKE_LAYOUT_H

struct place {
    int row, col;
};

/* Elements that one lane holds, in the ISA's order (a0, a1, ...): two of 16 bits share
 * a register, the first in the lower half. Element i is plus[i] away from (groupID, 2
 * threadID_in_group), or from (2 threadID_in_group, groupID) if group_is_col. */
struct layout {
    int elements, rows, cols;
    bool group_is_col;
    struct place plus[8];
};

static const struct layout layout_a = {
    8,
    16,
    16,
    false,
    { { 0, 0 }, { 0, 1 }, { 8, 0 }, { 8, 1 }, { 0, 8 }, { 0, 9 }, { 8, 8 }, { 8, 9 } }
};
static const struct layout layout_b = {
    4, 16, 8, true, { { 0, 0 }, { 1, 0 }, { 8, 0 }, { 9, 0 } }
};
static const struct layout layout_c = {
    4, 16, 8, false, { { 0, 0 }, { 0, 1 }, { 8, 0 }, { 8, 1 } }
};
/* One matrix of ldmatrix, without .trans. */
static const struct layout layout_8x8 = { 2, 8, 8, false, { { 0, 0 }, { 0, 1 } } };

static inline struct place layout_place(const struct layout *l, int lane, int i)
{
    int group = lane / 4, pair = lane % 4 * 2;
    struct place p = l->plus[i];

    p.row += l->group_is_col ? pair : group;
    p.col += l->group_is_col ? group : pair;
    return p;
}

#endif
