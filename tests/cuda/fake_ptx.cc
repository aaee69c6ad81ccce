/* SPDX-License-Identifier: Apache-2.0
 *
 * Inline PTX: reads the text of an instruction, binds its operands in the order of the
 * text and hands their values to the function that does what the ISA says. Operands of
 * a wrong kind end the kernel, as the assembler would refuse them.
 */
#include "fake_ptx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS_MOST = 14 };

/* kinds: of the operands in the order of the text; results: how many are written. Of
 * `alone` and `together`, one is set: for a lane, or for all lanes of a warp. */
static const struct instruction {
    const char *name, *kinds;
    size_t results;
    void (*alone)(uint64_t *v);
    fake_together *together;
} instructions[] = {
    { "cvt.rn.bf16x2.f32", "rff", 1, fake_cvt_bf16x2, NULL },
    { "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "ffffrrrrrrffff", 4, NULL,
      fake_mma_m16n8k16 },
    { "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "rrrrr", 4, NULL, fake_ldmatrix_x4 },
    { "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "rrrrr", 4, NULL,
      fake_ldmatrix_x4_trans },
    { "cp.async.cg.shared.global", "rlnr", 0, fake_cp_async, NULL },
    { "cp.async.commit_group", "", 0, fake_cp_async_commit, NULL },
    { "cp.async.wait_group", "n", 0, fake_cp_async_wait, NULL },
};

/* An operand of the text: %number, or the number itself. */
struct token {
    bool literal;
    int number;
};

struct fakecuda_ptx {
    const struct instruction *is;
    std::string wrong; /* the text does not fit any instruction */
    std::vector<struct token> tokens;
};

/* Called while a static variable is set up: what is wrong is said when it runs. */
const struct fakecuda_ptx *fakecuda_ptx_read(const char *text)
{
    std::string name(text, strcspn(text, " ;"));
    struct fakecuda_ptx *ptx = new fakecuda_ptx();

    for (const struct instruction &i : instructions)
        if (name == i.name)
            ptx->is = &i;
    for (const char *at = text + name.size(); *at;) {
        bool literal = *at != '%';

        if (literal && !isdigit(*at))
            at++;
        else
            ptx->tokens.push_back(
                { literal, (int)strtol(literal ? at : at + 1, (char **)&at, 10) });
    }
    if (!ptx->is)
        ptx->wrong = name + ": the stand-in does not know this instruction";
    else if (ptx->tokens.size() != strlen(ptx->is->kinds))
        ptx->wrong = name + ": a wrong number of operands";
    return ptx;
}

[[noreturn]] static void refuse(const char *name, const char *why)
{
    fake_give_up(std::string(name) + ": " + why);
}

static struct fakecuda_operand operand_of(const struct fakecuda_ptx *ptx, size_t i,
                                          const fakecuda_operands &out,
                                          const fakecuda_operands &in)
{
    const struct token t = ptx->tokens[i];
    const size_t at = (size_t)t.number;
    struct fakecuda_operand o;

    if (t.literal)
        o = { 'n', (uint64_t)t.number, NULL };
    else if (at < out.size() + in.size())
        o = at < out.size() ? out.begin()[at] : in.begin()[at - out.size()];
    else
        refuse(ptx->is->name, "its text has more operands than it was given");
    if (o.kind != ptx->is->kinds[i])
        refuse(ptx->is->name, "an operand of the wrong kind");
    if (i < ptx->is->results && !o.to)
        refuse(ptx->is->name, "writes to an operand that it may only read");
    return o;
}

void fakecuda_ptx_run(const struct fakecuda_ptx *ptx, fakecuda_operands out,
                      fakecuda_operands in)
{
    uint64_t v[OPERANDS_MOST];
    void *to[OPERANDS_MOST];

    if (!ptx->wrong.empty())
        fake_give_up(ptx->wrong);
    for (size_t i = 0; i < ptx->tokens.size(); i++) {
        struct fakecuda_operand o = operand_of(ptx, i, out, in);

        v[i] = o.bits;
        to[i] = o.to;
    }
    if (ptx->is->together)
        fake_warp_together(ptx->is->together, v);
    else
        ptx->is->alone(v);
    for (size_t i = 0; i < ptx->is->results; i++)
        memcpy(to[i], &v[i], 4);
}
