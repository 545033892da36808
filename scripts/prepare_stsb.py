"""Make stsb.npz, frozen vectors of the sentences of STS-B-DIR (configs/prepare_stsb.yaml)."""

from command import command

main = command("prepare_stsb", "engine.benchmarks.prepare.similarity")

if __name__ == "__main__":
    main()
