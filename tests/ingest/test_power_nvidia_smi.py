from pathlib import Path

import pytest

from falloff.ingest.power_nvidia_smi import guess_columns, read_clock_reasons

REPORT = Path(__file__).parents[1] / "data/power/nvidia_smi_report.txt"
OLD_BLOCK = """
    Clocks Throttle Reasons
        Idle                        : Not Active
        Applications Clocks Setting : Active
        SW Power Cap                : Not Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Active
            HW Power Brake Slowdown : N/A
        Sync Boost                  : Not Active
        SW Thermal Slowdown         : Not Active
    FB Memory Usage
        Total                       : 16160 MiB
"""


def test_the_block_is_told_from_its_counters_and_from_what_follows() -> None:
    reasons = read_clock_reasons(REPORT.read_text())
    assert reasons is not None
    assert [name for name, active in reasons.items() if active] == ["sw_power_cap"]
    assert len(reasons) == 9


def test_the_older_name_of_the_block_and_an_answer_that_is_none_are_read() -> None:
    reasons = read_clock_reasons(OLD_BLOCK)
    assert reasons is not None
    assert reasons["hw_power_brake_slowdown"] is None
    active = ["applications_clocks_setting", "hw_slowdown", "hw_thermal_slowdown"]
    assert [name for name, value in reasons.items() if value] == active


def test_the_same_in_xml_is_read() -> None:
    text = (
        "<clocks_event_reasons>\n<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>\n"
        "<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>\n</clocks_event_reasons>"
    )
    assert read_clock_reasons(text) == {"sw_power_cap": True, "hw_slowdown": False}


def test_a_text_without_the_block_has_none() -> None:
    assert read_clock_reasons("    FB Memory Usage\n        Total : 16160 MiB\n") is None


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (
            ["2026/11/30 02:37:12.283, 0, 79.07, 345", "2026/11/30 02:37:12.483, 0, 79.90, 360"],
            ["timestamp", "index", "power", ""],
        ),
        (
            [
                "2026/11/30 02:37:12.283, 700.00 W, 79.07 W, 1755 MHz, [N/A]",
                "2026/11/30 02:37:13.283, 700.00 W, 80.00 W, 1755 MHz, [N/A]",
            ],
            ["timestamp", "", "power", "", ""],
        ),
        (
            ["GPU-0f8fad5b-d9cb, 2026/11/30 02:37:12, 79.07", "GPU-7c9e6679-7425, 2026/11/30 02:37:12, 80.00"],
            ["uuid", "timestamp", "power"],
        ),
    ],
)
def test_columns_are_told_by_what_their_values_look_like(rows: list[str], names: list[str]) -> None:
    guessed = guess_columns(rows)
    assert guessed is not None
    assert guessed[0] == names


@pytest.mark.parametrize("rows", [[], ["2026/11/30 02:37:12.283, 0, 345"], ["0, 79.07", "0, 80.00"]])
def test_without_a_time_or_a_draw_nothing_is_guessed(rows: list[str]) -> None:
    assert guess_columns(rows) is None
