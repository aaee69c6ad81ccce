# SPDX-License-Identifier: Apache-2.0
#
# What is wrong with the form of pages of `accel explain`, a line for each fault. In: files of
# one page each: three lines (title, status and exit status, meaning of the status), then the
# sections Why, Cure and See also, each of an empty line, its heading and its text.
#
#     awk -f message-form.awk PAGE...
function fault(what) { print page ": " what }
function section_ends() {
    if (heading == "Why" && last !~ /\.$/) fault("Why ends with \"" last "\"")
    if (heading != "" && (!lines || last ~ /[,;:]$/)) fault(heading " has no end")
    said[heading] = text
    text = ""
    lines = 0
}
function page_ends() {
    section_ends()
    if (order != " Why Cure See also") fault("sections" order)
    if (said["Why"] == said["Cure"]) fault("the cure is the reason")
    order = heading = ""
}
FNR == 1 && NR > 1 { page_ends() }
FNR == 1 { page = FILENAME }
FNR == 1 && !/^A0[0-9][0-9][0-9]: [^ ].*[^ .:]$/ { fault("title") }
FNR == 3 && !/^[a-z].*[^.:]$/ { fault("meaning of the status") }
FNR <= 3 { last = $0; next }
length > 78 { fault("wider than 78: " $0) }
/[^ -~]|[^ ]  | $/ { fault("blanks or signs: " $0) }
/^$/ { if (last == "") fault("two empty lines"); if (FNR > 4) section_ends() }
/^[^ ]/ { if (last != "") fault("no empty line before " $0); heading = $0; order = order " " $0 }
/^ / {
    if (heading == "" || last == "" || !/^  [^ ]/) fault("text in no section: " $0)
    if (!lines++ && !/^  [-A-Za-z`\/]/) fault(heading " begins with " $0)
    text = text $0
}
{ last = $0 }
END { page_ends() }
