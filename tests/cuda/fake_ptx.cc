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

#define F16 "ffffffffffffffff"
#define F32 F16 F16
#define F64 F32 F32

/* What an instruction is like beside what it does. */
enum {
    LATER = 1,  /* it writes after it has ended */
    ORDERS = 2, /* accesses of memory before and after it must not change places */
};

/* kinds: of the operands in the order of the text; results: how many are written, those
 * that are written later included. Of `alone` and `together`, one is set: for a lane,
 * or for all lanes of a warp. */
static const struct instruction {
    const char *name, *kinds;
    size_t results;
    void (*alone)(uint64_t *v);
    fake_together *together;
    unsigned is = 0;
} instructions[] = {
    { "cvt.rn.bf16x2.f32", "rff", 1, fake_cvt_bf16x2, NULL },
    { "cvt.rn.f16x2.f32", "rff", 1, fake_cvt_f16x2, NULL },
    { "ex2.approx.ftz.f32", "ff", 1, fake_ex2, NULL },
    { "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "ffffrrrrrrffff", 4, NULL,
      fake_mma_m16n8k16<false> },
    { "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "ffffrrrrrrffff", 4, NULL,
      fake_mma_m16n8k16<true> },
    { "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "rrrrr", 4, NULL,
      fake_ldmatrix_x4<false> },
    { "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "rrrrr", 4, NULL,
      fake_ldmatrix_x4<true> },
    { "cp.async.cg.shared.global", "rlnr", 0, fake_cp_async, NULL, ORDERS },
    { "cp.async.commit_group", "", 0, fake_cp_async_commit, NULL, ORDERS },
    { "cp.async.wait_group", "n", 0, fake_cp_async_wait, NULL, ORDERS },
    { "mbarrier.init.shared::cta.b64", "rr", 0, fake_mbarrier_init, NULL, ORDERS },
    { "mbarrier.arrive.shared::cta.b64", "r", 0, fake_mbarrier_arrive, NULL, ORDERS },
    { "mbarrier.arrive.expect_tx.shared::cta.b64", "rr", 0, fake_mbarrier_expect, NULL,
      ORDERS },
    { "mbarrier.try_wait.parity.shared::cta.b64", "rrr", 1, fake_mbarrier_wait, NULL,
      ORDERS },
    { "fence.proxy.async.shared::cta", "", 0, fake_fence_async, NULL, ORDERS },
    { "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes",
      "rlrrrrr", 0, fake_bulk_tensor_4d, NULL, ORDERS },
    { "setmaxnreg.inc.sync.aligned.u32", "n", 0, NULL, fake_setmaxnreg },
    { "setmaxnreg.dec.sync.aligned.u32", "n", 0, NULL, fake_setmaxnreg },
    { "wgmma.fence.sync.aligned", "", 0, NULL, fake_wgmma_fence, ORDERS },
    { "wgmma.commit_group.sync.aligned", "", 0, NULL, fake_wgmma_commit, ORDERS },
    { "wgmma.wait_group.sync.aligned", "n", 0, NULL, fake_wgmma_wait, ORDERS },
    { "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", F64 "llrnnnn", 64, NULL,
      fake_wgmma<128, false, false>, LATER },
    { "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", F64 "rrrrlrnnn", 64,
      NULL, fake_wgmma<128, true, false>, LATER },
    { "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", F32 "llrnnnn", 32, NULL,
      fake_wgmma<64, false, false>, LATER },
    { "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", F32 "rrrrlrnnn", 32, NULL,
      fake_wgmma<64, true, false>, LATER },
    { "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", F64 "llrnnnn", 64, NULL,
      fake_wgmma<128, false, true>, LATER },
    { "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", F64 "rrrrlrnnn", 64, NULL,
      fake_wgmma<128, true, true>, LATER },
    { "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", F32 "llrnnnn", 32, NULL,
      fake_wgmma<64, false, true>, LATER },
    { "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", F32 "rrrrlrnnn", 32, NULL,
      fake_wgmma<64, true, true>, LATER },
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

/* The first operand behind `lead`, in which `end` comes right after it, or "". */
static std::string operand_between(const std::string &text, const char *lead,
                                   const char *end)
{
    size_t from = text.find(lead), to;

    if (from == std::string::npos)
        return "";
    from += strlen(lead);
    to = text.find(end, from);
    return to == std::string::npos ? "" : text.substr(from, to - from);
}

/* A predicate has a register of its own in the text: "{ .reg .pred p; setp.ne.b32 p,
 * %4, 0; INSTRUCTION ..., p, ...; }", or "{ .reg .pred p; INSTRUCTION p, ...; selp.b32
 * %0, 1, 0, p; }". The instruction alone, with the operand in place of p. */
static std::string without_predicate(const char *text)
{
    static const char own[] = "{ .reg .pred p; ", set[] = "setp.ne.b32 p, ",
                      take[] = " selp.b32 ";
    std::string all = text, operand;
    size_t from, to;

    if (all.compare(0, strlen(own), own) != 0)
        return all;
    operand = operand_between(all, set, ", 0; ");
    if (!operand.empty()) {
        from = all.find(", 0; ") + strlen(", 0; ");
        all = all.substr(from, all.find(';', from) + 1 - from);
        from = all.find(", p,");
        return from == std::string::npos ? text : all.replace(from + 2, 1, operand);
    }
    operand = operand_between(all, take, ", 1, 0, p; }");
    from = strlen(own);
    to = all.find(take);
    if (operand.empty())
        return text;
    all = all.substr(from, to - from);
    from = all.find(" p,");
    return from == std::string::npos ? text : all.replace(from + 1, 1, operand);
}

/* Called while a static variable is set up: what is wrong is said when it runs. Two
 * forms of an instruction differ in the number of their operands. */
const struct fakecuda_ptx *fakecuda_ptx_read(const char *given, bool memory)
{
    const std::string plain = without_predicate(given);
    const char *text = plain.c_str();
    std::string name(text, strcspn(text, " ;"));
    struct fakecuda_ptx *ptx = new fakecuda_ptx();

    for (const char *at = text + name.size(); *at;) {
        bool literal = *at != '%';

        if (literal && !isdigit(*at))
            at++;
        else
            ptx->tokens.push_back(
                { literal, (int)strtol(literal ? at : at + 1, (char **)&at, 10) });
    }
    for (const struct instruction &i : instructions)
        if (name == i.name && (!ptx->is || ptx->tokens.size() == strlen(i.kinds)))
            ptx->is = &i;
    if (!ptx->is)
        ptx->wrong = name + ": the stand-in does not know this instruction";
    else if (ptx->tokens.size() != strlen(ptx->is->kinds))
        ptx->wrong = name + ": a wrong number of operands";
    else if ((ptx->is->is & ORDERS) && !memory)
        ptx->wrong = name + ": the compiler may move accesses of memory across it";
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
    uint64_t v[2 * FAKE_OPERANDS];

    if (!ptx->wrong.empty())
        fake_give_up(ptx->wrong);
    for (size_t i = 0; i < ptx->tokens.size(); i++) {
        struct fakecuda_operand o = operand_of(ptx, i, out, in);

        v[i] = o.bits;
        v[FAKE_OPERANDS + i] = (uint64_t)(uintptr_t)o.to;
    }
    if (ptx->is->together)
        fake_warp_together(ptx->is->together, v);
    else
        ptx->is->alone(v);
    for (size_t i = 0; i < ptx->is->results && !(ptx->is->is & LATER); i++)
        memcpy((void *)(uintptr_t)v[FAKE_OPERANDS + i], &v[i], 4);
}
