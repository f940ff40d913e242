"""falloff validate: the model against every published cell, beside its peers, what falls short; watts by --power."""

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from falloff.cli.output import print_json
from falloff.outputs import whole_file
from falloff.perfmodel.calibrate import write_fit
from falloff.perfmodel.calibrate_power import (
    FITTED,
    PowerScore,
    fit_power,
    held_out_errors,
    power_intervals,
    score_power,
)
from falloff.perfmodel.claims import Claim, claims
from falloff.perfmodel.controls import Control, check_controls
from falloff.perfmodel.goals import goals_of
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power_runs import read_power_runs
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.perfmodel.scoreboard import Board, FamilyScores, board_of
from falloff.perfmodel.scoreboard_text import text_of
from falloff.perfmodel.shipping import fit_to_ship
from falloff.perfmodel.shortfalls import reason
from falloff.perfmodel.step import predict_steps
from falloff.perfmodel.validate import TABLE, our_model, read_table
from falloff.report.power_text import power_lines


def run(parsed: argparse.Namespace) -> int:
    """Print the scores, those of watts alone, or renew the calibration that is shipped."""
    if parsed.power:
        return _power(parsed)
    path = parsed.cells or TABLE
    if not path.is_file():
        raise ValueError(f"{path}: no such file; run this in a checkout of falloff, or name a table by --cells")
    table, model = read_table(path), our_model()
    if parsed.calibrate:
        return _calibrate(fit_to_ship(table, model), parsed.output or CALIBRATION, parsed.json)
    if parsed.output is not None:
        raise ValueError("--output belongs to --calibrate and --power")
    fit = shipped_fit()
    board, said, controls = board_of(table, model), claims(fit), check_controls(fit.values)
    if parsed.json:
        print_json(json_of(board, said, controls))
    else:
        print(text_of(board, said, controls), end="")
    return 0


def _calibrate(found: Any, path: Path, is_json: bool) -> int:
    write_fit(found, path)
    if is_json:
        print_json({"output": path, "rows": found.rows, "sources": list(found.sources)})
    else:
        print(f"{path}: {len(found.coordinates)} values, from {found.rows:,} cells of {len(found.sources)} sources.")
    return 0


def _power(parsed: argparse.Namespace) -> int:
    """Print how the watts of our own runs are met, and what they would be fitted to; no shipped value is touched."""
    if parsed.cells is not None or parsed.calibrate:
        raise ValueError("--power scores our own runs' watts by itself: leave --cells and --calibrate out")
    runs = read_power_runs()
    steps = predict_steps(runs.jobs, shipped_fit().values)
    score, found, held_out = score_power(runs, steps), fit_power(runs, steps), held_out_errors(runs, steps)
    controls, intervals = runs.control.tolist(), power_intervals(runs, steps)
    document = _power_json(score, controls, found, held_out, intervals)
    if parsed.output is not None:
        with whole_file(parsed.output) as temporary:
            temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if parsed.json:
        print_json(document)
    else:
        print("\n".join(power_lines(score, controls, found, held_out, intervals)))
    return 0


def _power_json(
    score: PowerScore, controls: list[str], found: Values, held_out: Floats, intervals: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    return {
        "runs": [
            {
                "record": name,
                "control": controls[place],
                "at_limit": bool(score.is_capped[place]),
                "measured_w": _plain(score.measured_w[place]),
                "predicted_w": _plain(score.predicted_w[place]),
                "error_of_measured_step": _plain(score.of_measured_step[place]),
                "error_of_predicted_step": _plain(score.of_predicted_step[place]),
                "held_out_error_of_measured_step": _plain(held_out[place]),
            }
            for place, name in enumerate(score.names)
        ],
        "values": [
            {
                "parameter": name,
                "shipped": found.parameters[name].prior,
                "refitted": found.get(name, "all"),
                "low": intervals[name][0],
                "high": intervals[name][1],
                "level": 0.9,
                "spread": found.parameters[name].spread,
                "meaning": found.parameters[name].meaning,
            }
            for name in FITTED
        ],
    }


def json_of(board: Board, said: list[Claim], controls: list[Control]) -> dict[str, Any]:
    """Return all scores for programs: fractions where a score is one, goals in the units that they name."""
    goals = list(goals_of(board))
    return {
        "rows": board.rows,
        "refused": board.refused,
        "learned": board.learned,
        "goals": [{**_plain(goal), "met": goal.is_met} for goal in goals],
        "short": {goal.name: reason(board, goal) for goal in goals if not goal.is_met},
        "claims": _plain(said),
        "controls": _plain(controls),
        "families": {one.family.name: _family(one) for one in board.families},
        **{
            field.name: _plain(getattr(board, field.name))
            for field in dataclasses.fields(board)
            if field.name not in ("rows", "refused", "learned", "families", "half_scale")
        },
        "half_scale_regrets": [float(value) for value in board.half_scale],
    }


def _family(one: FamilyScores) -> dict[str, Any]:
    family = one.family
    return {
        "source": family.source,
        "peer": family.peer,
        "peer_mape_percent": family.peer_mape,
        **{
            field.name: _plain(getattr(one, field.name))
            for field in dataclasses.fields(one)
            if field.name not in ("family",)
        },
    }


def _plain(value: Any) -> Any:
    """Return values of numpy and dataclasses as plain ones; what is not finite is None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
