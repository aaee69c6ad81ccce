#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Forged checkpoints and safetensors against every tool: external storage and links, virtual
# sources above the directory, a filter that a plug-in has, sizes of 2^63, boxes that overlap,
# a million lines, odd names. What is wrong is refused; no tool opens anything outside of what
# it was given, loads a library, or leaves something behind. HOSTILE_EACH=1 tries all tools on
# each kind, and all manifests.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "cannot enter $tap_tmp"
accel=$ACCEL_BUILD/accel
forged=$ACCEL_BUILD/tests/unit/test_ckpt_forged
shim=$ACCEL_BUILD/tests/faults/.libs/openlog.so
[ -x "$forged" ] || skip_all "built without HDF5"
[ -f "$shim" ] || skip_all "no shim (shared libraries are off)"
ldd "$forged" 2>/dev/null | grep -q -e libasan -e libtsan && skip_all "sanitizers and LD_PRELOAD exclude each other"

# What must never be touched: files beside the checkpoints, and a plug-in.
mkdir plugins f i m
cp "$shim" plugins/libfilter.so
HDF5_PLUGIN_PATH=$tap_tmp/plugins
export HDF5_PLUGIN_PATH

# What the shim says goes through a pipe: the child that runs libhdf5 may write no file.
mkfifo pipe
exec 8<>pipe
cat <&8 >opened &
reader=$!
kill_at_exit $reader
OPENLOG=$tap_tmp/pipe
export OPENLOG

# tool VERB ARG...: runs it under the shim; its exit status is in $rc, its output in said.
tool() {
    echo "TOOL $*" >&8
    LD_PRELOAD=$shim "$accel" ckpt "$@" >said 2>&1 8<&-
    rc=$?
    tools=$((tools + 1))
    [ "$rc" -lt 100 ] || wrong="$wrong $*: exit $rc;"
}

_arrived() { # MARK
    tail -n 1 opened | grep -qx "END $1"
}

# trespass MARK: what the tools opened beside what they were given, one per line.
trespass() {
    echo "END $1" >&8
    wait_until _arrived "$1" || echo "the shim's lines do not arrive"
    awk -v tmp="$tap_tmp/" '$1 == "TOOL" { tool = $0 }
        $1 != "TOOL" && (($1 == "dlopen" && index($2, tmp)) || index($2, tmp "plugins") ||
        $2 ~ /\/other|\/etc\/passwd|secret/) { print tool ": " $0 }' opened
}

# every STATUS DIR: all tools that only read or write elsewhere, of DIR; each ends with one of
# the statuses, and a refusal leaves nothing.
every() {
    for verb in show verify diff merge split export index; do
        rm -rf out
        case $verb in
        show | index) tool $verb "$2" ;;
        verify) tool verify --deep "$2" ;;
        diff) tool diff "$2" "$2" ;;
        merge) tool merge "$2" out ;;
        split) tool split "$2" out --shards 2 ;;
        export) tool export --all "$2" out ;;
        esac
        case " $1 " in
        *" $rc "*) ;;
        *) wrong="$wrong $verb $2: exit $rc $(tail -n 1 said);" ;;
        esac
        [ "$rc" = 0 ] || [ -z "$(ls -A out 2>/dev/null)" ] || wrong="$wrong $verb $2: leaves something;"
    done
}

# ---- shard files whose hashes hold, and whose HDF5 structures tell another story ----
wrong='' tools=0 kinds=0 sound=0
while "$forged" "$tap_tmp/f" $kinds >kind 2>&1; do
    : >f/other
    cp kind f/other.h5
    tool verify --deep f/step_00000003
    case $(cat kind)/$rc in
    sound/0) sound=1 ;;
    sound/* | */0) wrong="$wrong kind $kinds: verify ends with $rc;" ;;
    esac
    # the others believe the manifest alone, whose hashes hold: alike in all kinds
    [ $((kinds % ${HOSTILE_EACH:-4})) != 0 ] || every "0 74" f/step_00000003
    "$accel" ckpt verify --deep f/step_00000003 >again 2>&1 # with an index
    [ $? -eq $rc ] || [ $rc -eq 0 ] || wrong="$wrong kind $kinds: verify with an index;"
    rm -rf f/*
    kinds=$((kinds + 1))
done
is "$wrong" "" "$kinds kinds of forged files, $tools calls of tools"
ok "$((sound != 1 || kinds < 30))" "one of them is sound"
is "$(trespass 1)" "" "none of them opens another file or loads a plug-in"
like "$(cat opened)" '^openat .*/f/step_00000003/rank_00000-of-00001.h5$' "the shim sees what is opened"

# ---- an index that reaches outside ----
python=
for p in python3 /usr/bin/python3; do
    "$p" -c 'import h5py' 2>/dev/null && python=$p
done
if [ -n "$python" ]; then
    wrong='' tools=0
        : >secret
    "$forged" "$tap_tmp/i" 0 >kind || bail_out "no sound one"
    for evil in external link virtual filter; do
        rm -f i/step_00000003/index.h5
        "$accel" ckpt index i/step_00000003 >/dev/null 2>&1 || bail_out "no index"
        (cd i/step_00000003 && "$python" - $evil "$tap_tmp/secret" <<'PY'
import sys, h5py
evil, secret = sys.argv[1:]
with h5py.File("index.h5", "r+") as f:
    g, space = f["model"], h5py.h5s.create_simple((4, 3))
    del g["a"]
    if evil == "link":
        g["a"] = h5py.ExternalLink("../../secret", "/a")
    elif evil == "virtual":
        layout = h5py.VirtualLayout((4, 3), "<f4")
        layout[:] = h5py.VirtualSource("../../secret", "a", (4, 3))
        g.create_virtual_dataset("a", layout)
    else:
        p = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if evil == "external":
            p.set_external(secret.encode(), 0, 48)
        else:
            p.set_chunk((4, 3))
            p.set_deflate(1)
        h5py.h5d.create(g.id, b"a", h5py.h5t.IEEE_F32LE, space, p)
PY
        ) || bail_out "h5py cannot make $evil"
        tool verify --deep i/step_00000003
        [ $rc -eq 74 ] || wrong="$wrong $evil: exit $rc;"
        grep -q 'index.h5' said || wrong="$wrong $evil: $(cat said);"
    done
    is "$wrong" "" "an index with external storage, links, sources above, filters: refused"
    is "$(trespass 2)" "" "and what it names is not opened"
else
    skip 2 "no h5py"
fi

# ---- manifests ----
"$ACCEL_BUILD/tests/unit/test_ckpt_manifest" "$tap_tmp/m" || bail_out "no hostile manifests"
wrong='' tools=0 count=0
for dir in m/*; do
    count=$((count + 1))
    [ $((count % ${HOSTILE_EACH:-3})) = 0 ] || continue
    every "65 74" "$dir/step_00000007"
done
is "$wrong" "" "hostile manifests, one in ${HOSTILE_EACH:-3} of $count, each refused by every tool ($tools calls)"
is "$(trespass 3)" "" "nothing outside is opened"
before=$(cd m && find . | sort)
wrong=''
for dir in m/*; do
    tool prune "$dir" --keep 1
    tool repair "$dir" --dry-run
done
is "$wrong" "" "prune and repair end"
is "$(cd m && find . | sort)" "$before" "and delete nothing of it"

# ---- large and strange ----
mkdir -p big/step_00000007 seq
{
    head -n 9 "$(find m -name MANIFEST | sort | head -n 20 | tail -n 1)"
    yes 'T model/a float32 0' | head -n 1000000
} >big/step_00000007/MANIFEST
: >big/step_00000007/rank_00000-of-00001.h5
wrong='' tools=0
every "74" big/step_00000007
is "$wrong" "" "a million lines"

# st NAME HEADER [LENGTH]: a safetensors file of 64 bytes; the length is that of the header
st() {
    st_header=$2
    while [ $((${#st_header} % 8)) != 0 ]; do st_header="$st_header "; done
    # shellcheck disable=SC2059 # the length is an escape
    {
        printf "${3-\\$(printf '%03o' ${#st_header})\\0\\0\\0\\0\\0\\0\\0}"
        printf '%s' "$st_header"
        head -c 64 /dev/zero
    } >"seq/$1.safetensors"
}
st huge '{}' '\377\377\377\377\377\377\377\177'
st size '{"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}}'
st wrap '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,64]}}'
st over '{"a":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},"b":{"dtype":"F32","shape":[8],"data_offsets":[32,64]}}'
st name '{"../../secret":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'
st root '{"/etc/passwd":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'
st deep "$(head -c 160 /dev/zero | tr '\0' '[')"
mkdir seq/index
printf '{"metadata":{},"weight_map":{"a":"../secret.safetensors"}}' >seq/index/model.safetensors.index.json
wrong='' tools=0
for from in seq/*; do
    rm -rf out
    tool import "$from" out
    [ $rc -ne 0 ] && [ $rc -lt 100 ] || wrong="$wrong $from: exit $rc;"
    [ ! -e out ] || [ -z "$(find out -name MANIFEST)" ] || wrong="$wrong $from: makes a checkpoint;"
done
is "$wrong" "" "hostile safetensors are not imported ($tools)"
is "$(trespass 4)" "" "nor followed"
done_testing
