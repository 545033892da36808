"""What a setting may be: rules in words and as tests, and those of the scripts' own settings.

RULES    {script: {dotted name: rule}}; `*` stands for any name
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.cli.signatures import is_int, is_number

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


def _gpus(value: Any) -> bool:
    listed = isinstance(value, list) and value and all(is_int(v) and v >= 0 for v in value)
    return bool(listed) and len(set(value)) == len(value)


DEVICES = either(
    COUNT,
    one_of("auto"),
    Rule("a list of different GPUs, each a whole number from 0 on", _gpus),
)

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
        "stage1_seeds": COUNT,
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
    "speed": {
        "only": list_of(one_of("losses", "synthetic", "loader", "features", "depth", "bodies")),
        "rounds": COUNT,
        "budget": number(0),
        "threads": COUNT,
    },
    "prepare_age": {
        "source": one_of("imdb_wiki", "agedb", "utkface", "csv"),
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
        "jobs": COUNT,
        "script": either(TEXT, NOTHING),
    },
    "prepare_nyud2": {"seed": INDEX},
}
