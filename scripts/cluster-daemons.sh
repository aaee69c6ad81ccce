# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of accel-cluster, read by it: starts the daemons of one cluster, finds every process
# and interface that belongs to it, and removes them. In: $dir, $conf and the variables of
# cluster-config.sh. Never signals a process that does not carry the cluster's directory.
# shellcheck disable=SC2154 # the option variables are accel-cluster's

# A zombie is dead: in a container without an init nobody collects it.
alive() { # PID
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)
    case $state in '' | Z | X) return 1 ;; esac
}

comm_of() { # PID
    cat "/proc/$1/comm" 2>/dev/null
}

pids_of() { # reads names like /proc/12/comm, writes 12
    sed -n 's,^/proc/\([0-9]*\)/.*,\1,p'
}

# Daemons: named by their own command line.
daemon_pids() {
    grep -lzF -- "$dir/" /proc/[0-9]*/cmdline 2>/dev/null | pids_of |
        while read -r pid; do
            case $(comm_of "$pid") in
            munged | slurmctld | slurmd) alive "$pid" && echo "$pid" ;;
            esac
        done
}

# slurmstepd outlives slurmd and wipes its environment and command line, but it keeps the
# log (or the spool) of its node open.
stepd_pids() {
    grep -lx slurmstepd /proc/[0-9]*/comm 2>/dev/null | pids_of |
        while read -r pid; do
            # shellcheck disable=SC2010 # only the link targets matter here
            ls -l "/proc/$pid/fd" "/proc/$pid/cwd" 2>/dev/null |
                grep -qF -- "-> $dir/" && echo "$pid"
        done
}

# Tasks whose slurmstepd is gone, and clients that wait for this controller.
task_pids() {
    pattern=$(printf '%s' "$dir" | sed 's/[.+]/[&]/g')
    grep -lzE "^SLURM_CONF=$pattern/etc/" /proc/[0-9]*/environ 2>/dev/null | pids_of |
        while read -r pid; do
            case $(comm_of "$pid") in
            srun | sbatch | salloc) echo "$pid" ;;
            *) grep -qz '^SLURMD_NODENAME=' "/proc/$pid/environ" 2>/dev/null &&
                echo "$pid" ;;
            esac
        done
}

# Whatever lives in a node's mount namespace, however it came there.
node_pids() {
    grep -lF -- " $dir/pmix " /proc/[0-9]*/mountinfo 2>/dev/null | pids_of
}

ancestors() {
    ancestor=$$
    while [ "${ancestor:-0}" -gt 1 ]; do
        echo "$ancestor"
        ancestor=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$ancestor/status" 2>/dev/null)
    done
}

cluster_pids() {
    skip=" $(ancestors | tr '\n' ' ')"
    { daemon_pids; stepd_pids; task_pids; node_pids; } | sort -un |
        while read -r pid; do
            case $skip in *" $pid "*) continue ;; esac
            alive "$pid" && echo "$pid"
        done
}

# Daemons stand in a session of their own and in log/, where their core files belong.
start_daemon() { # LOGNAME CMD...
    log=$dir/log/$1
    shift
    (cd "$dir/log" && exec setsid "$@" >>"$log" 2>&1 </dev/null 9<&-) &
}

start_munge() {
    (umask 077 && head -c 128 /dev/urandom >"$dir/etc/munge.key")
    munged --force --socket="$dir/run/munge.sock" --key-file="$dir/etc/munge.key" \
        --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" \
        --seed-file="$dir/run/munge.seed" --num-threads=2 \
        >>"$dir/log/munged.out" 2>&1 9<&- || return 1
}

start_bridge() {
    bridge=acc$port
    ip link add "$bridge" type bridge &&
        ip link set "$bridge" alias "$dir" &&
        ip addr add "$subnet.1/24" dev "$bridge" &&
        ip link set "$bridge" up
}

# The inner part of every node: private directories, then slurmd in its place.
# shellcheck disable=SC2016 # expanded by the inner shell
mnt_node='
    mount -t tmpfs -o mode=1777 tmpfs "$dir/pmix" && exec "$@"'
# shellcheck disable=SC2016
net_node='
    read -r go <"$dir/run/go-$node" && [ "$go" = go ] &&
    ip link set lo up && ip addr add "$address/24" dev eth0 && ip link set eth0 up &&
    hostname "$node" && { [ ! -f /etc/hosts ] || mount --bind "$dir/etc/hosts" /etc/hosts; } &&
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm &&
    mount -t tmpfs -o mode=1777 tmpfs "$dir/pmix" && exec "$@"'

start_node() { # NUMBER
    node=n$1
    address=$subnet.$((10 + $1))
    set -- slurmd -D -N "$node" -f "$dir/etc/$node/slurm.conf"
    case $mode in
    plain) ;;
    mnt)
        if [ "$my_uid" = 0 ]; then
            set -- unshare -m --propagation slave sh -c "$mnt_node" sh "$@"
        else
            set -- unshare -Urm sh -c "$mnt_node" sh \
                unshare -U --map-user="$my_uid" --map-group="$(id -g)" "$@"
        fi
        ;;
    net)
        mkfifo "$dir/run/go-$node" || return 1
        set -- unshare -n -u -i -m --propagation slave sh -c "$net_node" sh "$@"
        ;;
    esac
    start_daemon "slurmd-$node.out" env dir="$dir" node="$node" address="$address" "$@"
    [ "$mode" = net ] || return 0
    # The namespace has no name, only this process: nothing is left when it ends. It
    # opens the pipe once it stands in its namespaces and waits for its cable.
    # shellcheck disable=SC2016
    bridge=acc$port index=${node#n} pid=$! timeout 10 sh -c '
        exec >"$0" && ip link add "${bridge}v$index" type veth peer name eth0 netns "$pid" &&
        ip link set "${bridge}v$index" master "$bridge" up && echo go
        ' "$dir/run/go-$node" 2>>"$dir/log/slurmd-$node.out" 9<&-
}

listening() { # PORT: does anybody listen there?
    grep -qh ":$(printf %04X "$1") 0*:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Tries CMD every 20 ms; gives up when SECONDS have passed.
wait_until() { # SECONDS CMD...
    deadline=$(($(date +%s) + $1 + 1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}

controller_up() {
    listening "$port" && return 0
    alive "$controller_pid" || return 0
    return 1
}

# True as well when a daemon has ended: nothing more is to be waited for.
nodes_idle_or_lost() {
    nodes_idle && return 0
    for pid in $daemon_list; do
        alive "$pid" || return 0
    done
    return 1
}

nodes_idle() {
    [ "$(SLURM_CONF=$conf timeout 5 sinfo -h -N -p low -t idle -o %N 2>/dev/null |
        wc -l)" -eq "$nodes" ]
}

start_all() {
    write_configuration || return 1
    start_munge || return 1
    if [ "$mode" = net ]; then
        { sed '/[[:space:]]n[0-9]*$/d' /etc/hosts 2>/dev/null
          for node in $(seq 1 "$nodes"); do echo "$subnet.$((10 + node)) n$node"; done
        } >"$dir/etc/hosts"
        start_bridge 2>>"$dir/log/net.out" || return 1
    fi
    start_daemon slurmctld.out slurmctld -D -c -f "$conf"
    controller_pid=$!
    wait_until 120 controller_up
    alive "$controller_pid" || return 1
    daemon_list=$controller_pid
    for number in $(seq 1 "$nodes"); do
        start_node "$number" || return 1
        daemon_list="$daemon_list $!"
    done
    wait_until 120 nodes_idle_or_lost
    nodes_idle
}

port_was_taken() {
    grep -qiE 'address already in use|unable to bind' "$dir"/log/* 2>/dev/null
}

show_logs() {
    for log in "$dir"/log/*; do
        [ -s "$log" ] || continue
        echo "--- ${log##*/}" >&2
        tail -n 5 "$log" >&2
    done
}

jobs_gone() {
    [ -z "$(SLURM_CONF=$conf timeout 2 squeue -h -o %A 2>/dev/null)" ]
}

# Jobs get SIGTERM first, so that they can remove what they keep outside of the cluster.
# A cluster that has lost a daemon cannot end jobs any more: end_processes does it.
end_jobs() {
    [ -f "$dir/cluster" ] && [ -f "$conf" ] || return 0
    count=$(sed -n 's/^nodes=//p' "$dir/cluster")
    [ "$(daemon_pids | wc -l)" -eq $((${count:-0} + 2)) ] || return 0
    jobs_gone && return 0
    for state in PENDING RUNNING SUSPENDED; do
        SLURM_CONF=$conf timeout 3 scancel -t $state 2>/dev/null
    done
    wait_until 2 jobs_gone
}

nothing_alive() {
    [ -z "$(cluster_pids)" ]
}

end_processes() {
    for signal in TERM KILL KILL KILL KILL; do
        pids=$(cluster_pids)
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086 # a list of numbers
        kill -s $signal $pids 2>/dev/null
        wait_until 1 nothing_alive && return 0
    done
    # shellcheck disable=SC2046
    say "still running:" $(cluster_pids)
    return 1
}

# The bridge carries the directory as its alias, so it is found without any record.
remove_network() {
    for file in /sys/class/net/acc*/ifalias; do
        [ "$(cat "$file" 2>/dev/null)" = "$dir" ] || continue
        link=${file%/ifalias}
        link=${link##*/}
        for cable in "/sys/class/net/$link/brif/"*; do
            [ -e "$cable" ] && ip link del "${cable##*/}" 2>/dev/null
        done
        ip link del "$link" 2>/dev/null
    done
    return 0
}

remove_files() {
    [ -d "$dir" ] || return 0
    if [ -f "$dir/cluster" ]; then
        rm -rf "$dir" || return 1
    elif [ -n "$(ls -A "$dir")" ]; then
        say "$dir is not a cluster's directory: left as it is"
        return 1
    fi
}

remove_all() {
    end_jobs
    end_processes && remove_network && remove_cgroups && remove_files
}
