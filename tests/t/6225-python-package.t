#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The Python package as a whole: the wheel is made without a network, the same each time, and
# holds the library, so that it works out of any folder; syntax of Python 3.8; mypy --strict and
# ruff where they are installed.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/peers.sh"
need_program python3
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
built_with_sanitizer && skip_all "python3 has no sanitizer runtime"
tap_tmpdir
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
unset ACCEL_ROOT PYTHONPATH LD_LIBRARY_PATH RANK WORLD_SIZE

wheel() { # FOLDER: $whl
    mkdir "$tap_tmp/$1"
    whl=$(python3 "$ACCEL_SRC/python/wheel.py" 1.2.3 "$ACCEL_BUILD/.libs/libacceljob.so" "$tap_tmp/$1")
}
wheel first
ok $? "a wheel is made"
like "${whl##*/}" '^accel_slurm-1.2.3-py3-none-linux_[a-z0-9_]+\.whl$' "for every Python of this machine's kind"
first=$whl
wheel second
passes "the same source gives the same wheel" cmp "$first" "$whl"
python3 -m zipfile -e "$whl" "$tap_tmp/unpacked"
is "$(cd "$tap_tmp/unpacked/accel_slurm" && printf '%s\n' *)" \
    "$(cd "$ACCEL_SRC/python/accel_slurm" && printf '%s\n' *.* libacceljob.so | sort)" \
    "it holds the package and the library"
is "$(cd "$tap_tmp/unpacked" && python3 -c '
import base64, csv, glob, hashlib
for name, digest, size in csv.reader(open(glob.glob("*.dist-info/RECORD")[0])):
    data = open(name, "rb").read()
    found = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    if digest and (found, str(len(data))) != (digest, size):
        print(name)')" "" "its record has the right sums"
cd "$tap_tmp" || bail_out "no directory"
out=$(PYTHONPATH=$tap_tmp/unpacked python3 -c 'import accel_slurm
job = accel_slurm.job("a"); job.save(1, lambda: None); job.finish()
print(accel_slurm._lib.library()._name)' 2>&1)
is "$out" "$tap_tmp/unpacked/accel_slurm/libacceljob.so" "unpacked, it takes the library beside it"
if python3 -m pip --version >/dev/null 2>&1; then
    passes "pip installs it without a network" python3 -m pip install --quiet --no-index \
        --disable-pip-version-check --root-user-action ignore --no-deps --target "$tap_tmp/installed" "$whl"
    like "$(cat "$tap_tmp"/installed/accel_slurm-1.2.3.dist-info/METADATA)" '^Requires-Python: >=3.8' \
        "with what it needs"
else
    skip 2 "python3 has no pip"
fi
is "$(cd "$ACCEL_SRC/python" && python3 -c '
import ast, glob
for name in glob.glob("*/*.py"):
    try:
        ast.parse(open(name).read(), feature_version=(3, 8))
    except SyntaxError as error:
        print(name, error)' 2>&1)" "" "Python 3.8 can read every file"

# The tools need no torch; their caches stay out of the source.
python=${PEERS_PYTHON:-python3}
for tool in mypy ruff; do
    "$python" -m $tool --version >/dev/null 2>&1 || {
        skip 1 "$python has no $tool"
        continue
    }
    case $tool in
    mypy) set -- --cache-dir "$tap_tmp/mypy" ;;
    ruff) set -- check --no-cache accel_slurm ;;
    esac
    cd "$ACCEL_SRC/python" || bail_out "no directory"
    passes "$tool finds nothing" "$python" -m $tool "$@"
done
if "$python" -m ruff --version >/dev/null 2>&1; then
    passes "ruff format would change nothing" "$python" -m ruff format --no-cache --check accel_slurm
else
    skip 1 "$python has no ruff"
fi
done_testing
