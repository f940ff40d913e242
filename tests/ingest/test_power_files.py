import gzip
import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from falloff.ingest.power_devices import by_uuid
from falloff.ingest.power_files import power_format, read_power
from falloff.ingest.power_samples import PowerLog
from falloff.rawlog import FIRST_POWER_COLUMNS, POWER_COLUMNS
from falloff.spec.source import PowerFormat

DATA = Path(__file__).parents[1] / "data/power"
SHIPPED = Path("data/external/torchtitan-h200x2/power.csv")
UUID = "GPU-00000000-0000-0000-0000-000000000001"
Write = Callable[[str], Path]

NATIVE = ",".join(FIRST_POWER_COLUMNS) + "\n1.8e9,0,300.5,12.25,1500,40,4\n1800000000.5,0,301,162.5,1500,40,4\n"
# as DCGM 4 prints it (dcgmi/DeviceMonitor.cpp: columns of the names' width + 6, headers again after 14 rows)
DCGM = """\
#Entity         GPUTL       POWER             TOTEC         SMCLK       TMPTR       DVCCTR
ID                          W                 mJ                        C
GPU 1           98          650.125           5000000       1755        55          4
GPU 0           97          640.250           4000000       1740        54          0
GPU-I 3         N/A         N/A               N/A           N/A         N/A         N/A
#Entity         GPUTL       POWER             TOTEC         SMCLK       TMPTR       DVCCTR
ID                          W                 mJ                        C
GPU 1           98          651.000           5650000       1755        55          4
GPU 0           97          N/A               4640000       1740        54          0

dmon was stopped due to receiving a signal
"""
# as jpwr 0.0.8 writes it (src/jpwr/clitool.py: pandas' to_csv with its index)
JPWR = """\
,timestamps,pynvml:0,pynvml:1,gh:Module Power Socket 0,gh:Grace Power Socket 0,gh:CPU Power Socket 0
0,1720686000.10,108.244,91.588,165.627,36.714,35.134
1,1720686000.20,112.458,91.686,165.627,36.714,35.134
2,1720686000.30,112.458,91.686,216.054,36.943,35.658
"""
ZEUS_WINDOWS = """\
start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy
1720686001.0,step,1.0,300.0,310.0
1720686000.5,epoch,3.0,900.0,930.0
1720686004.0,epoch,3.0,0.0,940.0
"""
TEXTS: dict[PowerFormat, str] = {
    "falloff-power": NATIVE,
    "nvidia-smi": (DATA / "nvidia_smi.csv").read_text(),
    "nvidia-smi-dmon": (DATA / "nvidia_smi_dmon.txt").read_text(),
    "nvidia-smi-q": (DATA / "nvidia_smi_report_loop.txt").read_text(),
    "dcgmi-dmon": DCGM,
    "zeus-power": (DATA / "zeus_power.csv").read_text(),
    "zeus-windows": ZEUS_WINDOWS,
    "zeus-monitor": (DATA / "zeus_monitor.txt").read_text(),
    "jpwr": JPWR,
    "power-table": "t_s,power_w,energy_uj\n0,95,100\n0.5,96,48000100\n1.0,95,96000100\n",
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_text(text: str) -> Path:
        path = tmp_path / "samples.txt"
        path.write_text(text)
        return path

    return write_text


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_format_is_told_by_its_content(name: PowerFormat) -> None:
    assert power_format(TEXTS[name]) == name


# what launchers and log collectors put before each line, and a terminal around it
AROUND = {
    "torchrun": ("[default0]:", ""),
    "mpirun": ("[1,0]<stdout>:", ""),
    "srun": (" 0: ", ""),
    "kubectl": ("[pod/train-0/worker] ", ""),
    "Ray": ("(RayTrainWorker pid=1234, ip=10.0.0.1) ", ""),
    "Docker Compose": ("train-1  | ", ""),
    "torchrun in a pod": ("[pod/train-0/worker] [rank0]:", ""),
    "terminal": ("\x1b[32m", "\x1b[0m"),
    "byte order mark": ("\ufeff", ""),
}


@pytest.mark.parametrize("around", sorted(AROUND))
@pytest.mark.parametrize("name", sorted(set(TEXTS) - {"zeus-monitor"}))
def test_what_a_launcher_puts_before_a_sample_does_not_count(name: PowerFormat, around: str, tmp_path: Path) -> None:
    before, after = AROUND[around]
    plain, wrapped = tmp_path / "plain" / "samples.txt", tmp_path / "wrapped" / "samples.txt"
    for path in (plain, wrapped):
        path.parent.mkdir()
    plain.write_text(TEXTS[name])
    wrapped.write_text("".join(f"{before}{line}{after}\n" for line in TEXTS[name].splitlines()))

    assert power_format(wrapped.read_text()) == name
    one, other = read_power(plain), read_power(wrapped)
    assert list(one.devices) == list(other.devices)
    assert one.num_cut_lines == other.num_cut_lines
    for device, samples in one.devices.items():
        for column in ("time_s", "draw_w", "energy_j"):
            np.testing.assert_array_equal(getattr(samples, column), getattr(other.devices[device], column))


def test_the_time_at_which_kubernetes_took_a_row_is_not_the_time_of_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "samples.txt"
    lines = TEXTS["nvidia-smi"].splitlines()
    path.write_text("".join(f"[pod/train-0/worker] 2030-06-16T22:30:48.735123456Z {line}\n" for line in lines))

    (samples,) = read_power(path).devices.values()

    (expected,) = read_power(DATA / "nvidia_smi.csv").devices.values()
    np.testing.assert_array_equal(samples.time_s, expected.time_s)
    np.testing.assert_array_equal(samples.draw_w, expected.draw_w)


def test_samples_of_two_ranks_in_one_file_are_refused(write: Write) -> None:
    rows = [line for line in TEXTS["nvidia-smi"].splitlines() if line]
    path = write("".join(f"{rank}: {line}\n" for line in rows for rank in (0, 1)))

    with pytest.raises(ValueError, match=r"0 and 1 both write samples, .* give the lines of each as a file"):
        read_power(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "hello\n",
        '{"traceEvents": []}',
        "step: 1  loss: 10.2\n",
        "a,b,c\n1,2,3\n",
        "time,loss\n0,1\n",
        "we note time, power draw\nand so on, again\n",
        "time,power\n",
    ],
)
def test_what_is_no_power_file_is_told_as_none(text: str) -> None:
    assert power_format(text) is None


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_compressed_file_reads_as_the_plain_one(name: PowerFormat, tmp_path: Path, write: Write) -> None:
    packed = tmp_path / "samples.log"
    packed.write_bytes(gzip.compress(TEXTS[name].encode()))
    plain = read_power(write(TEXTS[name]))
    for key, samples in read_power(packed).devices.items():
        np.testing.assert_array_equal(samples.draw_w, plain.devices[key].draw_w)


@pytest.mark.parametrize("text", ["", "hello\n", "\x89HDF\r\n", ",".join(FIRST_POWER_COLUMNS) + "\n"])
def test_a_file_without_one_whole_sample_is_a_sentence(write: Write, text: str) -> None:
    with pytest.raises(ValueError, match=r"samples\.txt: [^\n]+$"):
        read_power(write(text))


def test_native_samples_keep_blanks_as_missing(write: Write) -> None:
    samples = read_power(
        write(",".join(FIRST_POWER_COLUMNS) + "\n2.5e9,3,300.5,,1500,40,4\n1.5e9,3,,12.25,,,\n")
    ).devices["3"]
    assert list(samples.time_s) == [1.5e9, 2.5e9]
    assert np.isnan(samples.draw_w[0])
    assert samples.draw_w[1] == 300.5
    assert samples.energy_j[0] == 12.25
    assert np.isnan(samples.clock_reasons[0])


def test_native_samples_have_one_draw_and_the_average_beside_it_is_not_read(write: Write) -> None:
    rows = "\n1.8e9,0,650.5,12.25,1500,40,4,300.5,2619\n1800000000.5,0,651,162.5,1500,40,4,400.5,2619\n"
    log = read_power(write(",".join(POWER_COLUMNS) + rows))
    assert log.format == "falloff-power"
    assert list(log.devices["0"].draw_w) == [650.5, 651]
    assert list(log.devices["0"].sm_clock_mhz) == [1500, 1500]
    assert not log.notes


def test_lines_that_are_cut_or_garbled_are_counted_and_left_out(write: Write) -> None:
    log = read_power(
        write(NATIVE + "1800000001,0,30\n1800000001.5,0,3x0,,,,\n1800000002,0,-5,,,,\n1800000002.5,0,302,312,15")
    )
    assert log.num_cut_lines == 4
    assert len(log.devices["0"].time_s) == 2


@pytest.mark.parametrize(
    ("end", "num"), [("1800000001,0,302,312.5,1500,40,4", 3), ("1800000001,0,302,312.5,1500,40,", 2)]
)
def test_a_last_line_without_its_newline_counts_where_its_last_number_is_as_long_as_the_others(
    write: Write, end: str, num: int
) -> None:
    assert len(read_power(write(NATIVE + end)).devices["0"].time_s) == num


# nvidia-smi


def test_nvidia_smis_columns_are_read_by_name_with_their_units() -> None:
    log = read_power(DATA / "nvidia_smi.csv", timezone="UTC")
    samples = log.devices[UUID]
    assert (samples.index, samples.uuid, samples.name, samples.averaging) == ("0", UUID, "NVIDIA H200", "instant")
    assert set(samples.limit_w) == {700}
    assert samples.sm_clock_mhz.max() == 1980
    assert set(samples.clock_reasons) >= {0, 4}
    # [N/A] for the module, which this board is not
    assert list(log.devices) == [UUID]
    assert (log.notes, log.num_cut_lines) == ((), 0)


def test_the_reading_that_is_named_is_the_one_that_is_read() -> None:
    instant = read_power(DATA / "nvidia_smi.csv", reading="instant").devices[UUID]
    average = read_power(DATA / "nvidia_smi.csv", reading="average").devices[UUID]
    assert average.averaging == "average"
    assert instant.draw_w.max() > 760
    assert average.draw_w.max() < 710


@pytest.mark.parametrize(
    ("header", "row", "draw_w", "averaging"),
    [
        ("timestamp, index, power.draw [W]", "2024/01/16 14:44:16.977, 3, 83.92 W", 83.92, "by generation"),
        ("timestamp, index, power.draw.instant [W]", "2024/01/16 14:44:16.977, 3, [N/A]", math.nan, "instant"),
        ("index, timestamp, name, power.draw [W]", "3, 2024/01/16 14:44:16.977, A, 0.08 kW", 80.0, "by generation"),
        ("index, power.draw [W], timestamp", "3, ERR!, 2024/01/16 14:44:16.977", math.nan, "by generation"),
        ("timestamp, index, gpu.power.draw.average [W]", "2024/01/16 14:44:16.977, 3, 12500 mW", 12.5, "average"),
        ("timestamp,index,power.draw", "2024/01/16 14:44:16.977,3,[Not Supported]", math.nan, "by generation"),
        ("timestamp, index, power.draw [W]", "2024/01/16 14:44:16.977, 3, [Unknown Error]", math.nan, "by generation"),
    ],
)
def test_any_set_of_columns_units_and_non_answers_is_read(
    write: Write, header: str, row: str, draw_w: float, averaging: str
) -> None:
    more = re.sub(r"\[[A-Z].*\]|ERR!", "80", row.replace("14:44:16", "14:44:17"))
    log = read_power(write(f"{header}\n{row}\n{more}\n"), timezone="UTC")
    samples = log.devices["3"]
    assert samples.time_s[0] == pytest.approx(1705416256.977)
    np.testing.assert_allclose(samples.draw_w[0], draw_w)
    assert samples.averaging == averaging
    assert log.num_cut_lines == 0


def test_gpus_interleaved_and_headers_again_are_sorted_out(write: Write) -> None:
    header = "timestamp, index, power.draw [W]\n"
    rows = "".join(f"2024/01/16 14:44:1{n}.000, {gpu}, {gpu}{n}.00 W\n" for n in range(5) for gpu in (1, 0))
    log = read_power(write(header + rows + header + rows.replace("14:44", "14:45")))
    assert {gpu: len(s.time_s) for gpu, s in log.devices.items()} == {"1": 10, "0": 10}
    assert log.devices["1"].draw_w[3] == 13
    assert log.num_cut_lines == 0


def test_another_header_within_a_file_is_followed(write: Write) -> None:
    first = "timestamp, index, power.draw [W]\n2024/01/16 14:44:16.000, 0, 80.00 W\n"
    second = "index, timestamp, temperature.gpu, power.draw [W]\n0, 2024/01/16 14:45:16.000, 33, 90.00 W\n"
    assert list(read_power(write(first + second)).devices["0"].draw_w) == [80, 90]


def test_reasons_in_columns_of_their_own_are_read(write: Write) -> None:
    reasons = "clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_thermal_slowdown"
    rows = ("Active, Not Active", "Not Active, Active", "[N/A], [N/A]")
    lines = [f"2024/01/16 14:44:1{n}.000, 0, 80.00 W, {row}" for n, row in enumerate(rows)]
    samples = read_power(write("\n".join([f"timestamp, index, power.draw [W], {reasons}", *lines, ""]))).devices["0"]
    np.testing.assert_array_equal(samples.clock_reasons, [4, 0x40, np.nan])


def test_the_module_and_its_gpu_are_two_series(write: Write) -> None:
    header = "timestamp, index, power.draw.instant [W], module.power.draw.instant [W]"
    devices = read_power(write(f"{header}\n2024/01/16 14:44:16.000, 0, 560.00 W, 720.00 W\n")).devices
    assert {key: (s.scope, float(s.draw_w[0])) for key, s in devices.items()} == {
        "0": ("gpu", 560.0),
        "0 module": ("module", 720.0),
    }


def test_columns_that_are_stated_name_those_of_a_file_without_a_header() -> None:
    columns = (
        "timestamp",
        "index",
        "power.draw.instant",
        "power.draw.average",
        "clocks.sm",
        "temperature.gpu",
        "clocks_event_reasons.active",
    )
    log = read_power(SHIPPED, "nvidia-smi", columns=columns, timezone="UTC", reading="instant")
    assert {gpu: len(values.time_s) for gpu, values in log.devices.items()} == {"0": 1731, "1": 1731}
    assert log.devices["0"].time_s[0] == pytest.approx(1_796_006_232.283)
    assert (log.devices["0"].draw_w[0], log.devices["0"].clock_reasons[0]) == (79.07, 1)
    with pytest.raises(ValueError, match=r"lack 'power\.draw\.average'"):
        read_power(SHIPPED, "nvidia-smi", columns=columns[:3], reading="average")


@pytest.mark.parametrize("path", [SHIPPED, DATA / "nvidia_smi_plain.csv"], ids=str)
def test_columns_that_nobody_names_are_told_by_their_values_and_that_is_said(path: Path) -> None:
    log = read_power(path)
    assert "its columns are not named; told by their values" in log.notes
    for samples in log.devices.values():
        assert samples.draw_w.min() > 70
        assert np.isfinite(samples.clock_reasons).all()
        assert samples.averaging == "not stated"


def test_a_file_whose_lines_have_no_times_is_placed_by_what_is_stated(write: Write) -> None:
    path = write("index, power.draw [W]\n0, 83.92 W\n1, 60.00 W\n0, 78.22 W\n1, 61.00 W\n")
    assert np.isnan(read_power(path).devices["0"].time_s).all()
    placed = read_power(path, begin_s=100.0, period_s=2.0).devices["1"]
    assert list(placed.time_s) == [100, 102]


def test_where_the_instantaneous_reading_is_not_answered_the_other_one_counts(write: Write) -> None:
    header = "timestamp, index, power.draw [W], power.draw.instant [W]"
    path = write(
        f"{header}\n2024/01/16 14:44:16.000, 0, 560.00 W, [N/A]\n2024/01/16 14:44:17.000, 0, 570.00 W, [N/A]\n"
    )
    samples = read_power(path).devices["0"]
    assert (list(samples.draw_w), samples.averaging) == ([560, 570], "by generation")
    # but never where it was asked for
    assert (
        "0"
        not in read_power(write(path.read_text() + "2024/01/16 14:44:18.000, 1, 5 W, 5 W\n"), reading="instant").devices
    )


# monitors


def test_dmon_is_read_with_dates_without_and_as_csv() -> None:
    dated = read_power(DATA / "nvidia_smi_dmon.txt", timezone="UTC").devices["0"]
    assert dated.time_s[0] == 1796026975
    assert dated.draw_w.max() == 697
    assert dated.sm_clock_mhz.min() == 345
    assert (dated.clock_reasons == 4).sum() == 9  # pviol of 100 %
    as_csv = read_power(DATA / "nvidia_smi_dmon.csv", timezone="UTC").devices["0"]
    assert list(as_csv.draw_w[:6]) == list(dated.draw_w[:6])
    assert as_csv.time_s[0] == 1796026975
    log = read_power(DATA / "nvidia_smi_dmon_without_times.txt")
    assert "its lines have no time stamps" in log.notes
    assert len(log.devices["0"].draw_w) == 17


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Time,Power\n2022-07-13 02:07:36.70,65.3\n", "power-table"),
        ("INFO starting\n\ntimestamp, power.draw [W]\n2024/01/16 14:44:16.977, 83.92 W\n", "nvidia-smi"),
        ("0, 2024/01/16 14:44:16.977, 83.92 W\n1, 2024/01/16 14:44:16.977, 60.00 W\n", "nvidia-smi"),
        ("timestamp,gpu,power_usage\n1705416256,0,203\n", "power-table"),
        ("2026-01-01T12:00:00 # gpu    pwr\n2026-01-01T12:00:01     0     78\n", "nvidia-smi-dmon"),
    ],
)
def test_less_usual_forms_are_told(write: Write, text: str, told: PowerFormat) -> None:
    assert power_format(text) == told
    assert np.isfinite(read_power(write(text)).devices["0"].draw_w).all()


def test_dcgm_is_read_by_its_short_names(write: Write) -> None:
    log = read_power(write(DCGM))
    assert list(log.devices) == ["1", "0"]
    samples = log.devices["1"]
    np.testing.assert_allclose(samples.draw_w, [650.125, 651])
    np.testing.assert_allclose(samples.energy_j, [5000, 5650])
    assert list(samples.sm_clock_mhz) == [1755, 1755]
    assert list(samples.clock_reasons) == [4, 4]
    np.testing.assert_array_equal(log.devices["0"].draw_w, [640.25, np.nan])
    assert log.num_cut_lines == 0


def test_dcgm_with_times_before_it_names_with_blanks_and_a_missing_value(write: Write) -> None:
    text = (
        "2026-01-01T12:00:00.000000 #Entity         DVNAM           POWER       TOTEC\n"
        "2026-01-01T12:00:00.000001 ID                              W           mJ\n"
        "2026-01-01T12:00:00.500000 GPU 0           NVIDIA H200     650.125     5000000\n"
        "2026-01-01T12:00:01.500000 GPU 0           NVIDIA H200                 5650000\n"
        "2026-01-01T12:00:02.500000 GPU 0           NVIDIA H2\n"
    )
    log = read_power(write(text), timezone="UTC")
    samples = log.devices["0"]
    assert samples.name == "NVIDIA H200"
    assert samples.time_s[0] == pytest.approx(1767268800.5)
    np.testing.assert_array_equal(samples.energy_j, [5000, 5650])
    assert log.num_cut_lines == 1


def test_the_report_is_read_gpu_by_gpu() -> None:
    log = read_power(DATA / "nvidia_smi_report_loop.txt", timezone="UTC")
    (samples,) = log.devices.values()
    assert list(samples.time_s) == [1796026984, 1796026985]
    assert (samples.draw_w[0], samples.limit_w[0], samples.sm_clock_mhz[0]) == (662.64, 700, 1545)
    assert samples.clock_reasons[0] == 4
    average = read_power(DATA / "nvidia_smi_report.txt", reading="average").devices[UUID]
    assert (average.draw_w[0], average.averaging, average.name) == (686.65, "average", "NVIDIA H200")


# Zeus and jpwr


def test_zeus_power_log_counts_milliwatts() -> None:
    samples = read_power(DATA / "zeus_power.csv", timezone="UTC").devices["0"]
    assert samples.draw_w[0] == pytest.approx(32.402)
    assert samples.time_s[0] == pytest.approx(1657678056.708783)
    assert samples.averaging == "by generation"


def test_zeus_monitor_prints_all_gpus_and_its_sum_is_no_sample() -> None:
    devices = read_power(DATA / "zeus_monitor.txt", timezone="UTC").devices
    assert list(devices) == ["0", "1", "2", "3"]
    np.testing.assert_allclose(devices["1"].draw_w, [68.792, 68.595, 68.693, 68.675])


def test_zeus_windows_become_a_counter_and_a_window_within_another_counts_once(write: Write) -> None:
    log = read_power(write(ZEUS_WINDOWS))
    np.testing.assert_allclose(log.devices["1"].energy_j, [0, 930, 930, 1870])
    np.testing.assert_array_equal(log.devices["0"].energy_j[:3], [0, 900, 900])
    assert np.isnan(log.devices["0"].energy_j[3])  # 0 J is no measurement
    assert "0.5 s between its windows are not in the file" in log.notes


def test_jpwrs_columns_are_devices_and_modules_stand_apart(write: Write) -> None:
    devices = read_power(write(JPWR)).devices
    assert {key: s.scope for key, s in devices.items()} == {
        "0": "gpu",
        "1": "gpu",
        "0 module": "module",
        "Grace socket 0": "package",
        "CPU socket 0 part": "part",
    }
    assert devices["0"].averaging == "by generation"
    assert devices["0 module"].draw_w[2] == 216.054


def test_the_first_jpwr_named_gpus_by_number_alone(write: Write) -> None:
    devices = read_power(write(",0,1,timestamps\n0,108.2,91.5,1720686000.1\n1,112.4,91.6,1720686000.2\n")).devices
    assert list(devices["1"].draw_w) == [91.5, 91.6]


# plain tables


@pytest.mark.parametrize(
    ("header", "unit_j"),
    [
        ("t_s,energy_uj", 1e-6),
        ("t_s,energy_mj", 1e-3),
        ("t_s,energy_j", 1.0),
        ("time;Energy (kJ)", 1e3),
        ("t\tenergy_wh", 3600.0),
    ],
)
def test_units_of_energy_are_those_of_the_columns_name(write: Write, header: str, unit_j: float) -> None:
    rows = "".join(f"{n}\t{n * 100 / unit_j}\n" for n in range(5))
    delimiter = next(d for d in ",;\t" if d in header)
    samples = read_power(write(header + "\n" + rows.replace("\t", delimiter))).devices["0"]
    np.testing.assert_allclose(samples.energy_j, np.arange(5) * 100.0)


@pytest.mark.parametrize(("unit", "name"), [(1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")])
def test_a_unit_that_nothing_names_is_told_by_plausibility_and_said(write: Write, unit: float, name: str) -> None:
    rows = "".join(f"{n},{n * 16.0 / unit}\n" for n in range(60))
    log = read_power(write("t_s,energy\n" + rows))
    assert log.devices["0"].energy_j[-1] == pytest.approx(59 * 16)
    assert f"the unit of energy is not stated; {name} is plausible" in log.notes


def test_a_wide_table_is_one_series_a_gpu(write: Write) -> None:
    devices = read_power(write("time_s,gpu0_power_w,gpu1_power_w\n0,100,200\n1,101,201\n")).devices
    assert list(devices["1"].draw_w) == [200, 201]


def test_readings_that_no_board_draws_are_left_out_and_said(write: Write) -> None:
    log = read_power(write("t_s,power_w\n0,100\n1,4294967.295\n2,101\n"))
    assert np.isnan(log.devices["0"].draw_w[1])
    assert "1 readings above what a board can draw were left out" in log.notes


# mutations


def mutated(text: str, rng: random.Random) -> bytes:
    data = bytearray(text.encode())
    match rng.randrange(6):
        case 0:
            data = data[: rng.randrange(len(data) + 1)]
        case 1:
            for _ in range(rng.randrange(1, 40)):
                data[rng.randrange(len(data))] = rng.randrange(256)
        case 2:
            lines = data.split(b"\n")
            rng.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        case 3:
            huge = rng.choice([b"1e308", b"9" * 400, b"-1", b"inf", b"0x" + b"f" * 300, b"\x00", b"nan", b'"'])
            fields = data.split(rng.choice([b",", b" ", b"\n", b":"]))
            fields[rng.randrange(len(fields))] = huge
            data = bytearray(rng.choice([b",", b" ", b":"]).join(fields))
        case 4:
            at = rng.randrange(len(data))
            data[at:at] = rng.choice([b"[" * 3000, b"," * 3000, b"{'GPU0': " * 300, b"\xff\xfe" * 300, b"#" * 3000])
        case _:
            return gzip.compress(bytes(data))[: rng.randrange(20, 4000)]
    return bytes(data)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_mutated_file_ends_in_samples_or_one_sentence(name: PowerFormat, tmp_path: Path) -> None:
    rng, path = random.Random(name), tmp_path / "mutated"
    for _ in range(200):
        path.write_bytes(mutated(TEXTS[name], rng))
        for told in (None, name):
            outcome = read_or_refuse(path, told)
            assert isinstance(outcome, PowerLog) or "\n" not in outcome


def read_or_refuse(path: Path, told: PowerFormat | None) -> PowerLog | str:
    try:
        return read_power(path, told)
    except ValueError as error:
        return str(error)


def table(folder: Path, text: str) -> PowerLog:
    path = folder / "table.csv"
    path.write_text(text)
    return read_power(path)


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("time_s,node_power_w,gpu0_power_w,gpu1_power_w,cpu_power_w", ["0 node", "0", "1", "0 package"]),
        ("time,usage_mw", ["0"]),
        ("_timestamp,system.gpu.0.powerWatts,system.gpu.1.powerWatts", ["0", "1"]),
        ('Time,"DCGM_FI_DEV_POWER_USAGE{gpu=""0""}","DCGM_FI_DEV_POWER_USAGE{gpu=""1""}"', ["0", "1"]),
        ("time,power (cpu),power (gpu)", ["0 package", "0"]),
        ("time,Current Socket Graphics Package Power (W)", ["0"]),
    ],
)
def test_columns_of_unlike_devices_and_scopes_stand_apart(tmp_path: Path, header: str, names: list[str]) -> None:
    width = len(names)
    rows = "".join(",".join([str(t), *(str(300 + 10 * n) for n in range(width))]) + "\n" for t in range(8))
    found = table(tmp_path, f"{header}\n{rows}").devices
    unit = 1e-3 if "_mw" in header else 1.0
    means = {name: (300 + 10 * n) * unit for n, name in enumerate(names)}
    assert {name: samples.draw_w.mean() for name, samples in found.items()} == pytest.approx(means)


def test_rows_that_name_their_scope_stand_apart(tmp_path: Path) -> None:
    rows = "".join(f"{t},gpu,560\n{t},module,720\n{t},hbm,50\n{t},what,1\n" for t in range(8))
    found = table(tmp_path, "t_s,scope,power_w\n" + rows)
    assert {name: (samples.scope, samples.draw_w.mean()) for name, samples in found.devices.items()} == {
        "0": ("gpu", 560),
        "0 module": ("module", 720),
    }
    assert found.num_cut_lines == 8


def test_an_index_may_be_spelt_in_words(tmp_path: Path) -> None:
    rows = "".join(f"{1700000000 + t},{t % 2},{300 + t % 2}\n" for t in range(8))
    found = table(tmp_path, "Timestamp,GPU Index,GPU Power (Watts)\n" + rows).devices
    assert {name: samples.draw_w.mean() for name, samples in found.items()} == {"0": 300, "1": 301}


def test_a_unit_in_words_is_heeded(tmp_path: Path) -> None:
    rows = "".join(f"{t},300000\n" for t in range(8))
    assert table(tmp_path, "time,power (milliwatts)\n" + rows).devices["0"].draw_w.mean() == pytest.approx(300)


def test_a_table_of_runs_is_no_table_of_samples(tmp_path: Path) -> None:
    path = tmp_path / "emissions.csv"
    path.write_text("timestamp,run_id,duration,gpu_power,gpu_energy\n2024-05-01T10:00:00,a,3600.0,310.0,0.31\n" * 2)
    with pytest.raises(ValueError, match="holds no power samples"):
        read_power(path)


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        ("time,host,gpu,power_w", "node0/0", "node1/0"),
        ("time,rank,x,power_w", "node0", "node1"),
    ],
)
def test_rows_of_several_hosts_or_ranks_stand_apart(tmp_path: Path, header: str, first: str, second: str) -> None:
    rows = "".join(f"{t},node{n},0,{300 + n}\n" for t in range(8) for n in (0, 1))
    found = table(tmp_path, f"{header}\n{rows}").devices
    assert {name: samples.draw_w.mean() for name, samples in found.items()} == {first: 300, second: 301}


def test_a_sum_beside_columns_of_one_gpu_each_is_no_gpu(tmp_path: Path) -> None:
    rows = "".join(f"{t},300,310,610\n" for t in range(8))
    found = table(tmp_path, "time,gpu0_power_w,gpu1_power_w,total_power_w\n" + rows).devices
    assert {name: samples.draw_w.mean() for name, samples in found.items()} == {"0": 300, "1": 310}


def test_a_column_may_be_called_by_its_gpu_s_uuid(tmp_path: Path) -> None:
    rows = "".join(f"{t},300,310\n" for t in range(8))
    found = table(tmp_path, "time,GPU-aaaaaaaa-00 power (W),GPU-bbbbbbbb-00 power (W)\n" + rows).devices
    assert by_uuid(found, "bbbbbbbb-00") == "gpu-bbbbbbbb-00"


def test_of_two_columns_that_could_be_the_draw_a_note_says_which_was_read(tmp_path: Path) -> None:
    rows = "".join(f"{t},300,310\n" for t in range(8))
    log = table(tmp_path, "time,power_a,power_b\n" + rows)
    assert "could be the draw: power_a, power_b; the first was read" in log.notes


def test_clock_reasons_without_power_are_read_as_such(tmp_path: Path) -> None:
    rows = "".join(f"2024/05/01 10:00:0{i}.123, 0, 0x0000000000000004\n" for i in range(8))
    log = table(tmp_path, "timestamp, index, clocks_event_reasons.active\n" + rows)
    assert set(log.devices["0"].clock_reasons) == {4.0}
    assert np.isnan(log.devices["0"].draw_w).all()


def test_power_in_a_unit_that_nothing_names_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="above what a board can draw; state the unit"):
        table(tmp_path, "time,power\n" + "".join(f"{t},300000\n" for t in range(8)))


def test_dcgmi_s_values_that_do_not_stand_below_their_names_are_read_in_order(tmp_path: Path) -> None:
    rows = "".join(f"GPU 0     300.1  {10**6 + 300_000 * t}\nGPU-I 0   N/A  N/A\n" for t in range(8))
    samples = table(tmp_path, "#Entity   POWER   TOTEC\nID        W       mJ\n" + rows).devices["0"]
    assert (samples.draw_w.mean(), samples.energy_j[-1] - samples.energy_j[0]) == pytest.approx((300.1, 2100))


@pytest.mark.parametrize(
    "text",
    [
        "timestamp; index; power.draw [W]\n"
        "2024/05/10 12:00:00,000; 0; 312,45 W\n2024/05/10 12:00:01,000; 0; 1.022,5 W\n",
        "time;gpu;power_W\n10.05.2024 12:00:00;0;312,45\n10.05.2024 12:00:01;0;1022,5\n",
        'Timestamp,GPU,Power (W)\n05/10/2024 12:00:00 PM,0,"312,45"\n05/10/2024 12:00:01 PM,0,"1,022.5"\n',
        "time\tgpu\tpower_W\n2024-05-10 12:00:00\t0\t312,45\n2024-05-10 12:00:01\t0\t1022,5\n",
    ],
)
def test_a_spreadsheets_numbers_and_moments_are_read_in_its_locale(write: Write, text: str) -> None:
    log = read_power(write(text))
    samples = log.devices["0"]
    assert samples.draw_w.tolist() == [312.45, 1022.5]
    assert samples.time_s.tolist() == [1715342400.0, 1715342401.0]
    assert log.num_cut_lines == 0


def test_a_number_that_may_have_a_decimal_comma_or_thousands_is_no_sample(write: Write) -> None:
    log = read_power(write('time,gpu,energy_j\n1.8e9,0,"1,012.5"\n1.8e9,0,"1,012"\n'))
    assert (log.devices["0"].energy_j.tolist(), log.num_cut_lines) == ([1012.5], 1)


def test_a_row_that_has_lost_its_unit_has_lost_digits_too(write: Write) -> None:
    rows = "".join(f"2024/05/10 12:00:0{second}.000, 0, 31{second}.12 W\n" for second in range(4))
    log = read_power(write(f"timestamp, index, power.draw [W]\n{rows}2024/05/10 12:00:04.000, 0, 33\n"))
    assert (log.devices["0"].draw_w.tolist(), log.num_cut_lines) == ([310.12, 311.12, 312.12, 313.12], 1)
