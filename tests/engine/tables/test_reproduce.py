"""One command runs every table of the paper, or those whose real data is there."""

import io
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from engine import ROOT
from engine.runs.run import CONFIGS, composed
from engine.tables import reproduce
from engine.tables.columns import table_configs
from engine.tables.stages import Stage, clock, expected_end, run_stages

DATASETS = sorted(path.stem for path in (CONFIGS / "dataset").glob("*.yaml"))


def config(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS / "reproduce"), version_base="1.3"):
        return compose("default", [re.sub(r"^paths\.", "++paths.", word) for word in overrides])


def test_every_table_of_the_paper_is_a_stage():
    made, skipped = reproduce.stages(config())
    paper = [name for name, table in table_configs().items() if table.get("paper")]
    paper.remove("stsb")  # whose sentences are not generated
    assert [stage.name for stage in made] == ["mini datasets", *paper]
    assert skipped == ["stsb: skipped, no generated data; use data=real paths.stsb=<folder>."]
    assert all(stage.seconds > 0 for stage in made)


def test_real_data_that_is_not_there_is_skipped_with_a_line(faces: Path, tmp_path: Path):
    there = [f"paths.imdb_wiki={faces / 'imdb_wiki'}", f"paths.data={tmp_path}", "data=real"]
    made, skipped = reproduce.stages(config("table=[imdb_wiki]", *there))
    assert [stage.name for stage in made] == ["imdb_wiki"]
    assert not skipped
    made, skipped = reproduce.stages(config("table=all", "data=real", f"paths.data={tmp_path}"))
    assert [stage.name for stage in made] == ["synthetic"]
    assert skipped[0] == (
        f"imdb_wiki: skipped, no data in {tmp_path}/imdb_wiki; set paths.imdb_wiki=<folder>."
    )


def test_it_fails_where_there_is_no_data_at_all(tmp_path: Path):
    places = [f"paths.data={tmp_path}", f"paths.outputs={tmp_path / 'out'}"]
    with pytest.raises(SystemExit, match="Nothing to do"):
        reproduce.reproduce(config("table=[imdb_wiki]", "data=real", *places))


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_may_lie_in_a_folder_of_its_own(name: str):
    cfg = composed("train", ["experiment=imdb_wiki/bmc", f"dataset={name}", f"paths.{name}=/x"])
    assert "/x" in str(OmegaConf.to_container(cfg.dataset, resolve=True))


PROGRAM = """
import json, signal, sys, time
from pathlib import Path
from rich.console import Console
from engine.tables.stages import Stage, run_stages

folder = Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it

def stage(name):
    def work(reach):
        for step in range(8):
            path = folder / f"{name}-{step}"
            if not (found := path.is_file()):
                time.sleep(0.05)
                path.touch()
            reach((step + 1) / 8, found)
        (folder / f"{name}.json").touch()
        return folder / f"{name}.json"
    return Stage(name, 10.0, work)

print("end", sorted(run_stages([stage("a"), stage("b")], folder / "log", Console(file=sys.stderr))))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_resumes(how: signal.Signals, tmp_path: Path):
    def start() -> subprocess.Popen:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)

    process = start()
    until = time.monotonic() + 120
    while not (tmp_path / "b-4").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert (tmp_path / "a.json").exists()
    assert not (tmp_path / "b.json").exists()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("?-?")}
    assert start().communicate(timeout=120)[0] == "end ['a', 'b']\n"
    assert (tmp_path / "b.json").exists()
    assert all(path.stat().st_mtime_ns == made for path, made in before.items())  # not rerun


def test_the_time_left_follows_the_measured_speed():
    assert expected_end(0, 0, 400) == 400
    assert expected_end(50, 50, 400) == 400  # as expected
    assert expected_end(240, 90, 390) == 240 + 300 * 2  # half as fast, after TRUST is added
    assert clock(3909.4) == "1:05:09"


def test_a_failing_stage_is_named_and_the_others_run(tmp_path: Path):
    def fail(reach) -> None:
        print("before")
        reach(0.5)
        raise ValueError("no such file")

    def succeed(reach) -> Path:
        reach(0.5, found=True)
        return tmp_path / "x.json"

    output, log = io.StringIO(), tmp_path / "log"
    found = [Stage("bad", 100.0, fail), Stage("good", 200.0, succeed)]
    done = run_stages(found, log, Console(file=output))
    assert done == {"good": tmp_path / "x.json"}
    bad, good = output.getvalue().splitlines()
    assert bad == f"bad: FAILED, ValueError: no such file (see {log})"
    assert good == "good: done in 0:00:00, about 0:00:00 left"
    assert "before" in log.read_text()
    assert "Traceback" in log.read_text()


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match="table: unknown nonsense; choose from all, synthetic"):
        reproduce.stages(config("table=nonsense"))
    with pytest.raises(ValueError, match="data: expected mini or real, got big"):
        reproduce.stages(config("data=big"))
    with pytest.raises(ValueError, match=r"paths: unknown imdb; choose from agedb, .*utkface"):
        reproduce.stages(config("paths.imdb=/x"))
