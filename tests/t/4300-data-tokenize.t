#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel tokenize: token files with the ids of the tokenizers library, from files and
# standard input, in pieces; nothing left behind by what fails.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
data=$ACCEL_SRC/tests/data/tokenizer
cd "$tap_tmp" || bail_out "no directory"

run() { # CMD...: sets code, out, err
    "$@" >stdout 2>stderr
    code=$?
    out=$(cat stdout)
    err=$(cat stderr)
}
# The words of a file of 2-byte (or 4-byte) integers from byte SKIP on.
words() { # FILE SKIP WIDTH [BYTES]
    od -An -v -tu"$3" -j"$2" ${4:+-N"$4"} "$1" | tr -s ' \n' ' '
}

# ---- one file ----
run "$accel" tokenize --tokenizer "$data/gpt2.json" -o mixed.bin "$data/mixed.txt"
is "$code/$err" "0/" "a file, silent on stderr"
is "$out" "mixed.bin: 11603 tokens of 2 bytes, from 23.5 KiB of text; vocabulary 700" "with one line"
is "$(words mixed.bin 0 4 16)" " 20240520 1 11603 0 " "the header"
tail -c +1025 mixed.bin >body
passes "the ids are the library's" cmp body "$data/gpt2.ids"
run "$accel" tokenize -t "$data/gpt2" "$data/mixed.txt"
is "$code" 0 "vocab.json and merges.txt in a directory"
passes "tokens.bin is the same file" cmp tokens.bin mixed.bin
"$accel" tokenize -t "$data/llama3.json" -o llama3.bin - <"$data/mixed.txt" >stdout 2>stderr
is "$?" 0 "standard input"
words llama3.bin 1024 2 >have
words "$data/llama3.ids" 2 2 >want # after the template's token
passes "Llama-3's ids, without the template" cmp have want

# ---- several files, pieces ----
printf 'one' >1.txt
: >2.txt
printf 'two' >3.txt
run "$accel" tokenize -t "$data/gpt2.json" -o three.bin 1.txt 2.txt 3.txt
printf 'one<|endoftext|><|endoftext|>two' | "$accel" tokenize -t "$data/gpt2.json" -o joined.bin - >stdout
passes "one token between two files" cmp three.bin joined.bin
run "$accel" tokenize -t "$data/llama3.json" --eot '<mask>' -o eot.bin 1.txt 3.txt
contains "$(words eot.bin 1024 2)" " 702 " "--eot names it"
i=0
while [ $i -lt 100 ]; do
    cat "$data/mixed.txt"
    printf '<|endoftext|>'
    i=$((i + 1))
done >long.txt
run "$accel" tokenize -t "$data/gpt2.json" -o long.bin long.txt
i=0
while [ $i -lt 100 ]; do
    cat "$data/gpt2.ids"
    printf '\0\0'
    i=$((i + 1))
done >want
tail -c +1025 long.bin >have
passes "100 times the text, read in pieces, has 100 times the ids" cmp have want
head -c 3000000 /dev/zero | tr '\0' x >word.txt
run "$accel" tokenize -t "$data/gpt2.json" -o word.bin word.txt
is "$code" 0 "a word that is longer than a piece"
shim=$ACCEL_BUILD/tests/faults/.libs/failcall.so
if built_with_sanitizer || [ ! -r "$shim" ]; then
    skip 2 "needs LD_PRELOAD and tests/faults/failcall"
else
    run env LD_PRELOAD="$shim" FAILCALL_PATH=mixed.txt FAILCALL_AT=2 FAILCALL_HOW=EINTR \
        FAILCALL_SEEN=seen timeout "$HANG_S" \
        "$accel" tokenize -t "$data/gpt2.json" -o again.bin "$data/mixed.txt"
    passes "the first read is interrupted" test -e seen
    passes "and done again" cmp again.bin mixed.bin
fi

# ---- 4 bytes ----
awk '{ print }
    /"vocab": \{/ { for (i = 700; i < 70000; i++) printf "\"~%d\": %d,\n", i, i }' \
    "$data/gpt2.json" >wide.json
run "$accel" tokenize -t wide.json -o wide.bin "$data/mixed.txt"
is "$out" "wide.bin: 11603 tokens of 4 bytes, from 23.5 KiB of text; vocabulary 70000" \
    "a vocabulary above 65536 gives tokens of 4 bytes"
is "$(words wide.bin 0 4 16)" " 20240801 7 11603 0 " "the header of that form"
is "$(words wide.bin 1024 4)" "$(words mixed.bin 1024 2)" "the same ids"

# ---- what fails ----
: >after
ls >before
run "$accel" tokenize -t "$data/gpt2.json" -o gone.bin 1.txt nowhere.txt
is "$code" 66 "a missing text: exit 66"
contains "$err" "nowhere.txt: cannot open the text" "names the file"
run "$accel" tokenize -t nowhere -o gone.bin 1.txt
is "$code" 66 "a missing tokenizer: exit 66"
run "$accel" tokenize -t "$data/llama3.json" -o gone.bin --eot '<|none|>' 1.txt 3.txt
is "$code" 64 "an unknown --eot: exit 64"
run "$accel" tokenize -t "$data/gpt2.json" -o nowhere/gone.bin 1.txt
is "$code" 73 "no directory for the output: exit 73"
run "$accel" tokenize -t "$data/gpt2.json" -o gone.txt 1.txt
is "$code" 64 "an output that is no .bin: exit 64"
run "$accel" tokenize -o gone.bin 1.txt
is "$code" 64 "no tokenizer: exit 64"
run "$accel" tokenize -t "$data/gpt2.json" -o gone.bin
is "$code" 64 "no text: exit 64"
run "$accel" tokenize -t "$data/gpt2.json" -o gone.bin .
is "$code" 74 "a directory as text: exit 74"
sed 's/"normalizer": null/"normalizer": {"type": "NFC"}/' "$data/gpt2.json" >nfc
run "$accel" tokenize -t nfc -o gone.bin 1.txt
is "$code" 65 "a normalizer: exit 65"
contains "$err" "normalizer is not null" "names it"
rm nfc
cp -r "$data/gpt2" two
echo 'one' >>two/merges.txt
run "$accel" tokenize -t two -o gone.bin 1.txt
is "$code" 74 "a broken merges.txt: exit 74"
like "$err" 'two/merges.txt: line [0-9]* is not a pair of tokens' "with the line"
echo '{' >two/vocab.json
run "$accel" tokenize -t two -o gone.bin 1.txt
is "$code" 74 "a broken vocab.json: exit 74"
contains "$err" "two/vocab.json:2:" "with the line"
rm two/vocab.json
run "$accel" tokenize -t two -o gone.bin 1.txt
is "$code" 66 "a missing vocab.json: exit 66"
rm -r two
mkfifo fifo
for signal in HUP INT TERM; do
    env --default-signal=$signal "$accel" tokenize -t "$data/gpt2.json" -o killed.bin fifo >stdout 2>stderr &
    pid=$!
    kill_at_exit $pid KILL
    exec 3>fifo # opened by both: the output has been begun
    kill -s $signal "$pid"
    wait "$pid"
    is "$(kill -l $?)" $signal "ended by SIG$signal"
    exec 3>&-
done
rm fifo
ls >after
is "$(diff before after)" "" "nothing is left behind"
cp mixed.bin same.bin
run "$accel" tokenize -t "$data/gpt2.json" -o same.bin nowhere.txt
passes "an output that was there stays" cmp mixed.bin same.bin

# ---- the library, on 1 MB of other text and tokens of 2 and 4 bytes ----
python=
for p in ${ACCEL_TORCH_PYTHON:+"$ACCEL_TORCH_PYTHON"} python3; do
    [ "$python" ] || { "$p" -c 'import tokenizers' 2>/dev/null && python=$p; }
done
if [ "$python" ]; then
    passes "the library makes tokenizers" "$python" "$data/library.py" train . 1000000 2000
    for kind in gpt2 llama3; do
        run "$accel" tokenize -t $kind.json -o $kind.bin text
        passes "$kind: 1 MB of mixed text" "$python" "$data/library.py" compare $kind.json text \
            $kind.bin
    done
else
    skip 3 "no Python with the tokenizers library"
fi
done_testing
