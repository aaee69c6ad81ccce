#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every tracked file of the source folders reaches the tarball (make distdir); a file that
# nobody listed in its local.mk would be missing there only.
. "$(dirname "$0")/tap.sh"

top=$(git -C "$ACCEL_SRC" rev-parse --show-toplevel 2>/dev/null) || top=
[ "$top" = "$ACCEL_SRC" ] || skip_all "the source is not a git checkout of its own"
[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "$ACCEL_BUILD is not configured"
tap_tmpdir

(cd "$ACCEL_BUILD" && make -s distdir distdir="$tap_tmp/dist") >"$tap_tmp/log" 2>&1
ok $? "make distdir" || diag "$(tail -n 5 "$tap_tmp/log")"

for folder in . m4 runtime checkpoint srun_plugin cli scripts python examples tests doc modulefiles; do
    # Top level: files only, but those of git itself and of the check before a change.
    if [ $folder = . ]; then
        git -C "$ACCEL_SRC" ls-files | grep -v / | grep -v '^\.git'
    else
        git -C "$ACCEL_SRC" ls-files -- "$folder"
    fi >"$tap_tmp/files"
    missing=$(while IFS= read -r file; do
        [ ! -e "$ACCEL_SRC/$file" ] || [ -e "$tap_tmp/dist/$file" ] || echo "$file"
    done <"$tap_tmp/files")
    is "$missing" "" "every tracked file of $folder is in the tarball ($(wc -l <"$tap_tmp/files"))"
done
done_testing
