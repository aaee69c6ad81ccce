/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit: the device's functions that the C library has not.
 */
#ifndef FAKECUDA_MATHS_H
#define FAKECUDA_MATHS_H

static inline void __trap(void)
{
    fakecuda_trap();
}

template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

#endif
