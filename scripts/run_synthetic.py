"""Reproduce the paper's synthetic table and figures: see configs/synthetic.yaml."""

from command import command

main = command("synthetic", "engine.benchmarks.synthetic.reproduce")

if __name__ == "__main__":
    main()
