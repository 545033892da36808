"""Make the balanced test mask and the training histogram of NYUD2-DIR, from the labelled `.mat`
also the files themselves (configs/prepare_nyud2.yaml)."""

from command import command

main = command(__name__, "prepare_nyud2", "engine.benchmarks.prepare.depth")
