#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes unicode_table.h: where the classes of code points change, for pretokenize.c and
# added_tokens.c. Needs the Unicode database in the version that the tokenizers library
# has, which may be newer than Python's own:
#     pip install unicodedata2==16.0.0; python3 unicode_table.py >unicode_table.h
import sys

VERSION = "16.0.0"
try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata
if unicodedata.unidata_version != VERSION:
    sys.exit(f"Unicode {VERSION} is wanted, this is {unicodedata.unidata_version}: "
             f"pip install unicodedata2=={VERSION}")

LETTER, NUMBER, SPACE, WORD = 1, 2, 4, 8
SPACES = {0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
          *range(0x09, 0x0E), 0x20, *range(0x2000, 0x200B)}  # White_Space
# Alphabetic but neither letter, mark nor number; and Join_Control.
ALSO_WORD = {0x200C, 0x200D, *range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A),
             *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A)}


def class_of(cp):
    if cp in SPACES:
        return SPACE
    category = unicodedata.category(chr(cp))
    if category[0] == "L":
        return LETTER | WORD
    if category[0] == "N":
        return NUMBER if category == "No" else NUMBER | WORD
    if category[0] == "M" or category == "Pc" or cp in ALSO_WORD:
        return WORD
    return 0


changes, before = [], 0
for cp in range(0x110000):
    now = class_of(cp)
    if now != before:
        changes.append(f"0x{cp << 4 | now:x},")
        before = now

print(f"""/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by unicode_table.py from Unicode {VERSION}; do not edit. Where the class of code
 * points changes: first code point << 4 | class, ascending; before the first it is 0.
 */
/* clang-format off */
static const uint32_t unicode_changes[] = {{""")
line = "   "
for change in changes:
    if len(line) + 1 + len(change) > 88:
        print(line)
        line = "   "
    line += " " + change
print(line)
print("};\n/* clang-format on */")
