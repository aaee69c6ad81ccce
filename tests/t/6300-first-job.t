#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# doc/first-job.md, word for word: every command after a "$" is run on a throw-away cluster, and
# what the page shows is compared with what comes. "> " goes on with a here-document, "..." stands
# for any lines, "^C" for SIGINT. A command must succeed, unless the next one is `echo $?`.
# Times, losses, sizes, job numbers, and the step at which a run was stopped are not compared.
. "$(dirname "$0")/lib.sh"
need_plugin
need_program pkg-config timeout "${CC:-cc}"
[ -f "$ACCEL_BUILD/.libs/libaccel.so" ] || skip_all "this build has no shared library"
! built_with_sanitizer || skip_all "a program of a user's has no sanitizer runtime"
env --default-signal=INT true 2>/dev/null || skip_all "this env cannot set signals"
page=$ACCEL_SRC/doc/first-job.md
tap_tmpdir

# An installation as `make install` makes it. Libraries and the command are copied: linking them
# again for their final place would disturb the tests beside this one.
stage() {
    (cd "$ACCEL_BUILD" && make -s install-data DESTDIR="$tap_tmp/dest") >"$tap_tmp/log" 2>&1 ||
        { diag "$(tail -n 5 "$tap_tmp/log")"; return 1; }
    root=$tap_tmp/dest$(sed -n 's/^prefix = //p' "$ACCEL_BUILD/Makefile")
    mkdir -p "$root/bin" "$root/lib" "$root/libexec/accel" &&
        cp "$ACCEL_BUILD/accel" "$root/bin/" &&
        cp "$ACCEL_BUILD/accel-verify" "$root/libexec/accel/" &&
        cp -P "$ACCEL_BUILD"/.libs/libaccel*.so* "$root/lib/" &&
        sed -i "s|^prefix=.*|prefix=$root|" "$root"/lib/pkgconfig/*.pc
}

# Makes `module` known, for the modulefiles of the installation; 1: there is none.
module_command() {
    for init in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/sh" /usr/share/modules/init/sh \
        /usr/share/Modules/init/sh; do
        tree=$root/share/modulefiles
        case $init in */[mM]odules/init/sh) tree=$tree-tcl ;; esac
        if [ -r "$init" ]; then
            # shellcheck disable=SC1090
            . "$init" && module use "$tree"
            return
        fi
    done
    return 1
}

# What `module load accel` sets, where there is no such command.
paths_by_hand() {
    ACCEL_ROOT=$root PATH=$root/bin:$PATH LD_LIBRARY_PATH=$root/lib
    CPATH=$root/include LIBRARY_PATH=$root/lib PKG_CONFIG_PATH=$root/lib/pkgconfig
    export ACCEL_ROOT PATH LD_LIBRARY_PATH CPATH LIBRARY_PATH PKG_CONFIG_PATH
}

# Cuts the page into N.cmd and N.want; prints how many.
cut_page() {
    awk -v to="$tap_tmp/p" '
        function into(name) { file = to "/" n name; printf "" >file }
        !/^    / { file = ""; next }
        { line = substr($0, 5) }
        line ~ /^\$ / { close(file); n++; into(".want"); into(".cmd"); print substr(line, 3) >file; next }
        line ~ /^>( |$)/ { print substr(line, 3) >file; next }
        file != "" { file = to "/" n ".want"; print line >file }
        END { print n + 0 }' "$page"
}

# What differs from run to run gives way to a word, or goes: how long a save is to take is known
# once there was one. Of what tail shows, the step is a word as well.
loosely() { # COMMAND
    moment='s/^$//'
    case $1 in tail*) moment='s/^step [0-9]*\//step N\//' ;; esac
    # Slurm's own remarks may come at any place.
    sed -E -e '/^srun: /d' -e "$moment" \
        -e 's/loss [0-9.]+/loss X/; s/[0-9.]+ ms/T ms/; s/[0-9.]+k? tok.s/R tok/; s/norm [0-9.]+/norm X/' \
        -e 's/[0-9.]+ [KMG]iB/SIZE/g; s/in [0-9.]+ s /in T s /; s/seconds=[0-9.]+/seconds=T/; s/bytes=[0-9]+/bytes=N/' \
        -e 's/^20[0-9-]+T[0-9:]+Z/DATE/; s/(job[ =]|of=)[0-9]+/\1J/g' \
        -e 's/n[0-9]+: CPU, .*/NODE: CPU/' \
        -e 's/((saving|state of|checkpoint of) step )[0-9]+/\1N/; s/step=[1-9][0-9]*/step=N/' \
        -e 's/ \(about [0-9.]+ s; [0-9.]+ s are left of GraceTime\)//' \
        -e 's/step_[0-9]+: step [0-9]+, [0-9]+ samples/step_N: step N, N samples/' \
        -e "s/^ *[0-9]+ +(low|high) +([a-z]+) +(me|$(id -un | cut -c1-8)) /J \\1 \\2 me /" \
        -e 's/ [0-9]+:[0-9][0-9] / T /; s/  */ /g; s/ $//; s/^ //'
}

# Every part of WANT between lines "..." is in GOT, in that order and whole; the first begins it
# and the last ends it.
shows() { # WANT GOT
    awk '
        NR == FNR { if ($0 != "^C") want[++w] = $0; next }
        { got[++g] = $0 }
        function fits(at, i) {
            for (i = 1; i <= k; i++)
                if (got[at + i - 1] != part[i]) return 0
            return at + k - 1 <= g
        }
        function place(last, at) { # the next part; 0: it is not there
            if (k == 0) return 1
            at = last ? g - k + 1 : next_line
            for (; at <= g; at++) {
                if (at >= next_line && fits(at)) { next_line = at + k; return 1 }
                if (!free) return 0
            }
            return 0
        }
        END {
            next_line = 1
            for (i = 1; i <= w; i++) {
                if (want[i] != "...") { part[++k] = want[i]; continue }
                if (!place(0)) exit 1
                k = 0; free = 1
            }
            if (!place(free)) exit 1
            exit !(k == 0 && free || next_line == g + 1)
        }' "$1" "$2"
}

fits_page() { # N
    loosely "$command" <"$tap_tmp/p/$1.want" >"$tap_tmp/want"
    loosely "$command" <"$tap_tmp/p/$1.got" >"$tap_tmp/got"
    shows "$tap_tmp/want" "$tap_tmp/got"
}

in_page_shell() { # N: runs its command; status in $status
    (exit "$status")
    eval "$command" >"$tap_tmp/p/$1.got" 2>&1 </dev/null
    status=$?
}

# shellcheck disable=SC2317 # called by wait_until
comes() { # N: the page's text of the command, by now?
    in_page_shell "$1"
    [ $status = 0 ] && fits_page "$1"
}

# shellcheck disable=SC2317 # called by wait_until
before_ctrl_c() { # N: does the output have what the page shows above ^C?
    loosely "$command" <"$tap_tmp/p/$1.got" >"$tap_tmp/got"
    { sed '/^^C$/,$d' "$tap_tmp/p/$1.want" | loosely "$command"; echo ...; } >"$tap_tmp/want"
    shows "$tap_tmp/want" "$tap_tmp/got"
}

run_and_interrupt() { # N
    env --default-signal=INT sh -c "exec $command" >"$tap_tmp/p/$1.got" 2>&1 </dev/null &
    child=$!
    wait_until before_ctrl_c "$1" || diag "what the page shows above ^C did not come"
    kill -s INT $child
    wait $child
    status=$?
}

one_command() { # N
    command=$(cat "$tap_tmp/p/$1.cmd")
    if grep -q '^^C$' "$tap_tmp/p/$1.want"; then
        run_and_interrupt "$1"
    else
        case $command in
        squeue* | tail*) wait_until comes "$1" ;; # they look at what is under way
        *) in_page_shell "$1" ;;
        esac
    fi
    title=$(printf '%s\n' "$command" | head -n 1)
    # shellcheck disable=SC2016
    if [ "$(cat "$tap_tmp/p/$(($1 + 1)).cmd" 2>/dev/null)" != 'echo $?' ]; then
        ok $status "succeeds: $title"
    fi
    fits_page "$1"
    ok $? "prints what the page shows: $title" && return
    diag "want, made comparable:" "$(cat "$tap_tmp/want")"
    diag "got:" "$(cat "$tap_tmp/got")"
}

mkdir "$tap_tmp/p"
count=$(cut_page)
[ "$count" -ge 20 ]
ok $? "the page has commands ($count)"
stage || bail_out "the installation that the page needs cannot be made"
cluster_up --nodes 1
cd "$tap_tmp" || exit 1
first=1 status=0
if module_command; then
    is "$(cat "$tap_tmp/p/1.cmd")" "module load accel" "the page begins with the module"
else
    skip 1 "no module command; its paths are set directly"
    paths_by_hand
    first=2
fi
i=$first
while [ "$i" -le "$count" ]; do
    one_command "$i"
    i=$((i + 1))
done
each=$(grep -o '"step":[0-9]*' batch/log.jsonl 2>/dev/null | sort -u | wc -l)
is "$each" "$(sed -n 's/.*--steps \([0-9]*\) .*/\1/p' "$tap_tmp"/first-job/job.sh)" "every step of the job is there"
no_node_drained
ok $? "no node is drained"
done_testing
