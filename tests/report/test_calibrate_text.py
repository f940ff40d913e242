"""The block of a cluster's file is put in the place of the one before, and nothing else moves."""

from falloff.report.calibrate_text import with_calibration
from falloff.spec.cluster import OwnValue

VALUES = {"nvlink_efficiency": OwnValue(value=0.81234, low=0.8, high=0.83, points=12)}
BLOCK = """# By falloff calibrate, from a.log: they count over the shipped values
calibration:
  nvlink_efficiency: {value: 0.8123, low: 0.8, high: 0.83, points: 12}
"""


def test_a_block_is_added_at_the_end() -> None:
    assert (
        with_calibration("name: mine\n# ours\nfabric: efa\n", VALUES, "a.log")
        == f"name: mine\n# ours\nfabric: efa\n{BLOCK}"
    )


def test_a_block_that_stands_between_other_keys_is_replaced_and_they_stay() -> None:
    before = "name: mine\ncalibration:\n  old_name: {value: 1}\n\n  other:\n    value: 2\nsources:\n  - a sheet\n"
    assert with_calibration(before, VALUES, "a.log") == f"name: mine\nsources:\n  - a sheet\n{BLOCK}"


def test_a_file_without_a_last_newline_is_whole_all_the_same() -> None:
    assert with_calibration("name: mine", VALUES, "a.log") == f"name: mine\n{BLOCK}"
