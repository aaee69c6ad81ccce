/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention through cuDNN, if its library is found: opened at run time, one plan per
 * shape, kept. `isa` says what it refuses, or why it is not used at all; our kernels do
 * the work then. Engines whose results differ from run to run are not taken.
 */
#include "backend/cuda/attention_dnn.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "backend/cuda/cuda_attention.h"

/* Numbers in a key: 8, and 6 for each of q, k and v. */
enum { KEYS = 26 };

/* A plan, or the memory that cuDNN refused that shape. */
struct plan {
    struct plan *next;
    int64_t key[KEYS];
    struct dnn_graph graph;
    void *plan; /* NULL: refused */
    int64_t workspace;
};

struct cuda_dnn {
    struct dnn_api api;
    void *library, *handle;
    size_t version; /* 0: do not use it */
    struct plan *plans;
    bool refused; /* at least one shape was refused, and isa says so */
};

/* Appends to isa, which `doctor` and the plan print. */
static void say(struct cuda_state *s, const char *format, const char *what)
{
    size_t used = strlen(s->isa);

    snprintf(s->isa + used, sizeof(s->isa) - used, format, what);
}

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
static const char *load(struct cuda_dnn *d)
{
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

bool cuda_attention_open(struct cuda_state *s)
{
    const char *why;
    char text[48];

    s->dnn = (struct cuda_dnn *)calloc(1, sizeof(*s->dnn));
    if (!s->dnn)
        return cuda_fails(s, "the attention's state", "out of host memory");
    why = load(s->dnn);
    if (why) {
        s->dnn->version = 0;
        say(s, ", own attention (%s)", why);
        return true;
    }
    snprintf(text, sizeof(text), "%zu.%zu.%zu", s->dnn->version / 10000,
             s->dnn->version / 100 % 100, s->dnn->version % 100);
    say(s, ", cuDNN %s", text);
    return true;
}

void cuda_attention_close(struct cuda_state *s)
{
    struct cuda_dnn *d = s->dnn;

    if (!d)
        return;
    while (d->plans) {
        struct plan *next = d->plans->next;

        dnn_end(&d->plans->graph);
        free(d->plans);
        d->plans = next;
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

/* Writes all that a plan depends on: direction, shape, strides. Not the addresses:
 * these are bound at each call. */
static void make_key(int64_t key[KEYS], const struct attention *p,
                     const struct attention_grads *g)
{
    const struct heads *in[3] = { &p->q, &p->k, &p->v };
    int n = 0;

    memset(key, 0, KEYS * sizeof(*key));
    key[n++] = g != NULL;
    key[n++] = p->causal;
    key[n++] = p->batch;
    key[n++] = p->queries;
    key[n++] = p->keys;
    key[n++] = p->heads;
    key[n++] = p->kv_heads;
    key[n++] = p->head_width;
    for (int i = 0; i < 3; i++) {
        const struct heads_out *out = !g       ? NULL
                                      : i == 0 ? &g->dq
                                      : i == 1 ? &g->dk
                                               : &g->dv;

        /* a fused qkv and three tensors differ in their strides */
        key[n++] = in[i]->sample;
        key[n++] = in[i]->row;
        key[n++] = in[i]->head;
        key[n++] = out ? out->sample : 0;
        key[n++] = out ? out->row : 0;
        key[n++] = out ? out->head : 0;
    }
}

/* Says the first refusal in isa; later ones would not fit. */
static void refuse(struct cuda_state *s, const struct plan *plan)
{
    char text[96];

    if (s->dnn->refused)
        return;
    s->dnn->refused = true;
    snprintf(text, sizeof(text), "%s of %lld x %lld x %lld: %.50s",
             plan->key[0] ? "gradient" : "attention", (long long)plan->key[3],
             (long long)plan->key[4], (long long)plan->key[7], plan->graph.why);
    say(s, " (refuses %s)", text);
}

/* The plan of this shape, made if it is new. NULL: refused. */
static struct plan *plan_of(struct cuda_state *s, const struct attention *p,
                            const struct attention_grads *g)
{
    struct cuda_dnn *d = s->dnn;
    struct plan *plan;
    int64_t key[KEYS];

    make_key(key, p, g);
    for (plan = d->plans; plan; plan = plan->next)
        if (!memcmp(plan->key, key, sizeof(key)))
            /* a refusal is kept, too: asking again would take as long */
            return plan->plan ? plan : NULL;
    plan = (struct plan *)calloc(1, sizeof(*plan));
    if (!plan)
        return NULL;
    /* making a plan builds and loads kernels, which a recording cannot hold */
    if (s->end_recording)
        s->end_recording(s);
    memcpy(plan->key, key, sizeof(key));
    dnn_begin(&plan->graph, &d->api);
    if (g)
        dnn_attention_backward(&plan->graph, p, g, d->handle);
    else
        dnn_attention_forward(&plan->graph, p, d->handle);
    plan->plan = dnn_plan(&plan->graph, d->handle, NULL, (int64_t)s->workspace.bytes,
                          &plan->workspace);
    plan->next = d->plans;
    d->plans = plan;
    if (!plan->plan)
        refuse(s, plan);
    return plan->plan ? plan : NULL;
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
static void execute(struct cuda_state *s, struct plan *plan, const struct binding *b)
{
    /* the pack is made per call: addresses change, the plan does not */
    void *workspace = cuda_scratch(s, (size_t)plan->workspace), *pack;
    struct dnn_graph g;

    dnn_begin(&g, &s->dnn->api);
    pack = dnn_make(&g, DNN_PACK);
    dnn_set(&g, pack, DNN_PACK_UIDS, DNN_TYPE_INT64, b->count, b->uid);
    dnn_set(&g, pack, DNN_PACK_POINTERS, DNN_TYPE_VOID_PTR, b->count, b->at);
    dnn_set(&g, pack, DNN_PACK_WORKSPACE, DNN_TYPE_VOID_PTR, 1, &workspace);
    dnn_finish(&g, pack, "variant pack");
    if (!s->failed && !g.failed &&
        dnn_check(&g, g.api->set_stream(s->dnn->handle, s->now), "cudnnSetStream"))
        dnn_check(&g, g.api->execute(s->dnn->handle, plan->plan, pack),
                  "cudnnBackendExecute");
    if (!s->failed && g.failed)
        cuda_breaks(s, "cudnnBackendExecute", g.why);
    dnn_end(&g);
    cuda_scratch_free(s, workspace);
}

/* Binds the inputs and constants of both directions. Constants are read when the plan
 * is executed, so they may lie on the host. */
static struct binding bind_inputs(const struct attention *p, const void *out,
                                  const float *lse)
{
    /* finite, so that no difference of two is NaN */
    static const float hidden = -FLT_MAX;
    struct binding b;

    b.count = 0;
    bind(&b, DNN_UID_Q, p->q.data);
    bind(&b, DNN_UID_K, p->k.data);
    bind(&b, DNN_UID_V, p->v.data);
    bind(&b, DNN_UID_OUT, out);
    bind(&b, DNN_UID_LSE, lse);
    bind(&b, DNN_UID_SCALE, &p->scale);
    if (p->causal)
        bind(&b, DNN_UID_HIDDEN, &hidden);
    return b;
}

bool attn_dnn_forward(const struct backend *be, const struct attention *p, void *out,
                      float *lse)
{
    struct cuda_state *s = cuda_state_of(be);
    struct plan *plan = plan_of(s, p, NULL);
    struct binding b = bind_inputs(p, out, lse);

    /* false: the caller takes another path, and nothing has been queued */
    if (plan)
        execute(s, plan, &b);
    return plan != NULL;
}

bool attn_dnn_backward(const struct backend *be, const struct attention *p,
                       const struct attention_grads *g, float *delta)
{
    static const float one = 1.0f;
    struct cuda_state *s = cuda_state_of(be);
    struct plan *plan = plan_of(s, p, g);
    struct binding b = bind_inputs(p, g->out, g->lse);

    bind(&b, DNN_UID_DOUT, g->dout);
    bind(&b, DNN_UID_DELTA, delta);
    bind(&b, DNN_UID_ONE, &one);
    bind(&b, DNN_UID_DQ, g->dq.data);
    bind(&b, DNN_UID_DK, g->dk.data);
    bind(&b, DNN_UID_DV, g->dv.data);
    if (plan)
        execute(s, plan, &b);
    return plan != NULL;
}
