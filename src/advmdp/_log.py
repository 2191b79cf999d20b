"""What the library tells a person, under the logger ``advmdp``."""

from __future__ import annotations

import logging
import sys
from functools import cache

logger = logging.getLogger("advmdp")


def say(text: str) -> None:
    """Log an information; in a program that has set up no logging, a person should see it all the same."""
    if logger.hasHandlers():
        logger.info(text)
    elif logger.level <= logging.INFO:
        print(f"advmdp: {text}", file=sys.stderr, flush=True)


say_once = cache(say)
