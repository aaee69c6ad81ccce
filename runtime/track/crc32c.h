/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C (Castagnoli), the checksum of records in event files.
 */
#ifndef ACCEL_TRACK_CRC32C_H
#define ACCEL_TRACK_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of data[bytes]; "123456789" gives 0xe3069283. */
uint32_t crc32c(const void *data, size_t bytes);

#endif
