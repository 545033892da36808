"""Stress protocols: the labels that are removed, and a run that never sees them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.runs.run import composed, first_stage, run
from engine.training import build
from engine.training.protocol import errors, inside, kept, removed_ranges
from tests.engine import tiny

LABELS = np.arange(101.0)[:, None]


def protocol(name: str) -> Any:
    return composed("train", ["experiment=imdb_wiki/bmc", f"protocol={name}"]).protocol


def test_the_ranges_of_each_protocol():
    gone = inside(LABELS, removed_ranges(protocol("extrapolation"), LABELS))
    assert gone.tolist() == [age > 90 for age in range(101)]
    gone = inside(LABELS, removed_ranges(protocol("interpolation"), LABELS))
    assert gone.tolist() == [40 <= age <= 60 for age in range(101)]
    spots = protocol("blind_spot")
    for spots.seed in range(50):
        found = sorted(removed_ranges(spots, LABELS))
        assert all(high - low == pytest.approx(10) for low, high in found)
        assert all(first[1] <= second[0] for first, second in pairwise(found))
        assert found[0][0] >= 0
        assert found[-1][1] <= 100
    with pytest.raises(ValueError, match="removes no training label"):
        kept({"kind": "interpolation", "first": 2, "last": 3}, "train", None, LABELS, False)
    spots.width = 0.5
    with pytest.raises(ValueError, match="do not fit"):
        removed_ranges(spots, LABELS)
    with pytest.raises(ValueError, match="one label per sample"):
        removed_ranges(spots, np.zeros((4, 3)))


def test_errors_inside_and_outside():
    pred = LABELS + np.where(LABELS > 90, 5, -1)
    found = errors(pred, LABELS, [(90.5, np.inf)])
    assert found == {"mae_removed": 5, "rmse_removed": 5, "mae_kept": 1, "rmse_kept": 1}
    assert np.isnan(errors(pred, LABELS, [(200, 300)])["mae_removed"])


def test_a_run_never_sees_the_removed_labels(faces: Path, tmp_path: Path):
    changes = ("features=cached", "protocol=interpolation", "log.predictions=false")
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/bmc", *changes)
    stage1: Any = first_stage(cfg)
    assert stage1.protocol == cfg.protocol
    plain = tiny.config(faces, tmp_path, "imdb_wiki/bmc", "features=cached")
    every = build.dataset(plain, "train").labels
    ranges = removed_ranges(cfg.protocol, every)
    for split in ("train", "val"):
        kept, before = build.dataset(cfg, split), build.dataset(plain, split)
        assert not inside(kept.labels, ranges).any()
        assert len(kept) == (~inside(before.labels, ranges)).sum() < len(before)
        item = kept[3]
        assert item["meta"]["index"] == 3
        assert item["target"].numpy() == kept.labels[3]
    test = [build.dataset(one, "test").labels for one in (cfg, plain)]
    np.testing.assert_array_equal(*test)
    done, other = run(cfg), run(plain)
    assert done["folder"] != other["folder"]
    report = done["metrics"]
    share = inside(test[0], ranges).mean()
    mean = share * report["test/mae_removed"] + (1 - share) * report["test/mae_kept"]
    assert report["test/mae"] == pytest.approx(mean, rel=1e-5)
    assert set(report) - set(other["metrics"]) == {
        f"test/{kind}_{group}" for kind in ("mae", "rmse") for group in ("removed", "kept")
    }


def test_stage_2_trains_on_samples_that_stage_1_has_not_seen(faces: Path, tmp_path: Path):
    changes = ("features=cached", "protocol=held_out", "protocol.share=0.4")
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/bmc", *changes)
    stages: Any = [first_stage(cfg), cfg]
    first, second = (build.dataset(one, "train") for one in stages)
    assert sorted([*first.rows, *second.rows]) == list(range(48))
    assert 10 < len(second) < 30
    assert len(build.dataset(cfg, "val")) == 12
    np.testing.assert_array_equal(first.all_labels, second.all_labels)  # which define the shots
    report = run(cfg)["metrics"]
    assert "test/bmae" in report
    assert "test/mae_removed" not in report


def test_maps_are_refused(rooms: Path, tmp_path: Path):
    cfg = tiny.depth_config(rooms, tmp_path, "nyud2/bni", "protocol=blind_spot")
    with pytest.raises(ValueError, match="not maps"):
        build.dataset(cfg, "train")
