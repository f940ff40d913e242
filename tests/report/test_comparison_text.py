from typing import Any

from falloff.analysis.comparability import compare_records
from falloff.analysis.reproduction import reproduction, stated_threshold
from falloff.analysis.series_guard import guard_series
from falloff.report.comparison_text import comparison_lines, series_lines

RUN: dict[str, Any] = {
    "record_id": "a",
    "num_gpus": 8,
    "reported_tokens_per_gpu_s": 1000.0,
    "site": "r1",
    "torch": "2.8",
}


def test_two_records_end_with_their_ratio_the_reproduction_and_the_verdict() -> None:
    comparison = compare_records(RUN, {**RUN, "record_id": "b", "site": "r2", "reported_tokens_per_gpu_s": 820.5})
    text = "\n".join(comparison_lines(comparison, reproduction(comparison, stated_threshold(None))))
    assert text.startswith("A  a\nB  b\n")
    assert "unfair  site   r1  r2  another site, another network and other neighbours" in text
    assert "B / A in tokens/s per GPU: 0.8205" in text
    assert "No efficiency and no speedup: the two ran on unlike machines or did unlike work." in text
    assert "Not reproduced: B is -17.9% from A, outside the 8.0% stated beforehand" in text
    assert text.splitlines()[-1].startswith("Not comparable in silence: site differs;")


def test_records_without_a_rate_have_neither_ratio_nor_reproduction() -> None:
    comparison = compare_records({"record_id": "a"}, {"record_id": "b"})
    text = "\n".join(comparison_lines(comparison, reproduction(comparison, stated_threshold(None))))
    assert "B / A" not in text
    assert "eproduced" not in text


def test_a_series_is_a_table_with_its_base_and_a_dash_for_what_is_apart() -> None:
    rows = [RUN, {**RUN, "record_id": "b", "num_gpus": 16, "site": "r2", "reported_tokens_per_gpu_s": None}]
    header, base, odd, *rest = "\n".join(series_lines(guard_series(rows))).splitlines()
    assert header.split() == ["record", "num_gpus", "tokens/s", "per", "GPU", "over", "base", "efficiency", "remarks"]
    assert base.split() == ["a", "8", "1,000", "100", "%", "100", "%", "the", "base"]
    assert odd.split()[:5] == ["b", "16", "-", "-", "-"]
    assert rest[0].startswith("No difference is claimed within 8.0% (as far as readings of one published cell")
