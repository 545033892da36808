"""Two processes that share the test set report what one process reports: every sample once."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from metrics import AgeMetrics, DepthMetrics, MeshMetrics, age_report, depth_report, mesh_report
from tests import process

RANKS, N = 2, 301  # odd: the ranks cannot have equal shares
# Three batches for rank 0, one for rank 1, none of one size.
SHARES = ([slice(0, 100), slice(100, 101), slice(101, 180)], [slice(180, N)])


def samples() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    age, depth = rng.integers(0, 90, N).astype(float), rng.uniform(0.7, 10, N)
    return {
        "train": rng.integers(0, 90, 4000) ** 2 // 90,
        "age": age,
        "age_pred": age + rng.normal(scale=8, size=N),
        "depth": depth,
        "depth_pred": depth * rng.uniform(0.6, 1.6, N),
        "rarity": rng.gamma(3, 60, N),
        "mpvpe": rng.uniform(20, 200, N),
    }


def run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    s = samples()
    age, depth = AgeMetrics(s["train"]), DepthMetrics()
    mesh, unfed = MeshMetrics(names=["mpvpe"]), MeshMetrics(names=["mpvpe"])
    for part in SHARES[rank]:
        age.update(s["age_pred"][part], s["age"][part])
        depth.update(s["depth_pred"][part], s["depth"][part])
        mesh.update({"mpvpe": s["mpvpe"][part]}, s["rarity"][part])
        if rank == 0:
            unfed.update({"mpvpe": s["mpvpe"][part]}, s["rarity"][part])
    unfed.to("cpu")  # a device move must not change the type that an unfed rank gathers
    metrics = {"age": age, "depth": depth, "mesh": mesh, "unfed": unfed}
    reports = {name: metric.compute() for name, metric in metrics.items()}
    Path(folder, f"{rank}.json").write_text(json.dumps(reports))
    torch.distributed.destroy_process_group()


def test_two_ranks_equal_one(tmp_path):
    ranks = [process.start(run_rank, rank, str(tmp_path)) for rank in range(RANKS)]
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    s = samples()
    fed = slice(0, 180)
    expected = {
        "age": age_report(s["age_pred"], s["age"], s["train"]),
        "depth": depth_report(s["depth_pred"], s["depth"]),
        "mesh": mesh_report({"mpvpe": s["mpvpe"]}, s["rarity"]),
        "unfed": mesh_report({"mpvpe": s["mpvpe"][fed]}, s["rarity"][fed]),
    }
    for rank in range(RANKS):
        reports = json.loads((tmp_path / f"{rank}.json").read_text())
        assert reports.keys() == expected.keys()
        for name, report in reports.items():
            # 1e-12: float64 sums in another order.
            assert report == pytest.approx(expected[name], rel=1e-12, nan_ok=True), name
