#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a pointer of git-lfs, as a clone made without git-lfs holds them, was called a damaged
# file, or tokenized and trained on as if it were the text.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
train=$ACCEL_BUILD/examples/train
tokenizer=$ACCEL_SRC/tests/data/tokenizer
cd "$tap_tmp" || bail_out "no directory"
export OMP_NUM_THREADS=1
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 548105171\n' 7 >pointer
mkdir model two
cp pointer model/model.safetensors
cp pointer data.bin
cp pointer text
cp "$tokenizer/gpt2/vocab.json" two
cp pointer two/merges.txt
echo text of its own >own

named() { # EXIT FILE CMD...
    code=$1 file=$2
    shift 2
    "$@" >out.txt 2>err.txt
    is $? "$code" "$file: exit $code"
    contains "$(cat err.txt)" "$file: the file is a pointer of git-lfs" "$file: named as what it is"
    contains "$(cat err.txt)" "git lfs pull" "$file: the cure"
}
named 66 model/model.safetensors "$accel" ckpt import model/model.safetensors root
named 74 pointer "$accel" tokenize -t pointer -o out.bin own
named 74 two/merges.txt "$accel" tokenize -t two -o out.bin own
named 66 text "$accel" tokenize -t "$tokenizer/gpt2.json" -o out.bin text
named 66 text "$train" --data text --steps 1
named 66 data.bin "$train" --data data.bin --steps 1
cp pointer model/config.json
named 74 ./model/config.json "$accel" plan "$ACCEL_SRC/examples/single.yaml" --model ./model \
    --batch 1 --seq 8
[ ! -e out.bin ] && [ ! -e root ]
ok $? "nothing is written"
done_testing
