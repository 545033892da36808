"""The settings of a node with `_target_`, against what that class or function takes.

Its parameters are the allowed names, its annotations the allowed kinds: what is checked is what the
code says, so no list has to be kept.
"""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.cli import targets

HYDRA = ("_target_", "_partial_", "_args_")
SEPARATE = ("loss.weights",)  # goes to the task, see engine/training/build.py


def problems(plain: Any, trust: targets.Trust = None, prefix: str = "") -> Iterator[str]:
    """What nodes with `_target_` hold, against what their targets take."""
    if isinstance(plain, list):
        for index, item in enumerate(plain):
            yield from problems(item, trust, f"{prefix}.{index}")
    if not isinstance(plain, dict):
        return
    if isinstance(plain.get("_target_"), str):
        yield from _arguments(plain, trust, prefix)
    for key, value in plain.items():
        yield from problems(value, trust, f"{prefix}.{key}" if prefix else str(key))


def _arguments(node: dict, trust: targets.Trust, prefix: str) -> Iterator[str]:
    target = targets.find(node["_target_"], trust)
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return
    try:
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError, AttributeError):
        hints = {}
    if "_args_" in node:
        named = {k: v for k, v in node.items() if k in parameters}
        try:
            inspect.signature(target).bind_partial(*node["_args_"], **named)
        except TypeError as error:
            yield f"{prefix}._args_: {node['_target_']} cannot take {node['_args_']}: {error}."
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for key, value in node.items():
        if key in HYDRA:
            continue
        where = f"{prefix}.{key}" if prefix else key
        if key not in parameters and not open_ended and where not in SEPARATE:
            yield f"{where}: {node['_target_']} takes no {key}.{nearest(key, list(parameters))}"
        elif key in hints and not _fits(hints[key], value):
            yield f"{where}: expected {_words(hints[key])}; got {value!r}."


def nearest(name: Any, known: Sequence[str]) -> str:
    """` Did you mean ...?`, if something is near."""
    found = difflib.get_close_matches(str(name), list(known), 1)
    return f" Did you mean {found[0]}?" if found else ""


def _fits(hint: Any, value: Any) -> bool:
    """Whether a config's value can be what an annotation says; what cannot be told fits."""
    if isinstance(value, dict) and "_target_" in value:
        return True
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(one, value) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(value, list)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict)
    tests: dict[Any, Callable[[Any], bool]] = {
        bool: lambda v: isinstance(v, bool),
        int: is_int,
        float: is_number,
        str: lambda v: isinstance(v, str),
        Path: lambda v: isinstance(v, str),
        type(None): lambda v: v is None,
        None: lambda v: v is None,
    }
    return tests[hint](value) if hint in tests else True


def _words(hint: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    names |= {Path: "a path", type(None): "null"}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_words, typing.get_args(hint))))
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if isinstance(origin := typing.get_origin(hint), type):
        return "a list" if issubclass(origin, Sequence) else "a mapping"
    return names.get(hint, str(hint))


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308
