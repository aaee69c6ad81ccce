/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit: where a thread and a block are.
 */
#ifndef FAKECUDA_VECTORS_H
#define FAKECUDA_VECTORS_H

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
};

#endif
