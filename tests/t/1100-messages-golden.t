#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Messages: every place of the sources that makes an error has a code and a cure, every code
# has a place and a page, and the texts are those of the golden files. After a change of
# texts: make update-golden, and review the difference.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
golden=$ACCEL_SRC/tests/data/messages
cd "$tap_tmp" || bail_out "no directory"
LC_ALL=C
export LC_ALL

"$ACCEL_SRC/tests/t/messages-golden.sh" "$ACCEL_SRC" "$accel" "$tap_tmp" ||
    bail_out "messages-golden.sh failed"
is "$(diff "$golden/pages.golden" pages.golden)" "" "the pages are those of pages.golden"
is "$(diff "$golden/sites.golden" sites.golden)" "" "the texts are those of sites.golden"

# ---- places ----
[ "$(wc -l <sites.golden)" -ge 300 ]
ok $? "the places are found ($(wc -l <sites.golden))"
# A code that is passed on stands in the file as an enum message.
awk '!/^(A0[0-9][0-9][0-9]|MESSAGE_NOTE)/' sites.golden >odd
is "$(while read -r code file rest; do
    grep -q 'enum message\|message_of' "$ACCEL_SRC/${file%:}" || echo "$code $file $rest"
done <odd)" "" "every place has a code"
is "$(grep -E '^[^:]*ACCEL_E' odd)" "" "and none a bare status"
is "$(grep -e '/ NULL$' sites.golden | while read -r code file rest; do
    grep -q "^$code ${file%:} [^ ]" "$golden/no-hint.txt" || echo "$code $file $rest"
done)" "" "every place has a cure, or a reason in no-hint.txt"
is "$(grep -v '^#' "$golden/no-hint.txt" | while read -r code file rest; do
    grep -q "^$code $file:.*/ NULL\$" sites.golden || echo "$code $file $rest"
done)" "" "no reason without a place"

# ---- codes ----
"$accel" explain | sed 1d | cut -d' ' -f1 >codes
is "$(sort -u codes)" "$(cat codes)" "the codes are sorted, each once"
(cd "$ACCEL_SRC" && find runtime checkpoint srun_plugin cli \( -name '*.[ch]' -o -name '*.cu' \) \
    -exec grep -h -o -E 'A0[0-9]{3}' {} +) | sort -u >used
is "$(comm -23 codes used)" "" "every code has a place"
is "$(awk '/^Why$|^Cure$|^See also$/ { getline line; n[$0]++; if (line !~ /^  [^ ]/) print code, $0 }
    /^A0[0-9][0-9][0-9]: / { code = $1; pages++ }
    END { if (n["Why"] != pages || n["Cure"] != pages || n["See also"] != pages) print "missing" }' \
    pages.golden)" "" "every page has why, cure and see also"
is "$(grep -c '^A0[0-9]*: ' pages.golden)" "$(wc -l <codes)" "every code has a page"
is "$(awk 'length > 78' pages.golden | grep -v '^A0')" "" "pages fit on a terminal"

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
