"""A copy of the repository with a study of seconds, in which Snakemake runs for real."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

TINY_NETWORK = """\
name: tiny
layers: 2
hidden: 32
heads: 2
kv_heads: 2
ffn: 64
vocab: 128
source: the tests' own
"""

TINY_STUDY = """\
question: Does the chain hold?
scaling: strong
measure_on: [local]
limits: {timeout_s: 120}
fixed: {network: tiny, seq: 16, global_batch: 4, microbatch: 1, warmup_steps: 1, measured_steps: 2, profiled_steps: 1}
grids:
  - grid:
      layout: [{dp_shard: 1}, {dp_shard: 2}]
collectives:
  - {num_processes: 2, collectives: [all_reduce], message_bytes: [1024, 65536]}
"""


@dataclass(frozen=True)
class Job:
    """A job as Snakemake announces it."""

    rule: str
    wildcards: str


class Workspace:
    """A checkout of its own, with the repository's files and whatever a test makes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """The test's own environment, with this checkout's package before the installed one."""
        return {**os.environ, "PYTHONPATH": str(self.folder / "src")}

    def snakemake(self, *arguments: str, succeeds: bool = True) -> str:
        """Run Snakemake, by default to a good end, and return what it said."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        said = done.stdout + done.stderr
        assert (done.returncode == 0) is succeeds, said[-4000:]
        return said

    def planned(self, *targets: str) -> list[Job]:
        """Return the jobs that a dry run plans."""
        return jobs_in(self.snakemake("--dry-run", *targets))

    def measurements(self, *targets: str) -> list[Job]:
        return [job for job in self.planned(*targets) if job.rule == "measure_run"]

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("data/raw/laptop/*/*/events.jsonl"))

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True)

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text()
        assert old in text, f"{path} has no {old!r}"
        (self.folder / path).write_text(text.replace(old, new))


def jobs_in(said: str) -> list[Job]:
    jobs = []
    for block in re.split(r"\n(?=(?:local)?rule )", said):
        if heading := re.match(r"(?:local)?rule (\S+):", block):
            wildcards = re.search(r"^ +wildcards: (.*)$", block, re.MULTILINE)
            jobs.append(Job(heading[1], wildcards[1] if wildcards else ""))
    return jobs


def copy_repository(folder: Path) -> Workspace:
    """Return a workspace with every file that a clone of the working tree would have, committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        source = REPOSITORY / name
        if source.is_symlink() or source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target, follow_symlinks=False)
    workspace = Workspace(folder)
    workspace.git("init", "--quiet")
    workspace.git("add", "--all")
    workspace.git("commit", "--quiet", "--message", "Start")
    return workspace


def make_tiny(workspace: Workspace) -> Workspace:
    """Return the workspace with the study `laptop` at a size of seconds."""
    (workspace.folder / "config/models/tiny.yaml").write_text(TINY_NETWORK)
    (workspace.folder / "config/studies/laptop.yaml").write_text(TINY_STUDY)
    workspace.git("add", "--all")
    workspace.git("commit", "--quiet", "--message", "Ask a tiny question")
    return workspace
