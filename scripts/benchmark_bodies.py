"""What IHMR costs: the balanced term beside a training step, and a test set's memory.

GAI, BMC          seconds of the loss alone, N = 128 poses of 216 numbers, 16 components
head step         ResNet-50's features of 128 images at 224 px, then a step of the head with GAI
evaluation        errors of many people on a mesh of SMPL's size, and the most memory it took
"""

import tempfile
from pathlib import Path

from command import command
from omegaconf import DictConfig

from engine import ROOT
from engine.runs import provenance
from engine.speed.bodies import evaluation, steps
from engine.tables import table as tables


@command("benchmark_bodies")
def main(cfg: DictConfig) -> None:
    taken = steps(cfg.batch, cfg.components, cfg.image, cfg.rounds)
    for name, value in taken.items():
        print(f"{name:12} {1000 * value:10.2f} ms")
    percent, times = 100 * taken["GAI"] / taken["head step"], taken["GAI"] / taken["BMC"]
    print(f"GAI is {percent:.2f}% of a head step, {times:.1f} times BMC")
    with tempfile.TemporaryDirectory() as folder:
        found = evaluation(cfg.people, cfg.vertices, Path(folder), cfg.chunk)
    print(
        f"{cfg.people} people of {cfg.vertices} vertices: {found['seconds']:.0f} s, at most "
        f"{found['peak GB']:.2f} GB"
    )
    sizes = {key: cfg[key] for key in ("batch", "components", "image", "people", "vertices")}
    report = {
        "seconds": taken,
        "GAI": {"percent of a head step": percent, "times BMC": times},
        "evaluation": found,
        "meta": {**provenance.meta(), **sizes},
    }
    tables.write_benchmark(report, ROOT, "benchmark_bodies", cfg.publish)


if __name__ == "__main__":
    main()
