"""What a finished run leaves: the chosen epoch's numbers, predictions, draws and figures."""

from typing import TYPE_CHECKING

from engine.cli import targets
from engine.evaluation.evaluate import evaluate, save_draws, save_predictions
from engine.runs import checkpoint, identity
from engine.runs import folder as runs
from engine.runs.provenance import meta
from engine.training import build
from engine.training.divergence import LOWER
from engine.training.log import brief

if TYPE_CHECKING:
    from engine.training.loop import Loop


def write(loop: "Loop") -> None:
    """Evaluate the chosen epoch and write metrics.json, which makes the run a finished one."""
    best = loop.folder / "checkpoints" / "best.pt"
    build.read_state(loop.task, checkpoint.read(best)["task"], best)
    reports, predicted = {}, {}
    keep, drawn = loop.cfg.log.predictions, loop.cfg.log.draws > 0
    drawn = drawn and hasattr(loop.metrics, "resample")
    for split, loader in loop.evaluations.items():
        samples = drawn and split == "test"
        report, predicted[split] = evaluate(
            loop.fabric, loop.task, loader, loop.metrics, keep, samples
        )
        reports |= {f"{split}/{key}": value for key, value in report.items()}
    implausible = getattr(loop.task, "implausible", None)
    if implausible is not None and (reason := implausible(reports, loop.labels)):
        raise FloatingPointError(f"{reason}. {LOWER}")
    if not loop.fabric.is_global_zero:
        return
    if keep:
        save_predictions(loop.folder / runs.PREDICTIONS, predicted)
    if drawn:
        samples, number = predicted["test"]["samples"], loop.cfg.log.draws
        save_draws(loop.folder / runs.DRAWS, loop.metrics, samples, number)
    if loop.cfg.log.figures:
        draw = targets.find(loop.cfg.log.draw, loop.cfg.trust)
        for name, figure in draw(loop, predicted["test"]).items():
            loop.log.figure(name, figure, loop.steps_done)
        if hasattr(loop.task, "show"):  # more than figures: meshes
            loop.task.show(loop.log, predicted["test"], loop.steps_done)
    test = {key: value for key, value in reports.items() if key.startswith("test/")}
    loop.log.scalars(test, loop.steps_done)
    loop.log.hparams(loop.cfg, test)
    content = {
        "metrics": reports,
        "weights": identity.file_digest(best),
        "epoch": loop.best["epoch"],
        "seconds": loop.seconds,
        **{f"final_{key}": value for key, value in loop.task.scales().items()},
        "row": loop.cfg.row,
        "seed": loop.cfg.seed,
        "meta": meta(),
    }
    runs.finish(loop.folder, content)
    shown = "  ".join(f"{key} {text}" for key, text in brief(reports, loop.cfg.log.show))
    loop.log.info(f"finished {loop.cfg.name}: {shown}")
