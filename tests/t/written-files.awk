# SPDX-License-Identifier: Apache-2.0
#
# For tests/t/8030-written-files.t: its table and a log of tests/faults/disklog.c come in, with the
# test's directory (tmp) and a umask (mask); what breaks a row goes out, a line each, and "row N"
# and "event NAME" for what was met.
function without(mode,   i, d, m, out) { # a mode less the umask; "=": it stays
    if (sub("^=", "", mode)) return mode
    for (i = 1; i <= 3; i++) {
        d = substr(mode, i, 1); m = substr(mask, i, 1); out = out less(d, m)
    }
    return out
}
function less(d, m,   bit, n) {
    for (bit = 4; bit >= 1; bit /= 2) {
        if (d >= bit && m < bit) n += bit
        if (d >= bit) d -= bit
        if (m >= bit) m -= bit
    }
    return n + 0
}
function row_of(path,   i) {
    for (i = 1; i <= rows; i++) if (path ~ "^" ere[i] "$") return i
    return 0
}
function above(path) { return match(path, "/[^/]*$") ? substr(path, 1, RSTART - 1) : "." }
# What is below a directory goes with it.
function carry(from, to,   p) {
    for (p in kind) if (p == from || index(p, from "/") == 1) moved[p] = to substr(p, length(from) + 1)
    for (p in moved) {
        new_kind[moved[p]] = kind[p]; new_raw[moved[p]] = raw[p]; new_unnamed[moved[p]] = unnamed[p]
        delete kind[p]; delete raw[p]; delete unnamed[p]; delete moved[p]
    }
}
function settle(   p) {
    for (p in new_kind) { kind[p] = new_kind[p]; raw[p] = new_raw[p]; unnamed[p] = new_unnamed[p] }
    split("", new_kind); split("", new_raw); split("", new_unnamed)
}
function top(path) { sub("/.*", "", path); return path }
function step_of(path) { # of a checkpoint that is made; its owner is after a dot
    sub("^.*/\\.(tmp|trash-local|local)-", "", path)
    return path
}
# Does what happens to `from` rely on `p`? Other saves and later lines are under way.
function relies(deep, p, from,   step) {
    step = step_of(from)
    if (deep == 1) return 1
    if (deep == 2) return p ~ "/checkpoints/step_" || p ~ "^merged" || p ~ "/retention$" && from ~ "^out/.*/step_"
    if (p !~ "/(\\.tmp-)?step_") return !staged[step] && top(p) == top(from)
    return p == from || index(p, from "/") == 1 || p ~ "^node/" && index(p "/", "/" step "/")
}
function part_of(path) { # step_N.OWNER of a record, or of a file of the part itself
    gsub("^.*/(\\.local-)?step_|@[^/]*$|/rank_[^/]*$", "", path)
    return "step_" path
}
# Everything that has to be durable now, and was written before the last commit. A part may go
# once its record was put aside, so what has got its name since then does not count.
function look(event, deep, from,   p, r, last) {
    seen[event]++
    last = from ~ "^node/" && part_of(from) in aside ? aside[part_of(from)] : commits + 1
    for (p in kind) {
        r = row_of(p)
        if (!r || level[when[r]] < deep || when[r] == "save" && deep != 3 || !relies(deep, p, from)) continue
        if (raw[p] && (deep != 2 || raw[p] <= commits)) fault("contents of", p, event)
        if (unnamed[p] && unnamed[p] <= last) fault("name of", p, event)
    }
}
function fault(what, p, event) {
    gsub(/[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]*/, "N", p)
    if (!told[what, p, event]++) print "not durable " event ": " what " " p
}
BEGIN { level["save"] = level["commit"] = 3; level["delete"] = 2; level["end"] = 1; level["never"] = 0 }
NR == FNR {
    if ($1 ~ /^- /) next
    rows++; ere[rows] = $1; want_kind[rows] = $2; mode[rows] = $3; when[rows] = $4
    next
}
$1 == "end" { look("at the end of " $2, 1); next }
{ for (i = 2; i <= NF; i++) if (index($i, tmp) == 1) $i = substr($i, length(tmp) + 1) }
$1 == "make" {
    r = row_of($4)
    if (!r) { print "no row for " $4; next }
    if (!used[r]++) print "row " r
    if (mode[r] != "-" && $2 != "link" && $3 != without(mode[r])) later[$4] = $3
    if ($2 != want_kind[r] && want_kind[r] != "-") print $4 " is a " $2
    kind[$4] = $2; unnamed[$4] = commits + 1; raw[$4] = 0
}
$1 == "mode" { if ($2 == without(mode[row_of($3)])) delete later[$3]; else later[$3] = $2 }
$1 == "link" { raw[$3] = raw[$2] }
$1 == "write" && $2 in kind { if (!raw[$2]) raw[$2] = commits + 1 }
$1 == "sync" {
    raw[$2] = 0
    for (p in kind) if (above(p) == $2 || $2 "/" == tmp && p !~ "/") unnamed[p] = 0
}
$1 == "name" || $1 == "swap" {
    if ($3 ~ "/(\\.local-)?step_[^/]*$") {
        look("when a checkpoint gets its name", 3, $2)
        commits++
        staged[step_of($2)] = $3 ~ "/\\.local-"
        delete aside[part_of($3)]
    }
    if ($3 in kind && $1 == "name" && raw[$2]) fault("contents of", $2, "when it replaces another")
    if ($3 ~ "/latest$") look("when latest is set", 2, "latest")
    if ($3 ~ "/\\.trash-") look("when something is deleted", 2, $2)
    if ($2 ~ "/\\.local-" && $3 ~ "/\\.trash-") aside[part_of($2)] = commits
    if ($1 == "swap") carry($3, $2)
    carry($2, $3)
    settle()
    if ($3 in kind) unnamed[$3] = commits + ($3 !~ "/(\\.local-)?step_[^/]*$")
    if ($1 == "swap" && $2 in kind) unnamed[$2] = unnamed[$3]
    if ($2 in later) { later[$3] = later[$2]; delete later[$2] }
}
$1 == "drop" {
    if ($2 ~ "^node/.*/rank_") look("when a part is deleted", 2, $2)
    delete kind[$2]; delete raw[$2]; delete unnamed[$2]
}
END {
    for (p in later) print "mode " later[p] " of " p ", not " without(mode[row_of(p)])
    for (e in seen) print "event " e
}
