"""Geometry of Pathfinder's snakes: which links fit between the pixels of an image, and how they look.

A snake is a chain of links between pixels, and a paddle is the middle part of a link. An integer with one bit per pixel
of the board stores where links are, so that one shift and one AND decide whether a link is free.
"""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

Difficulty = Literal["easy", "intermediate", "hard"]
CONTOUR_LENGTHS: dict[Difficulty, int] = {"easy": 6, "intermediate": 9, "hard": 14}

_RANDOM_TRIALS = 4  # random choices of a next link before all possible ones are listed

Square = tuple[int, int]  # row, column


@dataclass(frozen=True, kw_only=True)
class SnakeOptions:
    """Sizes in pixels, contrasts relative to white. The length of a contour is its number of paddles."""

    size: int  # of a side of the image
    contour_length: int  # of the two targets
    distractor_length: int
    num_distractors: int  # at most; those which do not fit are left out
    paddle_length: int
    thickness: float
    margins: tuple[int, ...]  # half the gap between paddles; each image uses one of them
    seed_distance: int  # distance between the first ends of the targets
    continuity: float  # a larger one gives straighter snakes
    marker_radius: float
    target_contrast: float
    distractor_contrast: float
    distractor_directions: tuple[int, int] = (-180, 179)  # degrees; a trial in another direction fails
    padding: int = 1  # free pixels at the border
    antialias: int = 2  # images are drawn this many times larger

    @classmethod
    def published(
        cls, size: Literal[32, 128], difficulty: Difficulty, num_distractors: int | None = None
    ) -> SnakeOptions:
        """The sizes of Pathfinder (32) and Path-X (128) in the Long Range Arena, which uses the difficulty hard.

        `num_distractors` replaces the published number: 5 for hard Pathfinder, 8 for hard Path-X.
        """
        contour = CONTOUR_LENGTHS[difficulty]
        distractor = contour // 3
        paddles = {32: 20, 128: 35}[size]  # of all distractors
        number = paddles // distractor if num_distractors is None else num_distractors
        if size == 32:
            return cls(
                size=32,
                contour_length=contour,
                distractor_length=distractor,
                num_distractors=number,
                paddle_length=2,
                thickness=0.5,
                margins=(1,),
                seed_distance=7,
                continuity=1.0,
                marker_radius=1.5,
                target_contrast=2 * 0.75,  # antialiasing halves the brightness of a line of half a pixel
                distractor_contrast=2.0,
                distractor_directions=(-150, -121),  # of the published code; see the docstring of snakes.py
            )
        return cls(
            size=128,
            contour_length=contour,
            distractor_length=distractor,
            num_distractors=number,
            paddle_length=5,
            thickness=1.5,
            margins=(2, 3),
            seed_distance=20,
            continuity=1.8,
            marker_radius=3.0,
            target_contrast=0.9,
            distractor_contrast=0.9,
        )


class Link(NamedTuple):
    """A link that starts at a joint and goes along one of the board's steps."""

    joint: Square
    step: int


class PixelBoard:
    """Everything about links that depends only on the options and a margin.

    A set of pixels is an integer. Pixel (row, column) is bit (row + reach) * width + column + reach, so that the square
    window around a joint starts at bit row * width + column.
    """

    def __init__(self, options: SnakeOptions, margin: int) -> None:
        self.options, self.margin = options, margin
        self.length = length = options.paddle_length + 2 * margin
        self.steps: list[Square] = sorted({_step_of(length, angle) for angle in np.radians(np.arange(0, 360, 0.25))})
        self.angles = [math.atan2(*step) for step in self.steps]
        self.reach = length + 2 * margin
        self.width = options.size + 2 * self.reach
        near = [self._distances(step) for step in self.steps]
        self.line = [self._window_bits(distance <= 0.5) for distance in near]
        self.zone = [self._window_bits(distance < 2 * margin) for distance in near]
        inside = np.zeros((self.width, self.width), bool)
        free = slice(self.reach + options.padding, self.width - self.reach - options.padding)
        inside[free, free] = True
        self.border = _pack_pixels(~inside)
        self.turns = [self._turns(angle) for angle in self.angles]

    def _distances(self, step: Square) -> np.ndarray:
        """Distance of each pixel of the window from the link that starts in its middle."""
        rows, columns = np.mgrid[-self.reach : self.reach + 1, -self.reach : self.reach + 1]
        along = np.clip((rows * step[0] + columns * step[1]) / (step[0] ** 2 + step[1] ** 2), 0, 1)
        distances: np.ndarray = np.hypot(rows - along * step[0], columns - along * step[1])
        return distances

    def _window_bits(self, pixels: np.ndarray) -> int:
        return _pack_pixels(np.pad(pixels, ((0, 0), (0, self.width - pixels.shape[1]))))

    def _turns(self, angle: float) -> tuple[list[int], list[float]]:
        """The steps that may follow a step at `angle`, and the cumulative sums of their weights."""
        turns = [abs(math.remainder(other - angle, 2 * math.pi)) for other in self.angles]
        weights = [math.cos(min(self.options.continuity * turn, math.pi / 2)) ** 2 for turn in turns]
        steps = [step for step, weight in enumerate(weights) if weight > 1e-9]
        return steps, list(accumulate(weights[step] for step in steps))

    def is_free(self, link: Link, occupied: int) -> bool:
        """Whether a link touches no zone in `occupied`."""
        return not occupied >> self._shift(link.joint) & self.line[link.step]

    def zone_of(self, link: Link) -> int:
        """The pixels that no other link may touch except the next one of the same snake."""
        return self.zone[link.step] << self._shift(link.joint)

    def _shift(self, joint: Square) -> int:
        return joint[0] * self.width + joint[1]

    def next_link(self, link: Link, occupied: int, random: Random) -> Link | None:
        """A random link that continues `link`, most likely straight ahead; None if none is free."""
        joint = self.end(link)
        near = occupied >> self._shift(joint)
        steps, sums = self.turns[link.step]
        for _ in range(_RANDOM_TRIALS):  # drawing until one is free is faster than listing the free ones
            step = steps[bisect(sums, random.random() * sums[-1])]
            if not near & self.line[step]:
                return Link(joint, step)
        weights = [b - a for a, b in zip([0.0, *sums], sums, strict=False)]
        free = [index for index, step in enumerate(steps) if not near & self.line[step]]
        if not free:
            return None
        return Link(joint, steps[random.choices(free, [weights[index] for index in free])[0]])

    def end(self, link: Link) -> Square:
        (row, column), (down, right) = link.joint, self.steps[link.step]
        return row + down, column + right

    def centre(self, link: Link) -> tuple[float, float]:
        (row, column), (down, right) = link.joint, self.steps[link.step]
        return row + down / 2, column + right / 2

    def step_towards(self, degrees: float) -> int:
        """The step nearest to a direction."""
        return self.steps.index(_step_of(self.length, math.radians(degrees)))

    def paddle_end(self, link: Link, sign: Literal[-1, 1]) -> Square:
        """The pixel of a paddle's tail (-1) or head (1)."""
        (row, column), angle = self.centre(link), self.angles[link.step]
        half = sign * self.options.paddle_length / 2
        return math.floor(row + half * math.sin(angle) + 0.5), math.floor(column + half * math.cos(angle) + 0.5)

    @cached_property
    def paddles(self) -> list[np.ndarray]:
        """For each step, a window (2 reach + 1)^2 around the paddle's head with the paddle in it, 0 to 1."""
        return [self._paddle(angle) for angle in self.angles]

    def _paddle(self, angle: float) -> np.ndarray:
        canvas, middle = self._canvas()
        scale, length = self.options.antialias, self.options.paddle_length
        down, right = _step_of(scale * length, angle)
        tail = middle - right, middle - down
        ImageDraw.Draw(canvas).line([(middle, middle), tail], fill=255, width=round(self.options.thickness * scale))
        return self._reduce(canvas)

    @cached_property
    def marker(self) -> np.ndarray:
        """A window with a disc in its middle, 0 to 1."""
        canvas, middle = self._canvas()
        radius = self.options.marker_radius * self.options.antialias
        rows, columns = np.ogrid[-middle : middle + 1, -middle : middle + 1]
        canvas.paste(255, mask=Image.fromarray(np.hypot(rows, columns) <= radius))
        return self._reduce(canvas)

    def _canvas(self) -> tuple[Image.Image, int]:
        """An enlarged window with an odd side, whose middle is the middle of a pixel as in the published code."""
        middle = self.reach * self.options.antialias
        return Image.new("L", (2 * middle + 1, 2 * middle + 1)), middle

    def _reduce(self, canvas: Image.Image) -> np.ndarray:
        side = 2 * self.reach + 1
        return np.asarray(canvas.resize((side, side), Image.Resampling.LANCZOS), np.float32) / 255


def _step_of(length: int, angle: float) -> Square:
    return round(length * math.sin(angle)), round(length * math.cos(angle))


def _pack_pixels(pixels: np.ndarray) -> int:
    """A set of pixels as an integer, whose lowest bit is the first pixel."""
    return int.from_bytes(np.packbits(pixels, bitorder="little").tobytes(), "little")
