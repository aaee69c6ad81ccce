#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A full installation in a folder of its own: a program outside the tree is built by pkg-config
# alone, runs, and gets the version; nothing is installed outside the prefix.
. "$(dirname "$0")/tap.sh"

command -v pkg-config >/dev/null || skip_all "no pkg-config"
[ -f "$ACCEL_BUILD/Makefile" ] || skip_all "$ACCEL_BUILD is not configured"
tap_tmpdir
prefix=$(sed -n 's/^prefix = //p' "$ACCEL_BUILD/Makefile")
(cd "$ACCEL_BUILD" && make -s install DESTDIR="$tap_tmp/dest") >"$tap_tmp/log" 2>&1
ok $? "make install" || diag "$(tail -n 5 "$tap_tmp/log")"
is "$(find "$tap_tmp/dest" -type f ! -path "$tap_tmp/dest$prefix/*")" "" \
    "nothing is installed outside the prefix"

# ---- pages and examples ----
root=$tap_tmp/dest$prefix
docs=$(find "$root" -type f -name README.md ! -path '*/decisions/*' -exec dirname {} \;)
is "$(cd "$ACCEL_SRC" && printf '%s\n' doc/*.md doc/*/*.md examples/*.[ch] examples/*.cpp examples/*.py examples/*.yaml examples/*.txt |
    while read -r file; do [ -f "$docs/$file" ] || echo "$file"; done)" "" \
    "all of doc/ and examples/ is installed"
is "$(cd "$docs" && find . -name '*.md' | while read -r page; do
    grep -o -E '\]\([^):#]+' "$page" | cut -c3- | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
    done
done)" "" "the links of the pages lead to what is installed"
is "$(cd "$docs/examples" && sed -n 's/.*[$]schema=//p' ./*.yaml | sort -u | while read -r link; do
    [ -e "$link" ] || echo "$link"
done)" "" "so does the schema that the examples name"
for file in "$root"/share/modulefiles/accel/*.lua "$root"/share/modulefiles-tcl/accel/*; do
    grep -q -F "${docs#"$tap_tmp/dest"}" "$file"
    ok $? "the URL of ${file##*/} is their folder"
done
is "$(find "$root/share/man/man3" -name 'accel_*.3' | wc -l | tr -d ' ')" \
    "$(grep -o -E '\baccel_[a-z0-9_]+\(' -h "$ACCEL_SRC"/runtime/accel*.h | sort -u | wc -l | tr -d ' ')" \
    "each function of accel.h has a page"
is "$(find "$root/share/man" -type d -empty)" "" "and no folder of pages is empty"
is "$(cd "$root/share/man" && for page in "1 man1/accel.1" "3 man3/libaccel.3" "5 man5/accel-config.5" \
    "7 man7/accel.7" "accel_open man3/accel_open.3"; do
    "$root/bin/accel" man "${page% *}" 2>&1 | cmp - "${page#* }" || echo "$page"
done)" "" "the installed command shows the installed pages"
is "$("$root/bin/accel" completion bash 2>&1 |
    cmp - "$root/share/bash-completion/completions/accel" 2>&1)" "" "and the installed script"

cat >"$tap_tmp/version.c" <<'END'
#include <accel.h>
#include <accel_ckpt.h>
#include <stdio.h>
int main(void)
{
    printf("%s %s\n", accel_version(), accel_status_name(ACCEL_ERESUME));
    return accel_exit_code(ACCEL_ERESUME);
}
END
PKG_CONFIG_PATH=$(dirname "$(find "$root" -name accel.pc)")
export PKG_CONFIG_PATH
for package in accel accelckpt; do
    is "$(pkg-config --modversion $package 2>&1)" \
        "$(sed -n 's/^PACKAGE_VERSION = //p' "$ACCEL_BUILD/Makefile")" "$package.pc: version"
done
# Of accel.h, which its header includes, libaccelckpt has what its calls need.
{
    printf '#include <accel_safetensors.h>\n#include <stdio.h>\nstatic void *const of_header[] = {\n'
    grep -o -h -E '\baccel_(ckpt|safetensors)_[a-z0-9_]+\(' "$ACCEL_SRC/checkpoint/accel_ckpt.h" \
        "$ACCEL_SRC/runtime/weights/safetensors/accel_safetensors.h" | sort -u | sed 's/(/,/'
    printf '(void *)accel_report, (void *)accel_exit_code};\n'
    printf 'int main(void) { printf("%%s %%s\\n", accel_version(), accel_status_name(ACCEL_OK)); return !of_header[0]; }\n'
} >"$tap_tmp/only.c"
# shellcheck disable=SC2046
passes "a program is built with accelckpt alone" "${CC:-cc}" -o "$tap_tmp/only" "$tap_tmp/only.c" \
    $(pkg-config --define-variable=prefix="$root" --cflags --libs accelckpt)
flags=$(pkg-config --define-variable=prefix="$root" --cflags --libs accel accelckpt)
libdir=$(pkg-config --define-variable=prefix="$root" --variable=libdir accel)
# shellcheck disable=SC2086
passes "a program is built with what pkg-config says" \
    ${CC:-cc} -Wall -Wextra -Werror -o "$tap_tmp/version" "$tap_tmp/version.c" $flags
got=$(LD_LIBRARY_PATH=$libdir "$tap_tmp/version" 2>&1)
is "$?" 85 "it runs and gets the exit code of a status"
like "$got" '^[0-9]+\.[0-9]+\.[0-9]+ ACCEL_ERESUME$' "it prints the library's version"

# The example that README.md begins with, as a user would build it.
# shellcheck disable=SC2086
passes "examples/minimal.c is built the same way" \
    ${CC:-cc} -Wall -Wextra -Werror -o "$tap_tmp/minimal" "$ACCEL_SRC/examples/minimal.c" $flags
if command -v "${CXX:-g++}" >/dev/null 2>&1; then
    for standard in c++11 c++20; do
        # shellcheck disable=SC2086
        passes "and is $standard" ${CXX:-g++} -x c++ -std=$standard -Wall -Wextra -pedantic \
            -Werror -fsyntax-only "$docs/examples/minimal.c" $flags
    done
else
    skip 2 "no C++ compiler"
fi
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES
LD_LIBRARY_PATH=$libdir OMP_NUM_THREADS=1
export LD_LIBRARY_PATH OMP_NUM_THREADS
cd "$tap_tmp" || bail_out "cannot enter $tap_tmp"
got=$(./minimal "$ACCEL_SRC/examples/sample.txt" 2>&1)
is "$?" 0 "it trains"
like "$got" '^step 300/300 loss [0-2]\.' "to its last step"
got=$(./minimal missing.txt 2>&1)
is "$?" 66 "without its data it ends with the code of a missing file"
like "$got" '^error\[A[0-9]*\]: missing.txt: cannot open' "and says so"

cd / && (cd "$ACCEL_BUILD" && make -s uninstall DESTDIR="$tap_tmp/dest") >"$tap_tmp/log" 2>&1
ok $? "make uninstall" || diag "$(tail -n 5 "$tap_tmp/log")"
is "$(find "$tap_tmp/dest" ! -type d)" "" "leaves nothing"
done_testing
