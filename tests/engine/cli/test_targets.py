"""A config calls what is allowed, and nothing else, however it is written."""

import ast
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from engine import ROOT
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
    {"_target_": "engine.runs.run.os.system", "command": "touch {trace}"},  # imported by us
    {"_target_": "datasets.io.images.cv2.imwrite", "_args_": ["{trace}", []]},
    {"_target_": "datasets.ages.write_csv", "_args_": ["{trace}", [], [], []]},  # ours, writes
    {"_target_": "engine.runs.folder.clear", "folder": "{trace}"},
    {"_target_": "engine.tables.tradeoff.plot", "folder": "{trace}"},  # ours, writes figures
    {"_target_": "engine.benchmarks.age.plot", "folder": "{trace}"},
    {"_target_": "engine.benchmarks.synthetic.stage", "_args_": [["folder={trace}"]]},
    {"_target_": "engine.cli.targets.make", "node": {"_target_": "os.system", "command": "x"}},
    {"_target_": "losses.Bins.fit.__func__.__globals__"},
    {"_target_": "hydra.utils.instantiate", "_args_": [{"_target_": "os.system"}]},
    {"_target_": "tests.engine.tiny.TinyNet"},  # our own code, but not allowed
    {"_target_": ["os.system"]},
    {"_target_": "losses.Gaussian", "sigma": {"_target_": "os.system", "command": "x"}},
    {"_target_": "losses.Gaussian", "_args_": [{"deep": [{"_target_": "os.system"}]}]},
    {"_target_": "losses.Gaussian", "_recursive_": False, "sigma": {"_target_": "os.system"}},
    {"_target_": "${name}", "name": "os.system"},
    {"_target_": "${oc.decode:'os.system'}"},
    {"_target_": "os.${oc.env:NOT_SET,system}"},
]


@pytest.mark.parametrize("node", HOSTILE, ids=lambda node: str(node["_target_"]))
def test_a_foreign_name_is_refused_before_anything_is_called(node: dict, tmp_path: Path):
    trace = tmp_path / "trace"
    cfg = OmegaConf.create(yaml.safe_dump(node).replace("{trace}", str(trace)))
    for call in (targets.make, lambda cfg: targets.check({"a": {"b": [targets.plain(cfg)]}})):
        with pytest.raises(ValueError, match=r"a config may not call .*Nothing was called"):
            call(cfg)
    assert not trace.exists()


def test_make():
    node = {"_target_": "losses.Gaussian", "sigma": 2.0}
    assert targets.make(node).sigma == 2
    assert targets.make(node, sigma=3.0).sigma == 3
    assert targets.make(node, _partial_=True)(learn_sigma=True).sigma.requires_grad
    assert targets.make({"_target_": "numpy.arange", "_args_": [1, 3]}).tolist() == [1, 2]
    assert targets.make({"a": [node], "b": 1})["a"][0].sigma == 2
    for name in ("losses.Gausian", "losses.nope.X", "tests.nope.X", "tests.engine.tiny.nope"):
        with pytest.raises(ImportError):
            targets.find(name, ["losses", "tests"])


def test_an_escaped_interpolation_stays_text(tmp_path: Path):
    """OmegaConf turns \\${...} into ${...}, which nothing may resolve a second time."""
    inner = r"\${oc.create:{_target_:pathlib.Path.touch,_args_:[" + str(tmp_path / "trace") + "]}}"
    cfg = OmegaConf.create({"_target_": "losses.Gaussian", "sigma": inner, "_partial_": True})
    made = targets.make(cfg)
    assert made.keywords["sigma"].startswith("${oc.create")
    assert not (tmp_path / "trace").exists()


@pytest.fixture(scope="module")
def finished(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(run(config(faces, tmp_path_factory.mktemp("run"), "imdb_wiki/gai"))["folder"])


def test_a_run_folder_has_no_say_in_what_is_allowed(finished: Path, tmp_path: Path):
    saved = yaml.safe_load((finished / "config.yaml").read_text())
    saved["dataset"]["csv"] = {"_target_": "numpy.load", "file": "e.npy", "allow_pickle": True}
    saved["trust"] = ["numpy", "tests", "engine"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(saved))
    with pytest.raises(ValueError, match=r"numpy\.load.*trust="):
        evaluate.finished_run(tmp_path, trust=["tests"])


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "anchors and aliases are not allowed"),
        ("a: " + "x" * (1 << 20), "more than 1048576 bytes"),
        ("a: !!python/object/apply:os.system [x]", "could not determine a constructor"),
        ("row: ${oc.env:HOME}", "interpolations are not allowed"),
        (r"row: \${oc.create:{_target_:numpy.load}}", "interpolations are not allowed"),
        ("a: [", "expected the node content"),
        ("3", "got 3"),
        ("a: 3", "it has no dataset"),
    ],
    ids=lambda part: part[:20],
)
def test_foreign_yaml_is_refused(text: str, message: str, tmp_path: Path):
    (tmp_path / "config.yaml").write_text(text)
    expected = r"config\.yaml: expected the config of a run"
    with pytest.raises(ValueError, match=rf"(?s){expected}.*{message}"):
        evaluate.finished_run(tmp_path)


def test_packages_are_allowed_by_the_reader(finished: Path):
    assert "trust" not in yaml.safe_load((finished / "config.yaml").read_text())
    with pytest.raises(ValueError, match=r"tests\.engine\.tiny\.TinyNet.*trust="):
        evaluate.finished_run(finished)
    _, task, _ = evaluate.finished_run(finished, trust=["tests"])
    assert isinstance(task.model, TinyNet)


def test_every_name_can_be_found():
    for name in targets.MORE | targets._configured():
        assert callable(targets.find(name))
        assert targets.inside(name, targets.OWN)
    for key, names in targets.FUNCTIONS.items():
        for name in names:
            assert callable(targets.find(name, key=key))


def test_nothing_else_calls_what_a_config_names():
    calls = {"instantiate", "call", "get_object", "get_method", "get_class", "resolve_name"}
    for folder in ("datasets", "engine", "losses", "metrics", "models", "scripts", "synthetic"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module in ("hydra.utils", "pkgutil"):
                    assert not calls & {alias.name for alias in node.names}, path
