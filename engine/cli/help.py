"""What a script can be told, read from its config: the choices of each group, and the settings.

Hydra's own --help needs a complete config, which a script with a required choice does not have.
"""

import re
import sys
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from engine import CONFIGS

FLAGS = """\
More: --cfg job prints the resolved config, --multirun runs every combination of a=1,2 b=3,4,
--hydra-help lists Hydra's own flags. Completion with the tab key, in bash:
  eval "$(python {script} -sc install=bash)\""""


def help_if_wanted(doc: str, name: str) -> None:
    """Print the help and end, if the command line asks for it or lacks a required choice.

    doc: the script's docstring; name: its config, configs/<name>.yaml.
    """
    asked = {"-h", "--help"} & set(sys.argv[1:])
    if asked:
        print(text(doc, name))
        raise SystemExit(0)
    given = {argument.lstrip("+").partition("=")[0] for argument in sys.argv[1:]}
    flags = {argument for argument in sys.argv[1:] if argument.startswith("-")} - {"-m"}
    missing = [group for group in required(name) if group not in given]
    if missing and not flags - {"--multirun"}:
        group = missing[0]
        raise SystemExit(f"{group}=<choice> is missing; choose out of:\n" + choices(group, "  "))


def text(doc: str, name: str) -> str:
    """What the script does, its groups with their choices, its settings with their comments."""
    content = (CONFIGS / f"{name}.yaml").read_text()
    body = re.sub(r"^(defaults|hydra):.*\n(?:[ ]+.*\n)*", "", content, flags=re.MULTILINE)
    settings = [line for line in body.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(
        [
            doc.strip(),
            "\nChoices, as group=choice:",
            *(f"  {group}\n{choices(group, '    ')}" for group in chosen(name)),
            f"\nSettings of configs/{name}.yaml, as key=value; those of a chosen file, too:",
            *(f"    {line}" for line in settings),
            "\n" + FLAGS.format(script=f"scripts/{name}.py"),
        ]
    )


def defaults(name: str) -> dict[str, str]:
    """{group: default choice} of a config."""
    content: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{name}.yaml"))
    pairs = [entry for entry in content["defaults"] if isinstance(entry, dict)]
    items = [item for pair in pairs for item in pair.items()]
    return {
        group: choice for group, choice in items if not group.startswith(("override ", "hydra"))
    }


def chosen(name: str) -> list[str]:
    """The groups that a script's config chooses from, those without a default first."""
    found = defaults(name)
    return sorted(found, key=lambda group: found[group] != "???")


def required(name: str) -> list[str]:
    return [group for group, choice in defaults(name).items() if choice == "???"]


def choices(group: str, indent: str) -> str:
    """One line for each choice of a group, with the first comment of its file."""
    paths = sorted((CONFIGS / group).rglob("*.yaml"))
    names = [path.relative_to(CONFIGS / group).with_suffix("").as_posix() for path in paths]
    shown = list(zip(names, paths, strict=True))
    if any("/" not in name for name in names):  # then its folders hold parts of the choices
        shown = [(name, path) for name, path in shown if "/" not in name]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{indent}{n:{width}}  {about(p)}".rstrip() for n, p in shown)


def about(path: Path) -> str:
    """The first line of the comment that heads a config file."""
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if "@package" not in line:
            return line.lstrip("# ")
    return ""
