"""The calibration that the repository ships: fitted to every cell, its intervals from cells that were held out."""

from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.intervals import whole_fit
from falloff.perfmodel.validate import Model, Table, known, unseen


def fit_to_ship(table: Table, model: Model) -> Fit:
    """Return the fit that config/perfmodel/calibration.json holds; it takes some thirty fits."""
    return whole_fit(table, model, unseen(table, model), list(known(table, model).values()))
