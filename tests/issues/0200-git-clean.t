#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: nine programs of a build in the tree were shown as untracked.
# A build in the source tree leaves nothing that git would call untracked: every program,
# library, page and generated source is ignored, and no kept file is.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

command -v git >/dev/null 2>&1 || skip_all "git is not installed"
top=$(git -C "$ACCEL_SRC" rev-parse --show-toplevel 2>/dev/null) || top=
[ "$top" = "$ACCEL_SRC" ] || skip_all "the source is not a git checkout of its own"
[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "$ACCEL_BUILD is not configured"
tap_tmpdir

make -s -C "$ACCEL_BUILD" print-built >"$tap_tmp/built" 2>"$tap_tmp/err"
ok $? "make print-built" || diag "$(cat "$tap_tmp/err")"
[ "$(wc -l <"$tap_tmp/built")" -ge 100 ]
ok $? "names what is built"
# Verbose and non-matching: "::" begins the line of a file that no pattern names.
is "$(git -C "$ACCEL_SRC" check-ignore -v -n --no-index --stdin <"$tap_tmp/built" |
    sed -n 's/^::[[:space:]]*//p')" "" "all of it is ignored"
is "$(git -C "$ACCEL_SRC" ls-files -c -i --exclude-standard)" "" "and no kept file is"
done_testing
