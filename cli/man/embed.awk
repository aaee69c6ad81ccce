# SPDX-License-Identifier: Apache-2.0
#
# Templates as C strings, so that the program has them wherever it is installed: accel.1.in
# becomes template_accel_1. Out: C source with the constants of template.h. A template's own
# comment, its lines up to the first empty one, is left out.
#
#     awk -f embed.awk accel.1.in ... >templates.c
BEGIN {
    print "/* Made by embed.awk from the templates: do not edit. */"
    print "#include \"cli/man/template.h\""
}

FNR == 1 {
    name = FILENAME
    sub(/.*\//, "", name)
    sub(/\.in$/, "", name)
    gsub(/[^a-z0-9]/, "_", name)
    printf "%s\nconst char template_%s[] =", NR == 1 ? "" : ";\n", name
    text = 0
}

text {
    gsub(/\\/, "&&")
    gsub(/"/, "\\\"")
    printf "\n    \"%s\\n\"", $0
}

/^$/ { text = 1 }

END { print ";" }
