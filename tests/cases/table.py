"""Every case with a machine-readable value: what falloff gives, what is expected, whether they agree.

python -m tests.cases.table, from the repository's root.
"""

import importlib
import json
from typing import Any

from .compare import EXPECTED, FOLDER, check

OF_OTHER_KINDS = "not about reading: of another kind"


def got() -> dict[str, Any]:
    """Return what falloff gives for each case that a test here covers."""
    modules = [importlib.import_module(f"{__package__}.{path.stem}") for path in sorted(FOLDER.glob("test_*.py"))]
    return {case: run() for module in modules for case, run in module.GOT.items()}


def verdict(case: str, value: Any) -> str:
    """Return whether a case agrees, and if not how."""
    try:
        check(case, value)
    except AssertionError as error:
        return str(error)
    return "agrees"


def main() -> None:
    """Print one line a case."""
    found = got()
    for case, expected in sorted(EXPECTED.items()):
        if case in found:
            kept = {key: found[case].get(key) for key in expected if key != "tol"}
            print(f"| {case} | {json.dumps(kept)} | {json.dumps(expected)} | {verdict(case, found[case])} |")
        else:
            print(f"| {case} | - | {json.dumps(expected)} | {OF_OTHER_KINDS} |")


if __name__ == "__main__":
    main()
