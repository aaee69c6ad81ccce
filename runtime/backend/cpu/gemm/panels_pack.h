/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a packing loop by the type that is stored, once for every instruction
 * set. The file that includes it has defined turn_typed and copy_typed, in which the
 * type is a constant.
 */

#define BY_TYPE(pack)                                                                  \
    do {                                                                               \
        if (from->type == ACCEL_F32)                                                   \
            pack(to, from, n, k, width, ACCEL_F32);                                    \
        else if (from->type == ACCEL_BF16)                                             \
            pack(to, from, n, k, width, ACCEL_BF16);                                   \
        else if (from->type == ACCEL_F16)                                              \
            pack(to, from, n, k, width, ACCEL_F16);                                    \
        else if (from->type == ACCEL_F8E4M3)                                           \
            pack(to, from, n, k, width, ACCEL_F8E4M3);                                 \
        else if (from->type == ACCEL_F8E5M2)                                           \
            pack(to, from, n, k, width, ACCEL_F8E5M2);                                 \
        else                                                                           \
            pack(to, from, n, k, width, ACCEL_I8);                                     \
    } while (0)

TARGET static void turn_stored(float *to, const struct panel_source *from, int64_t n,
                               int64_t k, int64_t width)
{
    BY_TYPE(turn_typed);
}

TARGET static void copy_stored(float *to, const struct panel_source *from, int64_t n,
                               int64_t k, int64_t width)
{
    BY_TYPE(copy_typed);
}
