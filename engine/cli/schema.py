"""Every setting with its type, range and choices: SETTINGS = {script: {dotted name: type}}.

`*` stands for any name. A setting that is not listed has the type of its default in
configs/<script>.yaml or in GROUPS. Annotated adds (a description, a test) to a type.
"""

import re
from typing import Annotated, Any, Literal

Count: Any = Annotated[int, (">= 1", lambda v: v >= 1)]
Index: Any = Annotated[int, (">= 0", lambda v: v >= 0)]
Pixels: Any = Annotated[int, ("from 1 to 4096", lambda v: 1 <= v <= 4096)]
Number: Any = Annotated[float, (">= 0", lambda v: v >= 0)]
Share: Any = Annotated[float, ("from 0 to 1", lambda v: 0 <= v <= 1)]
Positive: Any = Annotated[float, ("> 0", lambda v: v > 0)]
Text: Any = Annotated[str, ("that is not empty", bool)]
NAME = re.compile(r"(?!\.\.?(/|$))[\w.-]+(/(?!\.\.?(/|$))[\w.-]+)*")  # no . or .. in it
Folder: Any = Annotated[
    str, ("like imdb_wiki/bmc, without ..", lambda v: NAME.fullmatch(v) is not None)
]
Gpus: Any = Annotated[
    list[Index], ("of different GPUs", lambda v: len(v) > 0 and len(set(v)) == len(v))
]
Pair: Any = Annotated[list[Text], ("of two runs", lambda v: len(v) in (0, 2))]
Rows: Any = Annotated[list[Text], ("of at least one row", lambda v: len(v) > 0)]
Values: Any = Annotated[list, ("of at least one value", lambda v: len(v) > 0)]
Accelerator = Literal["auto", "cpu", "gpu", "cuda", "mps"]
Precision = Literal["32-true", "16-mixed", "bf16-mixed", "64-true", "16-true", "bf16-true"]

TRAIN: dict[str, Any] = {
    **dict.fromkeys(("name", "preset"), Folder),
    **dict.fromkeys(("paths.outputs", "paths.data", "select.metric"), Text),
    **dict.fromkeys(("log.show", "backbone.overrides"), list[Text]),
    **dict.fromkeys(("components", "adapter", "dataset.max_pixels", "dataset.max_bytes"), Count),
    **dict.fromkeys(("select.every", "log.every", "trainer.batch_size"), Count),
    **dict.fromkeys(("trainer.accumulate", "trainer.eval_batch_size", "trainer.num_nodes"), Count),
    **dict.fromkeys(("features.views", "features.batch_size", "features.shard"), Count),
    **dict.fromkeys(("trainer.epochs", "backbone.seed"), Index),
    "dataset.size": Pixels,
    "images": Literal["times", "content"],
    "protocol.kind": Literal["extrapolation", "interpolation", "blind_spot", "held_out"],
    "protocol.count": Count,
    **{f"protocol.{name}": Share for name in ("above", "first", "last", "width", "share")},
    **dict.fromkeys(("backbone", "choose", "choose.settings"), dict | None),
    **dict.fromkeys(("backbone.experiment", "choose.key"), Text),
    "backbone.released": Text | None,
    "choose.among": Values,
    "select.mode": Literal["min", "max"],
    "select.which": Literal["best", "last"],
    "trainer.epoch_size": Count | None,
    "trainer.precision": Precision,
    "trainer.clip": Positive | None,
    "trainer.accelerator": Accelerator,
    "trainer.devices": Count | Literal["auto"] | Gpus,
    "trainer.strategy": Literal["auto", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook"],
    "features.mode": Literal["none", "cached"],
    "features.dtype": Literal["float32", "float16"],
    "log.service": Literal["wandb", "mlflow"] | None,
}
GROUPS = ("trainer/default", "log/default", "features/cached", "optim/adam_cosine")  # of train
CLOSED = ("trainer", "select", "features", "log", "optim")  # groups without other settings
FREE = ("optim.optimizer.", "optim.schedule.")  # arguments of a target

SETTINGS: dict[str, dict[str, Any]] = {
    "train": TRAIN,
    "evaluate": {
        "checkpoint": Literal["best", "last"],
        "split": Literal["train", "val", "test"],
        "layout": Literal["imdb_wiki", "nyud2", "spin"],
        **dict.fromkeys(("batch_size", "max_pixels", "max_bytes"), Count),
        "accelerator": Accelerator,
    },
    "table": {
        **dict.fromkeys(("seeds", "stage1_seeds", "jobs", "iterations"), Count),
        "name": Folder | None,
        **dict.fromkeys(("overrides", "without"), list[Text]),
        "rows": Rows | None,
        "add": dict | None,
    },
    "reproduce": {
        "data": Literal["mini", "real"],
        "seeds": Count,
        "jobs": Count | Literal["auto"],
        "preset": Folder | None,
        "table": Text | list[Text],
        "mini_seeds.*": Count,
    },
    "synthetic": {
        "seeds": Count | list[Index],
        "columns": Literal["all"] | list[Text],
        "methods": Literal["all"] | list[Text],
        "epochs": Count | None,
        "workers": Count | Literal["auto"],
        **{f"training.*.{name}": Count for name in ("epochs", "samples", "held_out", "batch")},
        "training.*.validations": Count,
        "training.*.optimizer": Literal["SGD", "Adam"],
    },
    "runs": {
        **dict.fromkeys(("diff", "compare"), Pair),
        "remove": list[Literal["diverged", "unfinished", "finished", "damaged"]],
    },
    "leaderboard": dict.fromkeys(("settings", "seeds", "jobs"), Count),
    **{script: {"figure": Text | None} for script in ("diagnose", "rebalance")},
    "tabular": {"workers": Count | Literal["auto"]},
    "speed": {
        "only": list[Literal["losses", "synthetic", "features"]],
        **dict.fromkeys(("rounds", "threads"), Count),
    },
    "prepare_age": {
        "source": Literal["imdb_wiki", "agedb", "utkface", "csv"],
        "cap": Count,
        "pack": Pixels | None,
    },
    "prepare_mini": {
        "draw": list[Literal["bodies", "faces", "rooms"]],
        **dict.fromkeys(("images", "cap", "rooms.train", "rooms.test", "bodies.counts.*"), Count),
        **dict.fromkeys(("size", "bodies.size"), Pixels),
    },
}
