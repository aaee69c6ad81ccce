#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the messages say, and what changed since somebody last confirmed it. Writes into DIR
#     pages/CODE     what `accel explain CODE` says
#     places         every place of the sources that makes an error (message-sites.awk)
#     messages.sums  a line per code: status, exit status, checksum of its page, number of its
#                    places, checksum of their texts and cures ("passed": the code comes from
#                    another error)
# and prints the pages and places of which tests/data/messages has other sums. With
# UPDATE_GOLDEN the new ones become those of the sources.
#
#     messages-sums.sh SOURCES ACCEL DIR
set -eu
LC_ALL=C
export LC_ALL
sources=$1 accel=$2 dir=$3
golden=$sources/tests/data/messages
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$dir/pages" "$dir/texts"
mkdir -p "$dir/pages" "$dir/texts"

# ---- pages and places ----
"$accel" explain >"$dir/list"
sed -n 's/^\(A[0-9]*\) .*/\1/p' "$dir/list" | while read -r code; do
    "$accel" explain "$code" >"$dir/pages/$code"
done
(cd "$sources" && find runtime checkpoint srun_plugin cli \( -name '*.c' -o -name '*.cu' \) \
    -exec awk -f "$here/message-sites.awk" {} +) | sort >"$dir/places"

# ---- sums ----
# A place that may give one of several codes counts for each. A file's name is not summed up:
# code may move.
awk -F'\t' -v OFS='\t' '{
        n = split($1 ~ /^(A0[0-9|A]*|MESSAGE_NOTE)$/ ? $1 : "passed", code, "|")
        for (i = 1; i <= n; i++) print code[i], $3, $4
    }' "$dir/places" | sort |
    awk -F'\t' -v dir="$dir/texts/" '{
        if ($1 != code) close(dir code)
        code = $1
        print >(dir code)
    }'
(cd "$dir" && cksum pages/* texts/* && sed 1d list) | awk '
    $3 ~ /^pages/ { page[substr($3, 7)] = $1; next }
    $3 ~ /^texts/ { texts[substr($3, 7)] = $1; next }
    { status[$1] = $2; exit_status[$1] = $3; texts[$1] = texts[$1] } # one without a place, too
    END {
        for (code in texts) {
            n = 0
            while ((getline line <(dir code)) > 0) n++
            if (code in page) print code, status[code], exit_status[code], page[code], n, n ? texts[code] : "-"
            else print code, "-", "-", "-", n, texts[code]
        }
    }' dir="$dir/texts/" | sort >"$dir/messages.sums"

# ---- what changed ----
show() { # CODE LINE: of a code with a new line the page and the places, whichever is new
    was=$(grep "^$1 " "$golden/messages.sums") || was="$1 is new"
    printf -- '---- was: %s\n---- now: %s\n' "$was" "$2"
    if [ "${was% * *}" != "${2% * *}" ]; then cat "$dir/pages/$1"; fi
    if [ "${was#* * * * }" != "${2#* * * * }" ]; then
        awk -F'\t' -v code="$1" '
            code == "passed" ? $1 !~ /^A0|MESSAGE_NOTE/ : index("|" $1 "|", "|" code "|") {
                printf "%s: %s\n  cure: %s\n", $2, $3, $4
            }' "$dir/places"
    fi
}
[ -f "$golden/messages.sums" ] || : >"$golden/messages.sums"
diff "$golden/messages.sums" "$dir/messages.sums" | sed -n 's/^> //p' | while read -r code rest; do
    show "$code" "$code $rest"
done
cut -d' ' -f1 "$golden/messages.sums" | while read -r code; do
    grep -q "^$code " "$dir/messages.sums" || echo "---- $code is gone"
done
[ -z "${UPDATE_GOLDEN-}" ] || {
    cp "$dir/messages.sums" "$golden/messages.sums"
    for page in "$golden"/page-*.expected; do
        code=${page##*/page-}
        cp "$dir/pages/${code%.expected}" "$page"
    done
}
