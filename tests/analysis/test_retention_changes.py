import pandas as pd
import pytest

from falloff.analysis.retention_changes import AS_IS, STUDY, WHAT_IFS, WORKLOADS, largest_batch, retention_rows
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import shipped_fit

FIT = shipped_fit()


def test_every_change_is_told_of_each_workload_with_an_interval_about_its_ratio() -> None:
    for workload in WORKLOADS:
        own = pd.DataFrame(retention_rows(workload, FIT))
        assert list(own["change"]) == list(WHAT_IFS)
        assert ((own["y_low"] < own["y"]) & (own["y"] < own["y_high"])).all()
        assert own.set_index("change")["rate"][AS_IS] == pytest.approx(1.0)


def test_the_largest_batch_fits_on_the_fewer_gpus_and_the_next_does_not() -> None:
    batch = largest_batch(STUDY, FIT, recompute="full")
    jobs = stack([STUDY.job(min(STUDY.ends), recompute="full", local_batch=size) for size in (batch, batch + 1)])
    fits = memory_bytes(jobs, FIT.values).margin_bytes >= 0
    assert fits.tolist() == [True, False]
