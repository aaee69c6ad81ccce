#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Shell scripts are clean by shellcheck, and the set-up scripts answer --help and wrong options.
. "$(dirname "$0")/tap.sh"

cd "$ACCEL_SRC" || bail_out "no $ACCEL_SRC"
list=$(find autogen.sh scripts srun_plugin modulefiles tests examples -type f \
    -exec grep -I -l -E -m1 '^#!/bin/(ba)?sh|^# shellcheck shell=sh' {} +)
# Not judged: files read in by a computed name, and the variables that cross to and from them.
if command -v shellcheck >/dev/null; then
    for script in $list; do
        passes "shellcheck $script" shellcheck -e SC1090,SC1091,SC2034,SC2154 "$script"
    done
else
    skip 1 "no shellcheck"
fi
for script in install-deps test quickstart; do
    got=$("scripts/$script" --help 2>&1)
    is "$?" 0 "$script --help exits 0"
    like "$got" '^Example:' "$script --help begins with an example"
    got=$("scripts/$script" --no-such-option 2>&1)
    is "$?" 64 "$script refuses an unknown option"
    contains "$got" "--no-such-option" "$script names it"
done
tap_tmpdir
for tool in sh env id date tail mktemp rm cat; do
    ln -s "$(command -v $tool)" "$tap_tmp/$tool"
done
got=$(PATH=$tap_tmp scripts/install-deps 2>&1)
is "$?" 69 "install-deps without apt exits 69"
like "$got" 'dnf install .*hdf5-devel' "and prints the dnf line"

# A python3 that writes down what it was asked for.
cat >"$tap_tmp/python3" <<'END'
#!/bin/sh
echo "$0 $*" >>"$ASKED"
[ "$2" != venv ] || { mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; }
[ "$2" != pip ] || [ -z "${PIP_FAILS-}" ]
END
chmod +x "$tap_tmp/python3"
for tool in mkdir cp; do
    ln -s "$(command -v $tool)" "$tap_tmp/$tool"
done
ASKED=$tap_tmp/asked
export ASKED
got=$(PATH=$tap_tmp scripts/install-deps --peers "$tap_tmp/peers" 2>&1)
is "$?" 0 "install-deps --peers makes a virtual environment"
contains "$got" "ACCEL_PEERS_PYTHON=$tap_tmp/peers/bin/python" "and says how tests find it"
like "$(tail -n 1 "$ASKED")" "peers/bin/python -m pip install .* torch .*accelerate" \
    "its own pip installs torch and accelerate"
PIP_FAILS=1 PATH=$tap_tmp scripts/install-deps --peers "$tap_tmp/peers" >/dev/null 2>&1
is "$?" 71 "a pip that fails is a failure"
got=$(scripts/install-deps --peers 2>&1)
is "$?" 64 "--peers without a directory is a usage error"
done_testing
