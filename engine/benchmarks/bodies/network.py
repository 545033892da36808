"""Export the network of a run as a file of a few megabytes, for models.hmr.LiteHMR(weights=)."""

from pathlib import Path

from omegaconf import DictConfig

from engine.runs import checkpoint
from engine.runs import folder as runs


def main(cfg: DictConfig) -> None:
    path = Path(cfg.output)
    save(Path(cfg.run), path)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MB")


def save(run: Path, path: Path) -> None:
    """Write the best epoch's network of a finished run with its metrics, seed and provenance.

    Weights are rounded to half precision to halve the file; 1-D tensors (batch-norm, biases) are
    small and stay in full precision.
    """
    done = runs.finished(run)
    if done is None or done.get("divergence"):
        raise FileNotFoundError(
            f"{run}: expected the folder of a finished run, as printed by train.py; it has no "
            "metrics.json, or the run diverged."
        )
    saved = checkpoint.read(run / "checkpoints" / "best.pt")["task"].items()
    state = {k.removeprefix("model."): v for k, v in saved if k.startswith("model.")}
    half = {key: v.half() if v.ndim > 1 else v for key, v in state.items()}
    about = {key: done[key] for key in ("metrics", "seed", "meta")}
    checkpoint.write(path, {"state_dict": half, "about": about})
