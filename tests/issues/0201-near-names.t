#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: "did you mean test?" for list, max for mean, and a dangling link for itself.
# Names that are suggested: never the name that was given, and none that is unlike it.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
[ -x "$accel" ] || skip_all "accel is not built"
cd "$tap_tmp" || bail_out "no directory"

ln -s gone.yaml dang.yaml
err=$("$accel" check dang.yaml 2>&1)
is "$?" 66 "a link to nothing is a missing file"
contains "$err" "broken link: its target 'gone.yaml' does not exist" "and is told from one that is not there"
unlike "$err" 'did you mean' "its own name is not suggested"
printf 'distributed_type: "NO"\n' >dong.yaml
unlike "$("$accel" check dang.yaml 2>&1)" "did you mean" "nor another one: the link is meant"
contains "$("$accel" check deng.yaml 2>&1)" "did you mean 'd" "a misspelt name has a suggestion"
ln -s dong.yaml ding.yaml
err=$("$accel" check ding.yaml 2>&1 >/dev/null)
is "$?" 0 "a link to a file is read"

mv dong.yaml fsdp.yaml
rm -f ding.yaml dang.yaml
unlike "$("$accel" check ddp.yaml 2>&1)" "did you mean" "ddp.yaml is not a slip of fsdp.yaml"
contains "$("$accel" check fspd.yml 2>&1)" "did you mean 'fsdp.yaml'" "fspd.yml is"
unlike "$("$accel" list 2>&1)" "did you mean" "nor is the command list one of test"
done_testing
