"""Break each behaviour of the workflow on purpose and show that its test turns red.

Every *.patch beside this file says in its head which behaviour it breaks and which test holds it. First all these
tests must pass on a copy of the working tree; then each patch is applied to a copy of its own, its test is run there,
and must fail. A patch that does not apply, a test that cannot be collected or that stays green is an error. Exit code
0 only where every mutant is red.
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "workflow"))

from workspace import copy_repository  # noqa: E402 (the path is made above)

TESTS_FAILED = 1  # pytest's exit code; 2 and more mean that it could not run them


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A patch, the behaviour it breaks, and the test that must notice."""

    patch: Path
    breaks: str
    test: str


def read_mutant(patch: Path) -> Mutant:
    """Return the mutant; ValueError where the head of the patch lacks `breaks:` or `test:`."""
    head = patch.read_text(encoding="utf-8").partition("\ndiff ")[0]
    found = dict(re.findall(r"^(breaks|test): (.+)$", head, re.MULTILINE))
    if set(found) != {"breaks", "test"}:
        raise ValueError(f"{patch}: its head must say `breaks:` and `test:`, found {sorted(found)}")
    return Mutant(patch=patch, breaks=found["breaks"], test=found["test"])


def verdict(mutant: Mutant) -> str:
    """Return 'red' where the test fails on the broken tree, otherwise what went wrong instead."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_repository(Path(folder) / "falloff").folder
        applied = subprocess.run(
            ["git", "apply", str(mutant.patch)], cwd=tree, capture_output=True, text=True, check=False
        )
        if applied.returncode:
            return f"does not apply: {applied.stderr.strip()}"
        done = _pytest(tree, mutant.test)
        return "red" if done.returncode == TESTS_FAILED else f"pytest ended with {done.returncode}: {_end_of(done)}"


def check_green(tests: list[str]) -> None:
    """Raise ValueError unless every test passes on the tree as it is: a red one would prove nothing."""
    with tempfile.TemporaryDirectory() as folder:
        done = _pytest(copy_repository(Path(folder) / "falloff").folder, *tests)
    if done.returncode:
        raise ValueError(f"the tests are not green without the patches: {_end_of(done)}")


def _pytest(tree: Path, *tests: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def _end_of(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stdout.strip()[-300:]


def main() -> int:
    """Run the mutants named on the command line, or all; print a line each."""
    wanted = sys.argv[1:]
    mutants = [read_mutant(p) for p in sorted(HERE.glob("*.patch")) if not wanted or p.stem in wanted]
    check_green(sorted({mutant.test for mutant in mutants}))
    survivors = 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        for mutant, found in zip(mutants, pool.map(verdict, mutants), strict=True):
            survivors += found != "red"
            print(f"{'red ' if found == 'red' else 'NOT RED '} {mutant.patch.stem}: {mutant.breaks}", flush=True)
            if found != "red":
                print(f"    {found}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants are red")
    return int(survivors > 0 or not mutants)


if __name__ == "__main__":
    sys.exit(main())
