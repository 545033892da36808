"""A run that is stopped within an epoch resumes from that step; tests/faults kills runs."""

from pathlib import Path

import pytest

from engine.runs import checkpoint
from engine.runs.run import run
from tests.engine import tiny


def test_resuming_restores_sigma_its_optimiser_and_the_step(faces: Path, tmp_path: Path):
    overrides = ("trainer.checkpoint_every=1", "trainer.batch_size=12")
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/gai", *overrides)
    saves = []
    write = checkpoint.write

    def stop_after_six(path: Path, content: dict) -> None:
        write(path, content)
        if path.parent.parent.parent.parent.name == "gai" and path.name == "last.pt":
            saves.append(content["position"])
            if len(saves) == 6:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write", stop_after_six)
        with pytest.raises(KeyboardInterrupt):
            run(cfg)
    (folder,) = (tmp_path / "imdb_wiki" / "gai").glob("*/seed*")
    content = checkpoint.read(folder / "checkpoints" / "last.pt")
    assert content["position"] == {"epoch": 1, "step": 2}
    assert content["task"]["loss.likelihood.sigma"] != 10
    groups = content["optimizer"]["param_groups"]
    assert groups[1]["lr"] == cfg.optim.loss_lr
    (sigma,) = groups[1]["params"]
    assert content["optimizer"]["state"][sigma]["step"] == 6  # its moments are restored

    done = run(cfg)
    assert "resuming from" in (Path(done["folder"]) / "train.log").read_text()
