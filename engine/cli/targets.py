"""What a config may name: `_target_` and the names of drawing functions, out of one list.

A config is data, and data may come from elsewhere: a run folder brings its own. So nothing is
imported or called because a file says so. A name is on the list below, in this checkout's own
configs/, or in a package that the user of this command trusts (`trust=[my_package]`, which is never
read from a run folder); every node is resolved and looked through, nested nodes too, before its
first part is made.
"""

import difflib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

from engine import CONFIGS

# {setting: {module: what it may name there}}; "" stands for settings further down.
LIST = {
    "dataset": {"datasets": "ages.AgeDataset ihmr.BodyDataset nyud2.DepthDataset stsb.STSBDataset"},
    "loss": {
        "losses": "BMC BNI GAI BalancedLoss WeightedLoss",
        "engine.benchmarks.bodies.poses": "PoseLoss",
    },
    "loss.likelihood": {
        "losses": "Categorical Gaussian Heteroscedastic Histogram Huber Laplace",
        "engine.training.build": "label_histogram",
        "engine.benchmarks.bodies.poses": "gaussian",
    },
    "loss.prior": {
        "losses": "Batch Bins Bins.fit Classes Flat GaussianMixture GaussianMixture.fit Product "
        "Subspace",
        "engine.benchmarks.bodies.poses": "batch_prior mixture_prior",
    },
    "loss.weights": {"losses": "reweight.label_weights"},
    "metrics": {
        "metrics": "AgeMetrics DepthMetrics MeshMetrics SimilarityMetrics",
        "engine.benchmarks.bodies.metrics": "BodyMetrics",
    },
    "model": {
        "models": "depth.DepthNet efficientnet.EfficientNetLite0 depth_lite.LiteDepth hmr.HMR hmr.LiteHMR "
        "regressor.MLP resnet.ResNet"
    },
    "model.head": {"models": "regressor.mlp_head"},
    "model.smoothing": {"models": "fds.FDS"},
    "task": {
        "engine.training.task": "Dense Regression",
        "engine.benchmarks.bodies.task": "MeshRecovery",
    },
    "task.body": {"models": "smpl.SMPL"},
    "task.terms": {"engine.benchmarks.bodies.terms": "Released Spin"},
    "optim.optimizer": {"torch.optim": "Adam AdamW SGD"},
    "optim.schedule": {"engine.training.schedule": "constant cosine steps"},
    "log.draw": {
        "engine.training.log": "label_figures",
        "engine.benchmarks.age": "draw",
        "engine.benchmarks.depth": "draw samples",
        "engine.benchmarks.bodies.figures": "draw",
    },
    "": {
        "engine.benchmarks.bodies.poses": "Coordinates",
        "engine.tables.tradeoff": "draw",
        "numpy": "arange linspace",
        "engine.benchmarks.synthetic": "part",
    },
}
KINDS = {
    setting: [f"{module}.{name}" for module, names in of.items() for name in names.split()]
    for setting, of in LIST.items()
}
NAMES = frozenset(name for names in KINDS.values() for name in names)
MOVED = {  # where configs of earlier runs find what they name
    "engine.task": "engine.training.task",
    "engine.logging": "engine.training.log",
    "engine.figures_age": "engine.benchmarks.age",
    "engine.figures_depth": "engine.benchmarks.depth",
    "engine.figures_bodies": "engine.benchmarks.bodies.figures",
    "engine.body_metrics": "engine.benchmarks.bodies.metrics",
    "engine.poses.noise": "engine.benchmarks.bodies.poses.gaussian",
    "engine.benchmarks.bodies.poses.noise": "engine.benchmarks.bodies.poses.gaussian",
    "engine.poses": "engine.benchmarks.bodies.poses",
    "engine.bodies": "engine.benchmarks.bodies.task",
}
Trust = Sequence[str] | None  # packages, e.g. ["my_package"]


def check(config: Any, trust: Trust = None) -> None:
    """Refuse a config that names anything but what is on the list, where it belongs, or trusted."""
    for key, name in named(plain(config)):
        of_kind(known(name, trust, key), key.removesuffix("._target_"))


def of_kind(name: str, setting: str) -> None:
    """Refuse a name of the list that belongs to another setting."""
    fits = KINDS.get(setting)
    if fits is not None and name in NAMES and name not in fits:
        some = ", ".join(fits[:6]) + (", ..." if len(fits) > 6 else "")
        raise ValueError(f"{setting}: {name} does not belong there; expected one of {some}.")


def make(node: Any, trust: Trust = None, **arguments: Any) -> Any:
    """What a node describes, made with these arguments; nothing is made before all is checked.

    What is wrong with a file or a setting is told in its own words, not in Hydra's.
    """
    checked = plain(node)
    check(checked, trust)
    try:
        return instantiate(checked, **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, OSError | ValueError | FloatingPointError):
            raise error.__cause__ from None
        raise


def find(name: Any, trust: Trust = None) -> Any:
    """The class or function of that name."""
    return get_object(known(name, trust))


def calls(config: Any) -> list[str]:
    """Every name that a config calls."""
    return [name for _, name in named(plain(config))]


def known(name: Any, trust: Trust = None, key: str = "") -> str:
    """The name, if it is on the list or in a trusted package."""
    if isinstance(name, str) and (name in NAMES or _trusted(name, trust) or name in _configured()):
        return name
    where = f"{key}: " if key else ""
    near = difflib.get_close_matches(str(name), sorted(NAMES), 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(
        f"{where}{name!r} is not one of the names that a config may call.{hint} Nothing was "
        "called. If it is code of your own, say so on the command line: trust=[its_package]. A run "
        "folder from elsewhere can name any code; trust only what you have read."
    )


@functools.cache
def _configured() -> frozenset[str]:
    """The names in this checkout's own configs/, which are as much its code as its Python is."""
    files = (OmegaConf.to_container(OmegaConf.load(path)) for path in CONFIGS.rglob("*.yaml"))
    return frozenset(str(name) for content in files for _, name in named(content))


def named(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(where, what) of every `_target_` in plain containers."""
    items: Any = ()
    if isinstance(node, dict):
        items = node.items()
    elif isinstance(node, list | tuple):
        items = enumerate(node)
    for key, value in items:
        where = f"{prefix}.{key}" if prefix else str(key)
        if key == "_target_":
            yield where, value
        yield from named(value, where)


def plain(node: Any) -> Any:
    """A config node as plain containers, interpolations resolved, names where they are now."""
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=True)
    if isinstance(node, dict):
        return {k: _now(v) if k in ("_target_", "draw") else plain(v) for k, v in node.items()}
    return [plain(item) for item in node] if isinstance(node, list) else node


def _now(name: Any) -> Any:
    if isinstance(name, str) and name in MOVED:
        return MOVED[name]
    module = name.rpartition(".")[0] if isinstance(name, str) else ""
    return MOVED[module] + name.removeprefix(module) if module in MOVED else plain(name)


def _trusted(name: str, trust: Trust) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in trust or ())
