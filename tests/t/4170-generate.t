#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/generate: a GPT-2 that transformers wrote with random weights is continued with
# the same tokens as by transformers; and what goes wrong says so.
. "$(dirname "$0")/tap.sh"

tap_tmpdir
generate=$ACCEL_BUILD/examples/generate
tokenizer=$ACCEL_SRC/tests/data/tokenizer/gpt2.json
cd "$tap_tmp" || bail_out "no $tap_tmp"

refused() { # CODE ERE DESCRIPTION ARG...
    refused_code=$1 refused_text=$2 refused_what=$3
    shift 3
    "$generate" "$@" >out.txt 2>err.txt
    is $? "$refused_code" "$refused_what: exit code"
    like "$(cat err.txt)" "$refused_text" "$refused_what: says why"
}
refused 64 "--model is missing" "no model" --prompt x
refused 64 "not a number between 0 and 1" "a part above 1" --model m --top-p 2
refused 66 "nowhere" "a model that is not there" --model nowhere

python=${ACCEL_TORCH_PYTHON:-python3}
if ! "$python" -c 'import torch, transformers, tokenizers' 2>/dev/null; then
    skip 2 "no torch, transformers and tokenizers in $python (ACCEL_TORCH_PYTHON)"
    done_testing
    exit
fi
cat >make.py <<'EOF2'
import sys
import torch
from tokenizers import Tokenizer
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(3)
t = Tokenizer.from_file(sys.argv[1])
m = GPT2LMHeadModel(GPT2Config(
    vocab_size=t.get_vocab_size(), n_positions=64, n_embd=96, n_layer=3, n_head=4,
    initializer_range=0.15, bos_token_id=0, eos_token_id=0)).eval()
m.save_pretrained("m")
ids = t.encode("Hello world, this is").ids
y = m.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False, pad_token_id=0,
               eos_token_id=None)[0][len(ids):].tolist()
open("want", "w").write(t.decode(y, skip_special_tokens=False) + "\n")
EOF2
"$python" make.py "$tokenizer" >make.log 2>&1 || diag "$(cat make.log)"
cp "$tokenizer" m/tokenizer.json
"$generate" --model m --prompt "Hello world, this is" --count 40 --temperature 0 >got 2>err ||
    diag "$(cat err)"
# Bytes that make no character: shown as transformers shows them.
"$python" -c 'import sys; sys.stdout.buffer.write(
    open("got", "rb").read().decode(errors="replace").encode())' >shown
is "$(cat shown)" "$(cat want)" "greedy text is that of transformers"
"$generate" --model m --prompt "Hello world, this is" --count 90 --top-k 5 --seed 4 >a 2>err &&
    "$generate" --model m --prompt "Hello world, this is" --count 90 --top-k 5 --seed 4 >b 2>err &&
    [ -s a ] && cmp a b
ok $? "past the context: the same seed gives the same text"
done_testing
