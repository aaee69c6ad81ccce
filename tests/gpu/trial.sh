#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `run` of a tree that make gpu-trial packed: tries accel on this machine's GPU, without build,
# root or network. Runs the parts of parts.sh in order, the most telling ones first, each within
# a limit and in a session of its own, of which nothing is left behind. Writes result.txt, one
# short text, after each part; logs/ has all output.
set -u

root=$(cd "$(dirname "$0")" && pwd) || exit 1
# shellcheck source=tests/gpu/libraries.sh
. "$root/libraries.sh"

usage() {
    cat <<'END'
Example:  ./run --within 580 && ./run --within 580 --resume

Usage: ./run [OPTION]... [PART]...
  PART              number or name of a part to run; without any, all of them
  --list            print the parts
  --resume          leave out parts that have a result
  --limit SECONDS   stop a part after this time (540)
  --within SECONDS  end after this time; the parts that are left wait for --resume
  --out DIR         put result.txt, logs and scratch there (the folder of this script)

Ends with 0 if no part failed. Without a GPU every part that needs one is skipped.
END
}

refuse() { # MESSAGE
    echo "run: $1, see --help" >&2
    exit 64
}

seconds_of() { # OPTION VALUE: the value, a positive number
    case $2 in
    '' | *[!0-9]* | 0*) refuse "$1 wants a number of seconds" ;;
    esac
    echo "$2"
}

# The parts as "NUMBER NAME", a line each.
list_parts() {
    TRIAL_ROOT=$root sh "$root/parts.sh" --list | awk '{ printf "%02d %s\n", NR, $1 }'
}

# Of all parts, those that were asked for.
choose_parts() { # [PART]...
    [ $# -gt 0 ] || { list_parts; return; }
    for chosen; do
        list_parts | awk -v want="$chosen" '
            $1 + 0 == want || $2 == want { print; found = 1 }
            END { exit !found }' || return 1
    done
}

# ---- one part ----

# Processes of a session that are not over yet.
session_pids() { # SESSION
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v session="$1" '{
        pid = $1
        sub(/.*\) /, "")
        if ($4 == session && $1 != "Z") print pid
    }'
}

# A program with a time limit of its own has a process group of its own: only the session holds
# all that a part started. What is stuck in the driver stays after five seconds.
end_session() { # SESSION
    tries=50
    while [ $tries -gt 0 ] && pids=$(session_pids "$1") && [ -n "$pids" ]; do
        # shellcheck disable=SC2086 # several numbers
        kill -KILL $pids 2>/dev/null
        sleep 0.1
        tries=$((tries - 1))
    done
}

# What cuBLASLt said of products in a part: each error once, with the call that it ends where
# that has shapes. Time, process and addresses are left out.
product_errors() { # FILE...
    cat "$@" 2>/dev/null | awk '
        { gsub(/^.*\[cublasLt\]\[[0-9]*\]|0X[0-9A-F]+/, "") }
        sub(/^\[Api\]\[/, "") { call = /desc=\[/ ? $0 : "" }
        sub(/^\[Error\]\[/, "") {
            if (index(call, substr($0, 1, index($0, "]"))) != 1) call = ""
            if (told[$0, call]++) next
            print "cuBLASLt: " $0
            if (call) print "  " call
        }' | sed 's/\]/:/' | fold -s -w 140
}

# The result of a part from its log: state, time, figures ("= "), first failures ("! "), and
# what there is of products.
describe_part() { # NUMBER NAME STATE SECONDS LOG PRODUCTS
    printf '%2d %-20s %-5s %4d s\n' "${1#0}" "$2" "$3" "$4"
    sed -n 's/^= /   /p' "$5" | head -n 120 | cut -c 1-150
    sed -n 's/^! /   ! /p' "$5" | head -n 12 | cut -c 1-150
    [ "$3" != FAIL ] || grep -q '^! ' "$5" || tail -n 4 "$5" | cut -c 1-150 | sed 's/^/   ! /'
    [ ! -s "$6" ] || head -n 10 "$6" | sed 's/^/   ! /'
}

# Sets $state. A part that had less time than its limit is cut short, not failed.
run_part() { # NUMBER NAME SECONDS
    log=$out/logs/$1-$2.log products=$out/logs/$1-$2.products
    scratch=$out/scratch
    rm -rf "$scratch" "$products" && mkdir -p "$scratch" || exit 1
    began=$(date +%s)
    (cd "$scratch" && CUBLASLT_LOG_FILE=$scratch/cublaslt.%i exec setsid timeout -k 5 "$3" sh "$root/parts.sh" "$2") >"$log" 2>&1 </dev/null &
    session=$!
    wait "$session"
    code=$?
    end_session "$session"
    session=
    case $code in
    0) state=PASS ;;
    77) state=SKIP ;;
    124 | 137)
        state=FAIL
        [ "$3" -ge "$limit" ] || state=CUT
        echo "! stopped after $3 s" >>"$log"
        ;;
    *) state=FAIL ;;
    esac
    [ "$state" != FAIL ] || product_errors "$scratch"/cublaslt.* >"$products"
    rm -rf "$scratch"
    describe_part "$1" "$2" "$state" $(($(date +%s) - began)) "$log" "$products" \
        >"$out/logs/$1-$2.result"
}

# ---- all of them ----

results() { # STATE: how many parts ended so
    cat "$out"/logs/*.result 2>/dev/null | awk -v state="$1" '/^[ 0-9][0-9] / && $3 == state' | wc -l | tr -d ' '
}

write_result() {
    {
        cat "$out/logs/head"
        cat "$out"/logs/*.result 2>/dev/null
        echo
        echo "$(list_parts | wc -l | tr -d ' ') parts: $(results PASS) passed, $(results FAIL) failed," \
            "$(results SKIP) skipped, $(results CUT) cut short"
    } >"$out/result.new" && mv "$out/result.new" "$out/result.txt"
}

describe_machine() {
    echo "accel on a GPU, $(date -u '+%Y-%m-%d %H:%M UTC'), $(uname -n)"
    sed 's/^/  /' "$root/packed.txt"
    [ -z "$TRIAL_NO_GPU" ] || echo "  $TRIAL_NO_GPU"
    echo "  $(uname -sr), glibc $(getconf GNU_LIBC_VERSION 2>/dev/null | tr -dc '0-9.'), $(nproc) cores"
    printf '%s\n' "$libraries_found" | sed 's/^/  /'
    echo
}

# What parts and tests read; a module that the caller names stands for the GPU.
set_environment() {
    TRIAL_NO_GPU=
    if [ -z "${ACCEL_CUDA_MODULE:-}" ] && [ ! -e /dev/nvidiactl ]; then
        TRIAL_NO_GPU="this machine has no NVIDIA GPU (no /dev/nvidiactl)"
    fi
    : "${ACCEL_CUDA_MODULE:=$root/runtime/backend/cuda/accel_cuda.so}"
    : "${CUDA_VISIBLE_DEVICES:=0}"
    ACCEL_SRC=$root ACCEL_BUILD=$root TRIAL_ROOT=$root CUDA_DEVICE_ORDER=PCI_BUS_ID
    OMP_WAIT_POLICY=passive
    export TRIAL_NO_GPU TRIAL_ROOT ACCEL_CUDA_MODULE ACCEL_SRC ACCEL_BUILD
    export CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER OMP_WAIT_POLICY
    unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED
    find_libraries
}

# Seconds that a part beginning now may take: blank when too few are left.
time_for_part() {
    may=$limit
    if [ -n "$within" ]; then
        left=$((within - ($(date +%s) - start) - 8))
        [ "$left" -ge "$may" ] || may=$left
        [ "$may" -ge 1 ] || may=
    fi
    echo "$may"
}

forget_results() { # [NUMBER NAME]...
    while [ $# -gt 0 ]; do
        rm -f "$out/logs/$1-$2.result"
        shift 2
    done
}

# Has this result been reached before, in full?
is_done() { # FILE
    [ -f "$1" ] && ! grep -q '^[ 0-9][0-9] [^ ]* *CUT ' "$1"
}

run_parts() { # [NUMBER NAME]...; 1: some part failed
    failed=0
    while [ $# -gt 0 ]; do
        number=$1 name=$2 result=$out/logs/$1-$2.result
        shift 2
        [ -z "$resume" ] || ! is_done "$result" || continue
        seconds=$(time_for_part)
        if [ -z "$seconds" ]; then
            echo "no time is left for part ${number#0} and those behind it: ./run --resume"
            break
        fi
        run_part "$number" "$name" "$seconds"
        [ "$state" != FAIL ] || failed=1
        write_result
        cat "$result"
    done
    [ -z "$TRIAL_NO_GPU" ] || echo "nothing was tried: $TRIAL_NO_GPU"
    tail -n 1 "$out/result.txt"
    echo "the result: $out/result.txt"
    return $failed
}

main() {
    limit=540 within='' out=$root resume='' wanted='' session=''
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h) usage; exit 0 ;;
        --list) list_parts; exit 0 ;;
        --resume) resume=1 ;;
        --limit | --within | --out)
            [ $# -gt 1 ] || refuse "$1 wants a value"
            case $1 in
            --limit) limit=$(seconds_of "$1" "$2") || exit ;;
            --within) within=$(seconds_of "$1" "$2") || exit ;;
            --out) out=$2 ;;
            esac
            shift
            ;;
        -*) refuse "unknown option '$1'" ;;
        *) wanted="$wanted $1" ;;
        esac
        shift
    done
    # shellcheck disable=SC2086 # several words
    parts=$(choose_parts $wanted) || refuse "there is no part among$wanted"
    start=$(date +%s)
    mkdir -p "$out/logs" && out=$(cd "$out" && pwd) || exit 73
    trap 'end_session "${session:-none}"; exit 130' INT TERM HUP
    set_environment
    # shellcheck disable=SC2086 # numbers and names
    set -- $parts
    [ -n "$resume" ] || forget_results "$@"
    describe_machine >"$out/logs/head"
    write_result
    run_parts "$@"
}

main "$@"
