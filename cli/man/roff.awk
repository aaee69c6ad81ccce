# SPDX-License-Identifier: Apache-2.0
#
# Writer of man(7) markup into the file that `out` names. Text is escaped, so that no word of a
# table can become a request or lose its hyphens. It tracks the beginning of lines, where '.' and
# ' would be requests.
BEGIN {
    # Lines of the source break here. roff fills again; this is for diffs of pages.
    FILL_COLUMN = 66
}

function put(s) { printf "%s", s >out }

# roff typesets these signs; pages are copied from, so they must stay ASCII.
function escaped(word) {
    gsub(/\\/, "\\e", word)
    gsub(/-/, "\\-", word)
    gsub(/~/, "\\(ti", word)
    gsub(/\^/, "\\(ha", word)
    gsub(/'/, "\\(aq", word)
    gsub(/`/, "\\(ga", word)
    return word
}

# Bytes up to the next space or line end.
function word_length(s) { return match(s, /[ \n]/) ? RSTART - 1 : length(s) }

# Words inside a line. A space becomes a line end where the next word makes the line too long; a
# line end at the beginning of a line would be an empty line.
function text(s,    n, word) {
    while (s != "") {
        after_heading = 0
        n = word_length(s)
        word = substr(s, 1, n ? n : 1)
        s = substr(s, length(word) + 1)
        if (word == "\n" || (word == " " && filling && column + word_length(s) > FILL_COLUMN)) {
            end_line()
            continue
        }
        # \& prints nothing and keeps the sign from being a request.
        put((line_start && word ~ /^[.']/ ? "\\&" : "") escaped(word))
        column += length(word)
        line_start = 0
    }
}

function end_line() {
    if (!line_start)
        put("\n")
    line_start = 1
    column = 0
}

# Markup as it stands: what a template has between its places. "\-" is one sign.
function markup(s) {
    if (s == "")
        return
    put(s)
    line_start = s ~ /\n$/
    after_heading = s ~ /^\.S[HS].*\n$/
    gsub(/\\/, "", s)
    column = line_start ? 0 : column + length(s)
}

# A request or macro, which stands at the beginning of a line.
function request(s) {
    end_line()
    put(s "\n")
}

# \f needs no beginning of a line, but hides one: an escape in front makes a dot harmless.
function in_font(font, s) {
    put("\\f" font)
    line_start = 0
    text(s)
    put("\\fR")
}
function bold(s) { in_font("B", s) }
function italic(s) { in_font("I", s) }

# An argument in quotation marks: it must stay one line, however long. After it the next paragraph
# needs no request.
function heading(macro, words) {
    end_line()
    put(macro " \"")
    line_start = filling = 0
    text(words)
    put("\"\n")
    line_start = after_heading = filling = 1
    column = 0
}

# Begins a paragraph that words will fill. After a heading man(7) does it by itself.
function form() {
    if (!after_heading)
        request(".PP")
}

# Empty text prints nothing. Line ends inside are breaks.
function paragraph(s,    line, n, i) {
    if (s == "")
        return
    form()
    n = split(s, line, "\n")
    for (i = 1; i <= n; i++) {
        text(line[i] "\n")
        if (i < n)
            request(".br")
    }
}

# Opens a tagged paragraph: what is printed until end_tag is the tag, one line however long; what
# follows up to the next is its text.
function tag() {
    request(".TP")
    filling = 0
}
function end_tag() {
    end_line()
    filling = 1
}
function bold_tag(s) {
    tag()
    bold(s)
    end_tag()
}

# Lines between two requests, unfilled.
function kept(begin, lines, end) {
    form()
    request(".nf")
    request(begin)
    filling = 0
    text(lines "\n")
    filling = 1
    request(end)
    request(".fi")
}
function example(lines) { kept(".RS 4", lines, ".RE") }
function code_lines(lines) { kept(".ft B", lines, ".ft R") }
