#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The style law where a machine can judge it: licence line, first comment, layout, length of
# files and functions, names of variables, no path of one machine. What awk expands stands in
# single quotes.
# shellcheck disable=SC2016
. "$(dirname "$0")/tap.sh"

cd "$ACCEL_SRC" || bail_out "no $ACCEL_SRC"
tap_tmpdir
set -- runtime checkpoint srun_plugin cli scripts examples tests
# api_functions.c is generated into a build in the tree.
find "$@" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) ! -name api_functions.c | sort >"$tap_tmp/c"
{
    find "$@" m4 modulefiles -name '*.sh' -o -name '*.t' -o -name 'accel_*.m4' \
        -o -name '*.in' ! -name '*.pc.in'
    find scripts -maxdepth 1 -type f ! -name '*.mk'
    cat "$tap_tmp/c"
} | sort -u | grep -v -E '/data/|golden' >"$tap_tmp/sources"

# One program reads all files of a list: as many programs as files took half a minute.
over() { # LIST PROGRAM: of awk, over the files that LIST names
    xargs awk "$2" <"$1"
}
is "$(over "$tap_tmp/sources" '
    FNR == 1 { if (file != "" && !found) print file; file = FILENAME; found = 0 }
    FNR <= 3 && /SPDX-License-Identifier: Apache-2.0/ { found = 1 }
    END { if (!found) print file }')" "" "every source file has its SPDX line"
# After the SPDX line: at least one line of words.
is "$(over "$tap_tmp/sources" '
    FNR == 1 { if (file != "" && !found) print file; file = FILENAME; found = seen = 0 }
    FNR <= 8 && seen && /[a-z].* [a-z]/ { found = 1 }
    /SPDX/ { seen = 1 }
    END { if (!found) print file }')" "" "every source file says in its first comment what it is for"
is "$(sed -s -n '4{/^# Mended: ./!F}' tests/issues/*.t)" "" \
    "every script of tests/issues begins with what was mended"
is "$(over "$tap_tmp/sources" '
    FNR == 1 { if (lines > 800) print file ": " lines; file = FILENAME }
    { lines = FNR }
    END { if (lines > 800) print file ": " lines }')" "" "no file is longer than 800 lines"

# A function's body begins and ends in the first column (Linux braces).
over "$tap_tmp/c" 'FNR == 1 { start = 0 }
    /^[a-z].*\(/ { name = $0 } /^{$/ { start = FNR }
    /^}$/ && start { print FNR - start + 1, FILENAME ":" start, name; start = 0 }' >"$tap_tmp/functions"
# In a script it is  name() {  to  }  (or round brackets), in the first column too.
grep -v -E '\.([chm4]*|cu|cc)$' "$tap_tmp/sources" >"$tap_tmp/scripts"
over "$tap_tmp/scripts" 'FNR == 1 { start = 0 }
    /^[a-z_]+\(\) [{(]/ && !/[})]$/ { name = $1; start = FNR }
    /^[})]/ && start { print FNR - start + 1, FILENAME ":" start, name; start = 0 }' >>"$tap_tmp/functions"
is "$(awk '$1 > 80' "$tap_tmp/functions")" "" "no function is longer than 80 lines"
all=$(wc -l <"$tap_tmp/functions")
long=$(awk '$1 > 45' "$tap_tmp/functions" | wc -l)
[ $((long * 10)) -le "$all" ]
ok $? "9 of 10 functions have at most 45 lines ($long of $all are longer)" ||
    diag "$(awk '$1 > 45' "$tap_tmp/functions")"

format=
for tool in clang-format-14 clang-format; do
    [ -n "$format" ] || { "$tool" --version 2>/dev/null | grep -q 'version 14\.' && format=$tool; }
done
if [ -n "$format" ]; then
    is "$(xargs -n 100 "$format" --dry-run -Werror <"$tap_tmp/c" 2>&1 |
        sed -n 's/: error: code should be clang-formatted.*//p' | sort -u)" "" "clang-format would change nothing"
else
    skip 1 "no clang-format 14 (its versions disagree)"
fi

# Misspelt in one place, a variable would be set and never read. error.c has names of constants.
is "$(find runtime checkpoint srun_plugin cli examples \( -name '*.[ch]' -o -name '*.cu' \) \
    ! -path runtime/common/env_names.h ! -path runtime/common/error.c \
    -exec grep -H -n -E '"(SLURM_)?ACCEL_[A-Z0-9_]*["=]' {} + |
    grep -v 'accel\.h:.*"ACCEL_ECONFIG"')" "" \
    "names of accel's variables are spelled in runtime/common/env_names.h only"

# A number of seconds that is enough on one machine is not on a busier one (tap.sh: HANG_S).
is "$(grep -n -E '(timeout( -[ks] *[A-Z0-9]+)*|wait_until) ([1-9][0-9]?|[1-5][0-9][0-9]) ' tests/t/*.t tests/t/*.sh tests/issues/*.t)" "" \
    "no test waits for less than what is a hang"

is "$({ cat "$tap_tmp/sources" && find . -maxdepth 1 -name '*.md' -o -maxdepth 1 -name '*.a[cm]'; } |
    xargs grep -H -n -E '/(home|root|Users|workspace|wor[k])/[A-Za-z0-9]|/tm[p]/[a-z]+/[a-z]' |
    grep -v -E '/home/(u|user|ada|alice|me)/')" "" "no path of one machine"
done_testing
