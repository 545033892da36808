"""Check the settings of a script before anything starts; all problems are named at once.

names, types, ranges    against engine/cli/schema.py
arguments of _target_   against the signature of the class or function
"""

import difflib
import inspect
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from engine import CONFIGS
from engine.cli import targets
from engine.cli.schema import CLOSED, OPEN, SETTINGS, TRAIN, Index, Number, Text

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
WORDS |= {Path: "a path", type(None): "null", list: "a list", dict: "a mapping"}
LAUNCHED = ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "MASTER_ADDR")  # torchrun, SLURM, by hand
BY_DEFAULT = {bool: bool, int: Index, float: Number, list: list, str: Text}


def check(cfg: DictConfig, script: str = "train") -> None:
    """Refuse unknown names, wrong types and values out of range. No class is imported."""
    known, failed = SETTINGS.get(script.split("/")[0], {}), None
    try:
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:  # interpolates a setting that is wrong or missing
        plain, failed = OmegaConf.to_container(cfg), error
    values = {k: v for k, v in leaves(plain) if failed is None or "${" not in str(v)}
    defaults: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{script}.yaml"))
    defaults = dict(leaves(defaults))
    wild = {key: hint for key, hint in known.items() if "*" in key}
    problems = []
    for key, value in values.items():
        hint = known.get(key, BY_DEFAULT.get(type(defaults.get(key))))
        for name, other in wild.items():
            if re.fullmatch(name.replace("*", r"[^.]+"), key):
                hint = other
        if value == "???" and script == "train":
            problems.append(f"{key} must be given, e.g. {key}=...")
        elif value != "???" and hint is not None and not fits(hint, value):
            near = nearest(value, re.findall(r"[\w-]+", words(hint)))
            problems.append(f"{key}: expected {words(hint)}; got {value!r}.{near}")
    groups = ("trainer", "log") if script == "train" else ()
    for group in groups:
        given: Any = OmegaConf.load(CONFIGS / group / "default.yaml")
        defaults |= {f"{group}.{name}": None for name in given}
    for key in defaults.keys() - values.keys():
        parent = values.get(key.rpartition(".")[0], {})
        if not key.startswith(("defaults", "hydra")) and isinstance(parent, dict):
            problems.append(f"{key} is missing. Give it a value instead of removing it (~{key}).")
    if script == "train":  # names that no setting has; configs/ may add names at the top level
        texts = [path.read_text() for path in CONFIGS.rglob("*.yaml")]
        own = "\n".join(text for text in texts if "@package _global_" in text)
        top = {*OPEN, *(name.partition(".")[0] for name in TRAIN)}
        top |= set(re.findall(r"^(\w+):", own, re.MULTILINE))
        wrong: list[tuple[str, Iterable[str]]] = [(name, top) for name in plain.keys() - top]
        for key in values:
            free = key in CLOSED or key.startswith(("optim.optimizer.", "optim.schedule."))
            if key.partition(".")[0] in CLOSED and key not in TRAIN and not free:
                wrong.append((key, TRAIN))
        problems += [f"{key}: no such setting.{nearest(key, names)}" for key, names in wrong]
        chosen = values.get("choose.key")
        if chosen is not None and chosen not in values:
            near = nearest(chosen, values)
            problems.append(f"choose.key: no such setting: {chosen!r}.{near}")
    if problems:
        raise ValueError("\n".join(problems))
    if failed is not None:
        raise failed


def leaves(node: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """(dotted name, value) of every setting, groups included."""
    found = []
    for key, value in node.items():
        where = f"{prefix}.{key}" if prefix else str(key)
        found.append((where, value))
        if isinstance(value, Mapping):
            found += leaves(value, where)
    return found


def check_targets(cfg: DictConfig) -> None:
    """Refuse what only the named classes or this machine can tell: arguments, metrics, devices."""
    plain = targets.plain(cfg)
    trust, nodes, resume = plain["trust"], plain["trainer"]["num_nodes"], plain["resume"]
    targets.check(plain, trust)
    problems = [*_arguments(plain, trust)]
    shown = [("log.show", name) for name in plain["log"]["show"]]
    selected = ("select.metric", plain["select"]["metric"])
    problems += unknown_metrics(plain["metrics"]["_target_"], trust, [selected, *shown])
    if nodes > 1 and not any(name in os.environ for name in LAUNCHED):
        problems.append(
            f"trainer.num_nodes: {nodes} nodes need this command started on each node, by torchrun "
            "or SLURM, or with MASTER_ADDR and NODE_RANK set."
        )
    if resume not in ("auto", "never") and not Path(resume).is_file():
        problems.append(f"resume: expected auto, never or a checkpoint file; got {resume!r}.")
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
    try:
        targets.find(plain["log"]["plot"], trust, "log.plot")
    except (ValueError, ImportError) as error:
        problems.append(f"log.plot: {str(error).removeprefix('log.plot: ')}")
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
    metrics = targets.find(target, trust)
    if not hasattr(metrics, "names_reported"):
        return []
    known = metrics.names_reported()
    some = ", ".join(known[:8])
    return [
        f"{key}: unknown metric {name!r}; choose from {some}, ...{nearest(name, known)}"
        for key, name in names
        if name not in known
    ]


def _arguments(node: Any, trust: targets.Trust, prefix: str = "") -> Iterator[str]:
    """Arguments of `_target_` nodes that their targets do not take."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list):
            yield from _arguments(value, trust, f"{prefix}.{key}" if prefix else str(key))
    if not isinstance(node, dict) or "_target_" not in node:
        return
    name, target = node["_target_"], targets.find(node["_target_"], trust)
    try:
        signature = inspect.signature(target)
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (TypeError, ValueError, NameError, AttributeError):
        return  # a builtin, or annotations that cannot be read
    given = {key: value for key, value in node.items() if key not in targets.RESERVED}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for key, value in given.items():
        where = f"{prefix}.{key}"
        if key not in signature.parameters and not open_ended and where != "loss.weights":
            yield f"{where}: {name} takes no {key}.{nearest(key, signature.parameters)}"
        elif key in hints:
            if isinstance(value, dict) and "_target_" in value:  # its class or return type counts
                made: Any = targets.find(value["_target_"], trust)
                if not inspect.isclass(made):
                    made = getattr(made, "__annotations__", {}).get("return")
                known = inspect.isclass(made) and inspect.isclass(hints[key])
                suits = not known or issubclass(made, hints[key])
            else:
                suits = fits(hints[key], value)
            if not suits:
                yield f"{where}: expected {words(hints[key])}; got {value!r}."
    try:
        taken = {key: value for key, value in given.items() if key in signature.parameters}
        signature.bind_partial(*node.get("_args_", []), **taken)
    except TypeError as error:
        yield f"{prefix}._args_: {name} cannot take {node.get('_args_')}: {error}."


def fits(hint: Any, value: Any) -> bool:
    """Whether a config value can be what a type hint says; unknown hints accept anything."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return fits(inner[0], value) and all(holds(value) for _, holds in hint.__metadata__)
    if origin in (typing.Union, types.UnionType):
        return any(fits(one, value) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if isinstance(origin, type) and issubclass(origin, Sequence):
        one = inner[0] if origin is list else Any
        return isinstance(value, list) and all(fits(one, item) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict)
    if hint is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) < 1e308
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint not in WORDS or isinstance(value, str if hint is Path else hint)


def words(hint: Any) -> str:
    """A type hint in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return " ".join([words(inner[0]), *(text for text, _ in hint.__metadata__)])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(words, inner)))
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin is list:
        return f"a list, each {words(inner[0])}"
    if isinstance(origin, type):
        return "a list" if issubclass(origin, Sequence) else "a mapping"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def nearest(name: Any, known: Iterable[str]) -> str:
    """` Did you mean ...?` for the closest of the known names: optim.optimizer.lr for optim.lr."""
    names, last = list(known), str(name).rpartition(".")[2]
    same = [one for one in names if one.endswith(f".{last}")]
    usual = [one for one in same if one in TRAIN]
    found = difflib.get_close_matches(str(name), usual or same, 1, 0)
    found = found or difflib.get_close_matches(str(name), names, 1)
    return f" Did you mean {found[0]}?" if found else ""
