"""falloff claims: what became of each claim of the study, as the workflow's tables have it."""

import argparse
import shutil
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd

from falloff.analysis.claim_tables import COMMAND
from falloff.cli.output import print_json
from falloff.report.claims_text import claim_lines, claims_lines


def run(parsed: argparse.Namespace) -> int:
    """Print the table of claims, or one claim with its checks and records."""
    claims, checks = (_read(parsed.tables / f"{name}.parquet") for name in ("claims", "claim_checks"))
    if parsed.claim is not None:
        claims = _of_claim(claims, parsed.claim)
        checks = checks[checks["claim"].isin(claims["claim"])]
    if parsed.json:
        print_json(_json_of(claims, checks))
        return 0
    width = shutil.get_terminal_size().columns
    lines = claims_lines(claims, width) if parsed.claim is None else claim_lines(claims, checks, width)
    print("\n".join(lines))
    return 0


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise ValueError(f"{path} is not built; `{COMMAND}` builds it, in a checkout of falloff")
    return pd.read_parquet(path)


def _of_claim(claims: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """Return a claim, or all parts of one; ValueError names those that there are."""
    names = claims["claim"].str.casefold()
    found = claims[(names == wanted.casefold()) | (names.str.partition(",")[0] == wanted.casefold())]
    if found.empty:
        raise ValueError(f"claim {wanted!r} is unknown; known: {'; '.join(claims['claim'])}")
    return found


def _json_of(claims: pd.DataFrame, checks: pd.DataFrame) -> list[dict[str, object]]:
    return [
        {**{str(name): value for name, value in claim.items()}, "checks": _records(checks, claim["claim"])}
        for claim in claims.to_dict("records")
    ]


def _records(checks: pd.DataFrame, claim: str) -> list[dict[Hashable, Any]]:
    return checks[checks["claim"] == claim].to_dict("records")
