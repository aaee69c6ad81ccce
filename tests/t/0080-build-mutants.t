#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The table of changes that tests must notice (tests/mutants) fits the source, is long enough
# and reaches every folder; one of its rows is tried. make check-mutants tries all of them.
. "$(dirname "$0")/tap.sh"

least=300    # rows
sample='optim/schedule.c: the warm-up begins at 0'

command -v perl >/dev/null 2>&1 || skip_all "perl is not installed"
run=$ACCEL_SRC/tests/mutants/run
if [ "$ACCEL_SRC" != "$ACCEL_BUILD" ] || [ ! -f "$ACCEL_BUILD/Makefile" ]; then
    skip_all "the build is not in the folder of its source"
fi
tap_tmpdir

passes "every row fits the source, and its tests exist" "$run" --check
"$run" --list >"$tap_tmp/rows"
rows=$(wc -l <"$tap_tmp/rows")
[ "$rows" -ge "$least" ]
ok $? "there are at least $least rows ($rows)"

cd "$ACCEL_SRC" || bail_out "no $ACCEL_SRC"
is "$(for folder in scripts $(find runtime checkpoint srun_plugin cli \
    -name '*.c' -o -name '*.cu' | sed 's,/[^/]*$,,' | sort -u); do
    cut -f 2 "$tap_tmp/rows" | grep -q "^$folder/[^/]*$" || echo "$folder"
done)" "" "every folder of the source has a row"

# Bad rows are told apart; the tree of this test holds nothing else.
mkdir -p "$tap_tmp/tree/tests/mutants"
cp "$run" "$tap_tmp/tree/tests/mutants/run"
printf 'srcdir = .\nprint-tests:\n\t@echo tests/a\n' >"$tap_tmp/tree/Makefile"
printf 'one\ntwo\ntwo\nthree\n' >"$tap_tmp/tree/text"
refused() { # WANT DESCRIPTION; the table is in $tap_tmp/table
    cp "$tap_tmp/table" "$tap_tmp/tree/tests/mutants/a.mut"
    got=$("$tap_tmp/tree/tests/mutants/run" --check) && got="accepted $got"
    contains "$got" "$1" "$2"
}
block() { # OLD NEW LAST-LINE
    printf '= name\nfile text\n- %s\n+ %s\n%s\n' "$@" >"$tap_tmp/table"
}
block one 1 'test tests/a'
refused "accepted" "a good row is accepted"
block two 2 'test tests/a'
refused "2 times, not once" "text that is there twice is refused"
block on 1 'test tests/a'
refused "0 times, not once" "half a line is not a line"
block one one 'test tests/a'
refused "changes nothing" "so is a change that is none"
block one 1 'test tests/b'
refused "no test 'tests/b'" "a test that does not exist"
block one 1 'tset tests/a'
refused "not a line of the table" "a word that is not of the table"
block one 1 'survives x
test tests/a'
refused "or neither" "a survivor with a test"
block one 1 ''
refused "or neither" "a row without a test"
block one 1 'test tests/a

= name
file text
- three
test tests/a'
refused "another row has this name" "two rows of one name"
printf -- '= name\nfile ../x\n- one\ntest tests/a\n' >"$tap_tmp/table"
refused "leaves the tree" "a file elsewhere"

if built_with_sanitizer; then
    skip 1 "builds with sanitizers are slow, and the change is the same"
else
    got=$("$run" --only "$sample" --jobs 1 --work "$tap_tmp/work" 2>&1)
    contains "$got" "1 of 1 changes with an effect were found" "one row is tried in a copy, and found" ||
        diag "$got"
fi
done_testing
