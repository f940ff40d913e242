from pathlib import Path

import pytest

from falloff.ingest.power_reasons import is_clock_reasons, read_clock_reasons_file
from falloff.ingest.recognise import read_any

CASES = Path(__file__).parents[1] / "cases" / "inputs"
BLOCK = """    Clocks {word} Reasons
        Idle                        : {idle}
        SW Power Cap                : {cap}
        HW Slowdown                 : N/A
"""
REPORT = f"""==============NVSMI LOG==============

Timestamp                                 : Mon Nov 30 09:00:00 2026
Driver Version                            : 535.104.05

Attached GPUs                             : 2
GPU 00000000:1B:00.0
{BLOCK.format(word="Event", idle="Not Active", cap="Active")}
GPU 00000000:43:00.0
{BLOCK.format(word="Event", idle="Active", cap="Not Active")}
"""
XML = """<nvidia_smi_log><gpu id="00000000:1B:00.0"><clocks_throttle_reasons>
<clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
<clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown>
</clocks_throttle_reasons></gpu></nvidia_smi_log>
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "smi.txt"
    path.write_text(text)
    return path


def test_a_block_alone_is_a_kind_of_its_own() -> None:
    (block,) = read_any(CASES / "U195.txt").clock_reasons
    assert (block.gpu, block.active, block.slowing) == (None, ("sw_power_cap",), ("sw_power_cap",))


def test_each_gpu_of_a_report_without_power_has_its_own_block(tmp_path: Path) -> None:
    reading = read_any(written(tmp_path, REPORT))
    assert reading.kind == "clock-reasons"
    first, second = reading.clock_reasons
    assert (first.gpu, first.slowing) == ("00000000:1B:00.0", ("sw_power_cap",))
    assert (second.gpu, second.active, second.slowing) == ("00000000:43:00.0", ("idle",), ())
    assert second.reasons["hw_slowdown"] is None


@pytest.mark.parametrize("prefix", ["", "0: ", "[1,0]<stdout>:"])
def test_older_drivers_call_them_throttle_reasons_and_launchers_put_a_rank_before_them(
    tmp_path: Path, prefix: str
) -> None:
    text = BLOCK.format(word="Throttle", idle="Active", cap="Not Active")
    text = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    assert is_clock_reasons(text)
    (block,) = read_any(written(tmp_path, text)).clock_reasons
    assert (block.active, block.slowing) == (("idle",), ())


def test_the_xml_form_is_read_too(tmp_path: Path) -> None:
    (block,) = read_any(written(tmp_path, XML)).clock_reasons
    assert (block.gpu, block.slowing) == ("00000000:1B:00.0", ("hw_thermal_slowdown",))


def test_a_block_without_reasons_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no block 'Clocks Event Reasons' with reasons in it"):
        read_clock_reasons_file(written(tmp_path, "    Clocks Event Reasons\n"))


def test_a_report_with_power_stays_power_samples() -> None:
    assert read_any(Path(__file__).parents[1] / "data/nvidia_smi/q_load.txt").kind == "power"
