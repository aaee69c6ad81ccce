#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Messages: every place of the sources that makes an error has a code, a text and a cure, every
# code has a place and a page of the one form, and no text differs from what was confirmed.
# After a change of texts: make update-golden, and review what it shows.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
golden=$ACCEL_SRC/tests/data/messages
cd "$tap_tmp" || bail_out "no directory"
LC_ALL=C
export LC_ALL

changes=$("$ACCEL_SRC/tests/t/messages-sums.sh" "$ACCEL_SRC" "$accel" "$tap_tmp") ||
    bail_out "messages-sums.sh failed"
is "$changes" "" "no message differs from its sum in messages.sums"
for page in "$golden"/page-*.expected; do
    code=${page##*/page-} code=${code%.expected}
    is "$(cat "pages/$code")" "$(cat "$page")" "the page of $code"
done

# ---- places ----
# A folder that nobody looks in would have no faults.
(cd "$ACCEL_SRC" && find runtime checkpoint srun_plugin cli \( -name '*.c' -o -name '*.cu' \) \
    -exec grep -l -E 'A0[0-9]{3},' {} +) | sort >givers
cut -f2 places | sort -u >seen
is "$(comm -23 givers seen)" "" "every file that gives a code is looked at ($(wc -l <places) places)"
# A code that is passed on stands in the file as an enum message.
awk -F'\t' '$1 !~ /^(A0[0-9][0-9][0-9]|MESSAGE_NOTE)/ { print $1, $2 }' places >odd
is "$(while read -r code file; do
    grep -q 'enum message\|message_of' "$ACCEL_SRC/$file" || echo "$code $file"
done <odd)" "" "every place has a code"
is "$(grep -E '^[^ ]*ACCEL_E' odd)" "" "and none a bare status"
is "$(awk -F'\t' 'NF != 4 || $4 ~ /^(NULL|0|"[^a-zA-Z0-9]*")?$/' places)" "" "every place has a cure"
is "$(awk -F'\t' '$3 ~ /^(NULL|0|"[^a-zA-Z%]*")?$/' places)" "" "and a text"
# They are parts of a line, "error[A0301]: WHERE: TEXT" and "  cure: HINT".
is "$(awk -F'\t' '{ for (i = 3; i <= 4; i++) if ($i ~ /^"( |[^"]*([^.]\.|[:;,!\n ]|\\n)"$)/) print }' \
    places)" "" "neither begins with a blank nor ends like a sentence"
is "$(grep -n -E '[a-z]  [a-z]| ([a-z]+) \1 ' places)" "" "no blank or word stands there twice"

# ---- codes ----
sed 1d list | cut -d' ' -f1 >codes
is "$(sort -u codes)" "$(cat codes)" "the codes are sorted, each once"
(cd "$ACCEL_SRC" && find runtime checkpoint srun_plugin cli \( -name '*.[ch]' -o -name '*.cu' \) \
    -exec grep -h -o -E 'A0[0-9]{3}' {} +) | sort -u >used
is "$(comm -23 codes used)" "" "every code has a place"
is "$(sed -E '1d; s/^(A0[0-9]*) (ACCEL_[A-Z]*) +([0-9]+) (.*)/\1: \4|\2, exit code \3:/' list)" \
    "$(while read -r code; do
        sed -n '1h; 2{H; g; s/\n/|/; p; q}' "pages/$code"
    done <codes)" "a page begins with title, status and exit status as the list has them"
is "$(cut -c31- list | sort | uniq -d)" "" "no title stands for two codes"
is "$(cd pages && awk -f "$ACCEL_SRC/tests/t/message-form.awk" A0*)" "" \
    "every page has why, cure and see also, whole and in form"
is "$(cat pages/* | tr -s ' \n' '  ' | grep -o -E ' ([a-z]+) \1 ')" "" "no word stands there twice"

# ---- the command ----
"$accel" explain A0301 >page
for form in a0301 301 0301 A301; do
    is "$("$accel" explain "$form")" "$(cat page)" "accel explain $form"
done
"$accel" explain 9999 >out 2>err
is "$?/$(cat out)" "64/" "an unknown code is a usage error"
contains "$(cat err)" "did you mean A0" "with a near one"
"$accel" explain oops >out 2>err
is "$?/$(cat out)" "64/" "so is what is no code"
if command -v python3 >/dev/null 2>&1; then
    "$accel" explain --json >list.json
    "$accel" explain --json 301 >page.json
    is "$(python3 -c 'import json
rows = json.load(open("list.json"))["messages"]
page = json.load(open("page.json"))
print(len(rows), rows[0]["code"], rows[0]["exit"], page["code"], page["exit"],
      page["status"], all(page[k] for k in ("title", "why", "cure", "see_also")))' 2>&1)" \
        "$(wc -l <codes) A0001 71 A0301 65 ACCEL_EMISMATCH True" "--json"
else
    skip 1 "no python3"
fi
done_testing
