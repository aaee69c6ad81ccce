#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Links that somebody planted where a run writes: log, history, lease, checkpoint. What
# they point at is never written, made or removed, whether it is there or not.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
[ -x "$TRAIN" ] || skip_all "the trainer is not built"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
train_text text.txt
train() { # OUT
    timeout -k 5 "$HANG_S" "$TRAIN" --layers 1 --heads 1 --width 16 --seq 16 --batch 1 --steps 2 \
        --sample 0 --data text.txt --out "$1" >"${1%/}.log" 2>&1
}
mkdir plain
train plain
is "$?" 0 "a run without links"
names=$(cd plain && find . -mindepth 1 -name '*.jsonl' -o -path './checkpoints/*' -prune | sed 's|^\./||')
[ "$(echo "$names" | wc -l)" -ge 4 ]
ok $? "the names a run uses: $(echo "$names" | tr '\n' ' ')"

# One name after the other is a link before the run begins.
plant() { # NAME TARGET
    rm -rf out
    mkdir -p out/checkpoints
    ln -s "$2" "out/$1"
    train out
    code=$?
}
for name in $names log.jsonl.part; do
    rm -rf away
    plant "$name" "$tap_tmp/away"
    [ ! -e away ] && [ ! -L away ]
    ok $? "$name: nothing is made where a dangling link points (exit $code)"
    [ $code -lt 128 ] || diag "$(cat out.log)"

    mkdir away
    echo precious >away/MANIFEST
    plant "$name" "$tap_tmp/away"
    is "$(find away | sort | tr '\n' ' ')$(cat away/MANIFEST)" "away away/MANIFEST precious" \
        "$name: a directory behind a link stays as it is (exit $code)"
    rm -rf away

    echo precious >away
    plant "$name" "$tap_tmp/away"
    is "$(cat away)" precious "$name: so does a file (exit $code)"
    [ $code -eq 0 ] || [ $code -ge 64 ] && [ $code -lt 128 ]
    ok $? "$name: the run goes on, or says why not (exit $code)"
done

# The directory itself: a link of one's own is a way to scratch, another's is refused.
mkdir scratch mine
ln -s scratch way
train way
is "$?" 0 "a link of one's own as output directory"
[ -d scratch/checkpoints ]
ok $? "the run lies behind it"
mkdir far
ln -s "$tap_tmp/far" mine/checkpoints
train mine
is "$?/$(find far -mindepth 1 -maxdepth 1 -name 'step_*' | wc -l)" 0/1 "and as checkpoint directory"
if [ "$(id -u)" = 0 ] && chown -h 12345 way mine/checkpoints 2>/dev/null; then
    rm -rf scratch far
    mkdir scratch far
    for out in way way/ mine; do
        train "$out"
        is "$?" 77 "$out: another user's link is refused"
        contains "$(cat "${out%/}.log")" "error[A0208]: ${out%/}" "and named"
        is "$(find scratch far -mindepth 1)" "" "nothing is written behind it"
    done
    chown -h 0 way
    train way
    is "$?" 0 "root's link is good"
else
    skip 10 "no second user's link without root"
fi
done_testing
