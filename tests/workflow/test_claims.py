"""The claims and answers that this tree builds, against what config/claims.yaml expects."""

import pandas as pd
import pytest

from falloff.analysis.claims import NO_NUMBER
from falloff.spec.claims import Claim, read_claims

from .workspace import REPOSITORY, Workspace

CLAIMS = read_claims(REPOSITORY / "config/claims.yaml")
TABLES = "results/tables"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_verdict_changes_only_with_the_changelog(built: Workspace, claim: Claim) -> None:
    """Whoever changes one says so in CHANGELOG's section Numbers, and then in `expected` of config/claims.yaml."""
    table = pd.read_parquet(built.folder / TABLES / "claims.parquet").set_index("claim")
    row, expected = table.loc[claim.name], claim.expected
    assert row["verdict"] == expected.verdict, row["why"]
    if expected.value is not None:
        assert abs(row["value"] - expected.value) <= expected.within, row["why"]
    assert not row["changed"]


def test_what_holds_or_does_not_rests_on_records_that_are_there(built: Workspace) -> None:
    claims = pd.read_parquet(built.folder / TABLES / "claims.parquet")
    checks = pd.read_parquet(built.folder / TABLES / "claim_checks.parquet")
    runs = set(pd.read_parquet(built.folder / TABLES / "runs.parquet")["record_id"])
    known = runs | set(pd.read_parquet(built.folder / TABLES / "collectives.parquet")["record_id"])
    for row in claims.to_dict("records"):
        if row["verdict"] in ("holds", "holds in direction", "does not hold"):
            assert row["evidence"] in ("measured", "imported", "published")
            assert row["record_ids"]
            assert set(row["record_ids"].split("; ")) <= known, row["claim"]
        else:
            assert row["evidence"] in ("predicted", "none")
    for row in checks[checks["role"] == "decides"].to_dict("records"):
        assert "predicted" not in row["evidence"]


def test_the_models_grids_say_what_its_figures_do(built: Workspace) -> None:
    """An ablation starts from jobs of its own: with everything on they give what the figure's table has."""
    model = pd.read_parquet(built.folder / TABLES / "claim_model.parquet")
    weak = pd.read_parquet(built.folder / TABLES / "weak_scaling.parquet")
    ours = model[(model["grid"] == "weak_7b") & (model["machine"] == "H100")].set_index("x")["tokens_per_gpu_s"]
    drawn = weak[(weak["panel"] == "tokens_per_gpu_s") & (weak["series"] == "7B FSDP, H100")].set_index("x")["y"]
    assert ours.to_dict() == pytest.approx(drawn.to_dict(), rel=1e-6)


def test_every_answer_is_filled(built: Workspace) -> None:
    questions = pd.read_parquet(built.folder / TABLES / "questions.parquet")
    assert questions["number"].tolist() == list(range(1, 19))
    for answer in questions["answer"]:
        assert NO_NUMBER not in answer
        assert "{" not in answer
