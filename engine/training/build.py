"""From a config to the things that are trained: dataset -> labels -> loss -> model -> optimiser.

The order is the point. The prior, the sample weights and (for a histogram) the bins are fitted to
the training labels, never configured; the head's width is what the likelihood asks for. A config
node with `_partial_: true` under `loss` is such a thing to be fitted: it is called with the
training labels (N, D), and where those are distinct values, with how often each occurs.
"""

import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from engine.cli import targets
from engine.runs import checkpoint
from losses import Histogram
from models.released import state_dict as released_state

FITTED = ("likelihood", "prior", "weights")


def dataset(cfg: DictConfig, split: str, **changes: Any) -> Any:
    """One split of the configured dataset."""
    return targets.make(cfg.dataset, cfg.get("trust"), split=split, **changes)


def shot_labels(cfg: DictConfig) -> NDArray | None:
    """The training labels (N, D) without their inputs, where the metrics group by how often each
    occurs; None where they do not ask."""
    trust = cfg.get("trust")
    metrics = targets.find(cfg.metrics["_target_"], trust)
    if inspect.signature(metrics).parameters["train_labels"].default is None:
        return None
    settings = {key: value for key, value in cfg.dataset.items() if key != "_target_"}
    return targets.find(cfg.dataset["_target_"], trust).labels_of("train", **settings)


def task(
    cfg: DictConfig, labels: NDArray, backbone: Path | None = None, counts: NDArray | None = None
) -> nn.Module:
    """Model and loss as one module, its priors fitted to the training labels (N, D).

    backbone: the checkpoint of stage 1, whose features are kept and frozen; the head starts anew.
    counts: (N,) how often each label occurs, where there are too many to list (pixels).
    """
    loss, weights = _loss(cfg, labels, counts)
    width, trust = loss.likelihood.width(labels.shape[1]), cfg.get("trust")
    model = targets.make(cfg.model, trust, outputs=width)
    if backbone is not None:
        read_backbone(model, backbone, (cfg.backbone or {}).get("released") is not None)
        model.freeze(cfg.freeze_bn)
    task = targets.make(cfg.task, trust, model=model, loss=loss, weights=weights)
    task.cached = cfg.features.mode == "cached"
    return task


def _loss(
    cfg: DictConfig, labels: NDArray, counts: NDArray | None
) -> tuple[Any, torch.Tensor | None]:
    """The loss with its parts fitted, and the weight of each training label if it has weights."""
    node = {key: value for key, value in cfg.loss.items() if key not in FITTED}
    chosen = [key for key in FITTED if cfg.loss.get(key) is not None]
    trust = cfg.get("trust")
    parts = {key: fitted(cfg.loss[key], labels, counts, trust) for key in chosen}
    weights = parts.pop("weights", None)
    loss = targets.make(node, trust, **parts)
    return loss, None if weights is None else torch.as_tensor(weights, dtype=torch.float32)


def fitted(
    node: DictConfig, labels: NDArray, counts: NDArray | None = None, trust: Any = None
) -> Any:
    """Make it, and if the node is `_partial_`, call it with the labels."""
    made = targets.make(node, trust)
    if not isinstance(made, functools.partial):
        return made
    return made(labels) if counts is None else made(labels, sample_weight=counts)


def label_histogram(
    labels: NDArray, step: float, soft: float, point: str, low: float, high: float
) -> Histogram:
    """A Histogram likelihood with bins of width `step` over the labels that lie in [low, high].

    Bins beyond the labels would never be trained, and yet get their share of the softmax.
    """
    first = max(low, np.floor(labels.min() / step) * step)
    last = min(high, np.ceil(labels.max() / step) * step)
    edges = np.arange(first - step / 2, last + step, step)
    return Histogram(edges, soft=soft, point=point)  # pyright: ignore[reportArgumentType]


def run_state(path: Path) -> dict[str, Any]:
    """The model's tensors in a run's checkpoint."""
    state = checkpoint.read(path)["task"]
    return {k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")}


def read_backbone(model: Any, path: Path, released: bool = False) -> None:
    """Take everything but the head from a run's checkpoint, or from a released one."""
    state = released_state(path) if released else run_state(path)
    state = {k: v for k, v in state.items() if not model.in_head(k) and "smoothing." not in k}
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # the same names, other shapes
        missing, unexpected = [str(error).splitlines()[-1].strip()], []
    missing = [key for key in missing if not model.in_head(key) and "smoothing." not in key]
    if missing or unexpected:
        raise ValueError(
            f"{path}: expected the backbone of a {type(model).__name__}; missing {missing[:3]}, "
            f"unexpected {unexpected[:3]}. Take the model that it was trained with (a released "
            "one is a ResNet-50, as in preset=paper and official)."
        )


def read_state(task: Any, state: dict[str, Any], path: Path) -> None:
    """Load a checkpoint's state; only what stage 2 keeps frozen may be missing from it."""
    try:
        missing, unexpected = task.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise ValueError(f"{path}: made by another model or loss; {error}") from error
    missing = set(missing) - task.constant_keys()
    if missing or unexpected:
        raise ValueError(
            f"{path}: made by another model or loss; missing {sorted(missing)[:3]}, unexpected "
            f"{sorted(unexpected)[:3]}. Use the config it was made with."
        )


def optimizer(cfg: DictConfig, task: Any) -> Optimizer:
    """Two groups: the model, and the loss's own parameters with a learning rate of their own."""
    loss_parameters = [p for p in task.loss.parameters() if p.requires_grad]
    known = set(map(id, loss_parameters))
    model = [p for p in task.parameters() if p.requires_grad and id(p) not in known]
    groups: list[dict[str, Any]] = [{"params": model}]
    if loss_parameters:
        groups.append({"params": loss_parameters, "lr": cfg.optim.loss_lr, "weight_decay": 0.0})
    return targets.make(cfg.optim.optimizer, cfg.get("trust"), _partial_=True)(groups)


def scheduler(cfg: DictConfig, optimiser: Optimizer, steps: int) -> LambdaLR:
    """The model's learning rate follows the schedule, in epochs; that of the loss is constant."""
    options: Any = targets.plain(cfg.optim.schedule)
    schedule = targets.find(options.pop("_target_"), cfg.get("trust"))
    epochs = cfg.trainer.epochs
    schedule = functools.partial(schedule, **options)  # what instantiate makes is slow to call
    factors = [lambda step: schedule(step / steps, epochs), lambda step: 1.0]
    return LambdaLR(optimiser, factors[: len(optimiser.param_groups)])
