"""Make an age dataset's CSV, balanced split and packed store (configs/prepare_age.yaml)."""

from command import command

main = command(__name__, "prepare_age", "engine.benchmarks.prepare.ages")
