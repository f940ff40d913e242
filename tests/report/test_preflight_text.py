import itertools

from falloff.preflight import Load, Preflight, Rate
from falloff.report.preflight_text import preflight_lines


def rate(measure: str, unit: str, value: float, *devices: int) -> Rate:
    return Rate(measure=measure, unit=unit, devices=devices, repeats=(value, 1.02 * value, 0.98 * value))


def test_each_gpu_has_a_column_and_each_pair_a_line() -> None:
    found = Preflight(
        device="cuda",
        rates=(
            *(rate("product bfloat16 8192, burst", "FLOP/s", 8e14 - 1e13 * n, n) for n in range(3)),
            rate("all_reduce 1 GiB", "B/s", 3.3e11, 0, 1, 2),
            *(rate("pair send_recv 1 GiB", "B/s", 2e11, *pair) for pair in itertools.combinations(range(3), 2)),
        ),
        loads=tuple(
            Load(
                device=n,
                uuid=f"GPU-{n}",
                name="NVIDIA H200",
                sm_clock_mhz=1500.0,
                draw_w=699.5,
                reason_shares={"sw_power_cap": 1.0, "hw_slowdown": 0.0},
            )
            for n in range(3)
        ),
    )
    text = "\n".join(preflight_lines(found))
    assert text.splitlines()[0] == "GPU 0: NVIDIA H200, GPU-0"
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines() if line}
    assert rows["product bfloat16 8192, burst"][-5:] == ["TFLOP/s", "800.0", "790.0", "780.0", "1.026"]
    assert rows["draw under load"][-5:] == ["W", "699.5", "699.5", "699.5", "1.000"]
    assert rows["held down by sw_power_cap"][-4:-1] == ["100", "100", "100"]
    assert rows["all_reduce 1 GiB"][-2:] == ["330.00", "4.0%"]
    assert rows["1 and 2"][-1] == "200.00"
    assert "hw_slowdown" not in text
    assert "temperature" not in text  # nobody stated it


def test_where_nothing_was_measured_nothing_is_drawn() -> None:
    assert preflight_lines(Preflight(device="cuda", rates=(), loads=(), failure="killed")) == []
