"""Import the code of a reference repository unchanged, from the user's clone, next to ours.

Their modules have names of ours (datasets, models, ...), so they are in `sys.modules` only while
one of them is imported. Packages that they import but the compared functions do not use are
replaced by empty modules, removed names of libraries by today's, CUDA calls by the CPU.
"""

import collections
import collections.abc
import contextlib
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import scipy
import scipy.ndimage
import smplx.body_models
import torch
import yaml
from PIL import Image
from smplx.utils import SMPLOutput

STUBS = yaml.safe_load((Path(__file__).parent / "stubs.yaml").read_text())


class Missing(Exception):
    """A file or package that a comparison needs is missing; the comparison is skipped."""


class Empty(ModuleType):
    """A module that has every name; each is a class that does nothing, unless it is given."""

    def __init__(self, name: str, **given: Any):
        super().__init__(name)
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": lambda self, *args, **kwargs: None})
        setattr(self, name, made)
        return made


class Clone:
    """A folder of Python files in a reference repository.

    Arguments:
        root: the user's clone.
        folder: the folder below it that their code is run from.
        stubs: the entry of stubs.yaml; otherwise the one of the folder.
        given: modules that replace theirs.
    """

    def __init__(self, root: Path, folder: str, stubs: str = "", given: Sequence[Any] = ()):
        self.folder = (root / folder).resolve()
        if not self.folder.is_dir():
            raise Missing(f"no folder {folder}")
        stub = STUBS.get(stubs or folder.partition("/")[0], {})
        self.modules: dict[str, Any] = {name: Empty(name) for name in stub.get("empty", ())}
        self.modules |= {module.__name__: module for module in given}
        for name in stub.get("bare", ()):
            self.modules[name] = package = ModuleType(name)
            package.__path__ = [str(self.folder / name.replace(".", "/"))]
        for name, module in self.modules.items():
            parent, _, child = name.rpartition(".")
            if parent in self.modules:
                setattr(self.modules[parent], child, module)
        self.names = {path.stem for path in self.folder.iterdir() if path.suffix in ("", ".py")}
        self.names |= {name for name in self.modules if "." not in name}

    def load(self, name: str, argv: Sequence[str] = ()) -> Any:
        """Import one of their modules; `argv`: the arguments of a script that parses them."""
        with self.imports(), old_environment(), mock.patch.object(sys, "argv", [name, *argv]):
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                needed = "" if name.startswith(str(error.name)) else f", which its {name} needs"
                raise Missing(f"no module {error.name}{needed}") from error

    @contextlib.contextmanager
    def imports(self) -> Iterator[None]:
        """Replace our modules by theirs."""
        ours = self._pop()
        sys.modules.update(self.modules)
        sys.path.insert(0, str(self.folder))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(str(self.folder))
            self.modules = self._pop()
            sys.modules.update(ours)

    def _pop(self) -> dict[str, ModuleType]:
        """Remove all modules from `sys.modules` that have a name of theirs."""
        own = [x for x in sys.modules if x.partition(".")[0] in self.names or x in self.modules]
        return {name: sys.modules.pop(name) for name in own}


@contextlib.contextmanager
def old_environment() -> Iterator[None]:
    """Restore removed names of libraries; suppress CUDA, output, warnings and log handlers."""
    with contextlib.ExitStack() as stack:
        for target, name, value in OLD:
            stack.enter_context(mock.patch.object(target, name, value, create=True))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        quiet = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(quiet))
        stack.enter_context(contextlib.redirect_stderr(quiet))
        yield


def _image(array: np.ndarray) -> Image.Image:
    """Convert an array as SciPy 1.2 did: bytes unchanged, other numbers stretched to 0..255."""
    if array.dtype != np.uint8:
        low, high = array.min(), array.max()
        array = (array - low) * (255.0 / ((high - low) or 1)) + 0.5
        array = array.clip(0, 255).astype(np.uint8)
    return Image.fromarray(array)


LINEAR = Image.Resampling.BILINEAR
MISC = Empty(
    "scipy.misc",
    imrotate=lambda array, angle: np.array(_image(array).rotate(angle, resample=LINEAR)),
    imresize=lambda array, size: np.array(_image(array).resize(size[::-1], LINEAR)),
)
_tensor = torch.tensor
OLD: list[tuple[Any, str, Any]] = [  # (owner, name, replacement)
    (np, "float", float),
    (np, "int", int),
    (np, "bool", bool),
    (collections, "Iterable", collections.abc.Iterable),
    (logging, "basicConfig", lambda **options: None),
    (scipy, "misc", MISC),
    (scipy.ndimage, "interpolation", SimpleNamespace(rotate=scipy.ndimage.rotate)),
    (smplx.body_models, "ModelOutput", SMPLOutput),
    (torch.Tensor, "cuda", lambda tensor, *args, **kwargs: tensor),
    (torch.nn.Module, "cuda", lambda module, *args, **kwargs: module),
    (torch, "tensor", lambda *args, device=None, **kwargs: _tensor(*args, **kwargs)),
]
