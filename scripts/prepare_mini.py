"""Generate the mini datasets in the on-disk formats of the real ones: see
configs/prepare_mini.yaml."""

from command import command

main = command(__name__, "prepare_mini", "engine.benchmarks.prepare.generate")
