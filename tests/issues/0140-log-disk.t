#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a full disk, a quota or a directory that was gone ended a training through its log.
# A log that cannot be written ends no training: no room, a file size limit, a log or its
# directory that somebody removes. Its records wait for better times, what is lost is
# counted, and every line is whole. (That no part of a line is ever seen and taken back is for
# test_lines to show, which decides what each write takes.)
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
train_alone
train_config nosave.yaml NO_SHARD no 1 1 "checkpoint: {save: false}"
MODEL="--layers 1 --heads 1 --width 16 --seq 16 --batch 1 --sample 0 --data $tap_tmp/text.txt"

whole_lines() { # FILE: every line is a record
    ! grep -v -E '^\{"step":[0-9]+,.*\}$' "$1" && [ -z "$(tail -c 1 "$1")" ]
}

# A file size limit (8 blocks of 512 bytes or 1 KiB), and no save.
(
    ulimit -f 8
    # shellcheck disable=SC2086
    ACCEL_CONFIG=nosave.yaml timeout "$HANG_S" "$TRAIN" $MODEL --steps 100 --log-every 100 --out limit 2>&1 |
        cat >limit.out
    # shellcheck disable=SC2086
    ACCEL_CONFIG=nosave.yaml timeout "$HANG_S" "$TRAIN" $MODEL --steps 100 --log-every 100 --out limit2 \
        >/dev/null 2>&1
)
is $? 0 "a log beyond the file size limit: the run ends 0"
whole_lines limit/log.jsonl
ok $? "every line of the log is a record"
is "$(grep -c 'cannot write the log (File too large); its records are kept in memory' limit.out)" 1 \
    "one warning when it begins"
lost=$(sed -n 's/.*: \([0-9]*\) records of the log are lost: File too large$/\1/p' limit.out)
is "$((lost + $(wc -l <limit/log.jsonl)))" 100 "one at the end, with the number of those that are lost"

# Somebody removes the log, then its directory, while it is written.
# No save meanwhile: that would make the directory again.
train_config rare.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 1000000000}"
train_config save.yaml NO_SHARD no 1 1 "checkpoint: {every_steps: 50, keep: 1}"
# shellcheck disable=SC2086
ACCEL_CONFIG=rare.yaml timeout "$HANG_S" "$TRAIN" $MODEL --steps 1000000000 --out gone >gone.out 2>&1 &
pid=$!
kill_at_exit $pid
wait_for_step gone/log.jsonl 5
rm gone/log.jsonl
wait_until [ -s gone/log.jsonl ]
ok $? "a log that was removed is begun again"
mv gone elsewhere
rm elsewhere/log.jsonl
wait_until grep -q 'gone/log.jsonl: cannot write the log (No such file' gone.out
ok $? "without its directory the run goes on, with a warning"
mv elsewhere gone
wait_until grep -q 'the log can be written again' gone.out
ok $? "it is written again once it can be"
kill $pid
wait $pid
is $? 85 "and the run is still there to be stopped"
whole_lines gone/log.jsonl
ok $? "every line of the log is a record"

if [ "$(id -u)" != 0 ] || ! can_mnt_mode; then
    skip 4 "needs root and mount namespaces"
    done_testing
fi
# A full disk that somebody makes room on, while the run goes on.
cat >full.sh <<'END'
mount -t tmpfs -o size=2m none small || exit 99
ACCEL_CONFIG=save.yaml timeout "$HANG_S" "$@" --out small/o >full.out 2>&1 &
pid=$!
says() { # TEXT
    end=$(($(date +%s) + HANG_S))
    until grep -q "$1" full.out || [ "$(date +%s)" -ge $end ]; do sleep 0.1; done
}
says 'checkpoint of step 50 saved'
dd if=/dev/zero of=small/filler bs=4k 2>/dev/null
says 'cannot write the log'
rm small/filler
says 'log can be written again'
kill $pid
wait $pid
echo $? >full.code
cp small/o/log.jsonl full.jsonl
END
mkdir small
# shellcheck disable=SC2086
unshare -m sh full.sh "$TRAIN" $MODEL --steps 100000000
is "$(cat full.code)" 85 "a full disk: the run goes on, and stops with its state saved"
# What waits longer than 1 MiB of memory holds is thinned out, on a machine that is busy with
# other things; then its number is said.
like "$(cat full.out)" 'written again(; [0-9]+ of the waiting records| and has all waiting records$)' \
    "the records that waited come in the end"
whole_lines full.jsonl
ok $? "every line is a record"
dropped=$(sed -n 's/.*written again; \([0-9]*\) of the waiting records.*/\1/p' full.out |
    awk '{ n += $1 } END { print n + 0 }')
is "$(losses full.jsonl | awk '$1 <= last { twice++ } { last = $1 } END { print last - NR, twice + 0 }')" \
    "$dropped 0" "each step is there once, but for those"
done_testing
