"""Cost of a loss in training: seconds per iteration and peak memory, as the paper measures them.

Each row is measured in a fresh process, so that the memory of one row does not count for another.
The images are random numbers: a step costs the same whatever they show.
"""

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from engine.training import build

SAMPLES = 20_000  # labels that the priors are fitted to


def measure(cfg: DictConfig, iterations: int) -> dict[str, float]:
    """Return {"seconds", "memory_mb"} of one training step of a stage-2 config with backbone."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure_here, plain, iterations).result()


def measure_here(plain: Any, iterations: int, warmup: int = 1) -> dict[str, float]:
    cfg: Any = OmegaConf.create(plain)
    cfg.features = {"mode": "none"}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = np.random.default_rng(0)
    labels = np.clip(rng.normal(35, 12, (SAMPLES, 1)).round(), 0, 100).astype(np.float32)
    task: Any = build.task(cfg, labels)
    task.model.freeze(cfg.freeze_bn)
    task.to(device).train()
    optimizer = build.optimizer(cfg, task)
    index = torch.arange(cfg.trainer.batch_size)
    side = cfg.dataset.size
    batch = {
        "input": torch.randn(len(index), 3, side, side, device=device),
        "target": torch.from_numpy(labels)[index].to(device),
        "meta": {"index": index.to(device)},
    }
    if device.type == "cuda":  # the memory that the fit of a prior took does not count
        torch.cuda.reset_peak_memory_stats()
    elif sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")
    times = []
    for _ in range(warmup + iterations):
        start = time.perf_counter()
        loss, _ = task(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return {"seconds": float(np.mean(times[warmup:])), "memory_mb": _peak(device)}


def _peak(device: torch.device) -> float:
    """Return the peak memory in megabytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if sys.platform == "linux":  # where ru_maxrss begins with the parent's memory
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on a Mac
