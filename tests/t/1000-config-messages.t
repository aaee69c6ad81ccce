#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every wrong config of the corpus gets its exact messages and its exit code, never
# hangs, and prints nothing to stdout.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/t/bad-configs.sh
. "$(dirname "$0")/bad-configs.sh"

tap_tmpdir
chmod 755 "$tap_tmp"
make_bad_configs "$tap_tmp" || bail_out "cannot make the corpus"
cd "$tap_tmp" || bail_out "no directory"

as_reader= # root reads everything: be somebody else for the unreadable file
[ "$(id -u)" != 0 ] || as_reader='setpriv --reuid=65534 --clear-groups'

# A hang (fifo, endless device) is a failure with a reason, not a stuck test.
check() { # NAME [PREFIX COMMAND]
    (
        # shellcheck disable=SC2086
        exec timeout "$HANG_S" ${2-} "$ACCEL_BUILD/accel" check --quiet "$1.yaml" >out 2>err
    )
}

[ -z "$as_reader" ] || $as_reader "$ACCEL_BUILD/accel" --version >/dev/null 2>&1 ||
    as_reader=no

count=0
for name in $(bad_config_names); do
    count=$((count + 1))
    if [ "$name" = 90-unreadable ] && [ "$as_reader" = no ]; then
        skip 3 "cannot become another user who may run the build"
        continue
    fi
    if [ "$name" = 90-unreadable ]; then
        check "$name" "$as_reader"
    else
        check "$name"
    fi
    is "$?" "$(bad_config_code "$name")" "$name: exit code"
    # The last line is the CLI's own count; the rest is the same in every front end.
    is "$(sed '$d' err)" "$(cat "$ACCEL_SRC/tests/data/config/bad/$name.expected")" \
        "$name: messages"
    is "$(cat out)" "" "$name: nothing on stdout"
done
[ "$count" -ge 30 ]
ok $? "at least 30 wrong configs were tried ($count)"

# A file whose size is not known beforehand is read to its end all the same.
size=$(stat -c %s /proc/sys/kernel/ostype 2>/dev/null)
if [ "$size" = 0 ] && [ "$(cat /proc/sys/kernel/ostype)" = Linux ]; then
    "$ACCEL_BUILD/accel" check --quiet /proc/sys/kernel/ostype 2>err
    like "$(cat err)" '1 \| Linux' "a file of unknown size is read to its end"
else
    skip 1 "no /proc/sys/kernel/ostype"
fi
done_testing
