import time

from falloff.bench.power_nvml import nvml_source
from tests.bench.fake_nvml import FakeNvml


def test_gpus_are_read_with_their_identity_and_the_instant_draw():
    source = nvml_source(FakeNvml())
    assert (source.source, source.scope, source.counter, source.draw) == ("nvml", "gpu", True, "instant, by field")
    assert [(m.index, m.uuid, m.name) for m in source.meters] == [
        (0, "GPU-0", "NVIDIA H200"),
        (1, "GPU-1", "NVIDIA H200"),
    ]
    first, second = source.read()
    assert (first.draw_w, second.draw_w) == (100.0, 101.0)
    assert (second.device, second.energy_j, second.sm_clock_mhz, second.temperature_c) == (1, 5e6, 1980, 61)
    assert second.throttle_reasons == 4


def test_a_driver_without_the_instant_draw_gives_its_usual_reading_and_says_so():
    source = nvml_source(FakeNvml(lacks=("instant",)))
    assert source.draw.startswith("nvmlDeviceGetPowerUsage")
    assert source.read()[0].draw_w == 90.0


def test_a_gpu_that_may_not_be_asked_is_left_out_and_the_others_keep_their_numbers():
    nvml = FakeNvml()
    nvml._answers["nvmlDeviceGetHandleByIndex"] = lambda index: {1: 1}[index]
    source = nvml_source(nvml)
    assert [(meter.index, meter.uuid) for meter in source.meters] == [(1, "GPU-1")]
    assert [reading.device for reading in source.read()] == [1]


def test_what_a_gpu_does_not_tell_is_blank_and_never_zero():
    lacks = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTemperature", "nvmlDeviceGetFieldValues")
    source = nvml_source(FakeNvml(lacks=(*lacks, "nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo")))
    reading = source.read()[0]
    assert not source.counter
    assert (reading.draw_w, reading.energy_j, reading.temperature_c, reading.sm_clock_mhz) == (None,) * 4


def test_an_older_driver_knows_the_reasons_of_throttling_under_their_old_name():
    source = nvml_source(FakeNvml(lacks=("nvmlDeviceGetCurrentClocksEventReasons",)))
    assert source.read()[0].throttle_reasons == 8


def test_the_average_stands_beside_the_instant_draw_and_the_memory_clock_beside_the_sms():
    source = nvml_source(FakeNvml())
    assert source.average == "mean over the last second, by field"
    assert (source.read()[0].average_w, source.read()[0].memory_clock_mhz) == (95.0, 3201)


def test_a_driver_without_the_average_leaves_it_blank_and_says_so():
    source = nvml_source(FakeNvml(lacks=("average",)))
    assert source.average is None
    assert (source.read()[0].average_w, source.read()[0].draw_w) == (None, 100.0)


def test_energy_that_is_no_field_is_asked_for_by_its_name():
    source = nvml_source(FakeNvml(lacks=("energy",)))
    assert source.counter
    assert source.counter_j is not None
    assert (source.counter_j(), source.read()[1].energy_j) == (5000.0, 5000.0)


def test_one_call_gives_a_gpus_energy_and_both_its_draws():
    nvml = FakeNvml()
    source, asked = nvml_source(nvml), []
    answer = nvml._answers["nvmlDeviceGetFieldValues"]
    nvml._answers["nvmlDeviceGetFieldValues"] = lambda *given: (asked.append(given), answer(*given))[1]
    source.read()
    assert asked == [(0, [83, 185, 186]), (1, [83, 185, 186])]


def test_a_value_of_a_type_that_nvml_does_not_have_is_blank():
    nvml = FakeNvml()
    answer = nvml._answers["nvmlDeviceGetFieldValues"]

    def odd(handle, fields):
        values = answer(handle, fields)
        values[-1].valueType = 99
        return values

    source = nvml_source(nvml)
    nvml._answers["nvmlDeviceGetFieldValues"] = odd
    assert source.read()[0].draw_w is None


def test_eight_gpus_cost_the_sampler_under_a_hundredth_of_a_core():
    source = nvml_source(FakeNvml(8))
    began_s = time.process_time()
    for _ in range(200):
        assert len(source.read()) == 8
    # 10 samples a second; what the driver itself takes is measured on a GPU (benchmarks/sampler.py)
    assert (time.process_time() - began_s) / 200 * 10 < 1e-2
