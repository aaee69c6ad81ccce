#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: accel tokenize cut every directory of vocab.json and merges.txt as GPT-2's, whatever
# the files beside them said: the ids of CLIP, Qwen2, RoBERTa and of added tokens were wrong,
# with exit 0. (The ids from 14 layouts: tests/unit/test_tokenizer.)
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"
cp -r "$ACCEL_SRC/tests/data/tokenizer/gpt2" dir
printf 'a<tool> <|endoftext|>' >text

ids() { # sets code, out: the ids of the text
    "$accel" tokenize -t "${1:-dir}" -o out.bin text >/dev/null 2>err
    code=$?
    out=$(od -An -v -tu2 -j1024 out.bin 2>/dev/null | tr -s ' \n' ' ')
    rm -f out.bin
}

ids
is "$code/$out" "0/ 65 28 84 79 79 76 30 221 0 " "the two files of GPT-2"
echo '{"<tool>": 700}' >dir/added_tokens.json
ids
is "$code/$out" "0/ 65 700 221 0 " "added_tokens.json"
for class in Qwen2Tokenizer CLIPTokenizerFast; do
    echo "{\"tokenizer_class\": \"$class\"}" >dir/tokenizer_config.json
    ids
    is "$code" 65 "$class: exit 65"
    contains "$(cat err)" "dir/tokenizer_config.json: tokenizer_class '$class'" "by its name"
done
echo '{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true}' >dir/tokenizer_config.json
ids
is "$code/$out" "0/ 221 65 700 221 0 " "add_prefix_space"
rm dir/tokenizer_config.json
echo '{"model_type": "roberta"}' >dir/config.json
ids
is "$code/$out" "0/ 65 700 281 92 382 316 " "a RoBERTa without GPT-2's token"
rm dir/config.json
sed 's/"<|endoftext|>"/"<|end|>"/' dir/vocab.json >vocab && mv vocab dir/vocab.json
ids
is "$code" 65 "another vocabulary without settings: exit 65"
contains "$(cat err)" "dir/vocab.json: not GPT-2's" "named"
sed 's/"truncation": null/"truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0}/
    s/"padding": null/"padding": {"strategy": "BatchLongest", "pad_id": 0}/' \
    "$ACCEL_SRC/tests/data/tokenizer/gpt2.json" >long.json
cp "$ACCEL_SRC/tests/data/tokenizer/mixed.txt" text
ids long.json
is "$code/$(echo "$out" | wc -w)" "0/11603" "truncation and padding change no id"
done_testing
