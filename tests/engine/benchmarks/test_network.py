"""The network of a run as a file that LiteHMR starts from."""

from pathlib import Path

import pytest
import torch

from engine.benchmarks.bodies.network import save
from engine.runs import checkpoint, identity
from engine.runs import folder as runs
from engine.runs.run import composed
from models.hmr import LiteHMR


def network(weights: Path | None = None) -> LiteHMR:
    return LiteHMR(False, 2, 3, weights, hidden=16)


def test_a_run_is_kept_as_a_small_file(tmp_path: Path):
    model = network().eval()
    state = {f"model.{key}": value for key, value in model.state_dict().items()}
    run = tmp_path / "run"
    checkpoint.write(run / "checkpoints" / "best.pt", {"task": {**state, "spread": state}})
    with pytest.raises(FileNotFoundError, match="expected the folder of a finished run"):
        save(run, tmp_path / "network.pt")
    runs.finish(run, {"metrics": {"test/mpvpe": 100.0}, "seed": 0, "meta": {"commit": "c"}})
    save(run, tmp_path / "network.pt")
    assert (tmp_path / "network.pt").stat().st_size < 0.7 * (
        run / "checkpoints/best.pt"
    ).stat().st_size
    kept = torch.load(tmp_path / "network.pt", weights_only=True)
    assert kept["about"]["metrics"] == {"test/mpvpe": 100.0}
    for key, value in network(tmp_path / "network.pt").state_dict().items():
        # half precision has 11 bits, and 2^-24 is its smallest step
        torch.testing.assert_close(value, model.state_dict()[key], rtol=2**-11, atol=2**-24)


def test_a_diverged_run_is_not_kept(tmp_path: Path):
    content = {"metrics": {}, "divergence": "too far", "seed": 0, "meta": {}}
    runs.finish(tmp_path, content)
    with pytest.raises(FileNotFoundError, match="or the run diverged"):
        save(tmp_path, tmp_path / "network.pt")


def test_another_network_makes_another_run(bodies: Path, tmp_path: Path):
    file, found = tmp_path / "network.pt", []
    place = [f"paths.data={bodies}", f"paths.pose_network={file}"]
    cfg = composed("train", ["experiment=ihmr/spin", "preset=laptop", "paths=mini", *place])
    for content in (b"one", b"another"):
        file.write_bytes(content)
        found.append(identity.parts(cfg))
    assert [part for part in found[0] if found[0][part] != found[1][part]] == ["files"]


def test_the_network_of_the_repository_fits_the_preset():
    cfg = composed("train", ["experiment=ihmr/spin", "preset=laptop", "paths=mini"])
    assert cfg.trainer.epochs == 0  # it is taken as it is
    settings = {key: value for key, value in cfg.model.items() if key not in ("_target_", "mean")}
    model = LiteHMR(**settings | {"pretrained": False})
    content = torch.load(cfg.model.weights, weights_only=True)
    assert set(content["about"]) == {"metrics", "seed", "meta"}
    assert Path(cfg.model.weights).stat().st_size < 4e6
    torch.testing.assert_close(model.fc1.weight, content["state_dict"]["fc1.weight"].float())
