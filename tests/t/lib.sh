# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Live-cluster tests from POSIX sh: starts a throw-away Slurm, runs steps under a
# deadline, waits for jobs. A test reads it in place of tap.sh, which it reads itself:
#     . "$(dirname "$0")/lib.sh"
# It never leaves a cluster behind, however the test ends, and never asserts a duration.

# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

accel_cluster=$ACCEL_SRC/scripts/accel-cluster
cluster_dir=

# Programs the tests run come from the build tree; Slurm's daemons live in sbin.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

# A run that nobody gave a GPU would take one of this machine's: only tests that say so do.
if [ -e /dev/nvidiactl ]; then
    : "${CUDA_VISIBLE_DEVICES=}"
    export CUDA_VISIBLE_DEVICES
fi

# Skips the whole test when PROGRAMs are missing.
need_program() { # PROGRAM...
    for lib_program in "$@"; do
        command -v "$lib_program" >/dev/null 2>&1 || skip_all "$lib_program is not installed"
    done
}

need_slurm() {
    need_program slurmctld slurmd munged srun
}

# Is the plugin built, and can Slurm's programs load it? They have no sanitizer runtime.
plugin_loads() {
    [ -f "$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so" ] || return 1
    built_with_sanitizer || return 0
    [ -n "${CLIENTS_PRELOAD:-}" ]
}

need_plugin() { # Slurm and the plugin just built
    need_slurm
    if built_with_sanitizer; then
        plugin_loads || skip_all "srun cannot load a plugin with sanitizers; 7120 preloads their runtime"
    fi
    plugin_loads || skip_all "the srun plugin is not built; configure said why"
}

# Tasks that write a line "STEP RESTART" per step, and save when told (tests/helpers/stepper.c).
stepper=$ACCEL_BUILD/tests/helpers/stepper
need_stepper() {
    [ -x "$stepper" ] || skip_all "tests/helpers/stepper is not built"
}

has_steps() { # FILE: three of them at least
    [ -s "$1" ] && [ "$(wc -l <"$1")" -ge 3 ]
}

need_root() { # WHAT-FOR
    [ "$(id -u)" = 0 ] || skip_all "needs root${1:+ ($1)}"
}

# Network, host name and mount namespaces of one's own: root, and allowed to.
can_net_mode() {
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null 2>&1 &&
        unshare -n -m -u -i true 2>/dev/null
}

can_mnt_mode() {
    if [ "$(id -u)" = 0 ]; then
        unshare -m true 2>/dev/null
    else
        unshare -Urm true 2>/dev/null
    fi
}

need_net_mode() {
    need_root "network namespaces"
    can_net_mode || skip_all "this system allows no network namespaces"
}

# srun, sbatch and salloc load a plugin of their own, and the nodes keep theirs.
clients_load() { # PLUGIN
    cluster_plugstack=$cluster_dir/etc/clients.plugstack
    echo "required $1" >"$cluster_plugstack"
    sed "s|^PlugStackConfig=.*|PlugStackConfig=$cluster_plugstack|" \
        "$SLURM_CONF" >"$cluster_dir/etc/clients.conf"
    SLURM_CONF=$cluster_dir/etc/clients.conf
}

# What ranks report to srun is named by their job, and the jobs of other tests have the same
# numbers: each test has a state directory of its own, unless it has chosen one.
lib_home=${HOME:-}

# Starts a cluster with the given accel-cluster options and points SLURM_CONF at it. One
# cluster at a time; it goes down when the test ends. The plugin is the one just built,
# unless --plugin is given; of a sanitizer build only the clients load it, the nodes load
# $NODE_PLUGIN. $cluster_plugstack is the file that names the clients'. Stops the test when
# the cluster does not come up.
cluster_up() { # [OPTION]...
    [ -z "$cluster_dir" ] || bail_out "cluster_up: a cluster is up already"
    if [ -z "${XDG_STATE_HOME:-}" ] && [ "${HOME:-}" = "$lib_home" ] && [ -n "${tap_tmp:-}" ]; then
        XDG_STATE_HOME=$tap_tmp/.state-home
        export XDG_STATE_HOME
    fi
    lib_plugin=$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so lib_clients=
    case " $* " in
    *' --plugin'*) ;;
    *)
        if ! built_with_sanitizer; then
            ! plugin_loads || set -- --plugin "$lib_plugin" "$@"
        elif plugin_loads; then
            lib_clients=$lib_plugin
            set -- --plugin "$NODE_PLUGIN" "$@"
        else
            set -- --plugin none "$@"
        fi
        ;;
    esac
    # Short: Slurm's sockets live below it.
    cluster_dir=$(mktemp -d /tmp/accel-t.XXXXXX) || bail_out "cannot make a directory"
    at_exit cluster_down
    lib_out=$("$accel_cluster" up --dir "$cluster_dir" "$@" 2>&1) || {
        diag "$lib_out"
        bail_out "the cluster did not come up"
    }
    # All nodes on this host: UCX must not choose an interface of another test's cluster,
    # which goes away in the middle of the run and leaves its connections hanging.
    case $lib_out in
    *'mode net'*) unset UCX_NET_DEVICES ;;
    *) UCX_NET_DEVICES=lo && export UCX_NET_DEVICES ;;
    esac
    SLURM_CONF=$cluster_dir/etc/slurm.conf
    cluster_plugstack=$cluster_dir/etc/plugstack.conf
    [ -z "$lib_clients" ] || clients_load "$lib_clients"
    ACCEL_CLUSTER_DIR=$cluster_dir
    export SLURM_CONF ACCEL_CLUSTER_DIR
}

# Harmless when none is up. Returns accel-cluster's status.
cluster_down() {
    [ -n "$cluster_dir" ] || return 0
    lib_out=$("$accel_cluster" down --dir "$cluster_dir" 2>&1)
    lib_rc=$?
    [ $lib_rc = 0 ] || diag "accel-cluster down exited $lib_rc: $lib_out"
    cluster_dir=
    unset SLURM_CONF ACCEL_CLUSTER_DIR
    return $lib_rc
}

# srun, at most $HANG_S seconds of it. Output, both streams, goes to $srun_out; the exit
# status is srun's, or 124 for a hang. A failure is not yet a failed check (it may be what
# the test wants), so command and output are only shown.
run_srun() { # ARG...
    srun_out=$(timeout -k 5 "$HANG_S" srun "$@" 2>&1)
    srun_rc=$?
    # srun says so when the nodes of the job before are not free yet.
    srun_out=$(printf '%s\n' "$srun_out" | sed '/^srun: job [0-9]* \(queued and waiting for\|has been allocated\) resources$/d')
    if [ $srun_rc != 0 ]; then
        diag "srun $* exited $srun_rc:"
        diag "$srun_out"
    fi
    return $srun_rc
}

# State word of a job (PENDING, RUNNING, COMPLETED ...), empty when it is unknown.
job_state() { # JOBID
    timeout "$HANG_S" scontrol -o show job "$1" 2>/dev/null |
        sed -n 's/.* JobState=\([A-Z_]*\).*/\1/p' | head -n 1
}

# Value of one field of `scontrol show job`, as in: job_field 12 Restarts
job_field() { # JOBID FIELD
    timeout "$HANG_S" scontrol -o show job "$1" 2>/dev/null |
        tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1
}

# Polls CMD until it succeeds, every $lib_pause seconds. Returns 1 after $HANG_S seconds.
lib_pause=0.05
wait_until() { # CMD [ARG]...
    lib_deadline=$(($(date +%s) + HANG_S))
    until "$@"; do
        [ "$(date +%s)" -lt "$lib_deadline" ] || return 1
        sleep "$lib_pause"
    done
}

_job_is() { # JOBID STATE-ERE
    printf '%s\n' "$(job_state "$1")" | grep -E -q -x -e "$2"
}

# Waits until the job's state matches STATE (an ERE: 'COMPLETED|FAILED'). After $HANG_S
# seconds: shows the job and returns 1. Asking costs scontrol and slurmctld more than it costs
# to look at a file: less often.
wait_for_job() { # JOBID STATE
    lib_pause=0.25
    wait_until _job_is "$1" "$2"
    lib_rc=$?
    lib_pause=0.05
    [ $lib_rc != 0 ] || return 0
    diag "job $1 is $(job_state "$1"), not $2, after $HANG_S s:"
    diag "$(timeout "$HANG_S" scontrol show job "$1" 2>&1)"
    return 1
}

# Fails when a node is drained, draining, down or does not answer.
no_node_drained() {
    lib_out=$(timeout "$HANG_S" sinfo -h -N -o '%N %T %E' 2>&1 | grep -iE 'drain|down|fail|\*|error')
    [ -z "$lib_out" ] && return 0
    diag "$lib_out"
    return 1
}

# Files /proc/PID/FILE with TEXT in them. TEXT goes through a pipe, or grep
# would find itself, and by its environment too.
holders_of() { # TEXT FILE
    printf '%s\n' "$1" | env -u SLURM_CONF -u ACCEL_CLUSTER_DIR \
        grep -lzF -f - /proc/[0-9]*/"$2" 2>/dev/null
}

# Slurm's cgroups have the node's name alone: while a slurmd runs they may be another test's.
lib_cgroups() {
    grep -qx slurmd /proc/[0-9]*/comm 2>/dev/null || ls -d /sys/fs/cgroup/*/slurm_n* /sys/fs/cgroup/slurm_n* 2>/dev/null
}
# shellcheck disable=SC2317 # called by wait_until
lib_no_cgroups() {
    [ -z "$(lib_cgroups)" ]
}

# Nothing of the cluster at DIR is left, nor a process with MARK on its command line. Looks
# only at what carries these, because other clusters come and go at the same time.
cluster_gone() { # DIR [MARK]
    lib_left=$(
        holders_of "$1/" cmdline
        holders_of "$1/" environ
        holders_of " $1/" mountinfo
        [ -z "${2:-}" ] || holders_of "$2" cmdline
        grep -lxF "$1" /sys/class/net/*/ifalias 2>/dev/null
        ls -d "$1" 2>/dev/null
    )
    wait_until lib_no_cgroups || lib_left="$lib_left $(lib_cgroups)"
    [ -z "$lib_left" ] && return 0
    diag "left: $lib_left"
    return 1
}

# The last lines of every log of the cluster, for a failed check.
diag_logs() { # [LINES]
    for lib_log in "$cluster_dir"/log/*; do
        [ -s "$lib_log" ] || continue
        diag "--- ${lib_log##*/}"
        diag "$(tail -n "${1:-20}" "$lib_log")"
    done
}
