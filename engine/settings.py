"""What every setting may be, in one key; a config is checked against it before anything starts.

    RULES        settings of the scripts' own configs, by dotted name; `*` stands for any name
    signatures   a node with `_target_` may hold what that class or function takes, as annotated
    defaults     a setting without a rule has the kind of its default in configs/<script>.yaml

All that is wrong is told at once, with what is allowed and the nearest name.
"""

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from engine import CONFIGS, signatures, targets
from engine.signatures import is_int, is_number, nearest

PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "64-true", "16-true", "bf16-true")
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")


class Rule(NamedTuple):
    """What a value must be, in words and as a test; `names` are what a typing mistake meant."""

    what: str
    holds: Callable[[Any], bool]
    names: tuple[str, ...] = ()


def whole_number(low: int) -> Rule:
    return Rule(f"a whole number from {low} on", lambda v: is_int(v) and v >= low)


def number(low: float, strictly: bool = False) -> Rule:
    what = f"a number above {low:g}" if strictly else f"a number from {low:g} on"
    return Rule(what, lambda v: is_number(v) and (v > low if strictly else v >= low))


def one_of(*names: str) -> Rule:
    return Rule(f"one of {', '.join(names)}", lambda v: v in names, names)


def either(*rules: Rule) -> Rule:
    names = tuple(name for rule in rules for name in rule.names)
    what = " or ".join(rule.what for rule in rules)
    return Rule(what, lambda v: any(rule.holds(v) for rule in rules), names)


def list_of(rule: Rule) -> Rule:
    def holds(value: Any) -> bool:
        return isinstance(value, list) and all(rule.holds(item) for item in value)

    return Rule(f"a list, each {rule.what}", holds, rule.names)


NOTHING = Rule("null", lambda v: v is None)
FLAG = Rule("true or false", lambda v: isinstance(v, bool))
TEXT = Rule("a text", lambda v: isinstance(v, str) and bool(v))
ANYTHING = Rule("anything", lambda v: True)
MAPPING = Rule("a mapping", lambda v: isinstance(v, dict))
COUNT, INDEX, POSITIVE = whole_number(1), whole_number(0), number(0, strictly=True)
PLACE = Rule(
    "names of letters, digits, _ . - with / between them, that stay inside the outputs",
    lambda v: (
        isinstance(v, str)
        and re.fullmatch(r"[\w.-]+(/[\w.-]+)*", v) is not None
        and not set(v.split("/")) & {".", ".."}
    ),
)
WORDS = list_of(TEXT)
PIXELS = Rule("a whole number from 1 to 4096", lambda v: is_int(v) and 1 <= v <= 4096)
KINDS = ("settings", "hostile", "file", "disk", "resources", "ranks", "process")
DEVICES = either(
    COUNT,
    one_of("auto"),
    Rule("a list of different GPUs, each a whole number from 0 on", lambda v: _gpus(v)),
)
STARTED = ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "MASTER_ADDR")  # by torchrun, SLURM, by hand

TRAIN = {
    "name": PLACE,
    "row": TEXT,
    "preset": PLACE,
    "seed": INDEX,
    "resume": TEXT,
    "rerun": FLAG,
    "trust": WORDS,
    "images": one_of("times", "content"),
    "backbone": either(MAPPING, NOTHING),
    "backbone.experiment": TEXT,
    "backbone.seed": INDEX,
    "backbone.released": either(TEXT, NOTHING),
    "backbone.overrides": list_of(TEXT),
    "freeze_bn": FLAG,
    "choose": either(MAPPING, NOTHING),
    "choose.key": TEXT,
    "choose.among": Rule("a list of values", lambda v: isinstance(v, list) and len(v) > 0),
    "choose.settings": either(MAPPING, NOTHING),
    "select.metric": TEXT,
    "select.mode": one_of("min", "max"),
    "select.which": one_of("best", "last"),
    "select.every": COUNT,
    "components": COUNT,
    "trainer.epochs": INDEX,
    "trainer.epoch_size": either(COUNT, NOTHING),
    "trainer.batch_size": COUNT,
    "trainer.even_batches": FLAG,
    "trainer.accumulate": COUNT,
    "trainer.eval_batch_size": COUNT,
    "trainer.precision": one_of(*PRECISIONS),
    "trainer.clip": either(POSITIVE, NOTHING),
    "trainer.sync_batchnorm": FLAG,
    "trainer.deterministic": FLAG,
    "trainer.accelerator": one_of(*ACCELERATORS),
    "trainer.devices": DEVICES,
    "trainer.num_nodes": COUNT,
    "trainer.strategy": one_of("auto", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook"),
    "trainer.workers": INDEX,
    "trainer.channels_last": FLAG,
    "trainer.compile": FLAG,
    "trainer.checkpoint_every": INDEX,
    "features.mode": one_of("none", "cached"),
    "features.views": COUNT,
    "features.augment": FLAG,
    "features.seed": INDEX,
    "features.dtype": one_of("float32", "float16"),
    "features.batch_size": COUNT,
    "features.shard": COUNT,
    "log.every": COUNT,
    "log.show": WORDS,
    "log.progress": FLAG,
    "log.predictions": FLAG,
    "log.figures": FLAG,
    "log.draws": INDEX,
    "log.draw": TEXT,
    "optim.optimizer": MAPPING,
    "optim.optimizer.lr": number(0),
    "optim.optimizer.weight_decay": number(0),
    "optim.schedule": MAPPING,
    "optim.loss_lr": number(0),
    "paths.outputs": TEXT,
    "paths.data": TEXT,
    "dataset.size": PIXELS,
    "dataset.max_pixels": COUNT,
    "dataset.max_bytes": COUNT,
}
RULES: dict[str, dict[str, Rule]] = {
    "train": TRAIN,
    "evaluate": {
        "checkpoint": one_of("best", "last"),
        "split": one_of("train", "val", "test"),
        "layout": one_of("imdb_wiki", "nyud2", "spin"),
        "batch_size": COUNT,
        "accelerator": one_of(*ACCELERATORS),
    },
    "table": {
        "seeds": COUNT,
        "jobs": COUNT,
        "iterations": COUNT,
        "name": either(PLACE, NOTHING),
        "overrides": WORDS,
    },
    "reproduce": {
        "data": one_of("mini", "real"),
        "seeds": COUNT,
        "jobs": either(COUNT, one_of("auto")),
        "preset": either(PLACE, NOTHING),
        "table": either(TEXT, WORDS),
        "mini_seeds.*": COUNT,
        "seconds.*": number(0),
    },
    "synthetic": {
        "seeds": either(COUNT, list_of(INDEX)),
        "columns": either(one_of("all"), WORDS),
        "methods": either(one_of("all"), WORDS),
        "epochs": either(COUNT, NOTHING),
        "workers": either(COUNT, one_of("auto")),
        "training.*.epochs": COUNT,
        "training.*.samples": COUNT,
        "training.*.held_out": COUNT,
        "training.*.batch": COUNT,
        "training.*.validations": COUNT,
        "training.*.learning_rate": number(0),
        "training.*.sigma_learning_rate": number(0),
        "training.*.optimizer": one_of("SGD", "Adam"),
    },
    "prepare_age": {
        "source": one_of("imdb_wiki", "agedb", "utkface"),
        "cap": COUNT,
        "seed": INDEX,
        "pack": either(PIXELS, NOTHING),
    },
    "prepare_mini": {
        "draw": list_of(one_of("bodies", "faces", "rooms")),
        "images": COUNT,
        "size": PIXELS,
        "cap": COUNT,
        "seed": INDEX,
        "rooms.train": COUNT,
        "rooms.test": COUNT,
        "bodies.counts.*": COUNT,
        "bodies.size": PIXELS,
    },
    "faults": {
        "kind": list_of(one_of(*KINDS)),
        "moments": COUNT,
        "script": either(TEXT, NOTHING),
    },
    "prepare_nyud2": {"seed": INDEX},
}
RULES["prepare_imdb_wiki"] = RULES["prepare_age"]
CLOSED = ("trainer", "select", "features", "log", "optim")  # groups that hold nothing else
OPEN = ("dataset", "model", "loss", "metrics", "objective", "benchmark")  # hold what targets take


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
    try:
        targets.find(plain["log"].get("draw", "engine.log.label_figures"), plain.get("trust"))
    except (ValueError, ImportError, HydraException) as error:
        yield f"log.draw: {error}"


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


def _gpus(value: Any) -> bool:
    listed = isinstance(value, list) and value and all(is_int(v) and v >= 0 for v in value)
    return bool(listed) and len(set(value)) == len(value)


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)
