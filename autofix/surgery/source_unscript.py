"""Source without TorchScript: functions and modules that torch.jit.script compiles stay the Python that they are written in."""

from __future__ import annotations

import ast

import libcst as cst

from autofix.surgery.source_nodes import code_of

DECORATORS = frozenset({"script", "script_method", "script_if_tracing", "export"})
AROUND = frozenset({"freeze", "optimize_for_inference"})
"""Functions of torch.jit that take and give a scripted module."""
BASE, TYPED = "ScriptModule", "Attribute"
"""A base class whose methods are compiled, and what gives one of its attributes a type: Attribute(value, type)."""
KNOWN = DECORATORS | AROUND | {BASE, TYPED}


def jit_names(module: cst.Module) -> dict[str, str]:
    """{code by which a function of torch.jit is called in a file: its own name}, after the file's imports."""
    names = {f"torch.jit.{n}": n for n in KNOWN}

    class Imports(cst.CSTVisitor):
        def visit_Import(self, node: cst.Import) -> None:
            for alias in node.names:
                if alias.asname is not None and code_of(alias.name) in ("torch", "torch.jit"):
                    rest = ".jit." if code_of(alias.name) == "torch" else "."
                    names.update({code_of(alias.asname.name) + rest + n: n for n in KNOWN})

        def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
            if node.module is None or isinstance(node.names, cst.ImportStar):
                return
            for alias in node.names:
                known = code_of(alias.asname.name) if alias.asname is not None else code_of(alias.name)
                if code_of(node.module) == "torch" and code_of(alias.name) == "jit":
                    names.update({f"{known}.{n}": n for n in KNOWN})
                elif code_of(node.module) == "torch.jit" and code_of(alias.name) in KNOWN:
                    names[known] = code_of(alias.name)

    module.visit(Imports())
    return names


def module_class(module: cst.Module) -> str:
    """How a file may name torch.nn.Module after its imports, "" where it can't."""
    found = ""

    class Imports(cst.CSTVisitor):
        def visit_Import(self, node: cst.Import) -> None:
            nonlocal found
            for alias in node.names:
                name = code_of(alias.name)
                if alias.asname is None and name.split(".")[0] == "torch":
                    found = "torch.nn.Module"
                elif alias.asname is not None and name in ("torch", "torch.nn"):
                    found = found or code_of(alias.asname.name) + (".nn.Module" if name == "torch" else ".Module")

        def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
            nonlocal found
            if node.module is None or isinstance(node.names, cst.ImportStar):
                return
            for alias in node.names:
                name = f"{code_of(node.module)}.{code_of(alias.name)}"
                known = code_of(alias.asname.name) if alias.asname is not None else code_of(alias.name)
                if name in ("torch.nn", "torch.nn.Module"):
                    found = found or known + (".Module" if name == "torch.nn" else "")

    for line in module.body:  # what a function imports, other functions do not see
        if isinstance(line, cst.SimpleStatementLine):
            line.visit(Imports())
    return found


class Unscript(cst.CSTTransformer):
    """Takes away the decorators, the base class and the calls; lines keep their numbers."""

    def __init__(self, names: dict[str, str], plain_class: str = "") -> None:
        self.names, self.plain_class = names, plain_class

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        if not self.plain_class or not any(self.names.get(code_of(b.value)) == BASE for b in updated_node.bases):
            return updated_node
        plain = cst.parse_expression(self.plain_class)
        bases = [b.with_changes(value=plain) if self.names.get(code_of(b.value)) == BASE else b for b in updated_node.bases]
        return updated_node.with_changes(bases=bases)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        kept = [d for d in updated_node.decorators if self.names.get(code_of(d.decorator)) not in DECORATORS]
        gone = len(updated_node.decorators) - len(kept)
        if not gone:
            return updated_node
        blank = [cst.EmptyLine(indent=False)] * gone
        if kept:
            return updated_node.with_changes(decorators=kept, lines_after_decorators=[*blank, *updated_node.lines_after_decorators])
        lines = [*updated_node.leading_lines, *blank, *updated_node.lines_after_decorators]
        return updated_node.with_changes(decorators=[], leading_lines=lines, lines_after_decorators=[])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if self.names.get(code_of(original_node.func)) == TYPED and updated_node.args and not updated_node.args[0].star:
            return updated_node.args[0].value  # a plain module would keep the pair of value and type
        if not self.gives_script(original_node):
            return updated_node
        inner = updated_node.args[0].value
        return inner if self.names[code_of(original_node.func)] == "script" else cst.Call(cst.Attribute(inner, cst.Name("eval")))

    def gives_script(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is script(something), or freeze and the like around that."""
        if not isinstance(node, cst.Call) or not node.args or node.args[0].star or node.args[0].keyword is not None:
            return False
        name = self.names.get(code_of(node.func))
        return name == "script" or (name in AROUND and self.gives_script(node.args[0].value))


def unscript_text(text: str) -> str:
    """`text` without torch.jit.script, as decorator, as call and as base class, and without what is put around a scripted module (freeze)."""
    if "jit" not in text:
        return text
    module = cst.parse_module(text)
    return module.visit(Unscript(jit_names(module), module_class(module))).code


def lines_of_tests(text: str, functions: list[str]) -> list[int]:
    """The first lines of every test (if, while, conditional expression) in these functions, by qualified name.

    What a script's test reads can't be watched as it runs; one that turns out to be a plain bool is taken as such later.
    """
    found: set[int] = set()

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and prefix + node.name in functions:
                found.update(n.test.lineno for n in ast.walk(node) if isinstance(n, (ast.If, ast.While, ast.IfExp)))

    walk(ast.parse(text).body, "")
    return sorted(found)
