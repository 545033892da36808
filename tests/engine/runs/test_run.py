"""Runs: found again by their configs, with all files in the folder, stage 1 first."""

import gc
import json
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from engine.evaluation.evaluate import finished_run
from engine.runs import checkpoint
from engine.runs.folder import is_main_process, locked
from engine.runs.run import locate, run
from engine.training import batches
from tests.engine.tiny import TinyNet, config


@pytest.mark.parametrize(
    ("variables", "main"),
    [
        ({"TORCHELASTIC_RUN_ID": "a", "RANK": "1", "MASTER_ADDR": "a"}, False),
        ({"SLURM_PROCID": "3"}, False),
        ({"MASTER_ADDR": "a", "NODE_RANK": "1"}, False),  # it would wait for the lock of node 0
        ({"MASTER_ADDR": "a", "NODE_RANK": "0", "LOCAL_RANK": "1"}, False),
        ({"MASTER_ADDR": "a", "NODE_RANK": "0"}, True),
        ({"RANK": "1"}, True),  # without a launcher, Fabric starts one process
    ],
)
def test_one_process_of_a_launcher_writes(variables: dict, main: bool, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_main_process() == main


def test_a_finished_run_is_not_run_twice(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path)
    first = run(cfg)
    log = Path(first["folder"]) / "train.log"
    lines = log.read_text()
    assert run(cfg) == first
    assert log.read_text() == lines
    cfg.rerun = True
    again = run(cfg)
    assert again["metrics"] == first["metrics"]  # the same seed, the same numbers
    assert log.read_text() != lines


def test_a_run_that_waits_for_another_process_says_so(tmp_path: Path, monkeypatch):
    messages = Queue()
    monkeypatch.setattr("engine.training.log.print_message", messages.put)

    def second() -> None:
        with locked(tmp_path):
            messages.put("mine")

    with ThreadPoolExecutor() as threads:
        with locked(tmp_path):
            threads.submit(second)
            assert "another process runs this" in messages.get(timeout=60)
            assert messages.empty()
        assert messages.get(timeout=60) == "mine"


def test_no_worker_outlives_its_run(faces: Path, tmp_path: Path):
    """Whatever holds on to the run, the workers of the next one must not inherit its loader."""
    others = set(active_children())
    gc.disable()
    try:
        run(config(faces, tmp_path, "imdb_wiki/vanilla", "trainer.workers=1"))
        assert set(active_children()) <= others
    finally:
        gc.enable()


def test_the_run_folder(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path, "imdb_wiki/gai", "log.figures=true")
    done = run(cfg)
    folder = Path(done["folder"])
    assert folder.parent == tmp_path / "imdb_wiki" / "gai" / "paper"
    assert yaml.safe_load((folder / "config.yaml").read_text())["loss"]["prior"]["components"] == 2
    content = json.loads((folder / "metrics.json").read_text())
    assert {"val/bmae", "test/bmae_few", "test/mae", "test/gm"} <= set(content["metrics"])
    assert {"commit", "command", "machine", "versions"} <= set(content["meta"])
    arrays = np.load(folder / "predictions.npz")
    assert arrays["test_pred"].shape == arrays["test_target"].shape == (12, 1)
    for name in ("last.pt", "best.pt"):
        checkpoint.read(folder / "checkpoints" / name)

    events = EventAccumulator(str(folder)).Reload()
    scalars = set(events.Tags()["scalars"])
    assert {"train/loss", "train/nll", "train/balance", "train/sigma", "train/lr/0"} <= scalars
    assert {"train/lr/1", "train/samples_per_second", "val/bmae_few", "test/bmae"} <= scalars
    assert set(events.Tags()["images"]) == {"labels", "samples"}
    assert len(list(folder.glob("events.*"))) == 1
    assert len(events.Scalars("test/bmae")) == 1
    value = {k: [one.value for one in events.Scalars(f"train/{k}")] for k in ("nll", "balance")}
    total = [one.value for one in events.Scalars("train/unscaled_loss")]
    assert total == pytest.approx(np.add(*value.values()), rel=1e-6)  # float32 in the file
    texts = {tag: str(events.Tensors(f"{tag}/text_summary")[0]) for tag in ("config", "commit")}
    assert "components: 2" in texts["config"]
    assert str(content["meta"]["commit"]) in texts["commit"]
    table = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"dataset" in table
    assert b"imdb_wiki" in table


def test_a_setting_is_chosen_on_validation(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path, "imdb_wiki/histogram", "optim.optimizer.lr=0.1")
    done = run(cfg)
    assert len(done["candidates"]) == 3
    (power,) = done["chosen"].values()
    assert done["candidates"][str(power)] == min(done["candidates"].values())
    assert (
        done["metrics"]
        == json.loads((Path(done["chosen_run"]) / "metrics.json").read_text())["metrics"]
    )
    assert (Path(done["folder"]) / "predictions.npz").is_file()


def test_the_last_epoch_can_be_selected(faces: Path, tmp_path: Path):
    done = run(config(faces, tmp_path, "imdb_wiki/vanilla", "select.which=last"))
    assert done["epoch"] == 2


@pytest.mark.parametrize("freeze_bn", [True, False])
def test_stage_two_keeps_the_backbone(freeze_bn: bool, faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path, "imdb_wiki/bmc", f"freeze_bn={str(freeze_bn).lower()}")
    done = run(cfg)
    (stage1,) = (tmp_path / "imdb_wiki" / "vanilla" / "paper").iterdir()
    first = checkpoint.read(stage1 / "checkpoints" / "best.pt")["task"]
    second = checkpoint.read(Path(done["folder"]) / "checkpoints" / "last.pt")["task"]
    assert "model.conv.weight" not in second  # frozen, so it is in stage 1's checkpoint only
    assert not torch.equal(first["model.linear.weight"], second["model.linear.weight"])
    if freeze_bn:
        assert "model.bn.running_mean" not in second
    else:  # as in the released code, running statistics are updated
        assert not torch.equal(first["model.bn.running_mean"], second["model.bn.running_mean"])


def write_released(path: Path, seed: int, **state: torch.Tensor) -> dict[str, torch.Tensor]:
    """A base model as the released code saves it."""
    torch.manual_seed(seed)
    state = {**TinyNet().state_dict(), **state}
    saved = {f"module.{key}": value for key, value in state.items()}
    torch.save({"state_dict": saved, "epoch": 90, "best_loss": np.float32(7.2)}, path)
    return state


@pytest.mark.parametrize("features", ["none", "cached"])
def test_stage_two_can_start_from_a_released_model(features: str, faces: Path, tmp_path: Path):
    path = tmp_path / "base.pth.tar"
    base = write_released(path, 0, **{"FDS.running_mean": torch.zeros(3)})
    choices = (f"backbone.released={path}", f"features={features}")
    done = run(config(faces, tmp_path, "imdb_wiki/bmc", *choices))
    assert not (tmp_path / "imdb_wiki" / "vanilla").exists()  # no stage-1 run
    _, task, _ = finished_run(Path(done["folder"]), trust=["tests"])
    assert torch.equal(task.model.conv.weight, base["conv.weight"])
    assert torch.equal(task.model.bn.running_var, base["bn.running_var"])
    assert not torch.equal(task.model.linear.weight, base["linear.weight"])


def test_a_released_model_is_part_of_a_run_by_content(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("engine.runs.identity.LARGE", 100)  # however large it is
    one, copy, other = (tmp_path / name for name in ("one.pth", "copy.pth", "other.pth"))
    write_released(one, 0)
    copy.write_bytes(one.read_bytes())
    write_released(other, 1)

    cfgs = [
        config(faces, tmp_path, "imdb_wiki/bmc", f"backbone.released={path}")
        for path in (one, copy, other)
    ]
    theirs = [locate(cfg, None)[0] for cfg in cfgs]
    assert theirs[0] == theirs[1]
    own = locate(cfgs[0], {"folder": str(tmp_path)})[0]  # of a stage-1 run
    assert len({own, *theirs}) == 3


def test_a_released_model_that_does_not_fit(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path, "imdb_wiki/bmc", f"backbone.released={tmp_path}/a.pth")
    with pytest.raises(ValueError, match=r"backbone\.released=.*a\.pth: no such checkpoint"):
        run(cfg)
    write_released(tmp_path / "a.pth", 0, **{"conv.weight": torch.zeros(4, 3, 3, 3)})
    with pytest.raises(
        ValueError, match=r"a\.pth: expected the backbone of a TinyNet.*conv.weight"
    ):
        run(cfg)
    write_released(tmp_path / "a.pth", 0, other=torch.zeros(1))
    with pytest.raises(ValueError, match=r"a\.pth: .*unexpected \['other'\].*ResNet-50"):
        run(cfg)


def test_a_checkpoint_of_another_run_is_refused(faces: Path, tmp_path: Path):
    done = run(config(faces, tmp_path, "imdb_wiki/gai"))
    path = Path(done["folder"]) / "checkpoints" / "last.pt"
    with pytest.raises(ValueError, match=r"last\.pt: made by another model or loss"):
        run(config(faces, tmp_path, "imdb_wiki/vanilla", f"resume={path}", "seed=5"))


def test_seeds_and_ranks_have_different_random_numbers():
    sampled = set()
    for numbers in ((0,), (1,), (0, 1), (0, 2)):
        batches.seed_all(*numbers)
        sampled.add(torch.rand(()).item())
    assert len(sampled) == 4
