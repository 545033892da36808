"""scripts/diagnose.py: a text report and a figure, and a one-line error for bad files."""

import sys
from pathlib import Path

import pytest

from engine.runs.run import composed
from scripts import diagnose
from scripts.diagnose import positional

LABELS = [str(i % 17 + i % 3) for i in range(60)]


def test_report_and_figure(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "my labels.csv").write_text("age\n" + "\n".join(LABELS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr(sys, "argv", ["diagnose.py", "my labels.csv"])
    diagnose.main()
    assert "60 labels from 0 to 18" in capsys.readouterr().out
    assert (tmp_path / "outputs/diagnosis.png").stat().st_size > 10_000


FILES = {
    "two.csv": "age,name\n" + "\n".join(f"{y},anna" for y in LABELS),
    "nan.csv": "age\n" + "\n".join([*LABELS, "NA"]),
    "constant.csv": "age\n" + "3\n" * 40,
    "short.csv": "age\n" + "\n".join(LABELS[:12]),
    "one.csv": "5\n",
    "ragged.csv": "a,b\n1,2\n3\n",
    "empty.csv": "",
    "twice.csv": "age,age\n1,2\n",
    "binary.csv": bytes(range(256)),
}
BAD = {
    "two.csv": "it has 2 columns; name one as column: age, name",
    "two.csv column=height": "unknown column 'height'; choose from age, name",
    "two.csv column=name": "expected numbers in column 'name'; 60 cells are not, such as 'anna'",
    "nan.csv": "1 are missing or infinite, first in row 60. Drop these rows.",
    "constant.csv": "all 40 labels are 3: there is nothing to balance",
    "short.csv": "expected at least 30 labels, got 12",
    "one.csv": "expected at least 30 labels, got 1",
    "ragged.csv": "line 3: expected 2 columns, got 1",
    "empty.csv": "got an empty file",
    "twice.csv": "expected each column once, got 'age' twice",
    "binary.csv": "expected a CSV file in UTF-8, got other bytes",
    "nowhere.csv": "no such file",
    "": "Give a file of labels: python scripts/diagnose.py labels.csv",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_files_get_a_one_line_error(arguments: str, tmp_path: Path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    monkeypatch.chdir(tmp_path)
    cfg = composed("diagnose", positional(arguments.split()))
    errors = (SystemExit, OSError, ValueError)  # `command` prints one line for each
    with pytest.raises(errors) as caught:
        diagnose.main(cfg)
    assert BAD[arguments] in str(caught.value)
    assert "\n" not in str(caught.value)
