"""Compute the metrics of a finished run or a released checkpoint; see configs/evaluate.yaml."""

from command import command

main = command(__name__, "evaluate", "engine.evaluation.evaluate.main")
