/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: levels of MS-AMP imply the keys that they are made of, and fp8 weights
 * want products that all take them.
 */

#include "config/config.h"
#include "tests/tap.h"
#include "tests/world/config_files.h"

static struct config_said reply;

#define FP8   TYPE("FSDP") "mixed_precision: fp8\n"
#define MSAMP FP8 "fp8_config: {backend: MSAMP"

static const struct {
    const char *text;
    enum fp8_choice recipe;
    enum masters_choice masters;
    enum gradients_choice gradients;
    enum reduce_choice reduce;
    enum moments_choice moments;
    enum weights_choice weights;
} levels[] = {
    { MSAMP ", opt_level: O1}\n", FP8_POWERS, MASTERS_FP16, GRADIENTS_FP8, REDUCE_E4M3,
      MOMENTS_F32, WEIGHTS_AUTO },
    { MSAMP ", opt_level: O1}\naccel: {precision: {masters: float32, reduce: bf16}}\n",
      FP8_POWERS, MASTERS_F32, GRADIENTS_FP8, REDUCE_BF16, MOMENTS_F32, WEIGHTS_AUTO },
    { MSAMP "}\n", FP8_POWERS, MASTERS_FP16, GRADIENTS_FP8, REDUCE_E4M3, MOMENTS_FP8,
      WEIGHTS_AUTO },
    { MSAMP ", opt_level: O3}\n", FP8_POWERS, MASTERS_FP16, GRADIENTS_FP8, REDUCE_E4M3,
      MOMENTS_FP8, WEIGHTS_FP8 },
    { MSAMP ", opt_level: O2}\naccel: {precision: {moments: 8bit}}\n", FP8_POWERS,
      MASTERS_FP16, GRADIENTS_FP8, REDUCE_E4M3, MOMENTS_8BIT, WEIGHTS_AUTO },
    { FP8 "fp8_config: {backend: TE, opt_level: O1}\n", FP8_DELAYED, MASTERS_F32,
      GRADIENTS_F32, REDUCE_AUTO, MOMENTS_F32, WEIGHTS_AUTO },
    { TYPE("FSDP") "mixed_precision: bf16\nfp8_config: {backend: MSAMP, opt_level: "
                   "O1}\n",
      FP8_DELAYED, MASTERS_F32, GRADIENTS_F32, REDUCE_AUTO, MOMENTS_F32, WEIGHTS_AUTO },
};

/* Weights that are codes alone need products that all take them. */
static void test_weights(void)
{
    static const struct {
        const char *text, *code;
    } files[] = {
        { TYPE("FSDP") "mixed_precision: bf16\naccel: {precision: {weights: fp8}}\n",
          "A0153" },
        { FP8 "accel: {precision: {weights: fp8, fp8_recipe: current}}\n", "A0153" },
        { FP8 "accel: {precision: {weights: fp8, fp8_recipe: powers}}\n", "" },
        { FP8 "fp8_config: {backend: AO}\n"
              "accel: {precision: {weights: fp8}}\n",
          "" },
    };
    struct config cfg;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(files); i++)
        tap_is_str(config_verdict(files[i].text, &cfg, &reply), files[i].code,
                   "weights %zu", i);
}

/* What a level implies, unless other keys say otherwise; in the tasks, too. */
static void test_levels(void)
{
    static char text[16 << 10];
    struct config cfg, task;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(levels); i++) {
        tap_is_str(config_verdict(levels[i].text, &cfg, &reply), "", "a level");
        tap_ok(config_encode(&cfg, text, sizeof(text), NULL) == ACCEL_OK &&
                   config_decode(text, &task, NULL) == ACCEL_OK &&
                   task.fp8_recipe == levels[i].recipe &&
                   task.masters == levels[i].masters &&
                   task.gradients == levels[i].gradients &&
                   task.reduce == levels[i].reduce &&
                   task.moments == levels[i].moments &&
                   task.weights == levels[i].weights,
               "%zu implies what it is made of", i);
    }
}

int main(void)
{
    config_files_make();
    test_levels();
    test_weights();
    config_files_remove();
    return tap_done();
}
