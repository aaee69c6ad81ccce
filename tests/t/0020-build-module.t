#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The modulefiles: loaded with Lmod from sh and bash out of an installation that was moved,
# silent, undone by unload; the Tcl one also read by a plain Tcl interpreter.
. "$(dirname "$0")/tap.sh"

lmod=/usr/share/lmod/lmod/init
[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "$ACCEL_BUILD is not configured"
tap_tmpdir
(cd "$ACCEL_BUILD" && make -s install-data DESTDIR="$tap_tmp/dest") >"$tap_tmp/log" 2>&1
ok $? "make install-data" || diag "$(tail -n 5 "$tap_tmp/log")"
lua=$(find "$tap_tmp/dest" -path '*/modulefiles/accel/*.lua')
tcl=$(find "$tap_tmp/dest" -path '*/modulefiles-tcl/accel/*')
version=${lua##*/}
version=${version%.lua}
root=${lua%/share/modulefiles/accel/*} # the prefix, below the staging folder
is "${tcl##*/}" "$version" "both modulefiles carry the version"

# SHELL TREE COMMANDS: in a clean environment where Lmod knows this tree only.
in_module_shell() {
    env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$tap_tmp" MANPATH=/before "$1" -c "
        . $lmod/$1 && module --force purge >/dev/null 2>&1
        module use '$2' || exit 9
        $3" 2>&1
}

one_tree() { # SHELL TREE
    what="$1, ${2##*/}"
    is "$(in_module_shell "$1" "$2" 'module load accel')" "" "$what: load is silent"
    got=$(in_module_shell "$1" "$2" "module load accel
        for v in ACCEL_ROOT PATH LD_LIBRARY_PATH LIBRARY_PATH CPATH PKG_CONFIG_PATH MANPATH PYTHONPATH
        do eval \"printf '%s=%s\\n' \$v \\\"\\\$\$v\\\"\"; done
        env | grep -E '^(NCCL|UCX)_' || :")
    is "$(echo "$got" | sed -n 's/^ACCEL_ROOT=//p')" "$root" "$what: ACCEL_ROOT"
    for pair in PATH:bin LD_LIBRARY_PATH:lib LIBRARY_PATH:lib CPATH:include \
        PKG_CONFIG_PATH:lib/pkgconfig MANPATH:share/man PYTHONPATH:share/accel/python; do
        first=$(echo "$got" | sed -n "s/^${pair%%:*}=//p" | cut -d: -f1)
        is "$first" "$root/${pair#*:}" "$what: ${pair%%:*} begins with our ${pair#*:}"
    done
    like "$got" '^MANPATH=.*:/before:' "$what: MANPATH keeps what was there and the system's"
    unlike "$got" '^(NCCL|UCX)_' "$what: no tuning of NCCL or UCX"
    got=$(in_module_shell "$1" "$2" "env | grep -v LMOD | grep -v ModuleTable | sort >'$tap_tmp/1'
        module load accel && module unload accel
        env | grep -v LMOD | grep -v ModuleTable | sort >'$tap_tmp/2'
        diff '$tap_tmp/1' '$tap_tmp/2'" | grep -v '^[<>] _' | grep '^[<>]')
    is "$got" "" "$what: unload restores the environment"
    got=$(in_module_shell "$1" "$2" "module load accel/99.9; echo rc=\$?")
    like "$got" 'accel/99.9' "$what: a version that is not there is named"
    like "$got" '^rc=1' "$what: and loading it fails"
    got=$(in_module_shell "$1" "$2" 'module whatis accel')
    like "$got" "Version: $version" "$what: whatis"
    folder=$(echo "$got" | sed -n 's|.*URL: file://||p' | tr -d ' ')
    [ -f "${folder:-none}/README.md" ]
    ok $? "$what: the URL is a folder with the pages, also when the tree was moved"
    like "$(in_module_shell "$1" "$2" 'module help accel')" 'srun --accel-config' "$what: help"
}

if [ -f $lmod/sh ] && [ "${root#"$tap_tmp"}" != "$root" ]; then
    for tree in "$root/share/modulefiles" "$root/share/modulefiles-tcl"; do
        one_tree sh "$tree"
        if command -v bash >/dev/null; then
            one_tree bash "$tree"
        else
            skip 1 "no bash"
        fi
    done
    mkdir -p "$tap_tmp/copy/accel"
    cp "$lua" "$tap_tmp/copy/accel/"
    prefix=${root#"$tap_tmp/dest"}
    is "$(in_module_shell sh "$tap_tmp/copy" "module load accel; echo \$ACCEL_ROOT")" \
        "$prefix" "a copy in another tree uses the prefix of the installation"
else
    skip 1 "Lmod is not installed"
fi

# Environment Modules: the Tcl tree is its own; in Lmod's tree it finds nothing.
modulecmd=
for file in "${MODULES_CMD:-}" /usr/lib/*/modulecmd.tcl /usr/share/Modules/libexec/modulecmd.tcl; do
    [ ! -f "$file" ] || modulecmd=$file
done
in_modules() { # TREE COMMAND...
    tree=$1
    shift
    env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$tap_tmp" MODULEPATH="$tree" \
        tclsh "$modulecmd" sh "$@" 2>&1
}
if [ "$modulecmd" ] && command -v tclsh >/dev/null; then
    got=$(in_modules "$root/share/modulefiles-tcl" load accel)
    contains "$got" "ACCEL_ROOT=$root; export" "Environment Modules loads the Tcl file"
    contains "$got" "PATH=$root/bin:" "with its paths"
    contains "$(in_modules "$root/share/modulefiles-tcl" whatis accel)" \
        "URL: file://$root/share/doc/accel" "and its URL"
    like "$(in_modules "$root/share/modulefiles" load accel)" "nable to locate a modulefile" \
        "and has no use for Lmod's tree, of which README tells the one"
else
    skip 4 "Environment Modules is not installed (in Debian it excludes Lmod)"
fi
is "$(grep -c -E 'module use .*/share/modulefiles(-tcl)? ' "$ACCEL_SRC/README.md")" 2 \
    "README.md names both trees"

if command -v tclsh >/dev/null; then
    cat >"$tap_tmp/read.tcl" <<'END'
proc setenv {name value} { puts "$name=$value" }
foreach verb {prepend-path append-path} { proc $verb {name value} { puts "$name=$value" } }
foreach verb {module-whatis family} { proc $verb args {} }
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
END
    got=$(tclsh "$tap_tmp/read.tcl" "$tcl" 2>&1)
    contains "$got" "ACCEL_ROOT=$root" "plain Tcl reads the Tcl file"
    contains "$got" "PATH=$root/bin" "and gets the same paths"
else
    skip 2 "no tclsh"
fi
done_testing
