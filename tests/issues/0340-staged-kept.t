#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a checkpoint that was reported as saved on the nodes was thrown away by the next life
# where that one had no local_dir or another one, found the disk not mounted, the output directory
# renamed or parts of another user, or was another run. It ends with 74, 77 or 65, changes nothing,
# and the life after the mishap has the step. The whole table: tests/unit/test_staging_kept.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
! built_with_sanitizer || skip_all "sanitizers and LD_PRELOAD exclude each other"
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
[ -r "$shim" ] || skip_all "tests/faults/failcall is not built"
train_alone
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
unset ACCEL_RESUME ACCEL_RESTART_COUNT SLURM_RESTART_COUNT

for dir in node other ""; do
    train_config "on-$dir.yaml" NO_SHARD no 1 1 \
        "checkpoint: {every_steps: 20, async: false, local_dir: ${dir:+$tap_tmp/}$dir}"
done

# train CONFIG OUT [OPTION...]
train() {
    cfg=$1 out=$2
    shift 2
    ACCEL_CONFIG=on-$cfg.yaml timeout "$HANG_S" "$TRAIN" --layers 1 --heads 2 --width 32 --seq 32 --batch 2 \
        --steps "${steps:-30}" --sample 0 --data text.txt --out "$out" "$@" >said 2>&1
}
# What is there; a copy in progress and what a start writes down are no checkpoints.
state() {
    find out/checkpoints node -name '.t*' -prune -o -type f ! -name history ! -name .lock \
        -exec cksum {} + | sort
}
# refused CODE MESSAGE WHAT CONFIG [OPTION...]
refused() {
    code=$1 message=$2 what=$3
    shift 3
    state >before
    train "$1" out ${2:+"$2" "$3"}
    is $? "$code" "$what: ends with $code"
    like "$(cat said)" "error\\[$message\\]" "$what: $message"
    state >after
    ok_same "$what: nothing has changed"
}
ok_same() {
    cmp -s before after
    ok $? "$1" || diag "$(diff before after)"
}

# No write to the shared directory ends, so that the step stays on the node alone.
LD_PRELOAD=$shim FAILCALL_SLOW=120000 FAILCALL_SLOW_FROM=30000 FAILCALL_SLOW_PATH=/out/checkpoints/ \
    ACCEL_CONFIG=on-node.yaml "$TRAIN" --layers 1 --heads 2 --width 32 --seq 32 --batch 2 \
    --steps 100000000 --sample 0 --data text.txt --out out >first 2>&1 &
life=$!
wait_until grep -q 'checkpoint of step 20 saved on the nodes' first
ok $? "a life saves step 20 on its node" || diag "$(tail -n 5 first)"
kill -KILL $life
wait $life 2>/dev/null
step=$(find out/checkpoints -name '.local-step_*' | sed 's/.*step_0*\([0-9]*\)\..*/\1/' | sort -n | tail -n 1)
steps=$((step + 10))

refused 74 A0863 "no local_dir" ""
refused 74 A0863 "another local_dir" other
mv node node.away
refused 74 A0863 "not mounted" node
[ ! -e node ]
ok $? "and nothing is made in its place"
mv node.away node
refused 65 A0818 "another run" node --seed 9
if [ "$(id -u)" = 0 ]; then
    owner=$(id -u):$(id -g)
    chown -R 65534:65534 node/accel-*
    refused 77 A0864 "files of another user" node
    chown -R "$owner" node/accel-*
else
    skip 3 "only root can give files away"
fi
mv out moved
train node moved
is $? 0 "all is well again, in an output directory of another name" || diag "$(tail -n 5 said)"
like "$(cat said)" "resumed from moved/checkpoints/step_0*$step: step $step," "it has the step"
is "$(find node -name 'rank_*' | wc -l)" 0 "nothing is left on the node"
done_testing
