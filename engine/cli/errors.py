"""Errors in words: one paragraph that says what went wrong and what to do."""

import difflib
import errno
import re

from hydra.errors import HydraException, InstantiationException, OverrideParseException
from torch.multiprocessing.spawn import ProcessRaisedException

from engine.cli.rules import TRAIN

EXPECTED = (ValueError, OSError, FloatingPointError, RuntimeError, ImportError)  # what we raise
OTHER_PLACE = "Name another place, or move what is there."
MAY_NOT = "Change its permissions, or name a place where you may write."
ADVICE = {  # on what the operating system says of a file
    errno.EACCES: MAY_NOT,
    errno.EPERM: MAY_NOT,
    errno.EROFS: MAY_NOT,
    errno.EEXIST: OTHER_PLACE,
    errno.ENOTDIR: OTHER_PLACE,
    errno.EISDIR: OTHER_PLACE,
    errno.ELOOP: "A link leads back to itself; remove it.",
    errno.ENAMETOOLONG: "Choose shorter names.",
    errno.EMFILE: "Allow more open files (ulimit -n 4096), or set trainer.workers=0.",
    errno.EIO: "The disk failed; look at it before you start the same command again.",
}


def paragraph(error: BaseException) -> str:
    """What went wrong, in words; an error that we did not foresee is named."""
    text = str(error).strip()
    if isinstance(error, ProcessRaisedException):  # the last line of another process's traceback
        text = re.split(r"\n(?=\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b)", text)[-1]
        return re.sub(r"^[\w.]*: ", "", text)
    if isinstance(error, OverrideParseException):
        return f"{error.override} cannot be read; put quotes around the value: \"key='value'\"."
    if isinstance(error, InstantiationException):
        return " ".join(line for line in text.splitlines() if not line.startswith("full_key"))
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", text):
        return f"{missing[1]}: it must be given, e.g. {missing[1]}=..."
    if isinstance(error, HydraException):
        return f"{text.splitlines()[0]}{_nearest(error)}" if text else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        advice = ADVICE.get(error.errno or 0, "")
        named = f"{error.filename}: {error.strerror}. {advice}".strip()
        return error.strerror if error.filename is None else named
    if isinstance(error, EXPECTED) and text:
        return text
    return f"unexpected {type(error).__name__}: {text or 'no more is known'}."


def _nearest(error: BaseException) -> str:
    """The setting that an unknown one may have meant."""
    found = re.search(r"[Cc]ould not override '([\w.]+)'", str(error))
    if found is None:
        return ""
    near = difflib.get_close_matches(found[1], [name for name in TRAIN if name != found[1]], 1)
    return f" There is no such setting; did you mean {near[0]}?" if near else " No such setting."
