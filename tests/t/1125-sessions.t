#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Whole sessions: each tests/data/sessions/*.session is a table of commands with everything that
# they print. A line "$ COMMAND" is run and its output follows: stdout behind two blanks, stderr
# behind "! ", and the exit status when it is not 0. A line "% COMMAND" only prepares what
# follows. The commands of a session share a directory. UPDATE_GOLDEN=1 writes what they print.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
# Read by the commands of the sessions.
accel=$ACCEL_BUILD/accel data=$ACCEL_SRC/tests/data
examples=$ACCEL_SRC/examples
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED ACCEL_RESUME HOME COLUMNS TMPDIR
# shellcheck disable=SC2046 # a list of names
unset $(env | sed -n 's/^\(SLURM_[A-Z_]*\|PMIX_[A-Z_]*\)=.*/\1/p')
CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 LC_ALL=C.UTF-8 PATH=$ACCEL_BUILD:$PATH
export CUDA_VISIBLE_DEVICES OMP_NUM_THREADS LC_ALL PATH
version=$("$accel" --version | sed 's/^accel //')

# Source and build have one name, as in a build within the source. One of the two folders may lie
# in the other or be named through it: the longer name is looked for first.
if [ ${#ACCEL_SRC} -gt ${#ACCEL_BUILD} ]; then
    first=$ACCEL_SRC second=$ACCEL_BUILD
else
    first=$ACCEL_BUILD second=$ACCEL_SRC
fi

# What differs between machines, builds and runs: places, the version, dates of pages, times, ports,
# threads of this machine, the line for editors in a config, which names an installed schema; and
# how wide a column is, which the longest text decides.
plain() { # BEFORE: what each line begins with
    sed -e '/^# yaml-language-server: /d' -e "s,$here,DIR,g" \
        -e "s,$first,BUILD,g" -e "s,$second,BUILD,g" \
        -e '/^\.TH /s/ 20..-..-.. / DATE /' -e "s/\\<$version\\>/VERSION/g" \
        -e 's/20..-..-.. ..:..:.. UTC/TIME/' \
        -e '/=29501$/!s/^MASTER_PORT=.*/MASTER_PORT=PORT/' -e 's,[^= ]*/share/accel/,DATA/,' \
        -e 's/\([^ ]\)   */\1  /g' -e "s/^/$1/" -e 's/  *$//'
}

# The session with what its commands print now.
play() { # FILE
    while IFS= read -r line; do
        case $line in
        '#'*) printf '%s\n' "$line" ;;
        '% '*)
            printf '%s\n' "$line"
            eval "${line#% }"
            ;;
        '$ '*)
            printf '%s\n' "$line"
            (eval "${line#'$ '}") >"$tap_tmp/out" 2>"$tap_tmp/err" </dev/null
            status=$?
            plain '  ' <"$tap_tmp/out"
            plain '! ' <"$tap_tmp/err"
            [ $status = 0 ] || echo "exit $status"
            ;;
        esac
    done <"$1"
}

for session in "$data"/sessions/*.session; do
    name=${session##*/}
    name=${name%.session}
    if [ "$name" = ckpt ] && ! [ -x "$ACCEL_BUILD/tests/helpers/ckpt_shapes" ]; then
        skip 1 "tests/helpers/ckpt_shapes is not built"
        continue
    fi
    mkdir "$tap_tmp/$name"
    here=$(cd "$tap_tmp/$name" && pwd -P)
    (cd "$here" && play "$session") >"$tap_tmp/now"
    [ -z "${UPDATE_GOLDEN-}" ] || cp "$tap_tmp/now" "$session"
    is "$(diff "$session" "$tap_tmp/now")" "" \
        "$name: $(grep -c '^\$ ' "$session") commands print what they printed"
done

# The line for editors.
schema=$(sed -n 's/^prefix = //p' "$ACCEL_BUILD/Makefile")/share/accel/accel.schema.json
"$accel" config default --config-file "$tap_tmp/made.yaml" >"$tap_tmp/out" 2>&1
is "$(sed -n 's/^# yaml-language-server: [$]schema=//p' "$tap_tmp/made.yaml")" \
    "$([ ! -r "$schema" ] || echo "$schema")" "a config that is written names the installed schema"
done_testing
