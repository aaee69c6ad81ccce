/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights files of one model in a run of several: written and read by 1 and 2 ranks, in
 * every way of sharding, under the model's own names; what another model keeps; and what
 * is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"
#include "weights/weights.h"

enum { IN = 6, OUT = 5, ELEMS = IN * OUT + OUT };

static char dir[64] = "/tmp/accel-model-weights.XXXXXX", config[96];

/* A run of a teacher without an optimizer, a student, and more optimizers than one. */
struct school {
    accel_t *run;
    accel_module_t *teacher, *student, *third;
};

struct linear {
    accel_tensor_t *weight, *bias;
};

static accel_tensor_t *linear_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    struct linear *l = accel_module_state(m);

    (void)n;
    return accel_linear(in[0], l->weight, l->bias, ACCEL_ACT_NONE);
}

static accel_module_t *linear_new(accel_t *run, int out)
{
    static const accel_class_t cls = { sizeof(cls), "Linear", linear_forward,
                                       sizeof(struct linear) };
    const int64_t dims[] = { out, IN };
    accel_module_t *m = accel_module_new(run, &cls, NULL, NULL);
    struct linear *l = accel_module_state(m);

    l->weight =
        accel_param(m, "weight", 2, dims, (accel_init_t){ ACCEL_INIT_UNIFORM, 0.7f });
    l->bias =
        accel_param(m, "bias", 1, dims, (accel_init_t){ ACCEL_INIT_UNIFORM, 0.3f });
    return m;
}

static accel_status_t school_open(struct school *k, const char *out, uint64_t seed,
                                  accel_error_t *err)
{
    const accel_optimizer_t adamw = { sizeof(adamw), .lr = 0.01f };
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    char path[160];
    accel_loop_t loop = { sizeof(loop), .steps = 2, .batch = 1, .seed = seed,
                          .out_dir = path };

    *k = (struct school){ 0 };
    snprintf(path, sizeof(path), "%s/%s", dir, out);
    if (accel_open(&k->run, &o, err))
        return err->code;
    k->teacher = linear_new(k->run, OUT);
    k->student = linear_new(k->run, OUT);
    k->third = linear_new(k->run, OUT + 1);
    if (accel_model_add(k->run, "teacher", k->teacher, err) ||
        accel_model_add(k->run, "student", k->student, err) ||
        accel_model_add(k->run, "teacher-2", k->third, err) ||
        !accel_optim_add(k->run, "a", &k->third, 1, &adamw, err) ||
        !accel_optim_add(k->run, "b", &k->student, 1, &adamw, err))
        return err->code;
    return accel_prepare_all(k->run, &loop, err);
}

/* weight and bias of that model, on every rank. */
static accel_status_t values_of(struct school *k, const char *model, float *to,
                                accel_error_t *err)
{
    char name[80];

    snprintf(name, sizeof(name), "%s/weight", model);
    if (accel_param_read(k->run, name, ACCEL_ALL_RANKS, to, IN * OUT, err))
        return err->code;
    snprintf(name, sizeof(name), "%s/bias", model);
    return accel_param_read(k->run, name, ACCEL_ALL_RANKS, to + IN * OUT, OUT, err);
}

/* ---- out and in ------------------------------------------------------------------ */

/* Files as they are on the disk: two tensors by the names that the model gives them. */
static bool file_is(const char *path, const float *want)
{
    accel_safetensors_t *file = NULL;
    const accel_safetensors_tensor_t *w, *b;
    float got[ELEMS];
    bool good;

    if (accel_safetensors_open(&file, path, NULL))
        return false;
    w = accel_safetensors_find(file, "weight");
    b = accel_safetensors_find(file, "bias");
    good = accel_safetensors_count(file) == 2 && w && b &&
           !accel_safetensors_read(file, w, 0, IN * OUT, got, NULL) &&
           !accel_safetensors_read(file, b, 0, OUT, got + IN * OUT, NULL) &&
           memcmp(got, want, sizeof(got)) == 0;
    accel_safetensors_close(file);
    return good;
}

/* One run writes both, the next has other initial values and reads them crosswise. */
static int rank_round(struct boot *b, void *arg)
{
    static float teacher[ELEMS], student[ELEMS], fresh[ELEMS], now[ELEMS];
    const char *strategy = arg;
    accel_error_t err = { 0 };
    struct school k;
    char to[2][160];
    int bad = 0;

    for (int i = 0; i < 2; i++)
        snprintf(to[i], sizeof(to[i]), "%s/%s.%d.%s", dir, strategy, b->size,
                 i ? "student" : "teacher");
    if (school_open(&k, "first", 1, &err) || values_of(&k, "teacher", teacher, &err) ||
        values_of(&k, "student", student, &err) ||
        accel_model_save(k.run, k.teacher, to[0], "float32", 0, &err) ||
        accel_model_save(k.run, k.student, to[1], "float32", 0, &err))
        bad = 1;
    if (!bad && b->rank == 0 && (!file_is(to[0], teacher) || !file_is(to[1], student)))
        bad = 2;
    accel_close(k.run, NULL);
    if (bad || school_open(&k, "second", 2, &err) ||
        values_of(&k, "student", fresh, &err) ||
        accel_model_load(k.run, k.teacher, to[1], &err) ||
        values_of(&k, "teacher", now, &err))
        bad = bad ? bad : 3;
    if (!bad &&
        (memcmp(now, student, sizeof(now)) || values_of(&k, "student", now, &err) ||
         memcmp(now, fresh, sizeof(now)) || !memcmp(now, student, sizeof(now))))
        bad = 4;
    if (!bad &&
        (accel_model_load(k.run, k.student, to[0], &err) ||
         values_of(&k, "student", now, &err) || memcmp(now, teacher, sizeof(now))))
        bad = 5;
    if (bad)
        fprintf(stderr, "# rank %d: %d %s: %s\n", b->rank, bad, err.where, err.text);
    accel_close(k.run, NULL);
    return bad;
}

static void test_rounds(void)
{
    static const char *const all[] = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++) {
        char text[256];

        snprintf(text, sizeof(text),
                 "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: %s\n"
                 "use_cpu: true\naccel: {checkpoint: {save: false}}\n",
                 all[i]);
        run_folder_write(config, text);
        for (int n = 1; n <= 2; n++)
            tap_is_int(open_world(n, 1, rank_round, (void *)all[i], HANG_S), 0,
                       "%d ranks, %s: out and in", n, all[i]);
    }
}

/* ---- one model that has a name, and what is refused ------------------------------ */

static void test_one_named(void)
{
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    const accel_optimizer_t adamw = { sizeof(adamw), .lr = 0.01f };
    accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1, .seed = 3,
                          .out_dir = dir };
    struct school k = { 0 };
    accel_error_t err = { 0 };
    float was[ELEMS], now[ELEMS];
    char path[160];

    snprintf(path, sizeof(path), "%s/FULL_SHARD.2.teacher", dir);
    accel_open(&k.run, &o, &err);
    k.student = linear_new(k.run, OUT);
    tap_ok(!accel_model_add(k.run, "only", k.student, &err) &&
               accel_optim_add(k.run, "o", &k.student, 1, &adamw, &err) &&
               !accel_prepare_all(k.run, &loop, &err) &&
               !values_of(&k, "only", was, &err) &&
               !accel_load_weights(k.run, path, &err) &&
               !values_of(&k, "only", now, &err) && memcmp(was, now, sizeof(now)) &&
               file_is(path, now),
           "accel_load_weights fills the one model, also one with a name %s", err.text);
    accel_close(k.run, NULL);
}

static void test_refused(void)
{
    struct school k;
    accel_error_t err = { 0 };
    char path[160];

    snprintf(path, sizeof(path), "%s/FULL_SHARD.1.teacher", dir);
    if (school_open(&k, "third", 1, &err))
        tap_ok(false, "%s", err.text);
    tap_ok(accel_load_weights(k.run, path, &err) == ACCEL_EINVAL &&
               strstr(err.text, "knows one model, but the run has 3") &&
               strstr(err.hint, "accel_model_load"),
           "%s (%s)", err.text, err.hint);
    tap_ok(accel_save_weights(k.run, path, "float32", 0, &err) == ACCEL_EINVAL &&
               strstr(err.hint, "accel_model_save"),
           "%s (%s)", err.text, err.hint);
    tap_ok(accel_model_load(k.run, NULL, path, &err) == ACCEL_EINVAL &&
               accel_model_save(k.run, NULL, path, "float32", 0, &err) ==
                   ACCEL_EINVAL &&
               err.message == 962,
           "%s", err.text);
    tap_ok(accel_model_save(k.run, k.student, path, "float32", 0, &err) != ACCEL_OK,
           "weights are not replaced: %s", err.text);
    tap_ok(accel_model_load(k.run, k.third, path, &err) == ACCEL_EMISMATCH &&
               strstr(err.text, "weight has shape [5, 6] in the file, but [6, 6]"),
           "another shape ends the run: %s", err.text);
    accel_close(k.run, NULL);
}

/* A resumed run reads nothing, but is still told of a path that cannot be. */
static void test_resumed(void)
{
    struct school k;
    accel_error_t err = { 0 };
    char state[160];

    snprintf(state, sizeof(state), "%s/state", dir);
    if (school_open(&k, "third", 1, &err) || accel_save_state(k.run, state, &err) ||
        accel_load_state(k.run, state, &err))
        tap_ok(false, "%s", err.text);
    tap_ok(!accel_model_load(k.run, k.student, "/nonexistent", &err), "not read %s",
           err.text);
    tap_ok(accel_model_load(k.run, k.student, NULL, &err) == ACCEL_ENOENT &&
               strstr(err.text, "the path is empty"),
           "%s", err.text);
    accel_close(k.run, NULL);
}

int main(void)
{
    run_folder_make(dir, "", config, sizeof(config));
    test_rounds();
    run_folder_write(config, "distributed_type: 'NO'\nuse_cpu: true\n"
                             "accel: {checkpoint: {save: false}}\n");
    test_one_named();
    test_refused();
    test_resumed();
    run_folder_remove(dir);
    return tap_done();
}
