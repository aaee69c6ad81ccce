/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention through cuDNN, if its library is found: opened at run time; the plans of
 * each shape are kept. `isa` says which engine makes the gradients, what is refused, or
 * why cuDNN is not used at all; our kernels do the work then. Engines whose results
 * differ from run to run are not taken.
 */
#include "backend/cuda/attention/attention_plans.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "backend/cuda/attention/cuda_attention.h"
#include "common/env_names.h"

/* Numbers in a key: 8, and 6 for each of q, k and v. */
enum { KEYS = 26 };

/* The plans of a shape, or the memory that cuDNN refused it. */
struct dnn_call {
    struct dnn_call *next;
    int64_t key[KEYS];
    struct dnn_attention_plans plans;
};

struct cuda_dnn {
    struct dnn_api api;
    void *library, *handle;
    size_t version; /* 0: do not use it */
    /* then: why, and what would help */
    char advice[192];
    struct dnn_call *calls;
    /* isa tells the engine of the first gradient, and the first refusal */
    bool engine_told, refusal_told;
};

/* Looks all functions up; false if one is missing. */
static bool find(struct cuda_dnn *d)
{
    /* filled by memcpy: ISO C has no cast from an object pointer to a function */
    const struct {
        void *to;
        const char *name;
    } all[] = {
        { &d->api.version, "cudnnGetVersion" },
        { &d->api.create, "cudnnCreate" },
        { &d->api.destroy, "cudnnDestroy" },
        { &d->api.set_stream, "cudnnSetStream" },
        { &d->api.make, "cudnnBackendCreateDescriptor" },
        { &d->api.set, "cudnnBackendSetAttribute" },
        { &d->api.get, "cudnnBackendGetAttribute" },
        { &d->api.finalize, "cudnnBackendFinalize" },
        { &d->api.drop, "cudnnBackendDestroyDescriptor" },
        { &d->api.execute, "cudnnBackendExecute" },
        { &d->api.last_error, "cudnnGetLastErrorString" },
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        void *f = dlsym(d->library, all[i].name);

        if (!f)
            return false;
        memcpy(all[i].to, &f, sizeof(f));
    }
    return true;
}

/* Opens the library. NULL, or the reason why cuDNN is not used. */
static const char *load(struct cuda_dnn *d, bool wanted)
{
    if (!wanted)
        return ENV_CUDA_ATTENTION;
#ifdef __CUDACC__
    d->library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
#endif
    if (!d->library)
        /* not an error: our own kernels do the work */
        return "no libcudnn.so.9";
    if (!find(d))
        return "libcudnn.so.9 lacks the graph interface";
    d->version = d->api.version();
    if (d->version < DNN_VERSION_LEAST)
        return "cuDNN before 9.0";
    if (d->api.create(&d->handle))
        return "cudnnCreate failed";
    return NULL;
}

bool attn_dnn_open(struct cuda_state *s)
{
    const char *why;
    char text[48];

    s->dnn = (struct cuda_dnn *)calloc(1, sizeof(*s->dnn));
    if (!s->dnn)
        return cuda_fails(s, "the attention's state", "out of host memory");
    why = load(s->dnn, !s->attention);
    if (why) {
        s->dnn->version = 0;
        cuda_say(s, ", own attention (%s)", why);
        if (s->attention)
            return true;
        snprintf(s->dnn->advice, sizeof(s->dnn->advice),
                 "attention in bfloat16 does without cuDNN (%s), which is faster: "
                 "install cuDNN 9, or add its folder to LD_LIBRARY_PATH",
                 why);
        return true;
    }
    snprintf(text, sizeof(text), "%zu.%zu.%zu", s->dnn->version / 10000,
             s->dnn->version / 100 % 100, s->dnn->version % 100);
    cuda_say(s, ", cuDNN %s", text);
    return true;
}

void cuda_attention_close(struct cuda_state *s)
{
    struct cuda_dnn *d = s->dnn;

    if (!d)
        return;
    while (d->calls) {
        struct dnn_call *next = d->calls->next;

        dnn_attention_end(&d->calls->plans);
        free(d->calls);
        d->calls = next;
    }
    if (d->handle)
        d->api.destroy(d->handle);
    /* the library stays loaded: its threads and exit handlers outlive the handle */
    free(d);
    s->dnn = NULL;
}

size_t attn_dnn_version(const struct backend *be)
{
    const struct cuda_dnn *d = cuda_state_of(be)->dnn;

    return d ? d->version : 0;
}

void attn_dnn_missed(const struct backend *be)
{
    struct cuda_state *s = cuda_state_of(be);

    if (s->dnn && s->dnn->advice[0] && !s->be.advice)
        s->be.advice = s->dnn->advice;
}

/* Writes all that a plan depends on: direction, shape, strides. Not the addresses:
 * these are bound at each call. */
static void make_key(int64_t key[KEYS], const struct attn_part *c)
{
    const struct attention *p = &c->p;
    const struct heads *in[3] = { &p->q, &p->k, &p->v };
    const struct heads_out *out[3] = { &c->g.dq, &c->g.dk, &c->g.dv };
    int n = 0;

    memset(key, 0, KEYS * sizeof(*key));
    key[n++] = c->backward;
    key[n++] = p->causal;
    key[n++] = p->batch;
    key[n++] = p->queries;
    key[n++] = p->keys;
    key[n++] = p->heads;
    key[n++] = p->kv_heads;
    key[n++] = p->head_width;
    for (int i = 0; i < 3; i++) {
        /* a fused qkv and three tensors differ in their strides; the forward's out[i]
         * are zeros */
        key[n++] = in[i]->sample;
        key[n++] = in[i]->row;
        key[n++] = in[i]->head;
        key[n++] = out[i]->sample;
        key[n++] = out[i]->row;
        key[n++] = out[i]->head;
    }
}

/* Says the first refusal in isa; later ones would not fit. What a user can mend becomes
 * the backend's advice. */
static void tell_refusal(struct cuda_state *s, const struct attn_part *whole,
                         const struct dnn_graph *refused)
{
    const struct attention *p = &whole->p;
    char text[96];

    if (refused->lacks)
        s->be.advice = "cuDNN cannot build its attention, and accel's own is slower: "
                       "add the folder of libnvrtc, of the CUDA release that cuDNN is "
                       "for, to LD_LIBRARY_PATH";
    if (s->dnn->refusal_told)
        return;
    s->dnn->refusal_told = true;
    snprintf(text, sizeof(text), "%s of %lld x %lld x %lld: %.50s",
             whole->backward ? "gradient" : "attention", (long long)p->queries,
             (long long)p->keys, (long long)p->head_width, refused->why);
    cuda_say(s, " (refuses %s)", text);
}

/* Says in isa which engine made the first gradient's plan. */
static void tell_engine(struct cuda_state *s, const struct attn_part *whole,
                        const struct dnn_attention_plans *plans)
{
    char text[64];

    if (s->dnn->engine_told)
        return;
    s->dnn->engine_told = true;
    snprintf(text, sizeof(text), "engine %lld, deterministic, parts: %lld",
             (long long)plans->got[0].engine,
             (long long)attn_parts(&whole->p, plans->split));
    cuda_say(s, " (gradient: %s)", text);
}

/* The plans of this shape, made if it is new. NULL: refused. */
static const struct dnn_attention_plans *plans_of(struct cuda_state *s,
                                                  const struct attn_part *whole)
{
    struct cuda_dnn *d = s->dnn;
    struct dnn_place at = { &d->api,    d->handle,  NULL,
                            s->compute, d->version, (int64_t)s->workspace.bytes };
    struct dnn_call *call;
    int64_t key[KEYS];

    make_key(key, whole);
    for (call = d->calls; call; call = call->next)
        if (!memcmp(call->key, key, sizeof(key)))
            /* a refusal is kept, too: asking again would take as long */
            return call->plans.count ? &call->plans : NULL;
    call = (struct dnn_call *)calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    /* making a plan builds and loads kernels, which a recording cannot hold */
    if (s->end_recording)
        s->end_recording(s);
    memcpy(call->key, key, sizeof(key));
    dnn_attention_plans(&call->plans, &at, whole);
    call->next = d->calls;
    d->calls = call;
    if (!call->plans.count)
        tell_refusal(s, whole, call->plans.refused);
    else if (whole->backward)
        tell_engine(s, whole, &call->plans);
    return call->plans.count ? &call->plans : NULL;
}

/* Addresses for the ids of a graph. */
struct binding {
    int64_t uid[DNN_UIDS];
    void *at[DNN_UIDS];
    int count;
};

static void bind(struct binding *b, int64_t uid, const void *at)
{
    b->uid[b->count] = uid;
    b->at[b->count++] = (void *)(uintptr_t)at;
}

/* Runs a plan on the queue in use. A failure may stem from earlier work, hence
 * cuda_breaks. */
static void execute(struct cuda_state *s, const struct dnn_got *got,
                    const struct binding *b)
{
    /* the pack is made per call: addresses change, the plan does not */
    void *workspace = cuda_scratch(s, (size_t)got->workspace), *pack;
    struct dnn_graph g;

    dnn_begin(&g, &s->dnn->api);
    pack = dnn_make(&g, DNN_PACK);
    dnn_set(&g, pack, DNN_PACK_UIDS, DNN_TYPE_INT64, b->count, b->uid);
    dnn_set(&g, pack, DNN_PACK_POINTERS, DNN_TYPE_VOID_PTR, b->count, b->at);
    dnn_set(&g, pack, DNN_PACK_WORKSPACE, DNN_TYPE_VOID_PTR, 1, &workspace);
    dnn_finish(&g, pack, "variant pack");
    if (!s->failed && !g.failed &&
        dnn_check(&g, g.api->set_stream(s->dnn->handle, s->now), "cudnnSetStream"))
        dnn_check(&g, g.api->execute(s->dnn->handle, got->plan, pack),
                  "cudnnBackendExecute");
    if (!s->failed && g.failed)
        cuda_breaks(s, "cudnnBackendExecute", g.why);
    dnn_end(&g);
    cuda_scratch_free(s, workspace);
}

/* Binds what the graph of c names. Constants are read when the plan is executed, so
 * they may lie on the host. */
static struct binding bind_part(const struct attn_part *c)
{
    /* finite, so that no difference of two is NaN */
    static const float hidden = -FLT_MAX, one = 1.0f;
    struct binding b;

    b.count = 0;
    bind(&b, DNN_UID_Q, c->p.q.data);
    bind(&b, DNN_UID_K, c->p.k.data);
    bind(&b, DNN_UID_V, c->p.v.data);
    bind(&b, DNN_UID_OUT, c->g.out);
    bind(&b, DNN_UID_LSE, c->g.lse);
    bind(&b, DNN_UID_SCALE, &c->p.scale);
    if (c->p.causal)
        bind(&b, DNN_UID_HIDDEN, &hidden);
    if (!c->backward)
        return b;
    bind(&b, DNN_UID_DOUT, c->g.dout);
    bind(&b, DNN_UID_DELTA, c->delta);
    bind(&b, DNN_UID_ONE, &one);
    bind(&b, DNN_UID_DQ, c->g.dq.data);
    bind(&b, DNN_UID_DK, c->g.dk.data);
    bind(&b, DNN_UID_DV, c->g.dv.data);
    return b;
}

/* Runs a call part by part. False: the caller takes another path, and nothing has been
 * queued. */
static bool run(struct cuda_state *s, const struct attn_part *whole)
{
    const struct dnn_attention_plans *plans = plans_of(s, whole);
    const int64_t parts = plans ? attn_parts(&whole->p, plans->split) : 0;

    for (int64_t i = 0; i < parts; i++) {
        const struct attn_part part = attn_part_at(whole, plans->split, i);
        const struct binding b = bind_part(&part);

        execute(s, dnn_attention_got(plans, &part), &b);
    }
    return plans != NULL;
}

bool attn_dnn_forward(const struct backend *be, const struct attention *p, void *out,
                      float *lse)
{
    const struct attn_part whole = attn_forward_part(p, out, lse);

    return run(cuda_state_of(be), &whole);
}

bool attn_dnn_backward(const struct backend *be, const struct attention *p,
                       const struct attention_grads *g, float *delta)
{
    const struct attn_part whole = attn_backward_part(p, g, delta);

    return run(cuda_state_of(be), &whole);
}
