"""STS-B-DIR: from the .tsv files to pairs of vectors, and what is wrong with files in one line."""

from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from datasets.stsb import FILES, STSBDataset, read_pairs, wordllama
from engine.benchmarks.prepare import similarity
from engine.runs import identity
from engine.runs.run import composed, run

HEAD = "index\tgenre\tsentence1\tsentence2\tscore"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files with a quote in a sentence, and vectors of four numbers for all sentences."""
    sentences = []
    for split, name in FILES.items():
        pairs = [(f'a "{split} {i}', f"b {i}", i % 6) for i in range(8)]
        lines = [f"{i}\tnews\t{a}\t{b}\t{s:.3f}" for i, (a, b, s) in enumerate(pairs)]
        (tmp_path / name).write_text("\n".join([HEAD, *lines]) + "\n")
        sentences += [s for a, b, _ in pairs for s in (a, b)]
    known = np.unique(sentences)
    vectors = np.random.default_rng(0).normal(size=(len(known), 4))
    np.savez(tmp_path / "vectors.npz", sentences=known, vectors=vectors)
    return tmp_path


def config(source: Path, **changes):
    settings = {"source": str(source), "root": str(source / "out")}
    return OmegaConf.create({**settings, "vectors": str(source / "vectors.npz"), **changes})


def test_pairs_become_vectors(source: Path):
    similarity(config(source))
    data = STSBDataset(source / "out", "train")
    assert len(data) == 8
    assert data.labels.shape == (8, 1)
    item = data[3]
    assert item["target"].tolist() == [3.0]
    u, v, apart, product = item["input"].chunk(4)
    np.testing.assert_allclose(apart, (u - v).abs())
    np.testing.assert_allclose(product, u * v)
    np.testing.assert_array_equal(STSBDataset.labels_of("train", root=source / "out"), data.labels)
    assert len(STSBDataset(source / "out", "test")) == 8


TABLE = composed("table", ["table=stsb"]).table.rows
ROWS = {name: row for name, row in TABLE.items() if row and "posthoc" not in row}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_the_table_runs(name: str, source: Path):
    similarity(config(source))
    own = list(ROWS[name].get("overrides") or [])
    short = ["trainer.epochs=2", "model.inputs=16", "log.replicates=4", "log.figures=false"]
    paths = [f"paths.stsb={source / 'out'}", f"paths.outputs={source / 'runs'}"]
    if name != "BMC":  # one is enough to see that the choice works
        short.append("choose=null")
    done = run(composed("train", ["experiment=stsb/vanilla", *own, *short, *paths]))
    assert done["row"] == name
    assert done["metrics"]["test/mse"] > 0
    assert ("chosen" in done) == (name == "BMC")


def test_vectors_of_another_width_are_told(source: Path):
    similarity(config(source))
    paths = [f"paths.stsb={source / 'out'}", f"paths.outputs={source / 'runs'}"]
    with pytest.raises(ValueError, match=r"width 1024, got 16; set model.inputs=16"):
        run(composed("train", ["experiment=stsb/vanilla", *paths]))
    with pytest.raises(ValueError, match=r"cannot be augmented; set features.augment=false"):
        run(composed("train", ["experiment=stsb/vanilla", "features.augment=true", *paths]))
    with pytest.raises(ValueError, match="unknown metric 'mae'; choose from mse"):
        run(composed("train", ["experiment=stsb/vanilla", "select.metric=mae", *paths]))


def test_changed_vectors_are_another_run(source: Path):
    similarity(config(source))
    cfg = composed("train", ["experiment=stsb/vanilla", f"paths.stsb={source / 'out'}"])
    before = identity.parts(cfg)
    arrays = dict(np.load(source / "out" / "stsb.npz"))
    np.savez(source / "out" / "stsb.npz", **{**arrays, "test_u": -arrays["test_u"]})
    assert identity.parts(cfg) != before


def test_what_is_wrong_is_said(source: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"scripts/prepare_stsb\.py"):
        STSBDataset(tmp_path / "nowhere", "train")
    with pytest.raises(ValueError, match="Unknown split 'dev'; choose from train, val, test"):
        STSBDataset(tmp_path, "dev")
    with pytest.raises(FileNotFoundError, match="YyzHarry/imbalanced-regression"):
        read_pairs(tmp_path / "missing.tsv")
    bad = tmp_path / "bad.tsv"
    for text, message in {
        "one\ttwo\n": "expected the columns sentence1, sentence2, score",
        f"{HEAD}\n0\tnews\ta\tb\thigh\n": "two sentences and a score per line",
        f"{HEAD}\n0\tnews\ta\n": "two sentences and a score per line",
        f"{HEAD}\n0\tnews\ta\tb\t7.0\n": r"from 0 to 5; got \[7.\]",
        f"{HEAD}\n0\tnews\ta\tb\tnan\n": r"from 0 to 5; got \[nan\]",
        f"{HEAD}\n": "two sentences and a score per line",
        "": "expected the columns",
    }.items():
        bad.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_pairs(bad)
    np.savez(tmp_path / "few.npz", sentences=np.array(["b 1"]), vectors=np.zeros((1, 4)))
    with pytest.raises(ValueError, match="sentences have no vector"):
        similarity(config(source, vectors=str(tmp_path / "few.npz")))
    assert not (source / "out").exists()  # nothing half-made


def test_token_vectors_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"package wordllama: pip install \.\[text\]"):
        wordllama()
