#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/finetune_bert: a small BERT learns which topic a pair of sentences names, on 1
# and 2 ranks; files that are no pairs or no vocabulary are refused with their place.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/train.sh"
need_plugin
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
BERT=$ACCEL_BUILD/examples/finetune_bert

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
# The label is the topic that the second sentence names.
awk 'function rnd(n) { x = (x * 16807) % 2147483647; return int(x / 2147483647 * n) }
function sentence(topic, at, i, s) {
    at = rnd(3); s = ""
    for (i = 0; i < 3; i++)
        s = s (i ? " " : "") (i == at && topic >= 0 ? "topic" topic : "word" rnd(6))
    return s
}
BEGIN { x = 7; for (i = 0; i < 1000; i++) { t = rnd(3)
    print t "\t" sentence(-1) "\t" sentence(t) } }' >pairs.tsv
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' topic0 topic1 topic2 word '##0' '##1' '##2' \
    '##3' '##4' '##5' word0 word1 word2 word3 word4 word5 >vocab.txt
cluster_up --nodes 1

# go OUT RANKS BATCH [OPTION]...
go() {
    go_out=$1 go_ranks=$2 go_batch=$3
    shift 3
    train_config bert.yaml FULL_SHARD no "$go_ranks" 1
    run_srun --accel-config="$tap_tmp/bert.yaml" "$BERT" --data "$tap_tmp/pairs.tsv" \
        --vocab "$tap_tmp/vocab.txt" --seq 12 --lr 1e-3 --batch "$go_batch" \
        --out "$tap_tmp/$go_out" "$@"
}

# "yes" when more than 9 of 10 held-out pairs got their label
learned() {
    diag "$(echo "$srun_out" | grep "^accuracy")" >&2
    echo "$srun_out" | awk '/^accuracy/ { print ($2 > 0.9 ? "yes" : "no") }'
}

go one 1 32 --steps 150 --save "$tap_tmp/saved"
ok $? "150 steps on 1 rank"
is "$(learned)" yes "the held-out pairs get their label"
cp vocab.txt saved/
go two 2 16 --steps 150
ok $? "150 steps on 2 ranks"
is "$(learned)" yes "the held-out pairs get their label"
go tuned 2 16 --steps 1 --lr 1e-9 --model "$tap_tmp/saved"
ok $? "a run from the directory that the first one wrote"
is "$(learned)" yes "has what it learned"

# ---- refused ----
train_config bert.yaml FULL_SHARD no 1 1
# refused DESCRIPTION TEXT [OPTION]...
refused() {
    refused_what=$1 refused_text=$2
    shift 2
    refused_out=$("$BERT" --out "$tap_tmp/none" "$@" 2>&1)
    isnt "$?" 0 "$refused_what is refused"
    contains "$refused_out" "$refused_text" "with its place"
    contains "$refused_out" "cure:" "and its cure"
}
printf '1\ta b\tc\nyes\tc\td\n' >label.tsv
printf '0\ta\tb\tc\n' >many.tsv
: >empty.tsv
refused "a label that is none" "label.tsv, line 2: the line does not begin with a label" \
    --data label.tsv --vocab vocab.txt
refused "a third sentence" "many.tsv, line 1: the line has more than a label and two" \
    --data many.tsv --vocab vocab.txt
refused "an empty file" "empty.tsv: the file is empty" --data empty.tsv --vocab vocab.txt
refused "no file" "none.tsv: No such file" --data none.tsv --vocab vocab.txt
refused "no vocabulary" "none.txt: No such file" --data pairs.tsv --vocab none.txt
refused "a vocabulary without [CLS]" "label.tsv: " --data pairs.tsv --vocab label.tsv
cluster_down
done_testing
