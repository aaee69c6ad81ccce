# SPDX-License-Identifier: Apache-2.0
#
# Reads the first file, what tables.c prints, and the templates, the files NAME.in; leaves all
# others to header.awk. Out: row and rows, the fields of the rows of a kind and their number; list,
# the names of a kind, a line each; template and template_lines.

function command(c, field) { return row["command", c, field] }
function option(o, field) { return row["option", o, field] }
function key(k, field) { return row["key", k, field] }

# Words that a key takes and refuses, and options, belong to the key or the command before them.
NR == FNR {
    n = ++rows[$1]
    for (i = 2; i <= NF; i++) {
        gsub(/\f/, "\n", $i)
        at = index($i, "=")
        row[$1, n, substr($i, 1, at - 1)] = substr($i, at + 1)
    }
    name = row[$1, n, "name"]
    list[$1] = list[$1] (n > 1 ? "\n" : "") name
    if ($1 == "value" || $1 == "refused")
        row["key", rows["key"], $1] = row["key", rows["key"], $1] " " name
    if ($1 == "command")
        row["command", n, "first"] = rows["option"] + 1
    if ($1 == "option") # the last of a command is --help
        row["command", rows["command"], "last"] = n
    next
}

# A template's own comment, its lines up to the first empty one, is left out.
FILENAME ~ /\.in$/ {
    if (FNR == 1) {
        name = FILENAME
        gsub(/.*\/|\.in$/, "", name)
        begun = 0
    }
    if (begun)
        template[name, ++template_lines[name]] = $0
    begun = begun || $0 == ""
    next
}
