"""Generate the mini datasets in the on-disk formats of the real ones: see
configs/prepare_mini.yaml."""

from command import command

main = command("prepare_mini", "engine.benchmarks.mini.generate")

if __name__ == "__main__":
    main()
