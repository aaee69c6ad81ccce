#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: train --model DIR --data text.txt trained on bytes as ids though DIR had a
# tokenizer, and a directory with token files of two tokenizers was read as one stream.
# Text for weights with a tokenizer is refused with the command that makes the token file, and
# that command works; files of two tokenizers are refused, marked or by their width.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
train_alone
accel=$ACCEL_BUILD/accel
tokenizers=$ACCEL_SRC/tests/data/tokenizer
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
PATH=$ACCEL_BUILD:$PATH

# trains ARG...: sets code and said
trains() {
    "$TRAIN" --steps 1 --seq 16 --batch 2 --sample 0 "$@" >said 2>&1
    code=$?
    said=$(cat said)
}

trains --vocab 700 --layers 1 --heads 1 --width 16 --data text.txt --out first --save model
is $code 0 "weights" || diag "$said"
trains --model model --data text.txt --out bytes
is $code 0 "text for weights without a tokenizer" || diag "$said"
cp "$tokenizers/gpt2.json" model/tokenizer.json
trains --model model --data text.txt --out refused
is $code 64 "text for weights with a tokenizer is refused"
like "$said" 'text.txt: text is read as bytes, but the weights in model have a tokenizer \(tokenizer.json\)' \
    "with the reason"
# shellcheck disable=SC2016 # the backquotes are the message's
command=$(echo "$said" | sed -n 's/.*run `\(.*\)`.*/\1/p')
is "$command" "accel tokenize --tokenizer model -o train.bin text.txt" "and with the command"
passes "which runs" sh -c "$command"
trains --model model --data train.bin --out tokens
is $code 0 "and whose result is trained on" || diag "$said"
rm model/tokenizer.json
for name in vocab.json vocab.txt tokenizer.model; do
    : >"model/$name"
    trains --model model --data text.txt --out refused
    is $code 64 "so is it beside $name"
    rm "model/$name"
done

# ---- token files of two tokenizers ----

# both NAME NAME: a directory with both, into both/
both() {
    rm -rf both
    mkdir both
    cp "$1" both/1.bin
    cp "$2" both/2.bin
    trains --layers 1 --heads 1 --width 16 --data both --out "both-$1-$2"
}
for name in gpt2 llama3; do
    "$accel" tokenize -t "$tokenizers/$name.json" -o $name.bin "$tokenizers/mixed.txt" >/dev/null
done
awk '{ print }
    /"vocab": \{/ { for (i = 700; i < 70000; i++) printf "\"~%d\": %d,\n", i, i }' \
    "$tokenizers/gpt2.json" >wide.json
"$accel" tokenize -t wide.json -o wide.bin "$tokenizers/mixed.txt" >/dev/null
{
    head -c 16 gpt2.bin
    head -c 8 /dev/zero
    tail -c +25 gpt2.bin
} >unmarked.bin
both gpt2.bin train.bin
is $code 0 "two files of one tokenizer" || diag "$said"
both gpt2.bin unmarked.bin
is $code 0 "one of them without a mark" || diag "$said"
both gpt2.bin llama3.bin
is $code 64 "files of two tokenizers are refused"
like "$said" "both: '1.bin' and '2.bin' are of two tokenizers" "by name"
both unmarked.bin wide.bin
is $code 64 "so are tokens of 2 and of 4 bytes"
like "$said" "both: '1.bin' and '2.bin' are of two tokenizers" "by name"
done_testing
