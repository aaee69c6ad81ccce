/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of git-lfs: in a clone made without it a small text stands in the place of each
 * large file. In: the beginning of a file. Out: is it one? With the words for messages.
 */
#ifndef ACCEL_COMMON_LFS_POINTER_H
#define ACCEL_COMMON_LFS_POINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LFS_POINTER "version https://git-lfs.github.com/spec/"
#define LFS_POINTER_TEXT                                                               \
    "the file is a pointer of git-lfs, not the file that it stands for"
#define LFS_POINTER_CURE "run git lfs pull in the clone, or download the file"

static inline bool is_lfs_pointer(const char *text, size_t n)
{
    return n >= sizeof(LFS_POINTER) - 1 &&
           memcmp(text, LFS_POINTER, sizeof(LFS_POINTER) - 1) == 0;
}

#endif
