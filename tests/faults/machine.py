"""A full disk, and what a machine does not have."""

from collections.abc import Callable

import torch

from tests.faults.bench import Bench
from tests.faults.fault import STAGE2, Fault, packing, refused
from tests.faults.kills import TEMPORARY


def disk() -> list[Fault]:
    def full(limit: int) -> Callable[[Bench], tuple[str, bool, bool]]:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            done = bench.train(limit=limit)
            happened, _, good = refused(done)
            if done.code == 0:
                happened, good = "fits", True
            elif good:
                good = "could not be written" in done.err
            left = [path for form in TEMPORARY for path in bench.outputs.rglob(form)]
            again = bench.train()
            return f"{happened} -> exit {again.code}", again.code != 0, good and not left

        return act

    def stage2(limit: int) -> Callable[[Bench], tuple[str, bool, bool]]:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            assert bench.train().code == 0
            done = bench.train(*STAGE2, limit=limit)
            happened, _, good = refused(done)
            good = done.code == 0 or (good and "could not be written" in done.err)
            again = bench.train(*STAGE2)
            return f"{happened} -> exit {again.code}", again.code != 0, good

        return act

    def pack(limit: int) -> Callable[[Bench], tuple[str, bool, bool]]:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            done = bench.wait(bench.start("prepare_age", *packing(bench), limit=limit))
            happened, _, good = refused(done, "imdb_wiki_16.h5")
            again = bench.wait(bench.start("prepare_age", *packing(bench)))
            return f"{happened} -> exit {again.code}", again.code != 0, good

        return act

    train = [100, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 20000]
    faults = [
        Fault("disk", f"train, files of {n} bytes at most", full(n), n == 3000) for n in train
    ]
    faults += [
        Fault("disk", f"features, {n} bytes at most", stage2(n)) for n in (3000, 9000, 30000)
    ]
    faults += [
        Fault("disk", f"packing, {n} bytes at most", pack(n), n == 9000) for n in (3000, 9000)
    ]
    return faults


def resources() -> list[Fault]:
    def unwritable(bench: Bench) -> tuple[str, bool, bool]:
        bench.outputs.write_text("a file where the folder should be")
        return refused(bench.train())

    def no_data(bench: Bench) -> tuple[str, bool, bool]:
        return refused(bench.train("paths.data=nowhere"), "imdb_wiki.csv", "prepare_age")

    def gpu(bench: Bench) -> tuple[str, bool, bool]:
        if torch.cuda.is_available():
            return "a GPU is there", False, True
        return refused(bench.train("trainer.accelerator=gpu"), "no GPU is visible")

    def empty_group(bench: Bench) -> tuple[str, bool, bool]:
        done = bench.train("log.show=[bmae,bmae_many]")
        return (
            f"exit {done.code}: {done.out.strip()[-40:]}",
            False,
            done.code == 0 and "-" in done.out,
        )

    def diverged(bench: Bench) -> tuple[str, bool, bool]:
        return refused(bench.train("optim.optimizer.lr=1e6"), "optim.optimizer.lr", "no result")

    def sweep(bench: Bench) -> tuple[str, bool, bool]:
        told = bench.tiny("paths.data=nowhere,neverwhere")
        done = bench.wait(bench.start("train", "--multirun", *told))
        return refused(done, "nowhere/imdb_wiki", "neverwhere/imdb_wiki")

    faults = {"outputs is a file": unwritable, "no data": no_data, "no GPU": gpu}
    faults |= {"an empty shot group": empty_group, "a learning rate of a million": diverged}
    faults |= {"two jobs of a sweep fail": sweep}
    return [
        Fault("resources", name, act, name in ("no data", "two jobs of a sweep fail"))
        for name, act in faults.items()
    ]
