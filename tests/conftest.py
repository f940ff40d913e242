"""What holds for all tests."""

import os

from hypothesis import settings

# The same examples each time: what passed on a commit passes on it again. FALLOFF_EXPLORE=1 draws new ones.
settings.register_profile("repeatable", derandomize=True)
if not os.environ.get("FALLOFF_EXPLORE"):
    settings.load_profile("repeatable")
