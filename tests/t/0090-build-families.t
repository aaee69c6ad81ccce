#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A model family is named in its own file, in the list of rows and in the public headers; in no other
# source of runtime/. Left out: data/ and its messages, whose GPT-2 and
# Llama-3 are tokenizers and forms of token files.
. "$(dirname "$0")/tap.sh"

cd "$ACCEL_SRC" || bail_out "no $ACCEL_SRC"
families=$(grep '^#define MODEL_FAMILIES' runtime/models/family.h | grep -o '([a-z0-9_]*)' |
    tr -d '()' | grep -v -x ROW)
isnt "$(printf '%s\n' "$families" | grep -c .)" 0 "the list of rows is found"
for family in $families; do
    # gpt2 is GPT-2 in comments
    word=$(printf '%s' "$family" | sed 's/\([a-z]\)\([0-9]\)/\1-?\2/g')
    is "$(find runtime -path runtime/data -prune -o \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
        -o -name '*.def' \) -exec grep -l -i -E "(^|[^a-z0-9])$word([^a-z0-9]|\$)" {} + |
        grep -v -x -E "runtime/(accel[a-z_]*\.h|common/messages/data\.def|models/($family\.c|family\.h))")" \
        "" "$family is named in its file and the lists only"
    is "$(grep -c "\.type = \"$family\"" "runtime/models/$family.c")" 1 "$family has a row"
done
done_testing
