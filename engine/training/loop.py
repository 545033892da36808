"""The loop. A run is a sequence of optimiser steps, and its whole state is in the checkpoint:

    for epoch, for step:   gradient of the batch's mean loss  ->  optimiser  ->  schedule
    after each epoch:      validate, keep the best, save
    at the end:            evaluate the best on val and test, write metrics.json

Killed at any moment and started again, it goes on from `last.pt`; on a CPU to the same bits.
"""

import time
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from omegaconf import DictConfig
from torch import nn

from engine.cli import targets
from engine.evaluation.evaluate import evaluate
from engine.features import cache as features
from engine.processes.parent import end_unless
from engine.runs import checkpoint, outcome
from engine.runs.folder import finish
from engine.runs.provenance import meta
from engine.training import build, generators
from engine.training.batches import Keyed, Order, evaluation_loader, training_loader
from engine.training.divergence import Health
from engine.training.log import Log


def fit(fabric: Fabric, cfg: DictConfig, folder: Path, backbone: Path | None = None) -> None:
    """Train what the config describes in `folder`, on the frozen backbone of stage 1 if given."""
    parent = parent_process() if fabric.world_size > 1 else None
    if parent is not None:  # one process of several, one for each device
        end_unless(parent.is_alive)
    generators.seed_all(cfg.seed)
    generators.repeatable(cfg.trainer.deterministic)
    loop = Loop(fabric, cfg, folder, backbone)
    try:
        loop.resume()
        if loop.about:  # what is worth knowing of the data before hours of training
            loop.log.info(loop.about)
        loop.train()
        outcome.write(loop)
    except FloatingPointError as error:
        loop.log.info(f"diverged: {error}")
        if fabric.is_global_zero:
            about = {"row": cfg.row, "seed": cfg.seed, "seconds": loop.seconds, "meta": meta()}
            finish(folder, {"metrics": {}, "divergence": str(error), **about})
        raise
    finally:
        loop.log.close()
    fabric.barrier()


def order(cfg: DictConfig, samples: int, rank: int = 0, world: int = 1) -> Order:
    """In which order this rank sees its share of the training samples."""
    trainer = cfg.trainer
    return Order(
        samples,
        trainer.batch_size,
        cfg.seed,
        trainer.accumulate,
        rank,
        world,
        trainer.epoch_size,
        trainer.even_batches,
    )


class Loop:
    """A run under way: its parts, its position (epoch, step) and its best epoch so far."""

    def __init__(self, fabric: Fabric, cfg: DictConfig, folder: Path, backbone: Path | None):
        self.fabric, self.cfg, self.folder = fabric, cfg, folder
        trainer, rank, world = cfg.trainer, fabric.global_rank, fabric.world_size
        # What every step asks for; looking it up in the config takes longer than a small step.
        self.log_every, self.save_every = cfg.log.every, trainer.checkpoint_every
        self.clip, self.channels_last = trainer.clip, trainer.channels_last
        splits: dict[str, Any] = {s: build.dataset(cfg, s) for s in ("train", "val", "test")}
        if not len(splits["val"]):
            del splits["val"]  # then the last epoch is the one that counts
        self.images, self.labels = splits["test"], splits["train"].labels
        self.about = getattr(splits["train"], "about", "")
        self.order = order(cfg, len(splits["train"]), rank, world)  # refuses too few samples
        counts = getattr(splits["train"], "label_counts", None)
        self.task: Any = build.task(cfg, self.labels, backbone, counts)
        if trainer.sync_batchnorm:
            self.task = nn.SyncBatchNorm.convert_sync_batchnorm(self.task)
        if trainer.channels_last:
            self.task.to(memory_format=torch.channels_last)
        workers, pin = trainer.workers, fabric.device.type == "cuda"
        if self.task.cached:
            splits = features.tables(fabric, cfg, self.task.model, splits, backbone)
            workers = 0  # a table in memory is faster than any worker
        else:
            splits["train"] = Keyed(splits["train"], cfg.seed)
        self.loader = training_loader(splits["train"], self.order, workers, pin)
        self.evaluations = {
            split: evaluation_loader(
                splits[split], trainer.eval_batch_size, workers, pin, rank, world
            )
            for split in splits
            if split != "train"
        }
        self.metrics = targets.make(cfg.metrics, cfg.trust, train_labels=self.labels)
        if trainer.compile:
            self.task.model.compile()
        optimizer = build.optimizer(cfg, self.task)
        self.scheduler = build.scheduler(cfg, optimizer, self.order.steps)
        self.module, self.optimizer = fabric.setup(self.task, optimizer)
        self.epoch, self.step, self.best, self.seconds = 0, 0, {"score": None, "epoch": None}, 0.0
        self.health = Health(fabric, self.task, self.order.steps)
        generators.seed_all(cfg.seed, rank + 1)  # from here on each rank draws its own dropout
        self.log = Log(folder, active=False)

    @property
    def steps_done(self) -> int:
        return self.epoch * self.order.steps + self.step

    def train(self) -> None:
        """All epochs that are still to do: a checkpoint after each, validation every few."""
        epochs, steps = self.cfg.trainer.epochs, self.order.steps
        self.log.progress(epochs * steps, self.steps_done, self.cfg.log.progress)
        self.clock = time.perf_counter()
        if epochs == 0 or (self.best["epoch"] is None and self.epoch >= epochs):
            self.keep_if_best(0.0)  # a released model, or a given checkpoint, taken as it is
        while self.epoch < epochs:
            self.train_epoch()
            self.health.check(self.epoch, self.step)
            self.task.end_epoch()
            self.broadcast_buffers()
            report = self.validate()
            self.epoch, self.step = self.epoch + 1, 0
            self.log.scalars({f"val/{k}": v for k, v in report.items()}, self.steps_done)
            self.keep_if_best(report.get(self.cfg.select.metric))
            self.save()
            shown = [key for key in self.cfg.log.show if key in report]
            self.log.info(
                f"epoch {self.epoch}/{epochs}"
                + "".join(f"  val/{key} {report[key]:.3f}" for key in shown)
                + "".join(f"  {key} {value:.3f}" for key, value in self.task.scales().items())
            )
        del self.loader  # its workers end now, not whenever the garbage is collected

    def validate(self) -> dict[str, float]:
        """The report on the validation split; nothing where there is none, or none is due."""
        done, select = self.epoch + 1, self.cfg.select
        due = select.which != "last" and done % select.get("every", 1) == 0
        if "val" not in self.evaluations or not (due or done == self.cfg.trainer.epochs):
            return {}
        return evaluate(self.fabric, self.task, self.evaluations["val"], self.metrics)[0]

    def train_epoch(self) -> None:
        """The steps of the epoch that are still to do."""
        self.order.epoch, self.order.start = self.epoch, self.step
        sizes = [len(batch) for batch in self.order.batches()]
        self.module.train()
        batches = iter(self.loader)
        seen, since = 0, time.perf_counter()
        for size in sizes[self.step :]:
            loss = self.train_step(batches, self.order.share_of(size))
            self.step += 1
            seen += size
            self.log.advance()
            if self.steps_done % self.log_every == 0:
                self.health.check_loss()
                now = time.perf_counter()
                values = {"loss": float(loss), "samples_per_second": seen / (now - since)}
                values |= self.health.terms()
                values |= {f"lr/{i}": g["lr"] for i, g in enumerate(self.optimizer.param_groups)}
                self.log.scalars({f"train/{k}": v for k, v in values.items()}, self.steps_done)
                seen, since = 0, now
            if self.save_every and self.step % self.save_every == 0 and self.step < len(sizes):
                self.health.check(self.epoch, self.step)
                self.save()

    def train_step(self, batches: Any, shares: list[float]) -> torch.Tensor:
        """One optimiser step: its loss, on the device. Nothing is read back from a GPU.

        A rank's mean is over its own rows, and ranks are averaged; so each is scaled by its part of
        all rows, and the gradient is that of one process with the joined batch, however ragged the
        shares.
        """
        total = torch.zeros((), device=self.fabric.device)
        for part, share in enumerate(shares):
            batch = self.to_device(next(batches))
            with self.fabric.no_backward_sync(self.module, enabled=part + 1 < len(shares)):
                loss, pred = self.module(batch)
                part_of_all = self.health.note(self.steps_done, loss.detach(), batch, pred.detach())
                scale = share * self.fabric.world_size * part_of_all
                self.fabric.backward(loss * scale)
            total = total + share * loss.detach()
        if self.clip is not None:
            options: Any = {"max_norm": self.clip, "error_if_nonfinite": False}  # see health.py
            self.fabric.clip_gradients(self.module, self.optimizer, **options)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        return total

    def to_device(self, batch: dict) -> dict:
        batch = self.fabric.to_device(self.task.select(batch))
        if self.channels_last and batch["input"].ndim == 4:
            batch["input"] = batch["input"].to(memory_format=torch.channels_last)
        return batch

    def broadcast_buffers(self) -> None:
        """Give every rank the buffers of rank zero; those of batch-norm differ by rank."""
        if self.fabric.world_size > 1:
            for buffer in self.task.buffers():
                torch.distributed.broadcast(buffer, 0)

    def keep_if_best(self, score: float | None) -> None:
        """Write best.pt if this epoch is the best so far, or if the last one is what counts."""
        sign, best = (1 if self.cfg.select.mode == "min" else -1), self.best["score"]
        last = self.cfg.select.which == "last" or "val" not in self.evaluations
        if last or (score is not None and (best is None or sign * score < sign * best)):
            self.best = {"score": score, "epoch": self.epoch}
            content = {"task": self.state(), **self.best}
            if self.fabric.is_global_zero:
                checkpoint.write(self.folder / "checkpoints" / "best.pt", content)

    def state(self) -> dict[str, Any]:
        """The task's state, without what is frozen if that is in stage 1's checkpoint."""
        constant = set() if self.cfg.backbone is None else self.task.constant_keys()
        return {k: v for k, v in self.task.state_dict().items() if k not in constant}

    def save(self) -> None:
        """Write last.pt: everything that the rest of the run depends on."""
        now = time.perf_counter()
        self.seconds, self.clock = self.seconds + now - self.clock, now
        content = {
            "task": self.state(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.fabric.strategy.precision.state_dict(),
            "random": generators.states(self.fabric),
            "position": {"epoch": self.epoch, "step": self.step},
            "best": self.best,
            "seconds": self.seconds,
        }
        if self.fabric.is_global_zero:
            checkpoint.write(self.folder / "checkpoints" / "last.pt", content)
        self.fabric.barrier()

    def resume(self) -> None:
        """Go on from last.pt (resume=auto), from a given checkpoint, or start (resume=never)."""
        last = self.folder / "checkpoints" / "last.pt"
        own = self.cfg.resume in ("auto", "never") or last.exists()  # ours is further on
        path = last if own else Path(self.cfg.resume)
        if self.cfg.resume == "never" or (path == last and not last.exists()):
            self.log = Log(self.folder, self.fabric.is_global_zero)
            return
        content = checkpoint.read(path)
        build.read_state(self.task, content["task"], path)
        self.optimizer.load_state_dict(content["optimizer"])
        self.scheduler.load_state_dict(content["scheduler"])
        self.fabric.strategy.precision.load_state_dict(content["scaler"])
        randoms = content["random"]
        generators.restore(randoms[self.fabric.global_rank % len(randoms)])
        self.epoch, self.step = content["position"]["epoch"], content["position"]["step"]
        self.best, self.seconds = content["best"], content["seconds"]
        best = self.folder / "checkpoints" / "best.pt"
        if self.best["epoch"] is not None and not best.is_file():
            if path == last:
                raise FileNotFoundError(
                    f"{best}: gone, though {last.name} says that it holds epoch "
                    f"{self.best['epoch']}, the best so far. Start the same command with "
                    "rerun=true, which trains it again."
                )
            self.best = {"score": None, "epoch": None}  # another run's: ours starts here
        self.log = Log(self.folder, self.fabric.is_global_zero, purge_step=self.steps_done)
        self.log.info(f"going on from {path}: epoch {self.epoch}, step {self.step}")
