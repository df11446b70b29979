"""Types of options with a range, checked when a node of the configuration is read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # as large as numpy's generators take
Workers = Annotated[int, Field(ge=0, le=256)]  # processes that prepare data
Processes = Annotated[int, Field(ge=1, le=256)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]  # a share that cannot be everything: dropout, validation data
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1)]
