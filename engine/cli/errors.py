"""Error messages of the scripts: one paragraph with what went wrong and what to do."""

import errno
import re
import sys
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, InterpolationKeyError

from engine import CONFIGS
from engine.cli.help import choices, names
from engine.cli.schema import SETTINGS
from engine.cli.settings import nearest
from engine.cli.targets import leaves

EXPECTED = (ValueError, OSError, FloatingPointError, RuntimeError, ImportError)  # what we raise
OTHER_PATH = "Name another path, or move what is there."
NOT_ALLOWED = "Change its permissions, or name a folder that you may write to."
GIVE = "Give it a value instead of removing it"
ADVICE = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), NOT_ALLOWED),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), OTHER_PATH),
    errno.ELOOP: "A link leads back to itself; remove it.",
    errno.ENAMETOOLONG: "Choose shorter names.",
    errno.EMFILE: "Allow more open files (ulimit -n 4096), or set trainer.workers=0.",
    errno.EIO: "The disk failed; check it before you run the same command again.",
}


def paragraph(error: BaseException, script: str = "train") -> str:
    """Return the message of an error; an unexpected error is named."""
    text = str(error).strip()
    if type(error).__name__ == "ProcessRaisedException":  # a traceback of another process
        text = re.split(r"\n(?=\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b)", text)[-1]
        return re.sub(r"^[\w.]*: ", "", text)
    if isinstance(error, OverrideParseException):
        return f"{error.override} cannot be read; put quotes around the value: \"key='value'\"."
    if missing := re.search(r"You must specify '([\w/]+)'", text):
        return f"{missing[1]}=<choice> is missing; choose from:\n{choices(missing[1], '  ')}"
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", text):
        return f"{missing[1]} must be given, e.g. {missing[1]}=..."
    if "group override must be a string" in text:
        return "A group, such as dataset, takes the name of a choice and not null; see --help."
    if isinstance(error, InterpolationKeyError) and (needed := re.search("key '(.*?)'", text)):
        return f"{error.full_key} needs a value of {needed[1]}; add +{needed[1]}=<value>."
    if "more than 1 value per channel" in text:
        return (
            "A batch of one sample has no variance for batch-norm; it needs two. Raise "
            "trainer.batch_size, lower trainer.accumulate, or set trainer.even_batches=true."
        )
    if unknown := re.search(r"[Cc]ould not override '([\w./@]+)'", text):
        if (CONFIGS / unknown[1]).is_dir():
            return f"Add a + to choose one: +{unknown[1]}=<choice>; see --help."
        known = known_settings(script, unknown[1])
        near = nearest(unknown[1], [*known, *SETTINGS.get(script, {})])
        return f"{unknown[1]}: there is no such setting.{near}"
    if lost := re.search(r"Could not find '([\w./-]+)'", text):
        path = Path(re.sub(r"^preset/.*/", "preset/", lost[1]))  # presets of each benchmark
        known, group = re.findall(r"^\t([\w.-]+)$", text, re.MULTILINE), path.parent
        if not known:  # Hydra lists no choices that are in folders
            group = Path(path.parts[0])
            known = names(str(group))
        choice = path.relative_to(group)
        near = nearest(choice, known)
        return f"{group}={choice}: no such choice; choose from {', '.join(known)}.{near}"
    if isinstance(error, ConfigAttributeError):
        return f"{error.full_key} is missing. {GIVE} (~{error.full_key})."
    if isinstance(error, TypeError) and (gone := re.search(r"missing .* argument.*: (.*)", text)):
        return f"The setting {gone[1]} is missing ({text}). {GIVE}."
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            return error.strerror
        return f"{error.filename}: {error.strerror}. {ADVICE.get(error.errno or 0, '')}".strip()
    if isinstance(error, (*EXPECTED, HydraException)) and text:
        return text
    return f"Unexpected {type(error).__name__}: {text or 'no message'}."


def known_settings(script: str, unknown: str) -> list[str]:
    """Return the names of all settings of a script, with the choices of the command line."""
    from engine.runs.run import composed

    words = [word for word in sys.argv[1:] if "=" in word and not word.startswith("-")]
    others = [word for word in words if word.lstrip("+").split("=")[0] != unknown]
    try:
        cfg: Any = composed(script, others)
    except HydraException:  # another word is wrong, too, or has several values for a sweep
        cfg = OmegaConf.load(CONFIGS / f"{script}.yaml")
    return [name for name, _ in leaves(OmegaConf.to_container(cfg))]
