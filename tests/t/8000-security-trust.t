#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Path trust of the site file: owner x mode x directory x kind, as the caller and, started by
# root, with a second user; and a link that is swapped while the file is opened.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
chmod 755 "$tap_tmp"
accel=$tap_tmp/bin/accel
mkdir "$tap_tmp/bin"
cp "$ACCEL_BUILD/accel" "$accel" # the build tree may be closed to the second user
cd "$tap_tmp" || bail_out "no directory"
umask 022
me=$(id -u)
mine=65534 theirs=12345
as_user=
if [ "$me" = 0 ] && command -v setpriv >/dev/null 2>&1; then
    as_user="setpriv --reuid=$mine --regid=$mine --clear-groups"
    $as_user "$accel" --version >/dev/null 2>&1 || as_user=
fi
printf 'distributed_type: FSDP\n' >job.yaml
site() { # FILE: a trusted one
    mkdir -p "$(dirname "$1")"
    printf 'debug: true\n' >"$1"
}
# What reading it says: "true" from an accepted file, else the exit code and the reason.
verdict() { # FILE [COMMAND-PREFIX]...
    v_file=$1
    shift
    "$@" "$accel" config show "$tap_tmp/job.yaml" --site "$v_file" >out 2>err </dev/null
    v_code=$?
    if [ $v_code = 0 ]; then
        awk '$1 == "debug" { print $2 }' out
    else
        printf '%s %s\n' $v_code "$(sed -n '1s/.*not trusted: //p' err)"
    fi
}

# ---- as the caller ----
site a/site.yaml
is "$(verdict "$tap_tmp/a/site.yaml")" true "a file of the caller, closed to others"
is "$(cd a && verdict site.yaml)" true "a relative path"
for mode in 666 664 646 622; do
    chmod $mode a/site.yaml
    like "$(verdict "$tap_tmp/a/site.yaml")" \
        "^77 file .*/a/site.yaml can be written by (its group|everybody) \(mode 0$mode\)\$" \
        "mode $mode is refused"
done
contains "$(cat err)" "cure: chmod go-w" "with the cure"
for mode in 644 600 444 640 755; do
    chmod $mode a/site.yaml
    is "$(verdict "$tap_tmp/a/site.yaml")" true "mode $mode is good"
done
chmod 644 a/site.yaml
for mode in 777 775 757 722; do
    chmod $mode a
    like "$(verdict "$tap_tmp/a/site.yaml")" "^77 directory .*/a can be written by" \
        "directory mode $mode is refused"
done
for mode in 1777 1775 755 700; do
    chmod $mode a
    is "$(verdict "$tap_tmp/a/site.yaml")" true "directory mode $mode is good"
done
chmod 755 a
mkdir -p deep/b
site deep/b/c/site.yaml
chmod 777 deep
like "$(verdict "$tap_tmp/deep/b/c/site.yaml")" "^77 directory .*/deep can" \
    "each directory on the way counts"
chmod 755 deep
ln -s site.yaml a/link.yaml
like "$(verdict "$tap_tmp/a/link.yaml")" "^77 .*/a/link.yaml is a symbolic link" "a link is refused"
ln -s nowhere a/dangling.yaml
like "$(verdict "$tap_tmp/a/dangling.yaml")" "^77 .* is a symbolic link" "a dangling one, too"
ln -s a way
is "$(verdict "$tap_tmp/way/site.yaml")" true "a link of one's own on the way is good"
ln -s "$tap_tmp/deep/../a/../way" far
is "$(verdict "$tap_tmp/far/site.yaml")" true "so are an absolute one and dots"
ln -s loop2 loop1
ln -s loop1 loop2
is "$(verdict "$tap_tmp/loop1/site.yaml" | cut -c1-2)" 71 "links in a ring end"
mkdir a/dir.yaml
like "$(verdict "$tap_tmp/a/dir.yaml")" "^77 .* is a directory" "a directory is refused"
mkfifo a/fifo.yaml
is "$(verdict "$tap_tmp/a/fifo.yaml" timeout "$HANG_S" | cut -c1-2)" 77 "a fifo is refused at once"
like "$(verdict /dev/null)" "^77 .*(a fifo or device|can be written)" "so is a device"
for gone in a/no.yaml job.yaml/no.yaml; do
    like "$(verdict "$tap_tmp/$gone")" "^66 " "$gone: a file that is named must be there"
    contains "$(cat err)" "no such file" "and is said to be missing"
done
like "$(chmod 777 deep; verdict "$tap_tmp/deep/b/no.yaml")" "^66 " "wherever it is not"
chmod 755 deep

# ---- with a second user: owner x kind ----
if [ "$as_user" ]; then
    # shellcheck disable=SC2086 # a command with arguments
    as() { verdict "$1" $as_user; }
    is "$(as "$tap_tmp/a/site.yaml")" true "root's file, for another user"
    chown $mine a/site.yaml
    is "$(as "$tap_tmp/a/site.yaml")" true "the user's own file"
    like "$(verdict "$tap_tmp/a/site.yaml")" "^77 file .* is owned by uid $mine, who is neither root nor you" \
        "which root does not trust"
    chown $theirs a/site.yaml
    like "$(as "$tap_tmp/a/site.yaml")" "^77 file .* is owned by uid $theirs" "a third user's file"
    chown 0 a/site.yaml
    chown $theirs a
    like "$(as "$tap_tmp/a/site.yaml")" "^77 directory .*/a is owned by uid $theirs" \
        "root's file in a third user's directory"
    chmod 1777 a
    like "$(as "$tap_tmp/a/site.yaml")" "^77 directory" "the sticky bit does not help its owner's rights"
    chmod 755 a
    chown 0 a
    ln -s a stranger
    chown -h $theirs stranger
    like "$(as "$tap_tmp/stranger/site.yaml")" "^77 link .*/stranger is owned by uid $theirs" \
        "a third user's link on the way"
    chmod 600 a/site.yaml
    like "$(as "$tap_tmp/a/site.yaml")" "^77 cannot open .*Permission denied" "one the user may not read"
    chmod 644 a/site.yaml
    chmod 700 a
    is "$(as "$tap_tmp/a/site.yaml" | cut -c1-2)" 77 "one in a directory the user may not search"
    chmod 755 a
else
    skip 9 "needs root and setpriv for a second user"
fi

# ---- swapped while it is opened ----
# Another user owns the directory's entry in a sticky directory and swaps it between a link
# to root's file, a link to his own and his own file. None of them may ever be read.
if [ "$as_user" ]; then
    mkdir pit
    chmod 1777 pit
    site good/site.yaml
    printf 'debug: true\n' >evil.yaml
    chmod 644 evil.yaml
    # shellcheck disable=SC2016 # for the inner shell
    setpriv --reuid=$theirs --regid=$theirs --clear-groups sh -c '
        cd "$1/pit" || exit 1
        cp ../evil.yaml e
        while :; do
            ln -sf ../good/site.yaml t && mv -f t site.yaml
            ln -sf e t && mv -f t site.yaml
            cp e t && mv -f t site.yaml
        done' sh "$tap_tmp" 2>/dev/null &
    swapper=$!
    at_exit "wait $swapper 2>/dev/null"
    kill_at_exit $swapper
    n=0 wrong=
    while [ $((n += 1)) -le 300 ]; do
        # shellcheck disable=SC2086
        $as_user "$accel" config show job.yaml --site "$tap_tmp/pit/site.yaml" >out 2>err
        case $? in
        66) ;; # not there yet
        77) grep -q 'is a symbolic link\|is owned by uid' err || wrong="$wrong $(head -n 1 err)" ;;
        0) ! grep -q '^debug  *true' out || wrong="$wrong read" ;;
        *) wrong="$wrong $(head -n 1 err)" ;;
        esac
    done
    kill $swapper
    wait $swapper 2>/dev/null
    is "$wrong" "" "300 reads while it is swapped: never an untrusted value"
else
    skip 1 "needs root and setpriv for a second user"
fi
done_testing
