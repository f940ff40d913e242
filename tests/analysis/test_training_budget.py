import math

import pytest

from falloff.analysis.training_budget import batch_penalty, loss_of, tokens_to, usd_per_token
from falloff.spec.assumptions import read_loss_laws

LAWS = read_loss_laws()


@pytest.mark.parametrize("law", LAWS.laws, ids=lambda law: law.name)
def test_the_tokens_to_a_loss_give_that_loss(law) -> None:
    loss = loss_of(law, 7e9, 140e9)
    assert tokens_to(law, 7e9, loss) == pytest.approx(140e9, rel=1e-6)


@pytest.mark.parametrize("law", LAWS.laws, ids=lambda law: law.name)
def test_more_parameters_and_more_tokens_lower_the_loss(law) -> None:
    assert loss_of(law, 14e9, 140e9) < loss_of(law, 7e9, 140e9) > loss_of(law, 7e9, 280e9) > law.E


def test_chinchilla_itself_reaches_the_loss_that_its_equation_gives() -> None:
    # by hand: 1.69 + 406.4 / 7e10^0.34 + 410.7 / 1.4e12^0.28
    assert loss_of(LAWS.laws[0], 70e9, 1.4e12) == pytest.approx(1.937, abs=0.001)


def test_a_small_network_never_reaches_what_a_large_one_does() -> None:
    assert tokens_to(LAWS.laws[0], 1e8, loss_of(LAWS.laws[0], 70e9, 1.4e12)) == math.inf


def test_at_the_critical_batch_a_loss_takes_twice_the_tokens() -> None:
    critical = LAWS.critical_batch
    assert batch_penalty(critical, 2.0, critical.tokens_at(2.0)) == pytest.approx(2)
    assert batch_penalty(critical, 2.0, 0.0) == 1


def test_a_gpu_hour_is_shared_by_the_tokens_of_an_hour() -> None:
    assert usd_per_token(1000.0, 3.6) == pytest.approx(1e-6)
