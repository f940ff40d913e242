"""Real Slurm clusters for tests: started once, whatever runs on them ended between tests."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm.checkout import Checkout
from tests.slurm.cluster import Cluster, new_cluster, why_not_here


def _cluster(*, accounting: bool) -> Iterator[Cluster]:
    if reason := why_not_here(accounting=accounting):
        pytest.skip(reason)
    # a short name: a socket's has 107 letters at most
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = new_cluster(folder, accounting=accounting)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def plain_cluster() -> Iterator[Cluster]:
    """A cluster without accounting."""
    yield from _cluster(accounting=False)


@pytest.fixture(scope="session")
def accounting_cluster() -> Iterator[Cluster]:
    """A cluster with slurmdbd."""
    yield from _cluster(accounting=True)


@pytest.fixture
def plain(plain_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster without accounting, on which nothing runs."""
    yield plain_cluster
    plain_cluster.clear()


@pytest.fixture
def accounted(accounting_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with slurmdbd, on which nothing runs."""
    yield accounting_cluster
    accounting_cluster.clear()


@pytest.fixture
def checkout_on(tmp_path: Path) -> Iterator[Callable[..., Checkout]]:
    """What makes a clone on a cluster, with values for its site file; its heads are ended with the test."""
    made: list[Checkout] = []

    def make(cluster: Cluster, **site: object) -> Checkout:
        made.append(Checkout(tmp_path / f"falloff-{len(made)}", cluster, **site))
        return made[-1]

    yield make
    for checkout in made:
        checkout.end()
