"""List, diff, compare and remove runs: see configs/runs.yaml."""

from command import command

main = command(__name__, "runs", "engine.runs.overview.main")
