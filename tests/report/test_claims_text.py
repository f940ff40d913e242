import pandas as pd
import pytest

from falloff.report.claims_text import claim_lines, claims_lines, wrapped

CLAIMS = pd.DataFrame(
    [
        {
            "claim": f"C{number}",
            "statement": "Tokens per second and GPU fall from 8 to 2,048 GPUs, monotonically and by a third. " * 2,
            "grade": "said",
            "source": "arXiv 2411.13055",
            "stated": "-37.22 % from 128 to 2,048",
            "ours": "-24.5 % [-48.4, 10.5] (predicted)",
            "verdict": "holds in direction",
            "evidence": "published",
            "why": "It does.",
            "figures": "weak_scaling",
            "command": "snakemake results/tables/claims.parquet",
            "expected_verdict": "holds",
            "changed": number == 2,
        }
        for number in (1, 2)
    ]
)
CHECKS = pd.DataFrame(
    [
        {
            "claim": "C1",
            "role": "decides",
            "what": "the rate",
            "table": "weak_scaling",
            "query": "x > 0",
            "measure": "mean",
            "outcome": "holds",
            "evidence": "published",
            "n": 40,
            "ablation": None,
            "breaking": float("nan"),
            "groups": "MPT, 8 to 64: +0.2 %",
            "record_ids": "; ".join(f"record-{place}" for place in range(40)),
        }
    ]
)


@pytest.mark.parametrize("width", [72, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = [*claims_lines(CLAIMS, width), *claim_lines(CLAIMS, CHECKS, width)]
    assert max(map(len, lines)) <= width


def test_no_word_of_a_statement_is_lost_by_wrapping() -> None:
    rows = [("C1", "holds", "published", "a third", "a quarter", "one two three four five six seven eight nine ten")]
    text = " ".join(wrapped(("claim", "verdict", "evidence", "stated", "ours", "statement"), rows, 70))
    assert all(word in text.split() for word in rows[0][-1].split())


def test_no_word_is_broken_where_there_is_room_for_it() -> None:
    rows = [
        ("C4, InfiniBand", "holds in direction", "published", "AllGather", "0.0 % [-0.9, 0.9] (predicted)", "It falls.")
    ]
    lines = list(wrapped(("claim", "verdict", "evidence", "stated", "ours", "statement"), rows, 80))
    assert max(map(len, lines)) <= 80
    assert {"InfiniBand", "direction", "(predicted)"} <= set(" ".join(lines).split())


def test_a_changed_verdict_is_marked_and_named() -> None:
    text = "\n".join(claims_lines(CLAIMS, 120))
    assert "Changed since config/claims.yaml was last written: C2." in text
    assert "2 holds in direction." in text
    assert "C2: holds in direction, changed: holds before" in list(claim_lines(CLAIMS, CHECKS, 120))


def test_many_records_are_counted_and_blanks_are_not_printed() -> None:
    text = "\n".join(claim_lines(CLAIMS, CHECKS, 120))
    assert "record-0;" in text
    assert "and 16 more, which --json prints" in " ".join(text.split())
    assert "MPT, 8 to 64" in text
    assert "nan" not in text
