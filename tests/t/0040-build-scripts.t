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
for tool in sh env id date tail mktemp rm cat dirname; do
    ln -s "$(command -v $tool)" "$tap_tmp/$tool"
done
got=$(PATH=$tap_tmp scripts/install-deps 2>&1)
is "$?" 69 "install-deps without apt exits 69"
like "$got" 'dnf install .*hdf5-devel' "and prints the dnf line"

# A python3 that writes down what it was asked for; $INDEX: 0 if the index of CPU builds answers.
cat >"$tap_tmp/python3" <<'END'
#!/bin/sh
echo "$0 $*" >>"$ASKED"
case $* in
*urllib*) exit "${INDEX:-1}" ;;
"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip"*) [ -z "${PIP_FAILS-}" ] ;;
esac
END
chmod +x "$tap_tmp/python3"
# The room on this disk is not what is tested.
printf '#!/bin/sh\necho\necho disk 9 1 99999999 1 /\n' >"$tap_tmp/df"
chmod +x "$tap_tmp/df"
for tool in mkdir cp grep awk find flock mv touch uname sha256sum cut timeout; do
    ln -s "$(command -v $tool)" "$tap_tmp/$tool"
done
ASKED=$tap_tmp/asked
export ASKED
got=$(PATH=$tap_tmp scripts/install-deps --peers "$tap_tmp/peers" 2>&1)
is "$?" 0 "install-deps --peers makes a virtual environment" || diag "$got"
contains "$got" "ACCEL_PEERS_PYTHON=$tap_tmp/peers/bin/python" "and says how tests find it"
like "$(cat "$ASKED")" "peers/bin/python -m pip install .*--no-deps -r $tap_tmp/peers/peers.txt" \
    "its own pip installs what scripts/peers.txt pins"
like "$(cat "$tap_tmp/peers/peers.txt")" '^nvidia-cublas==' "with what torch from PyPI loads"
INDEX=0 PATH=$tap_tmp scripts/install-deps --peers "$tap_tmp/peers" >/dev/null 2>&1
like "$(cat "$ASKED")" "pip install .*--extra-index-url [^ ]*/whl/cpu" "the index of CPU builds, if it answers"
unlike "$(cat "$tap_tmp/peers/peers.txt")" '^nvidia-' "needs no CUDA"
PIP_FAILS=1 PATH=$tap_tmp scripts/install-deps --peers "$tap_tmp/peers" >/dev/null 2>&1
is "$?" 71 "a pip that fails is a failure"
got=$(scripts/install-deps --peers 2>&1)
is "$?" 64 "--peers without a directory is a usage error"
unlike "$(cat scripts/peers.txt)" '^[a-z][^=]*$' "every peer has its version"

# The cache: made once, a failure is not repeated within the hour, and no file is left by it.
cache() { # [NAME=VALUE]...
    env PATH="$tap_tmp" XDG_CACHE_HOME="$tap_tmp/cache" "$@" scripts/install-deps --peers-cache 2>&1
}
: >"$ASKED"
got=$(cache PIP_FAILS=1)
is "$?" 69 "no cache without a registry" || diag "$got"
like "$got" "^install-deps: no cache of peers: pip failed" "and why"
got=$(cache)
is "$?" 69 "nor within the hour after"
is "$(grep -c 'pip install' "$ASKED")" 1 "pip was not asked again"
is "$(find "$tap_tmp/cache/accel" -name 'peers-*' ! -name '*.failed')" "" "nothing half made is left"
find "$tap_tmp/cache/accel" -name '*.failed' -exec touch -d '2 hours ago' {} +
got=$(cache)
is "$?" 0 "then it is made" || diag "$got"
like "$got" "^$tap_tmp/cache/accel/peers-[0-9a-f]*/bin/python$" "and its Python printed"
: >"$ASKED"
is "$(cache PIP_FAILS=1)" "$got" "and found again"
unlike "$(cat "$ASKED")" 'venv|pip' "with nothing installed"
printf '#!/bin/sh\necho "Filesystem 1024-blocks Used Available"\necho "d 9 9 8388607 0%% /"\n' >"$tap_tmp/few"
chmod +x "$tap_tmp/few" && rm "$tap_tmp/df" && mv "$tap_tmp/few" "$tap_tmp/df"
got=$(cache XDG_CACHE_HOME="$tap_tmp/other")
is "$?" 69 "nor on a full disk"
contains "$got" "less than 8 GiB are free" "which it says"
: >"$tap_tmp/file"
got=$(cache XDG_CACHE_HOME="$tap_tmp/file")
is "$?" 69 "nor where nothing can be written"
contains "$got" "$tap_tmp/file/accel cannot be written" "which it says"
done_testing
