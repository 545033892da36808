"""Metrics: error x grouping x average, over all samples, shots, bins and tails.

Names are imported on first use. The functions need only torch (`pa_mpjpe` also needs roma); the
classes, which accumulate over batches and ranks, need torchmetrics.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .balanced import balanced_report, balanced_scorer
    from .classes import (
        AgeMetrics,
        BalancedMetrics,
        DepthMetrics,
        MeshMetrics,
        SimilarityMetrics,
    )
    from .errors import mean_distance, pa_mpjpe
    from .predictions import evaluate_csv
    from .report import age_report, depth_report, mesh_report
    from .similarity import similarity_report

_MODULES = {
    **dict.fromkeys(("balanced_report", "balanced_scorer"), "balanced"),
    **dict.fromkeys(("mean_distance", "pa_mpjpe"), "errors"),
    **dict.fromkeys(("age_report", "depth_report", "mesh_report"), "report"),
    "evaluate_csv": "predictions",
    "similarity_report": "similarity",
    **{f"{name}Metrics": "classes" for name in ("Age", "Balanced", "Depth", "Mesh", "Similarity")},
}
__all__ = [  # a literal, for type checkers
    "AgeMetrics",
    "BalancedMetrics",
    "DepthMetrics",
    "MeshMetrics",
    "SimilarityMetrics",
    "age_report",
    "balanced_report",
    "balanced_scorer",
    "depth_report",
    "evaluate_csv",
    "mean_distance",
    "mesh_report",
    "pa_mpjpe",
    "similarity_report",
]

if not TYPE_CHECKING:  # a type checker reports unknown names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        except ModuleNotFoundError as error:
            if error.name != "torchmetrics":
                raise
            message = f"{name} needs torchmetrics: pip install torchmetrics"
            raise ModuleNotFoundError(message) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
