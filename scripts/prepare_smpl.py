"""Convert SMPL's official pickles to npz; nothing in them is executed (models/smpl.py)."""

from command import command

main = command(__name__, "prepare_smpl", "engine.benchmarks.prepare.body_models")
