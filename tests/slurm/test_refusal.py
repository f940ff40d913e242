"""Whose affair a refusal of sbatch is."""

import pytest

from falloff.slurm.refusal import Refusal, refusal_in

REPORT = "SLURM sbatch failed. The error message was '{}'.\n    sbatch call:\n        sbatch --parsable ...\n"
FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("Requested node configuration is not available", "job"),
        ("Node count specification invalid", "job"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "job"),
        ("Memory required by task is not available", "job"),
        ("Invalid generic resource (gres) specification", "job"),
        ("Invalid feature specification", "job"),
        ("Socket timed out on send/recv operation", "nobody"),
        ("Unable to contact slurm controller (connect failure)", "nobody"),
        ("Resource temporarily unavailable", "nobody"),
        ("invalid partition specified: gpus", "site"),
        ("Invalid account or account/partition combination specified", "site"),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "site"),
        ("Requested reservation is invalid", "site"),
    ],
)
def test_a_refusal_says_whose_affair_it_is(said: str, fault: str) -> None:
    assert refusal_in(REPORT.format(FAILED + said)) == Refusal(said=said, fault=fault)


def test_all_that_sbatch_said_is_told_once() -> None:
    said = "sbatch: error: Memory specification can not be satisfied\n" + FAILED + "Requested node configuration is bad"
    refusal = refusal_in(REPORT.format(said))
    assert refusal is not None
    assert refusal.said == "Memory specification can not be satisfied; Requested node configuration is bad"


def test_an_error_that_is_not_of_sbatch_is_no_refusal() -> None:
    assert refusal_in("Job submission failed with exception: The given account appears to be invalid") is None
