"""Help of a script: the choices of each group and the settings, read from its config.

Hydra's own --help needs a complete config, which a script with a required choice does not have.
"""

import re
from typing import Any

import yaml

from engine import CONFIGS

FLAGS = """\
More: --cfg job prints the resolved config, --multirun runs every combination of a=1,2 b=3,4,
--hydra-help lists Hydra's own flags. Completion with the tab key, in bash:
  eval "$(python {script} -sc install=bash)\""""


def text(doc: str, name: str) -> str:
    """Return the script's docstring, its groups with choices, its settings with comments."""
    content = (CONFIGS / f"{name}.yaml").read_text()
    entries: Any = yaml.safe_load(content)["defaults"]
    groups = {g: c for entry in entries if isinstance(entry, dict) for g, c in entry.items()}
    shown = [group for group in groups if not group.startswith(("override ", "hydra"))]
    shown.sort(key=lambda group: groups[group] != "???")
    body = re.sub(r"^(defaults|hydra):.*\n(?:[ ]+.*\n)*", "", content, flags=re.MULTILINE)
    settings = [line for line in body.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(
        [
            doc.strip(),
            "\nChoices, as group=choice:",
            *(f"  {group}\n{choices(group, '    ')}" for group in shown),
            f"\nSettings of configs/{name}.yaml, as key=value; those of a chosen file, too:",
            *(f"    {line}" for line in settings),
            "\n" + FLAGS.format(script=f"scripts/{name}.py"),
        ]
    )


def choices(group: str, indent: str) -> str:
    """One line for each choice of a group, with the first comment line of its file."""
    found = {}
    for name in names(group):
        text = (CONFIGS / group / f"{name}.yaml").read_text()
        comments = re.findall(r"^#(?! @package) ?(.*)", text, re.MULTILINE)
        found[name] = comments[0] if comments else ""
    width = max(map(len, found), default=0)
    return "\n".join(f"{indent}{n:{width}}  {about}".rstrip() for n, about in found.items())


def names(group: str) -> list[str]:
    """The choices of a group; those in folders are parts of the others, if there are others."""
    paths = sorted((CONFIGS / group).rglob("*.yaml"))
    found = [path.relative_to(CONFIGS / group).with_suffix("").as_posix() for path in paths]
    return [name for name in found if "/" not in name] or found
