"""A config calls what is on the list, and nothing else, whatever it looks like."""

import ast
from pathlib import Path

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf

from engine import CONFIGS, ROOT
from engine.cli import targets
from engine.evaluation import evaluate
from engine.runs.run import run
from tests.engine.tiny import TinyNet, config

HOSTILE = [
    {"_target_": "os.system", "command": "touch {trace}"},
    {"_target_": "numpy.load", "file": "e.npy", "allow_pickle": True},
    {"_target_": "torch.load", "f": "e.pt", "weights_only": False},
    {"_target_": "pandas.read_pickle", "filepath_or_buffer": "e.pkl"},
    {"_target_": "joblib.load", "filename": "e.pkl"},
    {"_target_": "torch.hub.load", "repo_or_dir": "a/b", "model": "c"},
    {"_target_": "pathlib.Path.write_text", "_args_": ["{trace}", "x"]},
    {"_target_": "builtins.eval", "_args_": ["open('{trace}', 'w')"]},
    {"_target_": "subprocess.run", "args": ["touch", "{trace}"], "_partial_": True},
    {
        "_target_": "engine.runs.run.os.system",
        "command": "touch {trace}",
    },  # handed on by our own module
    {"_target_": "datasets.io.images.cv2.imwrite", "_args_": ["{trace}", []]},
    {"_target_": "datasets.ages.write_csv", "_args_": ["{trace}", [], [], []]},  # ours, writes
    {"_target_": "engine.runs.folder.clear", "place": "{trace}"},
    {"_target_": "engine.cli.targets.make", "node": {"_target_": "os.system", "command": "x"}},
    {"_target_": "losses.Bins.fit.__func__.__globals__"},
    {"_target_": "hydra.utils.instantiate", "_args_": [{"_target_": "os.system"}]},
    {"_target_": "tests.engine.tiny.TinyNet"},  # code of our own, but not trusted
    {"_target_": ["os.system"]},
    {"_target_": "losses.Gaussian", "sigma": {"_target_": "os.system", "command": "x"}},
    {"_target_": "losses.Gaussian", "_args_": [{"deep": [{"_target_": "os.system"}]}]},
    {"_target_": "losses.Gaussian", "_recursive_": False, "sigma": {"_target_": "os.system"}},
    {"_target_": "losses.Gaussian", "_convert_": "all", "x": [[{"_target_": "os.system"}]]},
    {"_target_": "${name}", "name": "os.system"},
    {"_target_": "${oc.decode:'os.system'}"},
    {"_target_": "os.${oc.env:NOT_SET,system}"},
]


@pytest.mark.parametrize("node", HOSTILE, ids=lambda node: str(node["_target_"]))
def test_a_foreign_name_is_refused_before_anything_is_called(node: dict, tmp_path: Path):
    trace = tmp_path / "trace"
    text = yaml.safe_dump(node).replace("{trace}", str(trace))
    cfg = OmegaConf.create(text)
    with pytest.raises(ValueError, match=r"is not one of the names that a config may call"):
        targets.make(cfg)
    with pytest.raises(ValueError, match=r"Nothing was called"):
        targets.check({"a": {"b": [targets.plain(cfg)]}})
    assert not trace.exists()


@pytest.mark.parametrize("place", ["dataset.csv", "model.x", "loss.likelihood.sigma", "metrics.y"])
def test_a_run_folder_from_elsewhere_runs_no_code(place: str, faces: Path, tmp_path: Path):
    folder = Path(run(config(faces, tmp_path, "imdb_wiki/gai"))["folder"])
    trace = tmp_path / "trace"

    class Malicious:
        def __reduce__(self):
            return (Path.touch, (trace,))

    np.save(tmp_path / "e.npy", np.array([Malicious()], object), allow_pickle=True)
    saved = OmegaConf.load(folder / "config.yaml")
    bad = {"_target_": "numpy.load", "file": str(tmp_path / "e.npy"), "allow_pickle": True}
    OmegaConf.update(saved, place, bad, force_add=True)
    saved.trust = ["numpy", "tests"]  # what the folder says about trust does not count
    OmegaConf.save(saved, folder / "config.yaml")
    with pytest.raises(ValueError, match=r"numpy\.load.*trust="):
        evaluate.finished_run(folder, trust=["tests"])
    assert not trace.exists()


def test_trust_is_given_by_the_reader(faces: Path, tmp_path: Path):
    folder = Path(run(config(faces, tmp_path))["folder"])
    assert "trust" not in yaml.safe_load((folder / "config.yaml").read_text())
    with pytest.raises(ValueError, match=r"tests\.engine\.tiny\.TinyNet.*trust="):
        evaluate.finished_run(folder)
    _, task, _ = evaluate.finished_run(folder, trust=["tests"])
    assert isinstance(task.model, TinyNet)


def test_a_foreign_name_on_the_command_line_is_refused_too(faces: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"optim\.optimizer\._target_: 'os\.system'"):
        run(config(faces, tmp_path, "imdb_wiki/gai", "optim.optimizer._target_=os.system"))
    with pytest.raises(ValueError, match=r"log\.draw|os\.system"):
        run(config(faces, tmp_path, "imdb_wiki/gai", "log.draw=os.system", "log.figures=true"))


def test_the_list_is_what_the_configs_call():
    """Every name in configs/ is on the list, every name on the list can be found."""
    used: set[str] = set()
    for path in CONFIGS.rglob("*.yaml"):
        content = OmegaConf.to_container(OmegaConf.load(path))
        used |= {str(name) for _, name in targets.named(content)}
    assert used <= targets.NAMES
    for name in targets.NAMES:
        assert callable(targets.find(name))


def test_there_is_one_door():
    """Nobody else imports Hydra's ways to call what a config names."""
    doors = {"instantiate", "call", "get_object", "get_method", "get_class"}
    for folder in ("datasets", "engine", "losses", "metrics", "models", "scripts", "synthetic"):
        for path in (ROOT / folder).rglob("*.py"):
            if path == ROOT / "engine" / "targets.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("hydra"):
                    assert not doors & {alias.name for alias in node.names}, path


def test_configs_of_earlier_runs_find_what_has_moved():
    node = {"_target_": "engine.training.schedule.constant"}
    assert targets.plain({"a": {"_target_": "engine.task.Dense"}}) == {
        "a": {"_target_": "engine.training.task.Dense"}
    }
    assert targets.plain(node) == node
