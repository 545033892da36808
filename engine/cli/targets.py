"""Build the objects that a config names, from a list of allowed names.

A config is data, and a run folder may come from somebody else. So `_target_` may name only what
this checkout's own configs/ name, what is in the short list below, or code of a package
that the user allows on the command line (`trust=[my_package]`, never read from a run folder). None
of them is a function that writes a file. All names of a config are checked before the first is
imported, and nothing is interpolated: `${...}` in a plain config stays text.
"""

import difflib
import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from engine import CONFIGS

# The modules that a setting may name classes and functions of.
MODULES = {
    "dataset": ("datasets",),
    "model": ("models", "losses.regularizers.FDS"),
    "loss": ("losses", "engine.benchmarks.bodies.poses", "engine.training.build", "numpy"),
    "metrics": ("metrics", "engine.benchmarks.bodies.metrics"),
    "task": ("engine.training.task", "engine.benchmarks.bodies", "models.smpl"),
    "optim": ("torch.optim", "engine.training.schedule"),
    "regularizer": ("losses.regularizers",),
}
# Names of these modules that no file in configs/ has.
MORE = {
    *("losses.BMC", "losses.BNI", "losses.GAI", "losses.Categorical", "losses.Classes"),
    *("losses.Huber", "losses.Bins", "losses.GaussianMixture", "losses.Product"),
    *("losses.Subspace", "metrics.MeshMetrics", "torch.optim.AdamW", "torch.optim.SGD"),
}
# Functions that a setting names without `_target_`. Those of a table write its figures.
FUNCTIONS = {
    "log.plot": {"engine.training.log.label_figures", "engine.benchmarks.depth.samples"},
    "table": {
        "engine.benchmarks.age.plot",
        "engine.benchmarks.depth.plot",
        "engine.benchmarks.bodies.figures.plot",
        "engine.tables.tradeoff.plot",
        "engine.benchmarks.synthetic.stage",
    },
}
OWN = tuple(module for modules in MODULES.values() for module in modules)
RESERVED = ("_target_", "_partial_", "_args_")
Trust = Sequence[str] | None  # packages, e.g. ["my_package"]


def check(config: Any, trust: Trust = None) -> None:
    """Refuse a plain config that names anything but what is allowed at that setting."""
    for key, name in named(config):
        allowed(name, trust, key)


def allowed(name: Any, trust: Trust = None, key: str = "") -> str:
    """Return the name if a config may call it at `key`; without one, at any setting of a run."""
    known = FUNCTIONS.get(key) or MORE | _configured()
    if isinstance(name, str):
        modules = MODULES.get(key.partition(".")[0], (name,))
        own = name in known and (inside(name, modules) or not inside(name, OWN))
        if own or inside(name, trust or ()):
            return name
    near = [one for one in difflib.get_close_matches(str(name), known) if one != name]
    raise ValueError(
        f"{key + ': ' if key else ''}a config may not call {name!r}{' there' if key else ''}."
        f"{f' Did you mean {near[0]}?' if near else ''} Nothing was called. To allow code of your "
        "own, name its package on the command line: trust=[package]. Read the config of a foreign "
        "run folder before you allow anything."
    )


def inside(name: str, packages: Sequence[str]) -> bool:
    """Whether a name is that of a package, or in it."""
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


@functools.cache
def _configured() -> set[str]:
    """The targets in this checkout's configs/, which are trusted as its Python files are."""
    texts = (path.read_text() for path in CONFIGS.rglob("*.yaml"))
    return {name for text in texts for name in re.findall(r"\b_target_: *([\w.]+)", text)}


def make(node: Any, trust: Trust = None, **arguments: Any) -> Any:
    """Build what a config node describes, with these arguments added; all names are checked first.

    _target_ is called with the other keys; _args_ are positional arguments; with _partial_ the
    result is a functools.partial.
    """
    node = plain(node)
    check(node, trust)
    partial = arguments.pop("_partial_", node.get("_partial_", False))
    return _build({**node, "_partial_": partial}, arguments)


def _build(node: Any, arguments: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_build(item, {}) for item in node]
    if not isinstance(node, dict):
        return node
    given = [key for key in node if key not in RESERVED and key not in arguments]
    keywords = {**{key: _build(node[key], {}) for key in given}, **arguments}
    if "_target_" not in node:
        return keywords
    name, positional = node["_target_"], _build(node.get("_args_", []), {})
    target = find(name, [name])  # `make` has checked all names
    if node.get("_partial_"):
        return functools.partial(target, *positional, **keywords)
    return target(*positional, **keywords)


def find(name: Any, trust: Trust = None, key: str = "") -> Any:
    """Return the class or function of that name, if a config may call it at `key`."""
    name = allowed(name, trust, key)
    try:
        return pkgutil.resolve_name(name)
    except AttributeError:
        importlib.import_module(name.rpartition(".")[0])  # raises what is wrong with the module
        raise ImportError(f"{name!r} cannot be imported; check its spelling.") from None


def leaves(node: Any, prefix: str = "", lists: bool = False) -> list[tuple[str, Any]]:
    """(dotted name, value) of every setting in plain containers, groups included; with `lists`,
    also of the entries of lists."""
    found = []
    for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
        where = f"{prefix}.{key}" if prefix else str(key)
        found.append((where, value))
        if isinstance(value, Mapping) or (lists and isinstance(value, list | tuple)):
            found += leaves(value, where, lists)
    return found


def named(config: Any) -> list[tuple[str, Any]]:
    """(dotted name, name of a class or function) of every `_target_`."""
    found = leaves(config, lists=True)
    return [(key, value) for key, value in found if key.rpartition(".")[2] == "_target_"]


def plain(node: Any) -> Any:
    """A config node as plain containers; the interpolations of an OmegaConf node are resolved."""
    if OmegaConf.is_config(node):
        return OmegaConf.to_container(node, resolve=True)
    return {key: plain(value) for key, value in node.items()} if isinstance(node, dict) else node
