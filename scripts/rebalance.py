"""Print the trade-off of a finished run, balanced afterwards: see configs/rebalance.yaml.

python scripts/rebalance.py run=outputs/imdb_wiki/vanilla/laptop/seed0-...
"""

from pathlib import Path

from command import command
from omegaconf import DictConfig


def report(cfg: DictConfig) -> None:
    from matplotlib.figure import Figure

    from datasets.io.files import atomic_write
    from engine.cli.settings import unknown_metrics
    from engine.runs.folder import read_config
    from engine.tables.posthoc import front

    folder = Path(cfg.run)
    own = read_config(folder, cfg.trust)
    names = list(cfg.metrics or own.log.show)
    wanted = [("metrics", name) for name in names]
    if problems := unknown_metrics(own.metrics["_target_"], cfg.trust, wanted):
        raise ValueError("\n".join(problems))
    settings = {key: cfg[key] for key in ("method", "point", "likelihood", "criterion", "sigma")}
    sigma, found = front(folder, cfg.strengths, settings, cfg.trust)
    print(f"sigma {sigma:.4g}" if sigma == sigma else cfg.method)
    print("strength", *(f"{name:>12}" for name in names))
    for strength, metrics in found.items():
        print(f"{strength:8.2f}", *(f"{metrics[name]:12.4f}" for name in names))
    if cfg.figure is None:
        return
    path = Path(cfg.figure)
    figure = Figure((4, 3), layout="constrained")
    ax = figure.subplots()
    x, y = ([metrics[name] for metrics in found.values()] for name in names[:2])
    ax.plot(x, y, "o-", color="#d55e00")
    for strength, *at in zip(found, x, y, strict=True):
        ax.annotate(
            f"{strength:g}", (at[0], at[1]), textcoords="offset points", xytext=(4, 4), fontsize=8
        )
    ax.set(xlabel=names[0], ylabel=names[1], title="One model, strength of balancing")
    with atomic_write(path) as file:
        figure.savefig(file, dpi=120, format=path.suffix.lstrip(".") or "png")
    print(f"Figure: {path}")


main = command(__name__, "rebalance", report)
