"""Save the network of a finished IHMR run in half precision: see configs/save_network.yaml."""

from command import command

main = command("save_network", "engine.benchmarks.bodies.network.main")

if __name__ == "__main__":
    main()
