"""Predict a list of GPT-3 175B layouts with Calculon, and print how long each prediction took.

Run with a checkout of calculon-ai/calculon on PYTHONPATH: on package indices that name is another project.
"""

import json
import logging
import sys
import time
from pathlib import Path

import calculon
from calculon.llm import Llm
from calculon.system import System


def main() -> int:
    """Read layouts as JSON on standard input; print the seconds of each prediction and the steps predicted."""
    asked = json.load(sys.stdin)
    root = Path(asked["checkout"])
    logger = logging.getLogger()
    application = Llm.Application(calculon.io.read_json_file(str(root / "models" / "gpt3-175B.json")))
    system = calculon.io.read_json_file(str(root / "systems" / "a100_80g.json"))
    execution = calculon.io.read_json_file(str(root / "examples" / "3072_t4_p64_d12_mbs4_full.json"))
    seconds, steps = [], []
    for layout in asked["layouts"]:
        started_s = time.perf_counter()
        try:
            model = Llm(application, logger)
            machine = System(system)
            model.compile(machine, Llm.Execution.from_json({**execution, **layout}))
            model.run(machine)
            steps.append(model.get_total_time())
        except Llm.Error:  # a layout that it refuses
            steps.append(None)
            continue
        seconds.append(time.perf_counter() - started_s)
    print(json.dumps({"seconds": seconds, "steps": steps}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
