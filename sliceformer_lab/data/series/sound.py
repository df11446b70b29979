"""Sound files: read, mixed to one channel, resampled, and turned into frames of a mel spectrogram."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
from scipy.io import wavfile
from scipy.signal import resample_poly

from sliceformer_lab.errors import DataError, machine_error

WINDOW_S, HOP_S = 0.025, 0.010  # seconds of a frame, and from one to the next
LOWEST_HZ = 20.0
INTEGERS = (np.uint8, np.int16, np.int32)  # types of samples whose full scale is known
MIN_POWER = 1e-8  # of full scale, added before the logarithm


def read_sound(path: Path) -> tuple[np.ndarray, int]:
    """Samples (n,) float32 in -1..1, the mean over the file's channels, and their rate in Hz. Raises DataError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", wavfile.WavFileWarning)  # such as that the file ends too early
            warnings.filterwarnings("ignore", r"Chunk \(non-data\) not understood", wavfile.WavFileWarning)
            rate, samples = wavfile.read(path)
    except Exception as error:  # of scipy, of many kinds for files that are cut or no sound
        reason = machine_error(error) if isinstance(error, OSError) else None
        raise reason or DataError(
            f"{path} cannot be read as .wav ({error}); replace it, or convert it, for example by ffmpeg -i IN OUT.wav"
        ) from error
    if not samples.size:
        raise DataError(f"{path} holds no samples; replace or delete it")
    values = full_scale(samples)
    if not np.isfinite(values).all():
        raise DataError(f"{path} contains NaN or infinity; replace or delete it")
    return (values if values.ndim == 1 else values.mean(axis=1)).astype(np.float32), int(rate)


def full_scale(samples: np.ndarray) -> np.ndarray:
    """Samples in -1..1, from any type that a .wav file has; those of 24 bits are in the upper bytes of 32."""
    if samples.dtype.kind == "f":
        return samples.astype(np.float64)
    if samples.dtype == np.uint8:
        return samples / 128.0 - 1.0
    scaled: np.ndarray = samples / -float(np.iinfo(samples.dtype).min)
    return scaled


def resampled(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Samples (n,) at another rate in Hz, by a polyphase filter against aliasing."""
    if rate == wanted:
        return samples
    divisor = math.gcd(rate, wanted)
    changed: np.ndarray = resample_poly(samples, wanted // divisor, rate // divisor)
    return changed.astype(np.float32)


def log_mel(samples: np.ndarray, rate: int, bands: int) -> np.ndarray:
    """The logarithm of the power in each mel band, (frames, bands) float32, in Hann windows of WINDOW_S every HOP_S.

    A sound that is shorter than one window is filled with silence.
    """
    window, hop = max(2, round(WINDOW_S * rate)), max(1, round(HOP_S * rate))
    if len(samples) < window:
        samples = np.pad(samples, (0, window - len(samples)))
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[::hop]
    size = 2 ** math.ceil(math.log2(window))
    weights = np.hanning(window + 1)[:-1]
    power = np.abs(np.fft.rfft(frames * weights, size)) ** 2 / (weights**2).sum()
    levels: np.ndarray = np.log(power @ mel_filters(rate, size, bands).T + MIN_POWER)
    return levels.astype(np.float32)


def mel_filters(rate: int, size: int, bands: int) -> np.ndarray:
    """Triangular filters (bands, size // 2 + 1), equally wide in mel, 2595 log10(1 + f / 700), from LOWEST_HZ up."""
    low, high = 2595 * np.log10(1 + np.array([LOWEST_HZ, rate / 2]) / 700)
    corners = 700 * (10 ** (np.linspace(low, high, bands + 2) / 2595) - 1)
    places = np.fft.rfftfreq(size, 1 / rate)
    left, middle, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    filters = np.minimum((places - left) / (middle - left), (right - places) / (right - middle)).clip(min=0)
    narrow = ~filters.any(axis=1)  # between two places of the spectrum: the nearest one
    filters[narrow, np.abs(places - middle[narrow]).argmin(axis=1)] = 1
    return filters
