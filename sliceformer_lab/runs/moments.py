"""Moments in time as the files of runs write them, perhaps on machines in several time zones."""

from __future__ import annotations

import math
from datetime import datetime


def moment(text: object) -> float:
    """Seconds since 1970 of a time such as 2026-11-27T09:00:00+09:00; one without a zone is of this machine's.

    A text that is no time is before all times.
    """
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError, OSError):
        return -math.inf
