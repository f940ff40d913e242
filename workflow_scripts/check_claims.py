"""Decide the claims of config/claims.yaml and answer the questions of config/questions.yaml by the figures' tables."""

import argparse
from pathlib import Path

import pandas as pd

from falloff.analysis.claim_ablation import Model
from falloff.analysis.claim_tables import checks_frame, claims_frame, questions_frame
from falloff.analysis.claims import decide
from falloff.outputs import whole_file
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.script import run
from falloff.spec.claims import CLAIMS, QUESTIONS, read_claims, read_questions


def main() -> None:
    """Read claims, questions and tables, write what became of them; a mistake names the file and the claim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tables", type=Path, nargs="+", required=True, metavar="PARQUET", help="named as their tables"
    )
    parser.add_argument("--claims", type=Path, default=CLAIMS, metavar="YAML")
    parser.add_argument("--questions", type=Path, default=QUESTIONS, metavar="YAML")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="of claims, claim_checks, questions")
    arguments = parser.parse_args()
    tables = {path.stem: pd.read_parquet(path) for path in arguments.tables}
    model = Model(shipped_fit(arguments.calibration))
    decided = [decide(claim, tables, model) for claim in read_claims(arguments.claims)]
    frames = {
        "claims": claims_frame(decided),
        "claim_checks": checks_frame(decided),
        "questions": questions_frame(read_questions(arguments.questions), tables),
    }
    for one in decided:
        print(f"{one.claim.name}: {one.verdict}")
    for name, frame in frames.items():
        with whole_file(arguments.output / f"{name}.parquet") as temporary:
            frame.to_parquet(temporary, index=False)


if __name__ == "__main__":
    run(main)
