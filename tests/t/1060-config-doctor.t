#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel doctor: each verdict with its cure, exit 69 when something failed; a stand-in for
# srun answers as a good and as a broken Slurm would.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"
built= # the Slurm that the plugin was built for, if it was built
grep -q -e '-DHAVE_SLURM' "$ACCEL_BUILD/Makefile" &&
    built=$(sed -n 's/^SLURM_VERSION = //p' "$ACCEL_BUILD/Makefile")

mkdir bin
cat >bin/srun <<'END'
#!/bin/sh
case $1 in
--version) [ "$SAY_VERSION" ] && echo "slurm-wlm $SAY_VERSION" ;;
--help) echo "      $SAY_OPTION=FILE" ;;
--mpi=list) echo "MPI plugin types are..."; echo "	$SAY_MPI" ;;
esac
END
# shellcheck disable=SC2016 # for the inner shell
printf '#!/bin/sh\necho "PlugStackConfig = $SAY_STACK"\n' >bin/scontrol
chmod +x bin/srun bin/scontrol
: >stack.conf

doctor() { # [VAR=VALUE]...
    env -u MODULEPATH -u LOADEDMODULES PATH="$tap_tmp/bin:$PATH" SAY_VERSION="${built:-1.2.3}" \
        SAY_OPTION=--accel-config SAY_MPI=pmix SAY_STACK="$tap_tmp/stack.conf" "$@" "$accel" doctor >raw 2>err
    code=$?
    out=$(sed 's/  */ /g' raw)
    err=$(cat err)
}

doctor
is "$err" "" "nothing on stderr"
like "$out" '^ok plugin srun knows --accel-config' "a plugin that srun loads"
like "$out" '^ok srun --mpi pmix' "Slurm's PMIx plugin"
like "$out" '^(ok|warn) checkpoints \.: writable' "this directory is written to"
is "$(ls)" "$(printf 'bin\nerr\nraw\nstack.conf')" "and nothing is left in it"
like "$out" '^warn module .*module use .*/modulefiles' "no module: with the line to type"
failed=$(echo "$out" | grep -c '^fail')
[ "$failed" = 0 ] && want=0 || want=69
is "$code" "$want" "exit code for $failed failures"
if [ "$built" ]; then
    like "$out" '^ok slurm .*the version that the plugin was built for' "the Slurm the plugin was built for"
    doctor SAY_VERSION=19.05.1
    is "$code" 69 "another Slurm"
    like "$out" "^fail slurm slurm-wlm 19.05.1, but the plugin was built for slurm $built " \
        "both versions are named"
else
    skip 3 "built without Slurm"
fi
doctor SAY_OPTION=--other
is "$code" 69 "a plugin that srun does not load"
like "$out" '^fail plugin srun does not know' "is told"
like "$out" '^fail plugstack .*/stack.conf has no line .*required .*/accel_spank.so. to plugstack.conf' \
    "and cured in plugstack.conf"

# ---- the line in plugstack.conf and what it loads ----
mkdir lib stack.d
for file in accel_spank.so accel_spank_config.so; do
    cp "$ACCEL_BUILD/srun_plugin/.libs/$file" lib 2>/dev/null || : >"lib/$file"
done
chmod 755 . lib
chmod 644 lib/*.so
echo "include $tap_tmp/stack.d/*.conf" >stack.conf
printf '# accel\nrequired %s\n' "$tap_tmp/lib/accel_spank.so" >stack.d/accel.conf
doctor
like "$out" "^warn plugstack .*/stack.d/accel.conf:2 loads .*/lib/accel_spank.so, but this command belongs to" \
    "a plugin of another installation, in an included file"
if [ "$built" ] && [ "$(id -u)" = 0 ]; then
    like "$out" '^ok plugin file .*/lib/accel_spank.so, version .*, writable by root only' "its files are good"
else
    skip 1 "no plugin, or not root"
fi
sed -i s/required/optional/ stack.d/accel.conf
doctor
like "$out" '^warn plugstack .*optional .*required' "an optional line"
cp stack.d/accel.conf stack.d/more.conf
doctor
like "$out" '^fail plugstack .* 2 times' "two lines"
rm stack.d/more.conf
printf 'required %s wrong=50%%%%\n' "$tap_tmp/lib/accel_spank.so" >stack.d/accel.conf
doctor
like "$out" "^fail plugstack .*:1: wrong argument 'wrong=50%%'" "a word that is no argument, as it stands there"
chmod 666 lib/accel_spank.so
doctor
like "$out" '^fail plugin file .*accel_spank.so .*chmod' "a plugin that everybody can write to"
chmod 644 lib/accel_spank.so
rm lib/accel_spank_config.so
doctor
like "$out" '^(fail|warn) plugin file .*' "a plugin without its second file"
rm -r stack.d lib
: >stack.conf
cp bin/scontrol scontrol.good
cat >bin/scontrol <<'END'
#!/bin/sh
echo 'scontrol: error: Munge encode failed: Failed to access "/run/munge.sock": No such file or directory' >&2
exit 1
END
doctor
is "$code" 69 "munged is not there"
like "$out" '^fail munge Slurm cannot be asked: .*Munge encode failed.* start munged' "is told, with the cure"
# Without an answer the file beside slurm.conf is the one. `timeout` is a stand-in, too: nobody
# waits here, and it notes how long a controller that does not answer would be waited for.
mkdir beside
# shellcheck disable=SC2016 # for the inner shell
printf '#!/bin/sh\necho "$@" >>"$NOTED"\nshift\nexec "$@"\n' >bin/timeout
chmod +x bin/timeout
while IFS='|' read -r what body; do
    printf '#!/bin/sh\n%s\n' "$body" >bin/scontrol
    : >noted
    doctor SLURM_CONF="$tap_tmp/beside/slurm.conf" NOTED="$tap_tmp/noted"
    like "$out" '^fail plugstack .*/beside/plugstack.conf has no line' "scontrol: $what"
    unlike "$out" '^fail munge' "$what: munge is not blamed"
    is "$(sort -u noted)" "10 scontrol show config" "$what: asked for at most 10 s"
done <<'END'
it fails|echo "slurm_load_ctl_conf error: Unable to contact slurm controller" >&2; exit 1
it is late|exit 124
an empty answer|:
garbage|printf "\\377\\001 / PlugStack\\n"
no value|echo "PlugStackConfig = (null)"
END
rm -r beside noted bin/timeout
cp scontrol.good bin/scontrol
if [ "$(id -u)" = 0 ]; then
    mkdir lib
    cp "$ACCEL_BUILD/accel" lib/accel_spank.so
    cp "$ACCEL_BUILD/accel" lib/accel_spank_config.so
    chmod 755 lib lib/*
    chown 65534 lib/accel_spank.so
    echo "required $tap_tmp/lib/accel_spank.so" >stack.conf
    doctor
    like "$out" '^fail plugin file .*accel_spank.so' "a plugin of an ordinary user, which root would load"
    rm -r lib
    : >stack.conf
else
    skip 1 "needs root"
fi
doctor SAY_MPI=none
like "$out" '^fail srun --mpi .*mpi/pmix' "a Slurm without PMIx"
doctor SAY_VERSION=
like "$out" '^warn slurm srun is installed but not configured.*SLURM_CONF.*accel-cluster' "a Slurm without its config"
[ "$(echo "$out" | grep -c '^fail')" = 0 ] && want=0 || want=69
is "$code" "$want" "is no failure by itself"
unlike "$out" '^[a-z]* (plugin|plugstack|srun --mpi) ' "and no more is asked of it"
mkdir -p modules/accel
doctor MODULEPATH="/nowhere:$tap_tmp/modules"
like "$out" '^ok module accel can be loaded' "a module in MODULEPATH"
doctor LOADEDMODULES=gcc/12:accel/0.1.0
like "$out" '^ok module accel is loaded' "a loaded module"
mkdir sealed && chmod 555 sealed
if [ "$(id -u)" != 0 ]; then
    "$accel" doctor --dir sealed >raw
    like "$(sed 's/  */ /g' raw)" '^warn checkpoints cannot write to sealed' "a read-only directory"
else
    skip 1 "root writes everywhere"
fi
module=$ACCEL_BUILD/tests/cuda/accel_cuda.so
if [ -f "$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so" ]; then
    mkdir nvml
    ln -s "$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so" nvml/libnvidia-ml.so.1
    # One module or none is said here: a machine with a toolkit has one installed.
    four=$tap_tmp/nvml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    nvml=$ACCEL_SRC/tests/data/topo/pcie4.nvml
    doctor LD_LIBRARY_PATH="$four" FAKE_NVML="$nvml" ACCEL_CUDA_MODULE="$tap_tmp/none.so"
    like "$out" '^warn gpu 4, driver .*use_cpu' "four GPUs, as NVML counts them, and no module"
    like "$out" '^warn gpu 2 0000:41:00.0: too hot: slowed down by the driver \(210 of 1740 MHz, .*, 32 of 300 W\) check nvidia-smi ' \
        "one of them is too hot"
    is "$(printf '%s\n' "$out" | grep -c '^[a-z]* gpu [0-9] ')" 1 "the others are not worth a line"
    doctor LD_LIBRARY_PATH="$four" FAKE_NVML="$ACCEL_SRC/tests/data/topo/nvswitch8.nvml"
    is "$(printf '%s\n' "$out" | sed -n 's/^warn gpu \([0-9]\) .*/\1/p')" 4 \
        "one at its power limit or idle is as it should be"
    doctor LD_LIBRARY_PATH="$four" FAKE_NVML="$ACCEL_SRC/tests/data/topo/pcie4-lost.nvml"
    like "$out" '^warn gpu 1 does not answer its driver .*Xid' "one that is lost"
    ln -sf "$ACCEL_BUILD/tests/helpers/.libs/fake_nvml_old.so" nvml/libnvidia-ml.so.1
    doctor LD_LIBRARY_PATH="$four" FAKE_NVML="$nvml"
    like "$out" '^warn gpu 2 0000:41:00.0: too hot: slowed down by the driver check' \
        "a driver that knows the reasons and no clocks"
    ln -sf "$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so" nvml/libnvidia-ml.so.1
    if [ -f "$module" ]; then
        doctor LD_LIBRARY_PATH="$four" FAKE_NVML="$nvml" ACCEL_CUDA_MODULE="$module"
        like "$out" '^ok gpu 4, driver ' "four GPUs and the module"
    else
        skip 1 "the CUDA module is not built"
    fi
else
    skip 7 "fake_nvml.so is not built"
fi
doctor ACCEL_CUDA_MODULE="$tap_tmp/stack.conf"
like "$out" '^warn cuda .*stack.conf cannot be loaded' "a CUDA module that is none"
if [ -f "$module" ]; then
    doctor ACCEL_CUDA_MODULE="$module"
    like "$out" '^ok cuda .*accel_cuda.so: accel [0-9.]*, ' "the CUDA module and its version"
else
    skip 1 "the CUDA module is not built"
fi
if command -v python3 >/dev/null 2>&1; then
    "$accel" doctor --json >raw 2>/dev/null
    is "$(python3 -c 'import json; d = json.load(open("raw"))
print({r["state"] for r in d["checks"]} <= {"ok", "warn", "fail"}, len(d["checks"]) > 4)' 2>&1)" \
        "True True" "--json"
else
    skip 1 "no python3"
fi

# ---- a plugstack.conf that includes itself ----
echo "include $tap_tmp/stack.conf" >stack.conf
doctor
like "$out" '^fail plugstack .*/stack.conf has no line' "a file that includes itself is read to its end"

# ---- a file system without O_DIRECT ----
as_root=
[ "$(id -u)" = 0 ] || as_root=-Ur
if unshare $as_root -m mount -t ramfs ramfs /dev/shm 2>/dev/null; then
    # shellcheck disable=SC2016 # for the inner shell
    out=$(unshare $as_root -m sh -c 'mount -t ramfs ramfs /dev/shm && exec "$0" doctor --dir /dev/shm' "$accel" | sed 's/  */ /g')
    like "$out" '^warn checkpoints /dev/shm: writable, without O_DIRECT; .* free checkpoints work; a file system with' \
        "a file system without O_DIRECT, and what it means"
else
    skip 1 "no mount namespaces"
fi

# ---- /dev/shm at its limit and on both sides of it ----
if unshare $as_root -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
    is "$(for size in 1 255 256 257; do
        # shellcheck disable=SC2016 # for the inner shell
        PATH=$tap_tmp/bin:$PATH unshare $as_root -m sh -c 'mount -t tmpfs -o size=$1m tmpfs /dev/shm && exec "$2" doctor' \
            sh $size "$accel" 2>/dev/null | sed -n "s/^\([a-z]*\) *\/dev\/shm  *\([0-9.]* .iB\) free.*/\1 \2/p"
    done)" "warn 1.0 MiB
warn 255.0 MiB
ok 256.0 MiB
ok 257.0 MiB" "less than 256 MiB of shared memory get a warning"
else
    skip 1 "no mount namespaces"
fi
done_testing
