"""Check the settings of a script before anything starts; all problems are named at once.

names, types, ranges    against engine/cli/schema.py
arguments of _target_   against the signature of the class or function
"""

import difflib
import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from engine import CONFIGS
from engine.cli import targets
from engine.cli.schema import CLOSED, FREE, GROUPS, SETTINGS, TRAIN, Index, Number, Text
from engine.cli.targets import leaves
from engine.runs.folder import RANKS

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
WORDS |= {Path: "a path", type(None): "null", list: "a list", dict: "a mapping"}
UNIONS = (typing.Union, types.UnionType)
BY_DEFAULT = {bool: bool, int: Index, float: Number, list: list, str: Text, dict: dict}
OPTIONAL = ("defaults", "hydra", "features", "optim")  # settings that a config may lack


def check(cfg: DictConfig, script: str = "train") -> None:
    """Refuse unknown names, wrong types and values out of range. No class is imported."""
    try:
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException:  # interpolates a setting that is wrong or missing
        plain = OmegaConf.to_container(cfg)
    given = dict(leaves(plain))
    values = {key: value for key, value in given.items() if "${" not in str(value)}
    known, defaults, problems = SETTINGS.get(script.split("/")[0], {}), _defaults(script), []
    wild = {name: hint for name, hint in known.items() if "*" in name}
    for key, value in values.items():
        hint = known.get(key, BY_DEFAULT.get(type(defaults.get(key))))
        hint = next((wild[name] for name in wild if fnmatchcase(key, name)), hint)
        if value == "???" and (script == "train" or key in defaults):
            problems.append(f"{key} must be given, e.g. {key}=...")
        elif value != "???" and hint is not None and not fits(hint, value):
            choices = words(hint).partition("one of ")[2]
            near = nearest(value, re.findall(r"[\w-]+", choices))
            problems.append(f"{key}: expected {words(hint)}; got {value!r}.{near}")
    for key in defaults:
        parent = given.get(key.rpartition(".")[0], {})
        if key not in given and not key.startswith(OPTIONAL) and isinstance(parent, dict):
            problems.append(f"{key} is missing. Give it a value instead of removing it (~{key}).")
    if script == "train":
        names = {*TRAIN, *defaults}
        top = {name.partition(".")[0] for name in names} | _global_names()
        for key in values:
            group, dot, _ = key.partition(".")
            closed = group in CLOSED and not key.startswith(FREE)
            if key not in top and (not dot or (closed and key not in names)):
                near = nearest(key, names if dot else top)
                problems.append(f"{key}: no such setting.{near}")
        resume = values.get("resume", "auto")
        if resume not in ("auto", "never") and not Path(str(resume)).is_file():
            problems.append(f"resume: expected auto, never or a checkpoint file; got {resume!r}.")
        chosen = values.get("choose.key")
        if chosen is not None and chosen not in given:
            near = nearest(chosen, given)
            problems.append(f"choose.key: no such setting: {chosen!r}.{near}")
    if problems:
        raise ValueError("\n".join(problems))


@functools.cache
def _defaults(script: str) -> dict[str, Any]:
    """{dotted name: default} of configs/<script>.yaml, and of the groups of train."""
    found: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{script}.yaml"))
    for group in GROUPS if script == "train" else ():
        own = OmegaConf.load(CONFIGS / f"{group}.yaml")
        found[group.partition("/")[0]] = OmegaConf.to_container(own)
    return dict(leaves(found))


@functools.cache
def _global_names() -> set[str]:
    """Names at the top level that files of configs/ may add."""
    texts = [path.read_text() for path in CONFIGS.rglob("*.yaml")]
    own = "\n".join(text for text in texts if "@package _global_" in text)
    return set(re.findall(r"^(\w+):", own, re.MULTILINE))


def check_targets(cfg: DictConfig) -> None:
    """Refuse what only the named classes or this machine can tell: arguments, metrics, devices."""
    plain = targets.plain(cfg)
    trust, nodes = plain["trust"], plain["trainer"]["num_nodes"]
    targets.check(plain, trust)
    targets.find(plain["log"]["plot"], trust, "log.plot")
    shown = [("log.show", name) for name in plain["log"]["show"]]
    selected = ("select.metric", plain["select"]["metric"])
    problems = unknown_metrics(plain["metrics"]["_target_"], trust, [selected, *shown])
    for key, node in leaves(plain, lists=True):
        if isinstance(node, dict) and "_target_" in node:
            problems += _arguments(node, trust, key)
    if nodes > 1 and not any(name in os.environ for name in RANKS):
        problems.append(
            f"trainer.num_nodes: {nodes} nodes need this command started on each node, by torchrun "
            "or SLURM, or with MASTER_ADDR and NODE_RANK set."
        )
    backbone, freeze_bn = plain["backbone"], plain["freeze_bn"]
    released = (backbone or {}).get("released")
    if released is not None and not Path(released).is_file():
        problems.append(f"backbone.released={released}: no such checkpoint; null trains stage 1.")
    model = targets.find(plain["model"]["_target_"], trust)
    frozen = freeze_bn and (backbone is not None or getattr(model, "always_frozen", False))
    if plain["features"]["mode"] == "cached" and not frozen:
        problems.append(
            "features=cached needs a frozen backbone (stage 2) with frozen batch-norm; got "
            f"backbone={backbone}, freeze_bn={freeze_bn}. Set freeze_bn=true, or features=none."
        )
    if not problems:
        loss = {key: value for key, value in plain["loss"].items() if key != "weights"}
        try:  # values that only the class refuses, such as sigma=0
            targets.make(loss.get("likelihood") or loss, trust)
        except ValueError as error:
            problems.append(f"loss: {error}")
    if problems:
        raise ValueError("\n".join(problems))


def unknown_metrics(
    target: str, trust: targets.Trust, names: Iterable[tuple[str, str]]
) -> list[str]:
    """Return a problem for each (setting, metric) that the report does not have."""
    known = getattr(targets.find(target, trust), "names_reported", None)
    if known is None:
        return []
    some = ", ".join(known[:8])
    return [
        f"{key}: unknown metric {name!r}; choose from {some}, ...{nearest(name, known)}"
        for key, name in names
        if name not in known
    ]


def _arguments(node: dict[str, Any], trust: targets.Trust, prefix: str) -> Iterator[str]:
    """Arguments of a `_target_` node that its target does not take."""
    name, target = node["_target_"], targets.find(node["_target_"], trust)
    try:
        signature = inspect.signature(target)
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (TypeError, ValueError, NameError, AttributeError):
        return  # a builtin, or annotations that cannot be read
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for key, value in node.items():
        where = f"{prefix}.{key}"
        if key in targets.RESERVED:
            continue
        if key not in signature.parameters and not open_ended and where != "loss.weights":
            near = nearest(key, signature.parameters) or f" Remove it: ~{where}"
            yield f"{where}: {name} takes no {key}.{near}"
            continue
        hint = hints.get(key, object)
        if isinstance(value, dict) and "_target_" in value:
            made = targets.find(value["_target_"], trust)
            suits = not (inspect.isclass(made) and inspect.isclass(hint)) or issubclass(made, hint)
        else:
            suits = fits(hint, value)
        if not suits:
            yield f"{where}: expected {words(hint)}; got {value!r}."


def fits(hint: Any, value: Any) -> bool:
    """Whether a config value can be what a type hint says; unknown hints accept anything."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return fits(inner[0], value) and all(holds(value) for _, holds in hint.__metadata__)
    if origin in UNIONS:
        return any(fits(one, value) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if isinstance(origin, type) and issubclass(origin, Sequence):
        one = inner[0] if origin is list else Any
        return isinstance(value, list) and all(fits(one, item) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict)
    if hint in (int, float) and (isinstance(value, bool) or not isinstance(value, int | float)):
        return False
    if hint is float:
        return abs(value) < 1e308
    return hint not in WORDS or isinstance(value, str if hint is Path else hint)


def words(hint: Any) -> str:
    """A type hint in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return " ".join([words(inner[0]), *(text for text, _ in hint.__metadata__)])
    if origin in UNIONS:
        return " or ".join(dict.fromkeys(map(words, inner)))
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, inner))}"
    if isinstance(origin, type) and origin is not list:
        return "a mapping" if issubclass(origin, Mapping) else "a list"
    if origin is list:
        return f"a list, each {words(inner[0])}"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def nearest(name: Any, known: Iterable[str]) -> str:
    """` Did you mean ...?` for the closest of the known names: optim.optimizer.lr for optim.lr."""
    names, last = [one for one in known if one != str(name)], str(name).rpartition(".")[2]
    if not str(name).startswith("path"):  # paths.outputs is no answer to model.outputs
        names = [one for one in names if not one.startswith("paths.")]
    same = [one for one in names if one.endswith(f".{last}")]
    usual = [one for one in same if one in TRAIN]
    found = difflib.get_close_matches(str(name), usual or same, 1, 0)
    least = 0.75 if "." in str(name) else 0.6  # an equal group alone is no likeness
    found = found or difflib.get_close_matches(str(name), names, 1, least)
    return f" Did you mean {found[0]}?" if found else ""
