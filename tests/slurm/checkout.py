"""A clone of the repository on a test cluster: its site file edited, heads that run in it, what they leave behind."""

import datetime
import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from falloff import rawlog
from falloff.spec.study import Study, StudyCell, read_study
from tests.slurm.cluster import Cluster
from tests.workflow.workspace import TINY_NETWORK, Workspace, copy_repository

T = TypeVar("T")

PERIOD_S = 0.25
WAIT_S = 240.0
HEAD_S = 600.0

# What a test cluster is: two ranks a node, so that two and four of them are needed for little, and nothing to wait for.
SITE = {
    "label": "test",
    "partition": "main",
    "gpus_per_node": 2,
    "memory_per_node_mb": 3000,
    "exclusive": False,
    "startup_s": 60,
    "network_interface": "lo",
    "jobs_in_flight": 3,
    "seconds_between_polls": 2,
    "retries": 2,
}


class Checkout(Workspace):
    """A clone with nothing edited but profiles/slurm/site.yaml (and, where a test asks for it, a study put beside)."""

    def __init__(self, folder: Path, cluster: Cluster, **site: object) -> None:
        super().__init__(copy_repository(folder).folder)
        self.cluster = cluster
        self.heads: list[Head] = []
        self.state_site({**SITE, **site})

    @property
    def environment(self) -> dict[str, str]:
        return {**self.cluster.environment, "PYTHONPATH": str(self.folder / "src")}

    def state_site(self, values: Mapping[str, object]) -> None:
        """Write values over those of the site file, each on the line that states it."""
        path = self.folder / "profiles/slurm/site.yaml"
        text = path.read_text()
        for name, value in values.items():
            text, count = re.subn(rf"^{name}:.*$", f"{name}: {json.dumps(value)}", text, flags=re.MULTILINE)
            assert count == 1, f"{path} states {name} {count} times"
        path.write_text(text)

    def ask(self, name: str, study: str) -> Study:
        """Put a study into the clone, beside a network of nothing; return it as it is read."""
        (self.folder / "config/models/tiny.yaml").write_text(TINY_NETWORK)
        path = self.folder / f"config/studies/{name}.yaml"
        path.write_text(study)
        return read_study(path, self.folder / "config/models")

    def start_head(self, study: str, *targets: str) -> "Head":
        """Start the command that a person types."""
        config = ["--config", "site=slurm", "device=cpu", f"studies=[{study}]"]
        self.heads.append(Head(self, ["--profile", "slurm", *targets, *config]))
        return self.heads[-1]

    def end(self) -> None:
        """End the heads that are still at work; their jobs are the cluster's to end."""
        for head in self.heads:
            head.kill()

    # what is there

    def run_dir(self, study: Study, cell: StudyCell, repeat: int = 1) -> Path:
        return self.folder / "data/raw" / study.name / cell.cell_id / str(repeat)

    def records(self, study: Study) -> list[str]:
        """Return the targets that are the records of a study."""
        return [f"results/records/{study.name}/{cell.cell_id}/{n}.runs.parquet" for cell, n in study.runs()]

    def record(self, study: Study, cell: StudyCell) -> dict[str, Any]:
        path = self.folder / f"results/records/{study.name}/{cell.cell_id}/1.runs.parquet"
        (row,) = pd.read_parquet(path).to_dict("records")
        return {str(name): value for name, value in row.items()}

    def jobs(self, *fields: str) -> dict[int, list[str]]:
        """Return fields of squeue of each job that was ever submitted from here, by job id, as Slurm remembers them."""
        listed = self.cluster.run("squeue", "--noheader", "--states=all", f"--format=%A %Z {' '.join(fields)}")
        jobs = [line.split() for line in listed.splitlines()]
        return {int(job[0]): job[2:] for job in jobs if job[1] == str(self.folder)}

    def jobs_of(self, cell: StudyCell) -> list[int]:
        """Return the ids of all jobs that were ever submitted for a cell."""
        return sorted(job for job, (comment,) in self.jobs("%k").items() if cell.cell_id in comment)

    def open_events(self, run_dir: Path) -> list[dict[str, Any]]:
        """Return what a run that is not sealed has written so far, of all its nodes."""
        lines = [line for path in run_dir.glob("events*.open.jsonl") for line in path.read_text().splitlines()]
        events = []
        for line in lines:
            try:
                events.append(json.loads(line))
            except ValueError:  # the end of a line is still to come
                continue
        return events

    def break_at_work(self, study: Study, faults: Mapping[str, tuple[StudyCell, Callable[[int], object]]]) -> None:
        """Do to each cell what is to be done to it, given its job, once its ranks are at work; in whichever order."""
        left = dict(faults)

        def broken() -> bool:
            for name in [name for name, (cell, _) in left.items() if self.is_at_work(study, cell)]:
                cell, fault = left.pop(name)
                fault(self.jobs_of(cell)[-1])
            return not left

        self.wait_until(broken, f"not at work: {', '.join(left)}", HEAD_S)

    def is_at_work(self, study: Study, cell: StudyCell) -> bool:
        """Return whether the ranks of a cell have found each other and are at work."""
        return any(event["event"] == "process_group" for event in self.open_events(self.run_dir(study, cell)))

    def wait_for_work(self, study: Study, cell: StudyCell) -> int:
        """Return the job of a cell once its ranks have found each other and are at work."""
        self.wait_until(lambda: self.is_at_work(study, cell), f"{cell.cell_id} did not begin")
        return self.jobs_of(cell)[-1]

    def wait_until(self, find: Callable[[], T], complaint: str, limit_s: float = WAIT_S) -> T:
        """Return what is found, once it is anything."""
        deadline_s = time.monotonic() + limit_s
        while not (found := find()):
            assert time.monotonic() < deadline_s, f"{complaint} within {limit_s:g} s"
            time.sleep(PERIOD_S)
        return found

    def waiting_times_s(self) -> list[float]:
        """Return the seconds from submission to start of every job that has started."""
        times = self.jobs("%V", "%S").values()
        return [(_time(start) - _time(submitted)).total_seconds() for submitted, start in times if start != "N/A"]

    def seconds_to_first_event(self, study: Study) -> list[float]:
        """Return the seconds from the submission of each run's job until its ranks had found each other."""
        submitted = {job: _time(text).timestamp() for job, (text,) in self.jobs("%V").items()}
        found = []
        for cell in study.cells:
            events = rawlog.read_events(self.run_dir(study, cell) / rawlog.SEALED_NAME)
            begun = next(event["time_s"] for event in events if event["event"] == "process_group")
            found.append(begun - submitted[self.jobs_of(cell)[-1]])
        return found


# What the fixture checkout_on gives: a cluster and values for the site file make a clone.
NewCheckout = Callable[..., Checkout]


class Head:
    """A Snakemake at work in a checkout."""

    def __init__(self, checkout: Checkout, arguments: list[str]) -> None:
        self._log = checkout.folder.parent / f"head-{time.monotonic_ns()}.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                checkout.command(*arguments),
                cwd=checkout.folder,
                env=checkout.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait(self, *, succeeds: bool = True) -> str:
        """Return what the head said, once it has ended, by default well."""
        code = self.process.wait(timeout=HEAD_S)
        assert (code == 0) is succeeds, self.said()[-6000:]
        return self.said()

    def kill(self) -> None:
        """End the head as a node that reboots does: it hears nothing."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def calls_a_cell(calls: Counter[str], num_cells: int) -> str:
    """Return how often Slurm was asked, a cell, in words."""
    each = ", ".join(f"{name} {count / num_cells:.2g}" for name, count in sorted(calls.items()))
    return f"{calls.total() / num_cells:.3g} calls of Slurm a cell ({each})"


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
