# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of accel-cluster, read by it: which programs, plugin, mode, ports and devices to use,
# and the configuration files of one cluster. In: the option variables. Out: files below
# $dir/etc. Starts no process that outlives it.
# shellcheck disable=SC2154 # the option variables are accel-cluster's

find_plugin() {
    prefix='' module_tree='' found=''
    for root in "$here/.." "$here/../prefix"; do
        for file in "$root"/lib*/accel/accel_spank.so "$root"/lib/*/accel/accel_spank.so; do
            if [ -z "$found" ] && [ -f "$file" ]; then
                found=$file
                prefix=$(cd "$root" && pwd -P)
            fi
        done
    done
    [ -n "$found" ] || found=$here/../srun_plugin/.libs/accel_spank.so
    case $plugin in
    none) plugin= ;;
    '') if [ -f "$found" ]; then plugin=$(readlink -f "$found"); fi ;;
    *)
        [ -f "$plugin" ] || die "--plugin $plugin: no such file"
        plugin=$(readlink -f "$plugin")
        # PREFIX/lib/accel/accel_spank.so
        root=$(dirname "$plugin")/../..
        [ -d "$root/share/modulefiles" ] && prefix=$(cd "$root" && pwd -P)
        ;;
    esac
    [ -n "$prefix" ] && [ -d "$prefix/share/modulefiles/accel" ] &&
        module_tree=$prefix/share/modulefiles
    return 0
}

need_programs() {
    missing=
    for program in munged slurmctld slurmd sinfo srun scancel squeue timeout setsid; do
        command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
    done
    [ -z "$missing" ] ||
        die "not installed:$missing (Debian, Ubuntu: apt install slurm-wlm munge)"
}

can_unshare() {
    if [ "$my_uid" = 0 ]; then
        unshare -m true 2>/dev/null
    else
        unshare -Urm unshare -U --map-user="$my_uid" --map-group="$(id -g)" true 2>/dev/null
    fi
}

choose_mode() {
    case $mode in
    auto)
        mode=plain
        if [ "$nodes" -gt 1 ] || [ "$my_uid" = 0 ]; then
            can_unshare && mode=mnt
        fi
        ;;
    mnt)
        can_unshare || die "--mode mnt: this system allows no mount namespace here;" \
            "use --mode plain"
        ;;
    net)
        [ "$my_uid" = 0 ] || die "--mode net needs root; use --mode mnt"
        command -v ip >/dev/null 2>&1 ||
            die "--mode net needs the program ip (package iproute2)"
        unshare -n -m -u -i true 2>/dev/null ||
            die "--mode net: this system allows no network namespace; use --mode mnt"
        ;;
    esac
}

# Serialises the choice of ports and subnets between clusters that start at the same
# moment. A lock on a directory leaves no file behind; daemons must not inherit it.
lock_machine() {
    command -v flock >/dev/null 2>&1 && [ -r /tmp ] || return 0
    exec 9</tmp
    flock -w 60 9 || die "another accel-cluster has been starting for 60 s; try again"
}

unlock_machine() {
    exec 9<&-
}

# First of $1 adjacent TCP ports that nobody in this network namespace uses, below the
# kernel's own range of short-lived ports.
free_ports() {
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v n="$1" -v seed="$$" '
        function hex(s,    i, v) {
            for (i = 1; i <= length(s); i++)
                v = v * 16 + index("0123456789ABCDEF", substr(s, i, 1)) - 1
            return v
        }
        $1 ~ /^[0-9]+:$/ { k = split($2, part, ":"); busy[hex(part[k])] = 1 }
        END {
            low = 20000; span = 12000 - n; first = (seed * 7) % span
            for (i = 0; i < span; i++) {
                port = low + (first + i) % span
                for (j = 0; j < n && !((port + j) in busy); j++);
                if (j == n) { print port; exit }
            }
        }'
}

# 198.18.0.0/15 is reserved for tests of networks, so no real host is hidden by it.
free_subnet() {
    { ip -4 route show table all; ip -4 addr show; } 2>/dev/null | awk -v seed="$$" '
        { while (match($0, /198\.1[89]\.[0-9]+\./)) {
              busy[substr($0, RSTART, RLENGTH - 1)] = 1
              $0 = substr($0, RSTART + RLENGTH) } }
        END {
            for (i = 0; i < 512; i++) {
                k = (seed + i) % 512
                net = "198." (18 + int(k / 256)) "." (k % 256)
                if (!(net in busy)) { print net; exit }
            }
        }'
}

# Real GPUs when there are enough for every node; else device files that no driver
# serves (root), or harmless character devices (others): Slurm counts and hands out both.
gpu_files() {
    wanted=$((nodes * gpus))
    real=
    for file in /dev/nvidia[0-9] /dev/nvidia[0-9][0-9]; do
        [ -c "$file" ] && real="$real $file"
    done
    # shellcheck disable=SC2086 # a list of names without blanks
    set -- $real
    gpu_kind=real
    if [ $# -lt "$wanted" ]; then
        gpu_kind='stand-in'
        set --
        if stand_in_devices; then
            for file in "$dir"/dev/gpu*; do set -- "$@" "$file"; done
        else
            for file in /dev/zero /dev/full /dev/null /dev/random /dev/urandom /dev/tty \
                /dev/ptmx /dev/fuse /dev/net/tun /dev/kmsg /dev/hpet /dev/vga_arbiter \
                /dev/tty[0-9] /dev/tty[1-6][0-9]; do
                [ -c "$file" ] && set -- "$@" "$file"
            done
        fi
        [ $# -ge "$gpus" ] || die "--gpus $gpus: only $# stand-in devices to be had here;" \
            "ask for fewer, or run as root"
    fi
    for node in $(seq 1 "$nodes"); do
        for gpu in $(seq 1 "$gpus"); do
            index=$gpu
            [ $gpu_kind = real ] && index=$(((node - 1) * gpus + gpu))
            eval "file=\${$index}"
            echo "NodeName=n$node Name=gpu File=$file"
        done
    done
}

# With a device number of the ranges for local use that no driver has taken.
stand_in_devices() {
    [ "$my_uid" = 0 ] || return 1
    major=$(awk 'BEGIN { for (m = 240; m < 255; m++) free[m] = 1
                         for (m = 120; m < 128; m++) free[m] = 1
                         for (m = 60; m < 64; m++) free[m] = 1 }
                 /^Block/ { exit }
                 { delete free[$1] }
                 END { for (m = 254; m >= 60; m--) if (m in free) { print m; exit } }' \
        /proc/devices)
    [ -n "$major" ] || return 1
    mkdir -p "$dir/dev"
    for gpu in $(seq 0 $((gpus - 1))); do
        mknod -m 666 "$dir/dev/gpu$(printf %02d "$gpu")" c "$major" "$gpu" \
            2>/dev/null || return 1
    done
}

version_keys() { # keys whose spelling depends on the release; unknown ones are fatal
    if [ "$notice" = term ]; then
        return
    elif [ "$slurm_version" -ge 2311 ]; then
        echo PreemptParameters=send_user_signal
    else
        echo SlurmctldParameters=preempt_send_user_signal
    fi
}

# --constrain: jobs may open the devices and use the cores that they were given, no others.
constrain_keys() {
    if [ "$constrain" = yes ]; then
        echo ProctrackType=proctrack/cgroup
        echo TaskPlugin=task/cgroup,task/affinity
    else
        echo ProctrackType=proctrack/linuxproc
    fi
}

# Cgroups are found by the node's name, so of all clusters on a machine one may have them.
check_constrain() {
    [ "$my_uid" = 0 ] || die "--constrain needs root"
    [ "$nodes" = 1 ] || [ "$mode" != plain ] || die "--constrain needs one node, or --mode mnt"
    for kind in devices freezer cpuset; do
        [ -w /sys/fs/cgroup/$kind/cgroup.procs ] ||
            die "--constrain needs cgroups of version 1 that can be written ($kind cannot)"
    done
    for node in $(seq 1 "$nodes"); do
        [ ! -d "/sys/fs/cgroup/devices/slurm_n$node" ] ||
            die "/sys/fs/cgroup/devices/slurm_n$node is there: one cluster with --constrain at a time"
    done
}

# What slurmd leaves: empty groups, innermost first.
remove_cgroups() {
    grep -qsx constrain=yes "$dir/cluster" || return 0
    for node in $(seq 1 "$(sed -n 's/^nodes=//p' "$dir/cluster")"); do
        for group in /sys/fs/cgroup/*/"slurm_n$node"; do
            [ -d "$group" ] && find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
        done
    done
    return 0
}

node_lines() {
    for node in $(seq 1 "$nodes"); do
        if [ "$mode" = net ]; then
            place="NodeHostname=n$node NodeAddr=$subnet.$((10 + node)) Port=$((port + 1))"
        else
            place="NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + node))"
        fi
        echo "NodeName=n$node $place CPUs=$cpus Boards=1 Sockets=1" \
            "CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=1048576" \
            "${gres:+Gres=$gres} State=UNKNOWN"
    done
}

# Standard input without the lines whose key --set names, and the --set lines in front: a
# "PartitionName=DEFAULT ..." among them works on the partitions below.
with_settings() {
    printf '%s' "$settings"
    settings=$settings awk '
        BEGIN { n = split(ENVIRON["settings"], line, "\n")
                for (i = 1; i <= n; i++) { sub(/=.*/, "", line[i]); given[tolower(line[i])] }
                delete given[""]; delete given["partitionname"]; delete given["nodename"] }
        { key = $0; sub(/=.*/, "", key) }
        !(tolower(key) in given)'
}

slurm_conf() {
    cat <<CONF
ClusterName=accel
SlurmctldHost=$host($controller)
SlurmUser=$my_name
SlurmdUser=$my_name
AuthType=auth/munge
# A requeued job is held back for cred_expire seconds (Slurm's default: 120).
AuthInfo=socket=$dir/run/munge.sock,cred_expire=5
SlurmctldPort=$port
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
PlugStackConfig=$dir/etc/plugstack.conf
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
$(constrain_keys)
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=$kill_wait
MinJobAge=300
MessageTimeout=15
${gres:+GresTypes=gpu}
$(version_keys)
$(node_lines)
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE State=UP GraceTime=$grace
PartitionName=high Nodes=ALL Default=NO PriorityTier=10 MaxTime=INFINITE State=UP PreemptMode=OFF
CONF
}

# A node has its own configuration directory because mpi.conf knows no %n: two slurmds
# that share one PMIx directory destroy each other's files.
node_conf() { # NODE
    mkdir -p "$dir/etc/$1" "$dir/spool/$1"
    for file in slurm.conf cgroup.conf gres.conf; do
        [ -e "$dir/etc/$file" ] && ln -sf "../$file" "$dir/etc/$1/$file"
    done
    pmix_dir=$dir/pmix
    if [ "$mode" = plain ]; then
        pmix_dir=$dir/pmix/$1
        mkdir -p "$pmix_dir"
        chmod 1777 "$pmix_dir"
    fi
    echo "PMIxCliTmpDirBase=$pmix_dir" >"$dir/etc/$1/mpi.conf"
}

write_configuration() {
    controller=127.0.0.1 subnet='-'
    if [ "$mode" = net ]; then
        port=$(free_ports 1)
        subnet=$(free_subnet)
        [ -n "$subnet" ] || die "no free subnet in 198.18.0.0/15"
        controller=$subnet.1
    else
        port=$(free_ports $((nodes + 1)))
    fi
    [ -n "$port" ] || die "no free TCP ports between 20000 and 32000"
    gres=
    [ "$gpus" = 0 ] || gres=gpu:$gpus
    [ "$gpus" = 0 ] || gpu_files >"$dir/etc/gres.conf"
    slurm_conf | with_settings >"$conf"
    # Nothing here uses cgroups, but slurmd loads the plugin, and only this choice asks
    # nothing of the system: there may be no cgroups, or only a hierarchy of systemd's.
    cgroup_plugin=cgroup/v1
    [ "$slurm_version" -lt 2311 ] || cgroup_plugin=disabled
    [ "$constrain" = no ] || cgroup_plugin=cgroup/v1
    echo "CgroupPlugin=$cgroup_plugin" >"$dir/etc/cgroup.conf"
    [ "$constrain" = no ] || echo ConstrainDevices=yes >>"$dir/etc/cgroup.conf"
    : >"$dir/etc/plugstack.conf"
    [ -z "$plugin" ] || echo "required $plugin" >"$dir/etc/plugstack.conf"
    for node in $(seq 1 "$nodes"); do node_conf "n$node"; done
    printf '%s\n' "mode=$mode" "nodes=$nodes" "gpus=$gpus" "cpus=$cpus" "grace=$grace" \
        "constrain=$constrain" \
        "port=$port" "subnet=$subnet" "plugin=$plugin" "prefix=$prefix" \
        "module_tree=$module_tree" >"$dir/cluster"
}
