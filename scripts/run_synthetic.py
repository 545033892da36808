"""Reproduce the paper's synthetic table and figures: see configs/synthetic.yaml."""

from command import command

main = command(__name__, "synthetic", "engine.benchmarks.synthetic.reproduce")
