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
    timeout -k 5 60 "$TRAIN" --layers 1 --heads 1 --width 16 --seq 16 --batch 1 --steps 2 \
        --sample 0 --data text.txt --out "$1" >"$1.log" 2>&1
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
done_testing
