"""Your own series or sounds in class folders."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sliceformer_lab.config.option_types import Count, Processes
from sliceformer_lab.data.input_files import read_files
from sliceformer_lab.data.own_data import ClassFolders, OwnFolder, sample_evenly
from sliceformer_lab.data.parallel import in_order, paced
from sliceformer_lab.data.series.base import SeriesData
from sliceformer_lab.data.series.coding import as_series
from sliceformer_lab.data.series.series_tables import Series
from sliceformer_lab.data.series.sound import HOP_S, INTEGERS, WINDOW_S, full_scale, log_mel, read_sound, resampled
from sliceformer_lab.data.spec import Choice, Content, NewInput
from sliceformer_lab.errors import DataError

SOUNDS = {".wav"}
ENDINGS = {".npy", *SOUNDS}
MAX_RATE = 16_000  # Hz, that rate=null chooses

Features = Literal["log_mel", "raw"]


@dataclass(frozen=True)
class SoundForm:
    """What the series of a sound is: the log mel bands of its frames, or its samples."""

    rate: int  # Hz
    features: Features
    bands: int

    def __str__(self) -> str:
        """How the series is made, for people."""
        samples = f"the mean of its channels in -1..1, resampled to {self.rate:,} Hz"
        if self.features == "raw":
            return samples
        return (
            f"{samples}, as the logarithm of the power in {self.bands} mel bands of Hann windows of "
            f"{1000 * WINDOW_S:.0f} ms, one every {1000 * HOP_S:.0f} ms (`log_mel` of this version's "
            "`sliceformer_lab/data/series/sound.py`)"
        )

    def values(self, samples: np.ndarray) -> np.ndarray:
        """The series (L, C) of samples (n,) at `rate`."""
        return log_mel(samples, self.rate, self.bands) if self.features == "log_mel" else samples[:, None]


@dataclass(kw_only=True, eq=False, repr=False)
class SeriesFolder(SeriesData, OwnFolder, ClassFolders):
    """Your own series: root/CLASS/*.npy or *.wav, or root/train/CLASS, also root/val/CLASS and root/test/CLASS.

    An .npy file has an array (steps,) or (steps, channels), NaN where a value is missing. A .wav file is mixed to one
    channel and resampled to `rate` Hz, by default the commonest of the training files, at most MAX_RATE; `features`
    are the logarithms of `bands` mel bands in frames of 25 ms, one every 10 ms, or `raw` samples.
    """

    title = "series_folder"
    note = "your own series; sha256 is of their values and classes"
    endings = ENDINGS
    examples_are = "series"

    rate: Count | None = None
    features: Features = "log_mel"
    bands: Count = 40
    processes: Processes | None = None

    def short_place(self, place: str) -> str:
        return place

    @cached_property
    def _are_sounds(self) -> bool:
        """Whether the files are sounds. Raises DataError if only some are."""
        kinds = {path.suffix.lower() in SOUNDS: path for path in self.files}
        if len(kinds) > 1:
            raise DataError(f"{self.path} holds series and sounds ({kinds[False]}, {kinds[True]}); keep one kind there")
        return True in kinds

    @property
    def _sound_form(self) -> SoundForm | None:
        """The form of the sounds; None for arrays."""
        return SoundForm(self.rate or self._common_rate, self.features, self.bands) if self._are_sounds else None

    @property
    def _known_form(self) -> SoundForm | None:
        """The form that the options give, as those of a trained model, whose data may be gone; None without a rate."""
        return None if self.rate is None else SoundForm(self.rate, self.features, self.bands)

    @cached_property
    def _common_rate(self) -> int:
        rates = Counter(read_sound(path)[1] for path, _ in sample_evenly(self.class_files["train"]))
        return min(rates.most_common(1)[0][0], MAX_RATE)

    def choices(self) -> list[Choice]:
        if self.rate is not None or not self._are_sounds:
            return super().choices()
        reason = f"the commonest rate of the training files, at most {MAX_RATE:,}"
        return [Choice("data.rate", self._common_rate, reason), *super().choices()]

    def source(self) -> dict[str, Any]:
        files = {str(path.relative_to(self.path)): path for path in self.files}
        return {"files": files, "sounds": self._sound_form and repr(self._sound_form)}

    def read(self) -> Iterator[Series]:
        classes = self.folder_classes()
        listed = [(stage, path, label) for stage, part in self.class_files.items() for path, label in part]
        arrays = in_order(partial(read_file, form=self._sound_form), (path for _, path, _ in listed), self.processes)
        for values, (stage, path, label) in zip(paced(arrays, "series", len(listed)), listed, strict=True):
            place = path.relative_to(self.path).as_posix()
            yield Series(values, classes[label], place, None if stage == "train" else stage)

    def encode_one(self, content: Content) -> np.ndarray:
        """The patches of a series, or of the samples (n,) of a sound at `rate`: numbers in -1..1, or INTEGERS."""
        form = self._known_form
        if form is not None and isinstance(content, np.ndarray) and content.ndim == 1 and content.dtype.kind in "fiu":
            if not len(content):
                raise DataError("the sound has no samples")
            if content.dtype.kind != "f" and content.dtype not in INTEGERS:
                raise DataError(f"samples of type {content.dtype} have no known scale; give numbers in -1..1, or int16")
            content = form.values(full_scale(content).astype(np.float32))
        return super().encode_one(content)

    def is_cut(self, content: Content, encoded: Any) -> bool:
        """As of a table; False of a sound, whose samples are no steps."""
        return self._known_form is None and super().is_cut(content, encoded)

    @property
    def rule_of_inputs(self) -> str:
        rule, form = super().rule_of_inputs, self._known_form
        return rule if form is None else f"make a series of a sound: {form}. Then {rule}"

    def remarks(self) -> list[str]:
        """Asks whether arrays with more channels than steps are transposed."""
        found = super().remarks()
        if self.rate is None and not self._are_sounds and (channels := self.coding.channels) > self._median_len:
            found.append(
                f"the arrays have {channels:,} channels, but the median series has {self._median_len:,} steps; if the "
                "channels are steps, transpose the arrays to (steps, channels)"
            )
        return found

    def read_inputs(self, path: Path, column: str | None) -> Iterator[NewInput]:
        """A file, or all files in a folder and the folders in it."""
        del column
        form = self._known_form
        yield from read_files(path, {".npy"} if form is None else ENDINGS, "series", partial(read_file, form=form))


def read_file(path: Path, form: SoundForm | None) -> np.ndarray:
    """The series (L, C) of a file; an array for a model of sounds as it is. Raises DataError naming the file."""
    if path.suffix.lower() in SOUNDS:
        if form is None:
            raise DataError(f"{path} is a sound, and the model was trained on arrays; give .npy files")
        samples, rate = read_sound(path)
        return form.values(resampled(samples, rate, form.rate))
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as .npy ({error}); replace or delete it") from error
    values = as_series(array, str(path))
    return values if form is None else array
