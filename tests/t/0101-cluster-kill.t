#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Whichever daemon is killed, `down` afterwards leaves no process, mount, interface or
# file: not even the tasks of a job whose slurmstepd is gone.

# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_slurm

# Pids of the cluster's processes of one name, by its directory in their command line or,
# for slurmstepd which has none, by the log it holds open (whose path has a prefix when
# the cluster runs in a chroot and the daemon in a mount namespace of its own).
daemon_pids() { # NAME
    grep -lx "$1" /proc/[0-9]*/comm 2>/dev/null | while read -r found; do
        found=${found%/comm}
        # shellcheck disable=SC2010 # only link targets matter
        if grep -qzF "$cluster_dir/" "$found/cmdline" 2>/dev/null ||
            ls -l "$found/fd" 2>/dev/null | grep -qF -- "$cluster_dir/log/"; then
            echo "${found#/proc/}"
        fi
    done
}

# The tasks alone: srun has the mark on its command line too, before any task runs.
# shellcheck disable=SC2317 # called by wait_until
task_count() {
    tasks=0
    for holder in $(holders_of "$mark" cmdline); do
        grep -qx sleep "${holder%/cmdline}/comm" 2>/dev/null && tasks=$((tasks + 1))
    done
    [ "$tasks" -ge "$1" ]
}

kill_and_down() { # MODE DAEMON...
    how=$1
    shift
    mark=3$(date +%N).$$ # the tasks' own argument: seconds, and found again by it
    cluster_up --mode "$how" --nodes 2 --plugin none
    job=$(sbatch --parsable -N2 -n2 -o /dev/null --wrap "srun sleep $mark")
    wait_until task_count 2
    ok $? "$how, $*: a job of two tasks runs"
    killed=0
    for name in "$@"; do
        for pid in $(daemon_pids "$name"); do
            kill -9 "$pid" && killed=$((killed + 1))
        done
    done
    [ "$killed" -gt 0 ]
    ok $? "$how, $*: killed $killed processes"
    was=$cluster_dir
    cluster_down
    ok $? "$how, $*: down succeeds (job $job)"
    cluster_gone "$was" "$mark"
    ok $? "$how, $*: nothing is left"
}

kill_and_down plain slurmstepd
kill_and_down plain munged slurmctld slurmd slurmstepd
if can_mnt_mode; then
    for daemon in munged slurmctld slurmd slurmstepd; do kill_and_down mnt $daemon; done
    kill_and_down mnt slurmctld slurmd slurmstepd
else
    skip 20 "no mount namespaces here"
fi
if can_net_mode; then
    kill_and_down net slurmctld
    kill_and_down net munged slurmctld slurmd slurmstepd
else
    skip 8 "network namespaces need root"
fi
done_testing
