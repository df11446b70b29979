"""The names of the classes of labelled examples, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError


def class_names_of(examples: Sequence[tuple[Stage, str, str]], contents: str) -> list[str]:
    """The classes of the training examples, sorted as numbers if all are numbers, from (split, place, class) of each.

    `contents` is what the examples are, for messages. Raises DataError for a single class, or for a class without
    training examples.
    """
    training = [(place, name) for stage, place, name in examples if stage == "train"]
    names = {name for _, name in training}
    if len(names) < 2:
        raise DataError(
            f"{training[0][0]} and all other training {contents} have the class {min(names)!r}; "
            "at least two classes are needed"
        )
    for stage, place, name in examples:
        if name not in names:
            raise DataError(
                f"{place} has the class {name!r}, which only the {stage} split has; "
                f"add training {contents} of this class or delete the {contents.removesuffix('s')}"
            )
    as_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=int) if as_numbers else sorted(names)
