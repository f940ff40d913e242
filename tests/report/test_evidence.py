"""Evidence: each record counted once, in however many panels and ratios it is drawn."""

import pandas as pd

from falloff.report.evidence import evidence
from falloff.report.saving import counts_by_provenance


def test_a_record_drawn_in_two_panels_counts_once(frame):
    twice = pd.concat([frame(), frame(panel="mfu")], ignore_index=True)
    assert counts_by_provenance(twice) == counts_by_provenance(frame())


def test_a_row_without_a_value_is_no_evidence(frame):
    assert counts_by_provenance(frame(y=[1.0, None, 3.0, 4.0]))["measured"] == 2


def test_an_ideal_line_is_no_evidence(frame):
    assert counts_by_provenance(frame(kind=["best", "other", "ideal", "ideal"]))["measured"] == 2


def test_a_point_of_three_launches_is_three_records(frame):
    launches = "one/1; one/2; one/3"
    found = evidence(frame(record_id=[launches, launches, "four", "a-paper-1"]))
    assert list(found["record_id"]) == ["one/1", "one/2", "one/3", "four", "a-paper-1"]
    assert set(found["source"]) == {"laptop", "a paper"}


def test_the_ends_of_a_ratio_are_two_records_each_of_its_own_source(frame):
    found = evidence(
        frame(
            provenance="published",
            source=["a paper", "a paper; a report", "a report; a paper", "a report"],
            source_ref=["table 2; table 1", "table 2; page 3", "page 4; table 1", "page 4; page 3"],
            record_id=["p128; p8", "p128; r8", "r128; p8", "r128; r8"],
        )
    )
    ends = {row.record_id: (row.source, row.source_ref) for row in found.itertuples()}
    assert len(found) == 4
    assert ends == {
        "p128": ("a paper", "table 2"),
        "p8": ("a paper", "table 1"),
        "r128": ("a report", "page 4"),
        "r8": ("a report", "page 3"),
    }


def test_two_sources_that_call_their_rows_alike_have_two_records(frame):
    found = evidence(frame(provenance="published", source=["a", "b", "a", "b"], record_id="row-1"))
    assert len(found) == 2
