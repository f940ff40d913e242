"""From studies to figures: measure -> ingest -> tabulate -> draw -> page. Targets: figures/, or one figure."""

import os
import sys


configfile: "config/config.yaml"


# Jobs find this interpreter's environment without activation; a fixed epoch keeps dates out of what is made.
shell.prefix(
    f"export PATH={os.path.dirname(sys.executable)!r}:$PATH SOURCE_DATE_EPOCH=0 MPLBACKEND=Agg; set -euo pipefail; "
)


include: "rules/common.smk"
include: "rules/jobs.smk"
include: "rules/measure.smk"
include: "rules/ingest.smk"
include: "rules/perfmodel.smk"
include: "rules/analysis.smk"
include: "rules/figures.smk"
