"""Settings that cannot be: refused before anything is trained."""

import re
from pathlib import Path

from tests.engine.test_settings import WRONG

from tests.faults.bench import Bench
from tests.faults.fault import Fault, refused

# (script, what it is told, a word of the answer)
SCRIPTS = (
    ("evaluate", "run=/etc", "config.yaml"),
    ("evaluate", "run=x checkpoint=bst", "Did you mean best"),
    ("evaluate", "run=x split=nope", "train, val, test"),
    ("evaluate", "run=x batch_size=0", "batch_size"),
    ("table", "table=nope", "table/nope"),
    ("table", "table=imdb_wiki seeds=0", "seeds"),
    ("table", "table=imdb_wiki jobs=abc", "jobs"),
    ("table", "table=imdb_wiki name=../x", "name"),
    ("table", "table=imdb_wiki overrides=[nope]", "nope"),
    ("reproduce", "table=nope", "choose out of"),
    ("reproduce", "data=nope", "mini, real"),
    ("reproduce", "data=real table=imdb_wiki paths.data=nowhere", "no data"),
    ("reproduce", "paths.outputs=''", "paths.outputs"),
    ("run_synthetic", "columns=[nope]", "normal_high"),
    ("run_synthetic", "methods=[nope]", "Vanilla"),
    ("run_synthetic", "epochs=0", "epochs"),
    ("run_synthetic", "folder=''", "folder"),
    ("prepare_mini", "draw=[nope]", "bodies, faces, rooms"),
    ("prepare_mini", "images=0", "images"),
    ("prepare_mini", "draw=[faces] size=1000000", "4096"),
    ("prepare_age", "source=imdb_wiki", "root: it must be given"),
    ("prepare_age", "source=nope root=x", "imdb_wiki, agedb, utkface"),
    ("prepare_age", "source=imdb_wiki root=nowhere", "imdb_crop"),
    ("prepare_age", "source=imdb_wiki root=x pack=1000000", "4096"),
    ("report", "outputs=''", "outputs"),
    ("report", "outputs=nowhere", "own=false"),
    ("diagnose", "nowhere.csv", "no such file"),
    ("faults", "kind=[nope]", "settings, hostile"),
    ("train", "experiment=imdb_wiki/gai name=\u00fc", "quotes"),
)


def told(script: str, settings: str, word: str) -> Fault:
    def act(bench: Bench) -> tuple[str, bool, bool]:
        done = bench.wait(bench.start(script, *settings.split()))
        made = list(bench.folder.rglob("*.pt")) + list(bench.outputs.glob("*.json"))
        happened, lost, good = refused(done, word)
        return happened, lost, good and not made and not Path("nowhere").exists()

    return Fault("settings", f"{script}.py {settings}", act)


def settings() -> list[Fault]:
    def fault(override: str) -> Fault:
        def act(bench: Bench) -> tuple[str, bool, bool]:
            done = bench.train("experiment=imdb_wiki/gai", "features=none", override)
            name = override.split("=")[0].lstrip("+").split(".")[-1]
            happened, lost, good = refused(done)
            good = good and re.search(WRONG.get(override, name), done.err) is not None
            return happened, lost, good and not list(bench.outputs.rglob("*.pt"))

        return Fault("settings", override, act, override in list(WRONG)[:6])

    more = ("trainer.epoch=3", "select.metrik=mae", "nothing=1", "optim=none", "experiment=nope")
    mistakes = [fault(override) for override in (*WRONG, *more)]
    return mistakes + [told(*one) for one in SCRIPTS]
