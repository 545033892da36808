"""Depth: the share of a training step that the loss takes, and frames a second of the loader beside
a plain PIL dataset that maps pixels one by one (configs/benchmark_depth.yaml)."""

from typing import Any

from command import command
from omegaconf import DictConfig

from engine import ROOT
from engine.runs import provenance
from engine.speed.depth import loaders, shares
from engine.tables import table as tables


@command("benchmark_depth")
def main(cfg: DictConfig) -> None:
    rates = loaders(cfg.frames, cfg.rounds)
    report: dict[str, Any] = {"loader": rates}
    print(
        f"loader: {rates['ours']:.0f} frames/s a core, {rates['plain']:.0f} with PIL and lambdas:"
    )
    print(f"  {rates['ours'] / rates['plain']:.1f}x (goal 5x)")
    report["loss"] = shares(cfg.depth, cfg.batch, cfg.steps)
    for row, taken in report["loss"].items():
        goal = " (goal 15%)" if row in ("bni", "gai") else ""
        print(
            f"{row:10} {1e3 * taken['loss']:7.1f} ms of a step of {1e3 * taken['step']:.0f} ms: "
            f"{taken['loss'] / taken['step']:.2%}{goal}"
        )
    report["meta"] = {**provenance.meta(), "depth": cfg.depth, "batch": cfg.batch}
    tables.write_benchmark(report, ROOT, "benchmark_depth", cfg.publish)


if __name__ == "__main__":
    main()
