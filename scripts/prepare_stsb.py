"""Make stsb.npz, frozen vectors of the sentences of STS-B-DIR (configs/prepare_stsb.yaml)."""

from command import command

main = command(__name__, "prepare_stsb", "engine.benchmarks.prepare.similarity")
