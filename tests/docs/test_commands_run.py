"""Every command of the README, the docs and the configs runs on tiny data, with short runs; of the
commands for one table, one runs and the others compose."""

import functools
import importlib
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from datasets import nyud2
from engine import CONFIGS, ROOT
from engine.benchmarks import synthetic, tabular
from engine.cli.settings import check
from engine.runs.run import composed, run
from engine.speed import timing as speed
from engine.tables import compare, leaderboard, make, plots, reproduce
from scripts.diagnose import positional
from scripts.table import without
from tests.docs import workspace
from tests.docs.test_add_a_dataset import FACES, METHOD, PAGE
from tests.engine import tiny, tiny_bodies

SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN += [*sorted(CONFIGS.glob("*.yaml")), CONFIGS / "reproduce/default.yaml"]
NOT_OURS = ("hydra/", "hydra.")  # launchers that are installed on a cluster
PLOTTED: set[str | None] = set()
SYNTHETIC = ["seeds=1", "epochs=1", "workers=1"]
RANKSIM = ["regularizers=[ranksim]", "jobs=1", "trust=[tests]"]
FEW = {"columns=": "columns=[normal_high]", "methods=": "methods=[Vanilla,BMC]"}
MINI = [
    *("images=20", "size=16", "rooms.train=2", "rooms.test=2", "bodies.size=32"),
    "bodies.counts={h36m_train:8,coco_2014_train:8,3dpw_test:8}",
]
SHORT = {
    "compare_released": ["only=losses.weighted_losses"],
    "diagnose": [],
    "evaluate": ["batch_size=3", "accelerator=cpu", "trust=[tests]"],
    "leaderboard": ["settings=1", "seeds=1", "losses=[Plain]", *RANKSIM],
    "prepare_age": [],
    "prepare_mini": MINI,
    "prepare_nyud2": ["overwrite=true"],
    "prepare_smpl": ["folder=outputs/smpl"],
    "prepare_stsb": ["vectors=${source}/vectors.npz"],
    "rebalance": ["trust=[tests]"],
    "report": [],
    "run_synthetic": SYNTHETIC,
    "runs": ["outputs=outputs/few"],
    "save_network": [],
    "speed": ["rounds=1", "losses.pixels=912", "synthetic.seeds=1", "features.images=24"],
    "table": ["seeds=1", "jobs=1", "iterations=1", "trainer.workers=0", "trust=[tests]"],
    "tabular": ["folds=2", "trees.rounds=2", "network.iterations=2", "workers=1"],
}
ONE_OF = {"table": ["table"], "reproduce": ["table", "data"]}  # settings that decide what runs
LEFT_OUT = ("publish=", "threads=", "nyud2=...")
PATHS = {"files.neutral=...": "neutral", "files.male=...": "m", "files.female=...": "f"}


def commands() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (page, script, arguments) of each command; test_add_a_dataset.py runs its pages."""
    found = []
    for page in SHOWN:
        text = re.sub(r"\\\n[ #]*", " ", page.read_text())  # continued lines
        for line in re.findall(r"(?:python |#   |: )(scripts/\w+\.py[^`\n]*)", text):
            script, *said = shlex.split(line.split("   ")[0], comments=True)
            said = positional(said) if "diagnose" in script else said
            wanted = tuple(a for a in said if "=" in a and not a.startswith(NOT_OURS))
            wanted = tuple(a for a in wanted if "[experiment=" not in a)  # quoted for a shell
            if page not in (PAGE, METHOD, FACES) or not re.search("patients|smooth|timm", line):
                found.append((page.name, Path(script).stem, wanted))
    return found


@pytest.fixture(scope="module")
def here(faces: Path, rooms: Path, bodies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace.write(tmp_path_factory.mktemp("commands"), faces, rooms, bodies)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train two rows of a table, with tiny models and one seed; plot each kind of figure once."""

    def two(rows: Mapping[str, Any]) -> dict[str, Any]:
        found = {k: row for k, row in expanded(rows).items() if row.get("experiment")}
        first = [k for k in found if k in ("Vanilla", "SPIN-RT")] or list(found)
        ours = [k for k, row in found.items() if row.experiment.endswith(("bmc", "bni", "gai"))]
        return {k: row for k, row in found.items() if k in [*first[:1], *ours[:1]]}

    def configs(row: Any, seeds: int, overrides: list[str], stages: int = 1) -> list[DictConfig]:
        row = OmegaConf.create(row)
        data, outputs, own = Path("data"), Path("outputs"), list(row.get("overrides") or [])
        kind = {
            "imdb_wiki": tiny.config,
            "nyud2": tiny.depth_config,
            "ihmr": tiny_bodies.config,
            "stsb": short_config,
            "tabular": short_config,
        }
        benchmark = row.experiment.split("/")[0]
        said = [text for text in overrides if not text.startswith("paths.data=")]
        if benchmark == "ihmr":  # whose other presets begin with SPIN's own weights
            said = [text for text in said if not text.startswith("preset=")]
        cfg = kind[benchmark](data, outputs, row.experiment, *said, *own)
        for key, value in row.get("changes", {}).items():
            OmegaConf.update(cfg, key, value, merge=False, force_add=True)
        if "dataset.validation" in ((cfg.choose or {}).get("settings") or {}):
            cfg.choose.settings["dataset.validation"] = 0.5  # a fifth of four scenes is none
        return [cfg]

    def measured(cfg: DictConfig, iterations: int) -> dict[str, float]:
        return make.measure_here(OmegaConf.to_container(cfg, resolve=True), iterations)

    def one_by_one(tasks: Sequence[Any], workers: int, progress: Callable) -> list[Any]:
        results = []
        for i, task in enumerate(tasks):
            results.append(task(functools.partial(progress, i)))
            progress(i, None)
        return results

    def plotted_once(cfg: DictConfig, overrides: list[str], progress: Any = make.log) -> list[Path]:
        with open_dict(cfg):
            figures = cfg.table.get("figures")
            cfg.table.figures = None if figures in PLOTTED else figures
        PLOTTED.add(figures)
        return whole(cfg, overrides, progress)

    expanded, whole = compare.expanded, make.make
    monkeypatch.setattr(make, "make", plotted_once)
    for module in (compare, make, reproduce):
        monkeypatch.setattr(module, "expanded", two)
    for module in (compare, leaderboard, make):
        monkeypatch.setattr(module, "configs", configs)
    monkeypatch.setattr(make, "measure", measured)
    for module in (tabular, synthetic):
        monkeypatch.setattr(module, "side_by_side", one_by_one)
    monkeypatch.setattr(speed, "METHODS", {"BMC": speed.METHODS["BMC"]})
    monkeypatch.setitem(plots.STYLE, "savefig.dpi", 20)
    monkeypatch.setattr(nyud2, "BLOCK", 2)
    monkeypatch.setattr("models.smpl.SMPL_VERTICES", 2400)


def short_config(data: Path, outputs: Path, experiment: str, *overrides: str) -> DictConfig:
    """Return a config of one epoch on vectors of four numbers, or on a table with two inputs."""
    own = [f"experiment={experiment}", f"paths.outputs={outputs}", "model.inputs=16"]
    own += ["trainer.epochs=1", "trainer.accelerator=cpu", "log.progress=false"]
    last = [f"++paths.stsb={data / 'vectors'}"]
    if experiment == "tabular/vanilla":
        last = [f"dataset.csv={data / 'tabular/wine.csv'}", "model.inputs=2"]
    return composed("train", [*own, *overrides, *last])


def shortened(script: str, said: tuple[str, ...]) -> list[str]:
    """Return the arguments of a command without those that need real data, and with short runs."""
    own = [
        x.split(",")[0] if x.startswith(("experiment=", "seed=")) else x for x in said
    ]  # a sweep
    own = [text.replace("=/data/", "=data/") for text in own if not text.startswith(LEFT_OUT)]
    for text, name in PATHS.items():
        found = f"{text.partition('=')[0]}=basicModel_{name}_lbs_10_207_0_v1.0.0.pkl"
        own = [found if word == text else word for word in own]
    short = tiny.tiny(Path("data"), Path("outputs"))
    if script == "train":
        own += [] if any(text.startswith("preset=") for text in own) else ["preset=laptop"]
        if any(text.startswith("experiment=ihmr/") for text in own):
            short = workspace.BODIES
        if "experiment=tabular/vanilla" in own:
            short = [text for text in short if text.startswith(("trainer.", "log.", "paths.out"))]
        one = ["trainer.devices=1", "trainer.num_nodes=1", "trainer.precision=32-true"]
        return own + short + one
    if script == "leaderboard":  # the first two benchmarks
        own = [re.sub(r"^(benchmarks=\[[^,]*,[^,]*),.*", r"\1]", text) for text in own]
    if script == "speed":
        words = ["experiment=imdb_wiki/bmc", "preset=laptop", *short]
        listed = ",".join(f"'{text}'" for text in words)
        own.append(f"features.overrides=[{listed}]")
    if script == "reproduce":
        listed = ",".join(f"'{text}'" for text in [*SYNTHETIC, *FEW.values(), "figures=false"])
        drawn = ",".join(f"'{text}'" for text in MINI)
        lists = [f"synthetic=[{listed}]", f"prepare=[{drawn}]", "overrides=['trust=[tests]']"]
        return [*own, "seeds=1", "jobs=1", *lists]
    if script == "run_synthetic":
        own += [text for start, text in FEW.items() if not any(t.startswith(start) for t in own)]
    if script == "prepare_age" and "source=imdb_wiki" in own:
        own += ["overwrite=true", "output=outputs/faces.csv"]
    if script == "prepare_nyud2" and any(text.startswith("mat=") for text in own):
        own += ["root=outputs/labelled"]  # two frames, beside those that other commands read
    if script == "compare_released":
        own = [text.replace("=.../", "=../") for text in own]
    return [*own, *SHORT[script]]


def finished_run(named: str) -> str:
    """Train the run that a page refers to."""
    bodies = "/ihmr/" in named
    make, experiment = (tiny_bodies, "ihmr/spin") if bodies else (tiny, "imdb_wiki/bmc")
    done = run(make.config(Path("data"), Path("outputs"), experiment, "preset=laptop"))
    return f"run={done['folder']}"


def different(each: bool = True) -> dict[tuple[str, str], tuple[str, list[str]]]:
    """Return the commands that differ once they are shortened; of a repeated setting, the last.
    Unless `each`, one for each table, and one of reproduce.py for each kind of data."""
    found = {}
    for _, script, arguments in sorted(commands()):
        words = shortened(script, arguments)
        settings: Any = dict(word.partition("=")[::2] for word in words)
        if not each and script in ONE_OF:
            settings = {key: settings.get(key) for key in ONE_OF[script]}
        found.setdefault((script, repr(sorted(settings.items()))), (script, words))
    return found


@pytest.mark.usefixtures("small")
@pytest.mark.filterwarnings("ignore:.*held-out")  # twelve faces are few
@pytest.mark.parametrize(
    ("script", "words"), different(each=False).values(), ids=lambda part: str(part)[:100]
)
def test_a_command_runs(script: str, words: list[str], here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.chdir(here)
    words = [finished_run(text) if text.startswith("run=") else text for text in words]
    if script == "runs":
        for name in ("vanilla", "bmc", "gai"):
            few = (Path("outputs/few"), f"imdb_wiki/{name}", "preset=laptop")
            run(tiny.config(Path("data"), *few))
    monkeypatch.setattr(sys, "argv", [script, *words])
    importlib.import_module(f"scripts.{script}").main()


@pytest.mark.parametrize(
    "words", [words for script, words in different().values() if script == "table"], ids=str
)
def test_a_table_composes(words: list[str]):
    """Its own config, and that of its first experiment with the words that are passed on."""
    cfg = composed("table", without(words))
    check(cfg, "table")
    row = next(row for row in cfg.table.rows.values() if row.get("experiment"))
    for one in compare.configs(row, 1, make.passed_on(words), 1):
        check(one)


def test_there_are_commands():
    assert len(commands()) > 30
