"""Save the network of a finished IHMR run in half precision: see configs/save_network.yaml."""

from command import command

main = command(__name__, "save_network", "engine.runs.checkpoint.save_network")
