"""Forward + backward time and peak memory of each loss against the textbook formula, and the
batched synthetic benchmark against one run at a time; as ratios, in one run, in turns.
"""

import os
from dataclasses import asdict

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler says nothing

import torch
from command import command
from omegaconf import DictConfig
from rich.console import Console

from engine import RESULTS, ROOT
from engine.runs import provenance
from engine.speed.suites import SUITES, markdown, rows_with_goals
from engine.speed.timing import Bench, table
from engine.tables import pages
from engine.tables import table as tables


@command("benchmark")
def main(config: DictConfig) -> None:
    if config.suite != "all" and config.suite not in SUITES:
        raise SystemExit(f"suite is all or one of {', '.join(SUITES)}, got {config.suite}")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    bench = Bench(config.device, config.rounds, config.seconds, config.budget)
    console = Console(width=max(Console().width, 130))
    suites = SUITES if config.suite == "all" else {config.suite: SUITES[config.suite]}
    report = {}
    for name, suite in suites.items():
        rows = suite(bench)
        report[name] = [asdict(row) for row in rows]
        console.print(table(f"{name}, {torch.get_num_threads()} threads", rows))
    report["meta"] = {**provenance.meta(), "threads": torch.get_num_threads()}
    tables.write_benchmark(report, ROOT, "benchmark", config.publish)
    if config.publish:
        text = markdown(rows_with_goals(report))
        pages.insert_everywhere(pages.beside(RESULTS), "benchmark", text)


if __name__ == "__main__":
    main()
