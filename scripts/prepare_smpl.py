"""Convert SMPL's official pickles to npz; nothing in them is executed (models/smpl_pickle.py)."""

from command import command

main = command("prepare_smpl", "engine.benchmarks.prepare.body_models")

if __name__ == "__main__":
    main()
