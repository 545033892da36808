"""The network of a run as a file that LiteHMR starts from."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from engine.runs import checkpoint, records
from engine.runs.run import composed
from models.hmr import LiteHMR


def network(weights: Path | None = None, hidden: int = 16) -> LiteHMR:
    return LiteHMR(False, 2, 3, weights, hidden=hidden)


def test_save_and_load(tmp_path: Path):
    model = network().eval()
    state = {f"model.{key}": value for key, value in model.state_dict().items()}
    run, file = tmp_path / "run", tmp_path / "network.pt"
    best = run / "checkpoints" / "best.pt"
    checkpoint.write(best, {"task": {**state, "spread": state}})
    cfg = OmegaConf.create({"run": str(run), "output": str(file)})
    with pytest.raises(FileNotFoundError, match="expected the folder of a finished run"):
        checkpoint.save_network(cfg)
    done = {"metrics": {"test/mpvpe": 100.0}, "seed": 0, "meta": {"commit": "c"}}
    records.write(run / "metrics.json", done)
    checkpoint.save_network(cfg)
    assert file.stat().st_size < 0.7 * best.stat().st_size
    assert torch.load(file, weights_only=True)["about"]["metrics"] == {"test/mpvpe": 100.0}
    for key, value in network(file).state_dict().items():
        # Half precision has 11 bits, and 2^-24 is its smallest step.
        torch.testing.assert_close(value, model.state_dict()[key], rtol=2**-11, atol=2**-24)
    message = r"network\.pt: expected a checkpoint of the lite layout; .*fc1\.weight"
    with pytest.raises(ValueError, match=message):
        network(file, hidden=8)
    records.write(run / "metrics.json", done | {"divergence": "too far"})
    with pytest.raises(FileNotFoundError, match="or the run diverged"):
        checkpoint.save_network(cfg)


def test_the_network_in_the_repository_fits_the_preset():
    cfg = composed("train", ["experiment=ihmr/spin", "preset=laptop", "paths=mini"])
    assert cfg.trainer.epochs == 0  # it is used without training
    settings = {key: value for key, value in cfg.model.items() if key not in ("_target_", "mean")}
    model = LiteHMR(**settings | {"pretrained": False})
    content = torch.load(cfg.model.weights, weights_only=True)
    assert set(content["about"]) == {"metrics", "seed", "meta"}
    assert Path(cfg.model.weights).stat().st_size < 4e6
    torch.testing.assert_close(model.fc1.weight, content["state_dict"]["fc1.weight"].float())
