"""The version of the code behind a run: a hash of all definitions that it can reach.

It starts from what the config names and from the loop, and follows the imports inside the project
(and inside the package of a trusted class). What cannot change a number is left out: comments,
docstrings, annotations, the texts of errors, import lines, the names of files and the order of
definitions. So a file may be renamed, split or formatted without a run being lost, while a changed
constant, formula or default makes the runs that reach it again. The price is that a mere rewrite
counts, too: that it gives the same numbers is for tests to show, not for a cache to guess.
"""

import ast
import functools
import hashlib
import importlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.cli import targets

OWN = ("datasets", "engine", "losses", "metrics", "models")
ALWAYS = ("engine.training.loop",)
# These tell, keep and find what a run makes; they do not make it.
ASIDE = (
    *("datasets.io.files", "datasets.io.manifest", "datasets.io.arrays"),
    *(
        "engine",
        "engine.runs.code",
        "engine.training.log",
        "engine.runs.provenance",
        "engine.runs.records",
        "engine.runs.run",
    ),
    *(
        "engine.cli.rules",
        "engine.runs.folder",
        "engine.cli.settings",
        "engine.cli.signatures",
        "engine.cli.targets",
    ),
)
TABLES = "engine.tables"  # nor does anything in there


def version(names: Iterable[str]) -> str:
    """A hash of the definitions behind these classes and functions, and behind the loop."""
    definitions = sorted({text for module in reached(names) for text in _read(module)[0]})
    return hashlib.sha256("\n".join(definitions).encode()).hexdigest()


def reached(names: Iterable[str]) -> set[str]:
    """The modules behind them."""
    found: set[str] = set()
    names = list(names)
    waiting = [*ALWAYS, *(_home(name) for name in names)]
    packages = {*OWN, *(name.split(".")[0] for name in names if name not in targets.NAMES)}
    while waiting:
        module = waiting.pop()
        own = module.split(".")[0] in packages
        if module in found or module in ASIDE or module.startswith(TABLES) or not own:
            continue
        found.add(module)
        waiting += _read(module)[1]
    return found


def _home(name: str) -> str:
    """The module that defines what has this name; others' packages count by their names alone."""
    return getattr(targets.find(name, [name]), "__module__", None) or name.rpartition(".")[0]


@functools.cache
def _read(module: str) -> tuple[list[str], list[str]]:
    """The definitions of a module as normalised text, and the modules that it imports."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return [], []
    tree = ast.parse(Path(spec.origin).read_text())
    imports = [name for node in ast.walk(tree) for name in _imported(node, spec.parent)]
    body: list[Any] = _Meaning().visit(tree).body
    return [ast.unparse(node) for node in body], imports


def _imported(node: ast.AST, package: str | None) -> list[str]:
    """The modules that a statement in a module of this package imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        relative = "." * node.level + (node.module or "")
        module = importlib.util.resolve_name(relative, package)
        return [_origin(module, alias.name) for alias in node.names]
    return []


def _origin(module: str, name: str) -> str:
    """Where `from module import name` really comes from: a package may only hand it on."""
    if module.split(".")[0] not in OWN:
        return module
    try:
        if importlib.util.find_spec(f"{module}.{name}") is not None:
            return f"{module}.{name}"
    except ModuleNotFoundError:
        pass  # the module is no package
    return getattr(getattr(importlib.import_module(module), name, None), "__module__", module)


class _Meaning(ast.NodeTransformer):
    """Leaves what can change a number."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise(exc=None, cause=None)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=node.arg, annotation=None)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node = self.generic_visit(node)  # pyright: ignore[reportAssignmentType]
        node.annotation = ast.Constant(value=None)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _text(one)]  # pyright: ignore
            if not node.body and not isinstance(node, ast.Module):  # pyright: ignore
                node.body = [ast.Pass()]  # pyright: ignore
        return node


def _text(node: ast.AST) -> bool:
    """Whether a statement is nothing but a text, as a docstring is."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
