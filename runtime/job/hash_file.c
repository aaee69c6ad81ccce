/* SPDX-License-Identifier: Apache-2.0
 *
 * Size and hash of a file, for markers of checkpoints that other programs write. Reads
 * in pieces; a fifo or a device is refused, so nothing waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/plain_file.h"
#include "job/attempt.h"

#define PIECE ((size_t)1 << 20)

/* All that is left of fd. 0, or errno. */
static int hash_rest(int fd, XXH3_state_t *state, void *piece, int64_t *bytes_out)
{
    ssize_t n;

    *bytes_out = 0;
    while ((n = read(fd, piece, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        XXH3_64bits_update(state, piece, (size_t)n);
        *bytes_out += n;
    }
    return 0;
}

accel_status_t accel_hash_file(const char *path, int64_t *bytes_out, uint64_t *hash_out,
                               accel_error_t *err)
{
    XXH3_state_t *state = XXH3_createState();
    void *piece = malloc(PIECE);
    int fd = -1, rc = ENOMEM;

    if (state && piece) {
        XXH3_64bits_reset(state);
        fd = plain_open(AT_FDCWD, path, O_RDONLY);
        rc = fd < 0 ? errno : hash_rest(fd, state, piece, bytes_out);
    }
    if (rc == 0)
        *hash_out = XXH3_64bits_digest(state);
    if (fd >= 0)
        close(fd);
    free(piece);
    XXH3_freeState(state);
    return rc == 0 ? ACCEL_OK
                   : accel_fail_at(err, A0801, path,
                                   "check the file system and the permissions",
                                   "cannot read the file: %s", plain_error(rc));
}
