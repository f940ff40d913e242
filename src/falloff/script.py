"""How a script ends: well, or with one sentence that says what is wrong."""

import os
import sys
from collections.abc import Callable


def run(main: Callable[[], None]) -> None:
    """Run a script's main; what a user can cause ends it with one sentence on standard error and exit code 1."""
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        reason = error.strerror or str(error)
        sys.exit(f"error: {os.fspath(error.filename)}: {reason}" if error.filename else f"error: {reason}")
