"""Import the code of a reference repository as it is, from the user's clone, beside ours.

Their modules have names of ours (datasets, models, ...), so each clone's modules live in a world
of their own: they are in `sys.modules` only while something is imported, and ours return after.

What today's libraries no longer have, and what a machine without a GPU has not, is put in its
place while their code runs (`Clone.running`); packages that they import but the compared functions
do not use are empty stand-ins.
"""

import collections
import collections.abc
import contextlib
import importlib
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import scipy.ndimage
import torch


class Missing(Exception):
    """Something that a comparison needs is not there: it is skipped by this name."""


class StandIn(ModuleType):
    """A module that has every name, each a class that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (Nothing,), {})
        setattr(self, name, made)
        return made


class Nothing:
    def __init__(self, *args: Any, **kwargs: Any):
        pass


class Clone:
    """A folder of Python files in a reference repository.

    Arguments:
        root: the user's clone; None if there is none.
        folder: below it, where their code is run from.
        stand_ins: names of modules that are imported but not used.
        given: {name: module} of small replacements.
        bare: packages whose __init__ is not run, for it imports what is not installed.
    """

    def __init__(
        self,
        root: Path | None,
        folder: str = ".",
        stand_ins: Sequence[str] = (),
        given: Mapping[str, ModuleType] | None = None,
        bare: Sequence[str] = (),
    ):
        if root is None:
            raise Missing("no clone given")
        self.folder = (Path(root) / folder).resolve()
        if not self.folder.is_dir():
            raise Missing(f"no folder {folder}")
        self.modules: dict[str, ModuleType] = {name: StandIn(name) for name in stand_ins}
        self.modules |= dict(given or {})
        for name in bare:
            package = ModuleType(name)
            package.__path__ = [str(self.folder / name.replace(".", "/"))]
            self.modules[name] = package
        for name, module in self.modules.items():
            parent, _, child = name.rpartition(".")
            if parent in self.modules:
                setattr(self.modules[parent], child, module)
        self.names = {path.stem for path in self.folder.iterdir() if path.suffix in ("", ".py")}
        self.names |= {name for name in self.modules if "." not in name}

    def load(self, name: str, argv: Sequence[str] = ()) -> Any:
        """One of their modules; `argv` is what a script that reads its arguments at once sees."""
        with self.imports(), self.running(), mock.patch.object(sys, "argv", [name, *argv]):
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                what, asked = f"no module {error.name}", str(name).startswith(str(error.name))
                raise Missing(what if asked else f"{what}, which its {name} needs") from error

    @contextlib.contextmanager
    def imports(self) -> Iterator[None]:
        """Their modules in the place of ours."""

        def taken() -> dict[str, ModuleType]:
            named = self.names.__contains__
            given = self.modules.__contains__
            items = list(sys.modules.items())
            return {k: m for k, m in items if named(k.partition(".")[0]) or given(k)}

        ours = taken()
        for name in ours:
            del sys.modules[name]
        sys.modules.update(self.modules)
        sys.path.insert(0, str(self.folder))
        importlib.invalidate_caches()
        handlers, level = logging.root.handlers[:], logging.root.level
        try:
            yield
        finally:
            sys.path.remove(str(self.folder))
            self.modules = taken()
            for name in self.modules:
                del sys.modules[name]
            sys.modules.update(ours)
            for handler in set(logging.root.handlers) - set(handlers):
                handler.close()
            logging.root.handlers[:] = handlers
            logging.root.setLevel(level)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """What old code needs today; whatever it prints or warns of is its own affair."""
        with contextlib.ExitStack() as stack:
            for target, name, value in OLD:
                stack.enter_context(mock.patch.object(target, name, value, create=True))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            quiet = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(quiet))
            stack.enter_context(contextlib.redirect_stderr(quiet))
            yield


def _on_the_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        return make(*args, **kwargs)

    return made


def _itself(thing: Any, *args: Any, **kwargs: Any) -> Any:
    return thing


# (where, name, what it is today): names that NumPy, SciPy and Python have removed, and CUDA calls.
OLD: list[tuple[Any, str, Any]] = [
    (np, "float", float),
    (np, "int", int),
    (np, "bool", bool),
    (collections, "Iterable", collections.abc.Iterable),
    (scipy.ndimage, "interpolation", SimpleNamespace(rotate=scipy.ndimage.rotate)),
    (torch.Tensor, "cuda", _itself),
    (torch.nn.Module, "cuda", _itself),
    (torch, "tensor", _on_the_cpu(torch.tensor)),
]


def commit(root: Path) -> str | None:
    """The commit of a clone, where git knows it."""
    command = ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        top, commit = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return commit if Path(top).resolve() == Path(root).resolve() else None
