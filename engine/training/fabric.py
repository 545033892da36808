"""Devices, nodes and precision of a run, through Fabric."""

import os
from typing import Any

from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig

from engine.cli import targets


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
    return labels_in_full(fabric)


def labels_in_full(fabric: Fabric) -> Fabric:
    """Pass batches on unchanged in mixed precision, where Fabric would round the labels, too."""
    precision: Any = fabric.strategy.precision
    if isinstance(precision, MixedPrecision):
        precision.convert_input = _unchanged
    return fabric


def _unchanged(data: Any) -> Any:
    return data
