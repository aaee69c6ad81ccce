# SPDX-License-Identifier: Apache-2.0
#
# Places of C source where one small change can be made, found in clang's syntax tree. In: a
# file and the flags that it is compiled with. Out: a list of changes, each a piece of text
# and what takes its place. Nothing is written.
"""Changes of a C file by rule."""

import os
import re

from clang.cindex import CursorKind as Kind, Index, TranslationUnit, TypeKind

COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
LOGIC = {"&&": "||", "||": "&&"}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<"}
NUMBERS = (TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.LONGLONG,
           TypeKind.ULONGLONG, TypeKind.SHORT, TypeKind.USHORT, TypeKind.UCHAR,
           TypeKind.SCHAR)
STATUS = "accel_status_t"
CONDITIONS = {Kind.IF_STMT: 0, Kind.WHILE_STMT: 0, Kind.DO_STMT: 1, Kind.CONDITIONAL_OPERATOR: 0}
BLOCKS = (Kind.COMPOUND_STMT, Kind.IF_STMT, Kind.FOR_STMT, Kind.WHILE_STMT, Kind.CASE_STMT,
          Kind.DEFAULT_STMT, Kind.LABEL_STMT)
FUNCTIONS = (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE, Kind.CXX_METHOD, Kind.CONSTRUCTOR)
SCOPES = (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL, Kind.STRUCT_DECL,
          Kind.CLASS_TEMPLATE)


class Change:
    """`old` at byte `at` of `path` becomes `new`; `rule` says by which rule."""

    def __init__(self, path, line, at, old, new, rule, function):
        self.path, self.line, self.at, self.old, self.new = path, line, at, old, new
        self.rule, self.function, self.again = rule, function, 1

    def key(self):
        """Names the change by its text: other lines may come and go. Those that are alike
        within a function are counted."""
        squeeze = lambda s: re.sub(r"\s+", " ", s.strip())
        count = f" #{self.again}" if self.again > 1 else ""
        return f"{self.path}:{self.function}: {squeeze(self.old)} -> {squeeze(self.new)}{count}"


class Finder:
    """Walks the functions that a file defines."""

    def __init__(self, path, text, unit):
        self.path, self.text, self.unit = path, text, unit
        self.names = {}     # as clang spells files -> whether it is this one
        self.function, self.returns, self.found = "", None, []

    # ---- text ------------------------------------------------------------------------

    def inside(self, node):
        """Is all of the node's text in the file itself?"""
        start, end = node.extent.start, node.extent.end
        return self.is_own(start.file) and self.is_own(end.file) and start.offset < end.offset

    def is_own(self, file):
        if file is None:
            return False
        if file.name not in self.names:
            self.names[file.name] = os.path.normpath(file.name) == self.path
        return self.names[file.name]

    def of(self, node):
        return self.text[node.extent.start.offset:node.extent.end.offset].decode()

    def add(self, rule, start, end, new):
        old = self.text[start:end].decode()
        if old != new:
            line = self.text.count(b"\n", 0, start) + 1
            self.found.append(Change(self.path, line, start, old, new, rule, self.function))

    def replace(self, rule, node, new):
        if self.inside(node):
            self.add(rule, node.extent.start.offset, node.extent.end.offset, new)

    # ---- rules -----------------------------------------------------------------------

    def operator(self, node):
        """Of two operands: the operator stands between them, unless a macro made it."""
        parts = list(node.get_children())
        if len(parts) != 2 or not self.inside(parts[0]) or not self.inside(parts[1]):
            return
        start, end = parts[0].extent.end.offset, parts[1].extent.start.offset
        between = self.text[start:end].decode() if start < end else ""
        name = between.strip()
        at = start + between.index(name) if name else start
        for rule, table in (("compare", COMPARE), ("logic", LOGIC),
                            ("arithmetic", ARITHMETIC)):
            if name in table:
                self.add(rule, at, at + len(name), table[name])
        if name == "|":
            self.add("flag dropped", start, parts[1].extent.end.offset, "")

    def literal(self, node):
        text = self.of(node)
        if re.fullmatch(r"0[0-7]{3,}", text):
            value = int(text, 8)
            self.replace("mode", node, f"0{value ^ 0o55 if value & 0o100 else value ^ 0o44:o}")
        elif re.fullmatch(r"(?:0x[0-9a-fA-F]+|\d+)[uUlL]*", text):
            self.replace("constant", node, f"({text} + 1)")
        elif re.fullmatch(r"[\d.]+(?:[eE][-+]?\d+)?[fF]?", text):
            self.replace("constant", node, f"({text} * 2 + 1)")

    def call(self, node, parent):
        result = node.type.spelling
        if parent.kind in BLOCKS:
            return self.replace("call dropped", node, "(void)0")
        if result == STATUS or (node.type.kind == TypeKind.INT and self.is_system(node)):
            self.replace("call dropped", node, "0")
        elif result in ("_Bool", "bool"):
            self.replace("call dropped", node, "1")
        return None

    @staticmethod
    def is_system(node):
        callee = node.referenced
        where = callee.location.file if callee is not None else None
        return where is not None and os.path.isabs(where.name) and "/include/" in where.name

    def arguments(self, node):
        args = [a for a in node.get_arguments() if a is not None and self.inside(a)]
        for a, b in zip(args, args[1:]):
            if a.type.get_canonical().spelling == b.type.get_canonical().spelling \
                    and self.of(a) != self.of(b) and a.extent.end.offset < b.extent.start.offset:
                start, end = a.extent.start.offset, b.extent.end.offset
                middle = self.text[a.extent.end.offset:b.extent.start.offset].decode()
                self.add("arguments swapped", start, end, self.of(b) + middle + self.of(a))
        for a in args:
            if a.type.get_canonical().kind in NUMBERS and not self.of(a)[0].isdigit():
                self.replace("one more", a, f"({self.of(a)}) + 1")

    def result(self, node):
        value = next(node.get_children(), None)
        if value is None or not self.inside(value):
            return
        if self.returns == STATUS and self.of(value) not in ("ACCEL_OK", "0"):
            self.replace("success returned", value, "ACCEL_OK")
        elif self.returns in ("_Bool", "bool") and self.of(value) in ("true", "false"):
            self.replace("success returned", value,
                         "false" if self.of(value) == "true" else "true")

    def condition(self, node):
        parts = list(node.get_children())
        at = CONDITIONS[node.kind]
        if at < len(parts) and self.inside(parts[at]):
            self.replace("condition negated", parts[at], f"!({self.of(parts[at])})")

    def statement(self, node):
        """An assignment or a step that stands alone."""
        text = self.of(node)
        if node.kind == Kind.BINARY_OPERATOR and not re.search(r"(?<![=!<>])=(?!=)", text):
            return
        self.replace("assignment dropped", node, "(void)0")

    # ---- the walk --------------------------------------------------------------------

    def visit(self, node, parent):
        if not self.inside(node):
            return
        if node.kind == Kind.BINARY_OPERATOR:
            self.operator(node)
        if node.kind in (Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL):
            self.literal(node)
        if node.kind == Kind.CALL_EXPR:
            self.call(node, parent)
            self.arguments(node)
        if node.kind == Kind.RETURN_STMT:
            self.result(node)
        if node.kind in CONDITIONS:
            self.condition(node)
        if parent.kind in BLOCKS and node.kind in (
                Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR, Kind.UNARY_OPERATOR) \
                and (parent.kind != Kind.IF_STMT or not self.is_condition(node, parent)):
            self.statement(node)
        for part in node.get_children():
            self.visit(part, node)

    @staticmethod
    def is_condition(node, parent):
        return next(parent.get_children()) == node

    def functions(self, scope):
        for node in scope.get_children():
            if node.kind in SCOPES and self.inside(node):
                self.functions(node)
            elif node.kind in FUNCTIONS and node.is_definition() and self.inside(node):
                self.function, self.returns = node.spelling, node.result_type.spelling
                for part in node.get_children():
                    if part.kind == Kind.COMPOUND_STMT:
                        self.visit(part, part)


def changes_of(path, shown_by, flags):
    """All changes of the functions that the file defines; shown_by is the source that includes
    it, or the file itself."""
    with open(path, "rb") as source:
        text = source.read()
    unit = Index.create().parse(shown_by, args=flags, options=TranslationUnit.PARSE_NONE)
    worst = [d for d in unit.diagnostics if d.severity >= 3]
    if worst:
        raise ValueError(f"{path}: {worst[0].spelling}")
    finder = Finder(path, text, unit)
    finder.functions(unit.cursor)
    seen = {}
    for change in finder.found:
        key = change.key()
        change.again = seen[key] = seen.get(key, 0) + 1
    return finder.found


if __name__ == "__main__":
    import sys

    for change in changes_of(sys.argv[1], sys.argv[1], sys.argv[2:]):
        print(f"{change.line}: {change.rule}: {change.key()}")
