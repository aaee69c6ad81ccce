#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What make check-mutants is made of: changes of a small source by every rule, tried in a small
# tree. Its one test must notice the change that matters; the tree is as it was afterwards.
. "$(dirname "$0")/tap.sh"

python=/usr/bin/python3
"$python" -c 'import clang.cindex as c; c.Index.create()' 2>/dev/null ||
    skip_all "clang's Python bindings are not installed"
[ -x "$ACCEL_BUILD/libtool" ] || skip_all "the tree is not configured"
tap_tmpdir
mkdir -p "$tap_tmp/runtime/part" "$tap_tmp/tests/unit"
cd "$tap_tmp" || bail_out "no $tap_tmp"
cp "$ACCEL_SRC/tests/sanitizer.sh" tests/
# As under make -C: a make within it tells where it is.
export MAKEFLAGS=w

cat >runtime/part/part.h <<'END'
int twice(int x);
static inline int half(int x)
{
    return x / 2;
}
END
cat >runtime/part/part.c <<'END'
#include "part.h"
#include <stdbool.h>
#include <sys/stat.h>

typedef enum { ACCEL_OK, ACCEL_BAD } accel_status_t;
accel_status_t place(const char *path, unsigned flags);
bool between(int x, int low, int high);
static int calls;

static accel_status_t check(const char *path)
{
    calls++;
    return path == 0 ? ACCEL_BAD : ACCEL_OK;
}

accel_status_t place(const char *path, unsigned flags)
{
    accel_status_t st = check(path);
    if (st != ACCEL_OK)
        return st;
    if (mkdir(path, 0755) != 0 && (flags | 2))
        return ACCEL_BAD;
    return ACCEL_OK;
}

bool between(int x, int low, int high)
{
    if (x < low)
        return false;
    return x <= high && half(x) >= 0;
}

int twice(int x)
{
    int sum = x + x;
    sum += 0;
    return between(sum, -1000, 1000) ? sum : 1000;
}
END
# An object of which gcov knows nothing.
echo 'const int part_names[] = { 1, 2 };' >tests/unit/part_names.c
cat >tests/unit/test_part.c <<'END'
#include <stdio.h>
#include "../../runtime/part/part.h"

int main(void)
{
    printf("%sok 1 - two and two\n1..1\n", twice(2) == 4 ? "" : "not ");
    return 0;
}
END
cat >Makefile <<END
LT = $ACCEL_BUILD/libtool --silent --tag=CC
all: libpart.la
test-programs: tests/unit/test_part
libpart.la: runtime/part/part.lo
	\$(LT) --mode=link gcc -o libpart.la runtime/part/part.lo
runtime/part/part.lo: runtime/part/part.c
	\$(LT) --mode=compile gcc -O1 -c -o runtime/part/part.lo runtime/part/part.c
tests/unit/test_part: tests/unit/test_part.o tests/unit/part_names.o libpart.la
	\$(LT) --mode=link gcc -o tests/unit/test_part tests/unit/test_part.o tests/unit/part_names.o libpart.la
tests/unit/test_part.o: tests/unit/test_part.c
	gcc -O1 -c -o tests/unit/test_part.o tests/unit/test_part.c
tests/unit/part_names.o: tests/unit/part_names.c
	gcc -O1 -c -o tests/unit/part_names.o tests/unit/part_names.c
print-unit-tests:
	@echo tests/unit/test_part
END
mkdir cli srun_plugin examples checkpoint
passes "the small tree is built" make -s all test-programs

# ---- the changes ------------------------------------------------------------------------------

cat >try.py <<'END'
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from campaign import Bench, Coverage, Record, Urn, again, within
from sites import changes_of
from tree import Tree


class Known(Coverage):
    """What gcov would have said of the small tree."""

    def __init__(self):
        self.seconds, self.objects = {}, {"tests/unit/test_part": {"tests/unit/test_part.o"}}

    def of(self, change, text):
        return [("tests/unit/test_part", 0.1)] if change.function in ("twice", "half") else []


tree = Tree(".")
if sys.argv[2] == "list":
    for path in ("runtime/part/part.c", "runtime/part/part.h"):
        for change in changes_of(path, *tree.flags_of(path)):
            print(change.rule + ": " + change.key().split(":", 1)[1])
elif sys.argv[2] == "try":
    bench = Bench(tree, Known(), 40)
    for path in ("runtime/part/part.c", "runtime/part/part.h"):
        for change in changes_of(path, *tree.flags_of(path)):
            verdict, why = bench.attempt(change) or ("not C", "")
            print(verdict + ": " + change.key().split(":", 1)[1])
elif sys.argv[2] == "draw":
    urn = Urn(tree, sys.argv[3])
    for number in range(6):
        change = urn.number(number, 0)
        print(change.key() if change else "none")
elif sys.argv[2] == "again":
    urn, bench = Urn(tree, "1"), Bench(tree, Known(), 0)
    for key in ("runtime/part/part.c:twice: + -> -", "runtime/part/part.c:place: 0755 -> 0700",
                "runtime/part/part.c:twice: - -> +", "runtime/part/lost.c:twice: + -> -"):
        change, verdict, why = again(key, urn, bench, {})
        print(verdict, change is None or change.key() == key)
    print(*again(key, urn, bench, {key: "why"})[1:])
    key = "runtime/part/part.c:twice: + -> -"
    print(*again(key, urn, bench, {key: "nobody sees it"})[1:])
elif sys.argv[2] == "lines":
    os.makedirs("then/runtime/part", exist_ok=True)
    with open("then/runtime/part/part.c", "w") as out:
        out.write("a\nb\nc\nd\n")
    known = Known()
    known.then = "then"
    print([sorted(known.watched("runtime/part/part.c", text, line, line)) for text, line in
           (("a\nb\nc\nd\n", 3), ("new\na\nb\nc\nd\n", 4), ("a\nb\nnew\nc\nd\n", 3),
            ("a\nB\nc\nd\n", 2))])
    print(within([("a", 30), ("b", 5), ("c", 5)], 40), within([("a", 90), ("b", 1)], 40))
else:
    os.makedirs("build-changes", exist_ok=True)
    record = Record(".", "s")
    change = changes_of("runtime/part/part.c", *tree.flags_of("runtime/part/part.c"))[0]
    for number, verdict in enumerate(("found", "found later", "survived", "no effect")):
        record.add(number, change, verdict, "")
    print(record.table([0, 2]), Record(".", "s").table(range(4)))
END
small() { # WHAT...
    "$python" try.py "$ACCEL_SRC/tests/changes" "$@"
}

small list >changes 2>&1
is "$(sed 's/:.*//' changes | sort -u)" "arguments swapped
arithmetic
assignment dropped
call dropped
compare
condition negated
constant
flag dropped
logic
mode
one more
success returned" "every rule finds a place"
for change in 'call dropped: place: check(path) -> 0' \
    'call dropped: place: mkdir(path, 0755) -> 0' \
    'mode: place: 0755 -> 0700' 'compare: between: < -> <=' 'flag dropped: place: | 2 ->' \
    'arguments swapped: twice: -1000, 1000 -> 1000, -1000' 'arithmetic: half: / -> *' \
    'success returned: between: false -> true' 'success returned: place: st -> ACCEL_OK' \
    'one more: twice: sum -> (sum) + 1' 'constant: twice: 1000 -> (1000 + 1) #3' \
    'assignment dropped: twice: sum += 0 -> (void)0' \
    'condition negated: between: x < low -> !(x < low)' \
    'call dropped: twice: between(sum, -1000, 1000) -> 1'; do
    contains "$(cat changes)" "$change" "$change"
done

cksum runtime/part/* >before
small try >tried 2>&1
is "$(grep -c '^found: half' tried)" 0 "half of anything is at least 0: nothing notices"
for verdict in 'found: twice: + -> -' \
    'found: twice: between(sum, -1000, 1000) -> !(between(sum, -1000, 1000))' \
    'found: twice: -1000, 1000 -> 1000, -1000' 'no effect: twice: sum += 0 -> (void)0' \
    'survived: place: 0755 -> 0700' 'survived: twice: between(sum, -1000, 1000) -> 1'; do
    contains "$(cat tried)" "$verdict" "$verdict"
done
is "$(cksum runtime/part/*.[ch])" "$(grep '\.[ch]$' before)" "the source is as it was"
is "$(tests/unit/test_part)" "ok 1 - two and two
1..1" "and the program is linked of it again"

small draw 7 >first 2>&1
small draw 7 >again 2>&1
small draw 8 >other 2>&1
is "$(cat again)" "$(cat first)" "a seed draws the same changes again"
isnt "$(cat other)" "$(cat first)" "another seed draws others"
is "$(small again 2>&1)" "found later True
survived True
gone True
gone True
gone runtime/part/lost.c:twice: + -> -
no effect nobody sees it" "one that survived is tried by its name once more"
is "$(small lines)" "[[3], [3], [2, 3], [1, 2, 3]]
['a', 'b'] ['a']" \
    "lines are those that gcov saw, new ones go by their neighbours; tests fit the budget"
got=$(small table)
contains "$got" "50.0 66.66" \
    "the record goes on from piece to piece, and knows what was found later"
contains "$(echo "$got" | tr -s ' ')" "runtime/part 4 1 1 1 1" "a row per room"
done_testing
