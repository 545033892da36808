"""Training loop. A run is a sequence of optimiser steps whose whole state is in the checkpoint:

    for epoch, for step:   gradient of the batch's mean loss  ->  optimiser  ->  schedule
    after each epoch:      validate, save the best epoch, save the state
    at the end:            evaluate the best epoch on val and test, write metrics.json

An interrupted run resumes from last.pt; on a CPU with bit-identical results.
"""

import os
import time
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from omegaconf import DictConfig
from torch import nn
from tqdm import tqdm

from engine.evaluation.evaluate import evaluate, write_results
from engine.features import cache as features
from engine.processes.pool import end_unless
from engine.runs import checkpoint, records
from engine.runs.folder import AGAIN
from engine.training import batches, build
from engine.training.batches import Keyed, evaluation_loader, loader, seed_all
from engine.training.divergence import DivergenceCheck
from engine.training.log import Log, service


def fit(fabric: Fabric, cfg: DictConfig, folder: Path, backbone: Path | None = None) -> None:
    """Train the config in `folder`, on the frozen backbone of stage 1 if given."""
    parent = parent_process() if fabric.world_size > 1 else None
    if parent is not None:  # one of several processes, one for each device
        end_unless(parent.is_alive)
    seed_all(cfg.seed)
    if cfg.trainer.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
    torch.use_deterministic_algorithms(cfg.trainer.deterministic)
    torch.backends.cudnn.benchmark = not cfg.trainer.deterministic
    loop = Loop(fabric, cfg, folder, backbone)
    try:
        loop.resume()
        if loop.about:
            loop.log.info(loop.about)
        loop.train()
        write_results(loop)
    except FloatingPointError as error:
        loop.log.info(f"diverged: {error}")
        if fabric.is_global_zero:
            about = {"row": cfg.row, "seed": cfg.seed, "seconds": loop.seconds}
            found = {"metrics": {}, "divergence": str(error), **about, "meta": records.meta()}
            records.write(folder / "metrics.json", found)
        raise
    finally:
        loop.log.close()
    fabric.barrier()


class Loop:
    """A run: its data, task and optimiser, its position (epoch, step) and its best epoch so far."""

    def __init__(self, fabric: Fabric, cfg: DictConfig, folder: Path, backbone: Path | None):
        self.fabric, self.cfg, self.folder = fabric, cfg, folder
        self.run = f"{cfg.name}/{cfg.preset}/seed{cfg.seed}"  # equal weights have equal digests
        trainer, rank, world = cfg.trainer, fabric.global_rank, fabric.world_size
        # Settings of every step; a lookup in the config takes longer than a small step.
        self.log_every, self.save_every = cfg.log.every, trainer.checkpoint_every
        self.clip, self.channels_last = trainer.clip, trainer.channels_last
        splits: dict[str, Any] = {s: build.dataset(cfg, s) for s in ("train", "val", "test")}
        if not len(splits["val"]):
            del splits["val"]  # then the last epoch is selected
        train, self.images = splits["train"], splits["test"]
        self.removed = getattr(train, "ranges", [])  # of labels, by a protocol
        self.labels, self.about = train.labels, getattr(train, "about", "")
        self.order = batches.order(cfg, len(train), rank, world)  # refuses too few samples
        counts = getattr(train, "label_counts", None)
        self.task: Any = build.task(cfg, self.labels, backbone, counts)
        if trainer.sync_batchnorm:
            self.task = nn.SyncBatchNorm.convert_sync_batchnorm(self.task)
        if trainer.channels_last:
            self.task.to(memory_format=torch.channels_last)
        workers, pin = trainer.workers, fabric.device.type == "cuda"
        if self.task.cached:
            splits = dict(features.tables(fabric, cfg, self.task.model, splits, backbone))
            workers = 0  # reading a table is faster than any worker
        else:
            splits["train"] = Keyed(train, cfg.seed)
        views = [getattr(r, "views", 1) for r in self.task.regularizers.values()]
        splits["train"].together = max(views, default=1)  # augmented views of a sample in a batch
        self.loader = loader(splits.pop("train"), self.order, workers, pin)
        how = (trainer.eval_batch_size, workers, pin, rank, world)
        self.evaluations = {k: evaluation_loader(split, *how) for k, split in splits.items()}
        self.metrics = build.metrics(cfg, train)
        if trainer.compile:
            self.task.model.compile()
        optimizer = build.optimizer(cfg, self.task)
        self.scheduler = build.scheduler(cfg, optimizer, self.order.steps)
        self.module, self.optimizer = fabric.setup(self.task, optimizer)
        self.epoch, self.step, self.best, self.seconds = 0, 0, {"score": None, "epoch": None}, 0.0
        # Frozen tensors are in stage 1's checkpoint only.
        self.constant = set() if cfg.backbone is None else self.task.constant_keys()
        self.divergence = DivergenceCheck(fabric, self.task, self.order.steps)
        seed_all(cfg.seed, rank + 1)  # from here on dropout differs between ranks
        self.log = Log(folder, active=False)

    @property
    def steps_done(self) -> int:
        return self.epoch * self.order.steps + self.step

    def train(self) -> None:
        """Train the remaining epochs: save after each, validate every few."""
        epochs, select = self.cfg.trainer.epochs, self.cfg.select
        total, shown = epochs * self.order.steps, self.cfg.log.progress and self.log.active
        how: Any = {"unit": "step", "dynamic_ncols": True, "disable": None if shown else True}
        self.log.bar = tqdm(total=total, initial=self.steps_done, **how)
        self.clock = time.perf_counter()
        if epochs == 0 or (self.best["epoch"] is None and self.epoch >= epochs):
            self.save_if_best(0.0)  # a released model or a given checkpoint, without training
        while self.epoch < epochs:
            self.train_epoch()
            self.divergence.check(self.epoch, self.step)
            self.task.end_epoch()
            if self.fabric.world_size > 1:  # the buffers of batch-norm differ by rank
                for buffer in self.task.buffers():
                    torch.distributed.broadcast(buffer, 0)
            self.epoch, self.step, report = self.epoch + 1, 0, {}
            due = select.which != "last" and self.epoch % select.get("every", 1) == 0
            if "val" in self.evaluations and (due or self.epoch == epochs):
                report, _ = evaluate(self.fabric, self.task, self.evaluations["val"], self.metrics)
            self.log.scalars({f"val/{k}": v for k, v in report.items()}, self.steps_done)
            self.save_if_best(report.get(select.metric))
            self.save()
            shown = {f"val/{key}": report[key] for key in self.cfg.log.show if key in report}
            values = [f"  {key} {value:.3f}" for key, value in (shown | self.task.scales()).items()]
            self.log.info(f"epoch {self.epoch}/{epochs}{''.join(values)}")
        del self.loader  # ends its workers now, not when the garbage is collected

    def train_epoch(self) -> None:
        """Run the remaining steps of the epoch."""
        self.order.epoch, self.order.start = self.epoch, self.step
        sizes = [len(batch) for batch in self.order.batches()]
        self.module.train()
        batches = iter(self.loader)
        seen, since = 0, time.perf_counter()
        for size in sizes[self.step :]:
            parts = np.array_split(np.arange(size), self.order.accumulate)
            loss = self.train_step(batches, [len(part) / size for part in parts])
            self.step += 1
            seen += size
            self.log.bar.update()
            if self.steps_done % self.log_every == 0:
                self.divergence.check_loss()
                now = time.perf_counter()
                values = {"loss": float(loss), "samples_per_second": seen / (now - since)}
                values |= self.divergence.terms()
                values |= {f"lr/{i}": g["lr"] for i, g in enumerate(self.optimizer.param_groups)}
                self.log.scalars({f"train/{k}": v for k, v in values.items()}, self.steps_done)
                seen, since = 0, now
            if self.save_every and self.step % self.save_every == 0 and self.step < len(sizes):
                self.divergence.check(self.epoch, self.step)
                self.save()

    def train_step(self, batches: Any, weights: list[float]) -> torch.Tensor:
        """Run one optimiser step and return its loss, on the device. Never synchronises the GPU.

        A rank's loss is the mean over its own samples, and gradients are averaged over ranks. Each
        loss is scaled by the rank's share of the global batch, so the gradient is that of one
        process with the joined batch, however uneven the shares.
        """
        total = torch.zeros((), device=self.fabric.device)
        for part, weight in enumerate(weights):
            batch = self.fabric.to_device(self.task.select(next(batches)))
            if self.channels_last and batch["input"].ndim == 4:
                batch["input"] = batch["input"].to(memory_format=torch.channels_last)
            with self.fabric.no_backward_sync(self.module, enabled=part + 1 < len(weights)):
                loss, pred = self.module(batch)
                share = self.divergence.record(self.steps_done, loss.detach(), batch, pred.detach())
                self.fabric.backward(loss * (weight * self.fabric.world_size * share))
            total = total + weight * loss.detach()
        if self.clip is not None:  # the divergence check reports what is not finite
            options: Any = {"max_norm": self.clip, "error_if_nonfinite": False}
            self.fabric.clip_gradients(self.module, self.optimizer, **options)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        return total

    def save_if_best(self, score: float | None) -> None:
        """Write best.pt if this epoch is the best so far, or if the last epoch is selected."""
        sign, best = (1 if self.cfg.select.mode == "min" else -1), self.best["score"]
        last = self.cfg.select.which == "last" or "val" not in self.evaluations
        if last or (score is not None and (best is None or sign * score < sign * best)):
            self.best = {"score": score, "epoch": self.epoch}
            state = {k: v for k, v in self.task.state_dict().items() if k not in self.constant}
            content = {"run": self.run, "task": state, **self.best}
            if self.fabric.is_global_zero:
                checkpoint.write(self.folder / "checkpoints" / "best.pt", content)

    def save(self) -> None:
        """Write last.pt: everything that the rest of the run depends on."""
        now = time.perf_counter()
        self.seconds, self.clock = self.seconds + now - self.clock, now
        content = {
            "run": self.run,
            "task": {k: v for k, v in self.task.state_dict().items() if k not in self.constant},
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.fabric.strategy.precision.state_dict(),
            "random": batches.generator_states(self.fabric),
            "position": {"epoch": self.epoch, "step": self.step},
            "best": self.best,
            "seconds": self.seconds,
        }
        if self.fabric.is_global_zero:
            checkpoint.write(self.folder / "checkpoints" / "last.pt", content)
        self.fabric.barrier()

    def resume(self) -> None:
        """Resume from last.pt (resume=auto) or a given checkpoint, or start (resume=never)."""
        rank, resume = self.fabric.global_rank, self.cfg.resume
        remote = service(self.cfg, self.folder) if self.cfg.log.service and rank == 0 else None
        best, last = (self.folder / "checkpoints" / name for name in ("best.pt", "last.pt"))
        given = resume not in ("auto", "never") and not last.exists()
        if resume == "never" or not (given or last.exists()):
            self.log = Log(self.folder, rank == 0, service=remote)
            return
        path = Path(resume) if given else last
        content = checkpoint.read(path, None if given else self.run)
        build.read_state(self.task, content["task"], path)
        self.optimizer.load_state_dict(content["optimizer"])
        self.scheduler.load_state_dict(content["scheduler"])
        self.fabric.strategy.precision.load_state_dict(content["scaler"])
        batches.restore_generators(content["random"][rank % len(content["random"])])
        self.epoch, self.step = content["position"]["epoch"], content["position"]["step"]
        self.best, self.seconds = content["best"], content["seconds"]
        if given:  # the best epoch of another run; ours starts here
            self.best = {"score": None, "epoch": None}
        elif self.best["epoch"] is not None and not best.is_file():
            raise FileNotFoundError(
                f"{best} is missing; {last.name} expects it to hold epoch {self.best['epoch']}, "
                f"the best so far. {AGAIN}."
            )
        self.log = Log(self.folder, rank == 0, self.steps_done, remote)
        self.log.info(f"resuming from {path}: epoch {self.epoch}, step {self.step}")
