"""Every setting is checked before anything starts, against what it may be:

    rules        settings of the scripts' own configs, by dotted name (rules.py)
    signatures   a node with `_target_` may hold what that class or function takes, as annotated
    defaults     a setting without a rule has the kind of its default in configs/<script>.yaml

All that is wrong is told at once, with what is allowed and the nearest name.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from engine import CONFIGS
from engine.cli import signatures, targets
from engine.cli.rules import FLAG, INDEX, RULES, TRAIN, Rule, number
from engine.cli.signatures import is_int, nearest

STARTED = ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "MASTER_ADDR")  # by torchrun, SLURM, by hand
CLOSED = ("trainer", "select", "features", "log", "optim")  # groups that hold nothing else
OPEN = ("dataset", "model", "loss", "metrics", "task", "benchmark")  # hold what targets take


def check(cfg: DictConfig, script: str = "train") -> None:
    """Refuse a config with a value that its settings cannot have; all of them are named."""
    rules = RULES.get(script.split("/")[0], {})
    said: Any = OmegaConf.to_container(cfg)  # what depends on a wrong setting cannot be resolved
    if problems := list(_ruled(said, rules, script)):
        raise ValueError("\n".join(problems))
    plain = targets.plain(cfg)
    problems = [*_ruled(plain, rules, script), *_of_a_kind(plain, rules, script)]
    if script == "train" and not problems:
        targets.check(plain, plain.get("trust"))
        trust = plain.get("trust")
        problems += [*_closed(plain), *signatures.problems(plain, trust)]
        problems += [*_reported(plain), *_machine(plain), *_drawn(plain)]
    if problems:
        raise ValueError("\n".join(dict.fromkeys(problems)))


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every setting, groups among them."""
    if isinstance(node, dict):
        for key, value in node.items():
            where = f"{prefix}.{key}" if prefix else str(key)
            yield where, value
            yield from leaves(value, where)


def _ruled(plain: dict, rules: Mapping[str, Rule], script: str) -> Iterator[str]:
    for key, value in leaves(plain):
        rule = _rule(key, rules)
        if isinstance(value, str) and "${" in value:
            continue
        if value == "???" and script == "train":
            yield f"{key}: it must be given, e.g. {key}=..."
        elif value != "???" and rule is not None and not rule.holds(value):
            yield f"{key}: expected {rule.what}; got {value!r}.{nearest(value, rule.names)}"


def _rule(key: str, rules: Mapping[str, Rule]) -> Rule | None:
    if key in rules:
        return rules[key]
    fits = [r for name, r in rules.items() if "*" in name and _like(key, name)]
    return fits[0] if fits else None


def _like(key: str, name: str) -> bool:
    return re.fullmatch(re.escape(name).replace(r"\*", r"[^.]+"), key) is not None


def _of_a_kind(plain: dict, rules: Mapping[str, Rule], script: str) -> Iterator[str]:
    """Settings of a script's own file that are of another kind than their defaults."""
    defaults = dict(leaves(OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{script}.yaml"))))
    kinds = {bool: FLAG, int: INDEX, float: number(0), list: Rule("a list", lambda v: _is(v, list))}
    kinds[str] = Rule("a text that is not empty", lambda v: v != "")
    for key, value in leaves(plain):
        kind = kinds.get(type(defaults.get(key)))
        if kind is not None and _rule(key, rules) is None and not kind.holds(value):
            yield f"{key}: expected {kind.what}, such as {defaults[key]!r}; got {value!r}."


def _closed(plain: dict) -> Iterator[str]:
    first = sorted(first_names())
    for name in plain.keys() - {*first}:
        yield f"{name}: no such setting.{nearest(name, first)}"
    chosen = (plain["choose"] or {}).get("key")
    keys = [key for key, _ in leaves(plain)]
    if chosen is not None and chosen not in keys:
        yield f"choose.key: there is no setting {chosen!r}.{nearest(chosen, keys)}"
    known = [name for name in TRAIN if "." in name]
    for key, _ in leaves({group: plain.get(group) for group in CLOSED}):
        free = key.startswith(("optim.optimizer.", "optim.schedule."))
        if "." in key and key not in known and not free:
            yield f"{key}: no such setting.{nearest(key, known)}"


@functools.cache
def first_names() -> frozenset[str]:
    """The first part of every name that a setting of train.py may have, as configs/ says."""
    found = {*OPEN, *(name.partition(".")[0] for name in TRAIN)}
    for path in CONFIGS.rglob("*.yaml"):
        if "@package _global_" in (text := path.read_text()) or path.stem == "train":
            found |= set(OmegaConf.to_container(OmegaConf.create(text)) or ())  # pyright: ignore
    return frozenset(map(str, found - {"defaults"}))


def _reported(plain: dict) -> Iterator[str]:
    """Names of metrics that the metrics do not report."""
    target = targets.find(plain["metrics"]["_target_"], plain.get("trust"))
    if not hasattr(target, "names_reported"):
        return
    known = target.names_reported()
    names = [("select.metric", plain["select"]["metric"])]
    names += [("log.show", name) for name in plain["log"]["show"]]
    for key, name in names:
        if name not in known:
            some = ", ".join(known[:8])
            yield f"{key}: {name!r} is not reported; {some}, ... are.{nearest(name, known)}"


def _drawn(plain: dict) -> Iterator[str]:
    """A figure's name that would be refused when the run is over."""
    name = plain["log"].get("draw", "engine.training.log.label_figures")
    try:
        targets.find(name, plain.get("trust"))
        targets.of_kind(name, "log.draw")
    except (ValueError, ImportError, HydraException) as error:
        yield f"log.draw: {str(error).removeprefix('log.draw: ')}"


def _machine(plain: dict) -> Iterator[str]:
    trainer = plain["trainer"]
    accelerator, devices = trainer["accelerator"], trainer["devices"]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    asked = [devices - 1] if is_int(devices) else devices if isinstance(devices, list) else [0]
    if accelerator in ("gpu", "cuda") and not gpus:
        yield "trainer.accelerator: no GPU is visible here; use cpu or auto."
    elif accelerator == "mps" and not torch.backends.mps.is_available():
        yield "trainer.accelerator: this machine has no mps; use cpu or auto."
    elif isinstance(devices, list) and (accelerator == "cpu" or not gpus):
        yield f"trainer.devices: on a CPU it is a number, such as 2; got {devices}."
    elif accelerator != "cpu" and gpus and max(asked) >= gpus:
        yield f"trainer.devices: {devices} asked for, but {gpus} GPUs are visible here."
    if trainer["num_nodes"] > 1 and not any(name in os.environ for name in STARTED):
        yield (
            f"trainer.num_nodes: {trainer['num_nodes']} nodes need this command started on each of "
            "them, by torchrun or SLURM, or with MASTER_ADDR and NODE_RANK set; none is here."
        )
    if plain["resume"] not in ("auto", "never") and not Path(plain["resume"]).is_file():
        yield f"resume: expected auto, never or a checkpoint's file; {plain['resume']!r} is none."


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)
