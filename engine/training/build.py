"""From a config to the objects that are trained: dataset -> labels -> loss -> model -> optimiser,
and the devices that train them.

The prior, the sample weights and the bins of a histogram are fitted to the training labels, never
configured, and the likelihood sets the width of the head. A config node under `loss` with
`_partial_: true` is fitted: it is called with the training labels (N, D) and, if those are distinct
values, with how often each occurs.
"""

import functools
import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.utilities.exceptions import MisconfigurationException
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from engine.cli import targets
from engine.runs import checkpoint
from losses.likelihoods import Likelihood
from models.regressor import mlp_head
from models.released import state_dict as released_state


def dataset(cfg: DictConfig, split: str, **changes: Any) -> Any:
    """Return one split of the configured dataset, without what a protocol removes."""
    made = targets.make(cfg.dataset, cfg.get("trust"), split=split, **changes)
    if not cfg.get("protocol") or split == "test" or not len(made):
        return made
    from engine.training.protocol import kept

    train = made if split == "train" else targets.make(cfg.dataset, cfg.get("trust"), split="train")
    if hasattr(train, "label_counts"):
        raise ValueError("A protocol needs one label per sample, not maps; leave out `protocol`.")
    return kept(cfg.protocol, split, made, train.labels, cfg.get("backbone") is not None)


def metrics(cfg: DictConfig, train: Any) -> Any:
    """Return the metrics of a benchmark; all labels of the training split define their shots."""
    labels = getattr(train, "all_labels", train.labels)
    return targets.make(cfg.metrics, cfg.get("trust"), train_labels=labels)


def shot_labels(cfg: DictConfig) -> NDArray | None:
    """Return the training labels (N, D), read without their inputs; None if the metrics do not
    group by how often each label occurs."""
    trust = cfg.get("trust")
    metrics = targets.find(cfg.metrics["_target_"], trust)
    if inspect.signature(metrics).parameters["train_labels"].default is None:
        return None
    settings = {key: value for key, value in cfg.dataset.items() if key != "_target_"}
    return targets.find(cfg.dataset["_target_"], trust).labels_of("train", **settings)


def task(
    cfg: DictConfig, labels: NDArray, backbone: Path | None = None, counts: NDArray | None = None
) -> nn.Module:
    """Return model, loss and regularisers as one module, fitted to the training labels (N, D).

    backbone: checkpoint of stage 1, whose features are frozen; the head starts anew, or, with
    `warm_start`, from that of stage 1.
    counts: (N,) how often each label occurs, if there are too many to list (pixels).
    """
    trust = cfg.get("trust")
    node = dict(cfg.loss)
    nodes = {name: node.pop(name, None) for name in ("likelihood", "prior", "weights")}
    parts = {k: fitted(v, labels, counts, trust) for k, v in nodes.items() if v is not None}
    weights = parts.pop("weights", None)
    loss = targets.make(node, trust, **parts)
    width = labels.shape[1]
    if (likelihood := getattr(loss, "likelihood", None)) is not None:
        width = likelihood.width(width)
    model = targets.make(cfg.model, trust, outputs=width)
    if backbone is not None:
        released = (cfg.backbone or {}).get("released") is not None
        read_backbone(model, backbone, released, cfg.get("warm_start", False))
        model.freeze(cfg.freeze_bn)
    options: dict[str, Any] = {"cached": cfg.features.mode == "cached"}
    if weights is not None:
        options["weights"] = torch.as_tensor(weights, dtype=torch.float32)
    if cfg.get("regularizer"):
        options["regularizers"] = found = regularizers(cfg, labels, counts)
        on_features = any(getattr(r, "uses_features", True) for r in found.values())
        if on_features and model.frozen and model.head_names == ("linear",):
            # Otherwise there would be nothing to train between the frozen features and the term.
            model.add_head(width, functools.partial(mlp_head, hidden=cfg.adapter))
    return targets.make(cfg.task, trust, model=model, loss=loss, **options)


def regularizers(cfg: DictConfig, labels: NDArray, counts: NDArray | None) -> dict[str, nn.Module]:
    """Return the regularisers by name; those with a `fit` method are fitted to the labels."""
    kind = targets.find(cfg.task["_target_"], cfg.get("trust"))
    if "regularizers" not in inspect.signature(kind).parameters:
        raise ValueError(f"{cfg.task['_target_']} takes no regularizers; leave out `regularizer`.")
    data = targets.find(cfg.dataset["_target_"], cfg.get("trust"))
    cached = cfg.features if cfg.features.mode == "cached" else {}
    available = cached.get("views", 2)
    augmented = (
        "augment" in inspect.signature(data).parameters
        and cfg.dataset.get("augment") is not False
        and cached.get("augment", True)
    )
    found = {k: targets.make(node, cfg.get("trust")) for k, node in cfg.regularizer.items()}
    for name, regularizer in found.items():
        if hasattr(regularizer, "fit"):
            regularizer.fit(labels, **({} if counts is None else {"sample_weight": counts}))
        needed = getattr(regularizer, "views", 1)
        if needed > 1 and not (augmented and available >= needed):
            raise ValueError(
                f"{name} needs {needed} augmented views of each sample, but this run has one: the "
                f"dataset {data.__name__} is not augmented, or features.views is {available}. "
                "Choose a regularizer that needs one view, or set features.augment=true and "
                f"features.views={needed} where the dataset can be augmented."
            )
    return found


def fitted(
    node: DictConfig, labels: NDArray, counts: NDArray | None = None, trust: Any = None
) -> Any:
    """Return what a node describes; a `_partial_` node is called with the labels."""
    made = targets.make(node, trust)
    if not isinstance(made, functools.partial):
        return made
    return made(labels) if counts is None else made(labels, sample_weight=counts)


def label_histogram(
    labels: NDArray, step: float, soft: float, point: str, low: float, high: float
) -> Likelihood:
    """Return a Histogram likelihood with bins of width `step` over the labels in [low, high].

    Bins outside the labels would never be trained, but get their share of the softmax.
    """
    from losses.categorical import Histogram

    first = max(low, np.floor(labels.min() / step) * step)
    last = min(high, np.ceil(labels.max() / step) * step)
    if last - first < step:
        raise ValueError(
            f"A histogram needs training labels in at least two bins of {step:g}; all lie in "
            f"{labels.min():g} to {labels.max():g}, and bins in {low:g} to {high:g}."
        )
    edges = np.arange(first - step / 2, last + step, step)
    return Histogram(edges, soft=soft, point=point)  # pyright: ignore[reportArgumentType]


def read_backbone(model: Any, path: Path, released: bool = False, warm: bool = False) -> None:
    """Load a run's checkpoint, or a released one, without the head unless `warm`."""
    if released:
        state = released_state(path)
    else:
        saved = checkpoint.read(path)["task"].items()
        state = {k.removeprefix("model."): v for k, v in saved if k.startswith("model.")}
    keys = state.keys() | model.state_dict().keys()
    new = {key for key in keys if (model.in_head(key) and not warm) or "smoothing." in key}
    state = {key: value for key, value in state.items() if key not in new}
    expected = f"expected the backbone of a {type(model).__name__}"
    advice = "the model that it was trained with (a released one is a ResNet-50, as in preset=paper"
    _load(model, state, new, f"{path}: {expected}", f"{advice} and official)")


def read_state(task: Any, state: dict[str, Any], path: Path) -> None:
    """Load a checkpoint's state; only the frozen tensors of stage 2 may be missing from it."""
    problem, advice = f"{path}: made by another model or loss", "the config it was made with"
    _load(task, state, task.constant_keys(), problem, advice)


def _load(module: Any, state: Any, optional: set[str], problem: str, advice: str) -> None:
    """Load a state dict, from which only the optional keys may be missing."""
    try:
        missing, unexpected = module.load_state_dict(state, strict=False)
    except RuntimeError as error:  # the same names, other shapes
        missing, unexpected = [str(error).splitlines()[-1].strip()], []
    missing = sorted(set(missing) - optional)
    if missing or unexpected:
        raise ValueError(
            f"{problem}; missing {missing[:3]}, unexpected {sorted(unexpected)[:3]}. Use {advice}."
        )


def optimizer(cfg: DictConfig, task: Any) -> Optimizer:
    """Return the optimiser with two groups: model, and loss with another learning rate."""
    loss_parameters = [p for p in task.loss.parameters() if p.requires_grad]
    known = set(map(id, loss_parameters))
    model = [p for p in task.parameters() if p.requires_grad and id(p) not in known]
    groups: list[dict[str, Any]] = [{"params": model}]
    if loss_parameters:
        groups.append({"params": loss_parameters, "lr": cfg.optim.loss_lr, "weight_decay": 0.0})
    return targets.make(cfg.optim.optimizer, cfg.get("trust"), _partial_=True)(groups)


def scheduler(cfg: DictConfig, optimiser: Optimizer, steps: int) -> LambdaLR:
    """Return the schedule of the model's learning rate; that of the loss is constant."""
    options: Any = targets.plain(cfg.optim.schedule)
    schedule = targets.find(options.pop("_target_"), cfg.get("trust"))
    epochs = cfg.trainer.epochs
    factors = [lambda step: schedule(step / steps, epochs, **options), lambda step: 1.0]
    return LambdaLR(optimiser, factors[: len(optimiser.param_groups)])


def make_fabric(cfg: DictConfig) -> Fabric:
    """Return a Fabric with the configured devices; refuse devices that this machine lacks.

    Several devices of one machine are spawned from here, unless torchrun or SLURM started us.
    """
    trainer, devices, strategy = cfg.trainer, targets.plain(cfg.trainer.devices), "auto"
    if trainer.strategy != "auto":
        strategy = trainer.strategy
    elif devices not in (1, "auto") or trainer.num_nodes > 1:
        started = any(name in os.environ for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID"))
        strategy = "ddp" if started or trainer.num_nodes > 1 else "ddp_spawn"
    machine = {name: trainer[name] for name in ("accelerator", "num_nodes", "precision")}
    try:
        fabric = Fabric(devices=devices, strategy=strategy, **machine)
    except (MisconfigurationException, TypeError, RuntimeError) as error:
        raise ValueError(f"trainer.accelerator, trainer.devices: {error}") from error
    if trainer.precision == "16-mixed" and fabric.device.type == "cpu":  # Fabric takes bf16-mixed
        raise ValueError("trainer.precision=16-mixed needs a GPU; use bf16-mixed on a CPU.")
    return labels_in_full(fabric)


def labels_in_full(fabric: Fabric) -> Fabric:
    """Pass batches on unchanged in mixed precision, where Fabric would round the labels, too."""
    precision: Any = fabric.strategy.precision
    if isinstance(precision, MixedPrecision):
        precision.convert_input = _unchanged
    return fabric


def _unchanged(data: Any) -> Any:
    return data
