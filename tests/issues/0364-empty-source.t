#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a loader whose source gave nothing asked it again for ever, and one whose source
# gave nothing yet waited for ever; neither SIGTERM nor Ctrl-C nor timeout ended it.
# An epoch without a batch ends the run with the loader's name, a command that fails is
# named by examples/streaming, and a stop ends the wait for a sample, with one rank and two.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
train_alone
streaming=$ACCEL_BUILD/examples/streaming
[ -x "$streaming" ] || skip_all "examples/streaming is not built"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
train_config one.yaml NO_SHARD no 1 1
train_config two.yaml NO_SHARD no 2 1

# ends COMMAND: sets code and said
ends() {
    ACCEL_CONFIG=one.yaml timeout -k 2 "$HANG_S" "$streaming" "$@" >said 2>&1
    code=$?
    said=$(cat said)
}

ends 'cat missing-file'
is $code 74 "a command that fails ends the run"
contains "$said" "streaming: 'cat missing-file' failed with exit code 1" "and is named"
ends true
is $code 64 "a source without a sample ends the run"
contains "$said" 'text: epoch 0 has no sample' "with the loader's name"
ends 'head -c 400 text.txt'
is $code 64 "an epoch that does not fill a step ends the run"
contains "$said" 'text: an epoch does not fill a step of 16 samples' "with the loader's name"

# waits OUT WORD...: in the background as $pid, until nine steps are done and the command gives
# nothing more. It ends by SIGTERM, as a batch system would send it.
waits() {
    waits_out=$1
    shift
    rm -f waiting
    ACCEL_CONFIG=one.yaml setsid env --default-signal=INT "$@" \
        'head -c 5400 text.txt; echo $$ >waiting; exec sleep 1000' 60 "$waits_out" >"$waits_out.said" 2>&1 &
    pid=$!
    kill_group_at_exit $pid KILL
    wait_until [ -s waiting ]
    kill_at_exit "$(cat waiting)" KILL # it outlives whoever no longer reads it
    wait_for_step "$waits_out/log.jsonl" 9 || diag "$(cat "$waits_out.said")"
}

waits term "$streaming"
kill -TERM $pid
wait $pid
is $? 85 "SIGTERM ends the wait for a sample"
contains "$(cat term.said)" 'the state of step 9 is saved in term/checkpoints' "and the last step is saved"
ACCEL_CONFIG=one.yaml timeout -k 2 "$HANG_S" "$streaming" 'cat text.txt' 60 term >said 2>&1
ok $? "it goes on" || diag "$(cat said)"
ACCEL_CONFIG=one.yaml timeout -k 2 "$HANG_S" "$streaming" 'cat text.txt' 60 whole >said 2>&1
ok $? "a run without a stop" || diag "$(cat said)"
same_bits term/log.jsonl whole/log.jsonl
ok $? "with the sample that did not come, to the same bits"

# Before the first step: there is nothing to lose, but somebody waits.
rm -f waiting
# shellcheck disable=SC2016 # the command's own
ACCEL_CONFIG=one.yaml "$streaming" 'echo $$ >waiting; exec sleep 1000' 60 first >first.said 2>&1 &
pid=$!
kill_at_exit $pid KILL
wait_until [ -s waiting ]
kill_at_exit "$(cat waiting)" KILL
kill -TERM $pid
wait $pid
is $? 85 "SIGTERM ends the wait for the first sample" || diag "$(cat first.said)"

waits int "$streaming"
env kill -s INT -- "-$pid"
wait $pid
is $? 75 "so does Ctrl-C, which goes to the command as well"
like "$(cat int.said)" 'the state of step (9|10) is saved in int/checkpoints' "and the last step is saved"

command -v mpirun >/dev/null 2>&1 || { skip 2 "mpirun is not installed"; done_testing; }
waits ranks "$ACCEL_BUILD/accel" launch --config two.yaml -n 2 "$streaming"
kill -TERM $pid
wait $pid
is $? 85 "so does accel launch with two ranks"
contains "$(cat ranks.said)" 'the state of step 9 is saved in ranks/checkpoints' "and the last step is saved"
done_testing
