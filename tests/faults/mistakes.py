"""Settings that cannot be: refused before anything is trained."""

from tests.engine.test_settings import WRONG
from tests.faults.bench import Bench
from tests.faults.fault import Fault, refused


def settings() -> list[Fault]:
    def fault(override: str) -> Fault:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            done = bench.train("experiment=imdb_wiki/gai", "features=none", override)
            happened, lost, good = refused(done, override.split("=")[0].lstrip("+").split(".")[-1])
            return happened, lost, good and not list(bench.outputs.rglob("*.pt"))

        return Fault("settings", override, act, override in list(WRONG)[:6])

    more = ("trainer.epoch=3", "select.metrik=mae", "nothing=1", "optim=none", "experiment=nope")
    return [fault(override) for override in (*WRONG, *more)]
