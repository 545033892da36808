"""Experiments configure every parameter; no result depends on a default in the code."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import CONFIGS
from engine.cli import targets
from engine.runs.run import composed
from losses.reweight import bin_weights, smooth
from tests.engine.tiny import EXPERIMENTS

OWN = ("datasets", "engine", "losses", "metrics", "models")
# Parameters that are computed, and from what.
COMPUTED = {
    "outputs": "of a model: what the likelihood asks for",
    "train_labels": "of metrics: the training set's",
    "sample_weight": "of what is fitted: how often each label occurs",
    "weights": "of a task: made from loss.weights",
    "cached": "of a task: features.mode",
    "regularizers": "of a task: made from regularizer",
    "reduction": "of a loss: training uses the mean",
}
FORWARDS = {"losses.reweight.label_weights": bin_weights}  # passes its other settings on
SETTINGS_OF = {"lds": smooth, "smoothing": smooth}  # settings in a mapping


def calls(node: Any, place: str = "") -> Iterator[tuple[str, Callable[..., Any], dict]]:
    """(key, target, settings) of every call of our code in a config."""
    if isinstance(node, list):
        node = dict(enumerate(node))
    if not isinstance(node, dict):
        return
    name = node.get("_target_")
    if isinstance(name, str) and name.split(".")[0] in OWN:
        yield place, targets.find(name), node
        if name in FORWARDS:
            yield place, FORWARDS[name], node
    for key, value in node.items():
        if key in SETTINGS_OF and isinstance(value, dict) and "_target_" not in value:
            yield f"{place}.{key}", SETTINGS_OF[key], value
        yield from calls(value, f"{place}.{key}")


def missing(overrides: list[str]) -> list[str]:
    return [
        f"{place}.{key} = {parameter.default!r}"
        for place, called, settings in calls(targets.plain(composed("train", overrides)))
        for key, parameter in inspect.signature(called).parameters.items()
        if parameter.default is not parameter.empty
        and key not in settings
        and not (key in COMPUTED and (key != "weights" or place == ".task"))
    ]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_parameter_is_configured(experiment: str):
    regularizers = sorted(path.stem for path in (CONFIGS / "regularizer").glob("*.yaml"))
    assert not missing([f"experiment={experiment}", f"+regularizer=[{','.join(regularizers)}]"])


@pytest.mark.parametrize("preset", ["official", "laptop"])
@pytest.mark.parametrize("benchmark", sorted({name.split("/")[0] for name in EXPERIMENTS}))
def test_every_parameter_is_configured_in_other_presets(benchmark: str, preset: str):
    """Presets choose the model, by stage; GAI has both."""
    for name in EXPERIMENTS:
        if name.split("/")[0] == benchmark and name.endswith(("vanilla", "spin", "gai")):
            assert not missing([f"experiment={name}", f"preset={preset}"])


def test_missing_parameters_are_found():
    dropped = missing(["experiment=imdb_wiki/gai", "~loss.likelihood.floor", "~loss.prior.seed"])
    assert dropped == [".loss.likelihood.floor = 0.001", ".loss.prior.seed = 0"]
