"""Pictures of dashed curves: two marked ends belong to one curve, or to two (Pathfinder).

The procedure of Linsley et al. (2018) and Kim et al. (2020) with the sizes of Long-Range Arena, written anew: two
target snakes start near each other and grow by turns, distractors fill the space left, two ends are marked.

A snake is a chain of links between pixels; a paddle is the middle of a link. Where links are is held in one integer,
a bit for every pixel of the board, so that asking whether a link is free takes one shift and one AND.

Where this differs from the published code: links, with the gaps between paddles, keep their distance (there snakes can
cross in a gap); every snake has all its paddles (there distractors that find no place are left out); a candidate that
does not fit has no weight (there it is drawn, tried twice, and the picture given up); coordinates are rounded to the
nearest pixel (there up); markers do not touch; brightness above white is cut (there the picture is stretched); and the
distance of the markers has one distribution for both labels (`Snakes._marked`).
"""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

GENERATOR_VERSION = 1  # of the pictures that a seed gives
Difficulty = Literal["easy", "intermediate", "hard"]
CONTOUR_LENGTHS: dict[Difficulty, int] = {"easy": 6, "intermediate": 9, "hard": 14}

_DISTRACTOR_TRIALS = 20  # for each, before the scene is given up
_DRAWS = 4  # of a next link at random, before all are looked at
_CANDIDATES = 4  # scenes drawn at once, until markers of some two of them agree
_SAME_PLACE = 1 / 32  # of the picture's side, between rows and between columns
_SAME_DISTANCE = 1 / 64  # of the picture's side

Point = tuple[int, int]  # row, column


@dataclass(frozen=True, kw_only=True)
class SnakeOptions:
    """Sizes in pixels, contrasts relative to white. A contour's length is its number of paddles."""

    size: int  # of a side of the picture
    contour_length: int  # of the two targets
    distractor_length: int
    num_distractors: int
    paddle_length: int
    thickness: float
    margins: tuple[int, ...]  # half the gap between paddles, one drawn for each picture
    seed_distance: int  # between the first ends of the targets
    continuity: float  # the larger, the straighter
    marker_radius: float
    target_contrast: float
    distractor_contrast: float
    padding: int = 1  # kept free at the border
    antialias: int = 2  # drawn so many times larger

    @classmethod
    def published(
        cls, size: Literal[32, 128], difficulty: Difficulty, num_distractors: int | None = None
    ) -> SnakeOptions:
        """The sizes of Long-Range Arena's Pathfinder (32) and Path-X (128), whose own difficulty is hard.

        `num_distractors` takes the place of the published number: 5 of hard Pathfinder, 8 of hard Path-X.
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
                target_contrast=2 * 0.75,  # antialiasing halves a line that is half a pixel thick
                distractor_contrast=2.0,
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

    def snake_ids(self) -> np.ndarray:
        """(P,) uint8, the snake of each paddle in a picture's list: 0 and 1 are the targets."""
        lengths = [self.contour_length] * 2 + [self.distractor_length] * self.num_distractors
        return np.repeat(np.arange(len(lengths), dtype=np.uint8), lengths)


@dataclass(frozen=True)
class Drawing:
    """One picture and what is in it. Coordinates are (row, column) in pixels, 0 the middle of the first."""

    pixels: np.ndarray  # (H, W) uint8
    label: int  # 1: both markers on one snake
    markers: np.ndarray  # (2, 2) int16, on a snake's first end and on a last end
    centres: np.ndarray  # (P, 2) float32, of paddles, along each snake in the order of `SnakeOptions.snake_ids`
    orientations: np.ndarray  # (P,) float32, radians from the column axis towards the row axis


class Link(NamedTuple):
    """From a joint along one of a board's steps."""

    joint: Point
    step: int


class Board:
    """Everything about links that depends on the options and a margin only.

    A set of pixels is an integer. Pixel (row, column) is bit (row + reach) * width + column + reach, so that the square
    window around a joint begins at bit row * width + column.
    """

    def __init__(self, options: SnakeOptions, margin: int) -> None:
        self.options, self.margin = options, margin
        length = options.paddle_length + 2 * margin
        angles = np.radians(np.arange(0, 360, 0.25))
        self.steps: list[Point] = sorted({(round(length * math.sin(a)), round(length * math.cos(a))) for a in angles})
        self.angles = [math.atan2(*step) for step in self.steps]
        self.reach = length + 2 * margin
        self.width = options.size + 2 * self.reach
        near = [self._distances(step) for step in self.steps]
        self.line = [self._window_bits(distance <= 0.5) for distance in near]
        self.zone = [self._window_bits(distance < 2 * margin) for distance in near]
        inside = np.zeros((self.width, self.width), bool)
        free = slice(self.reach + options.padding, self.width - self.reach - options.padding)
        inside[free, free] = True
        self.border = _bits(~inside)
        self.turns = [self._turns(angle) for angle in self.angles]

    def _distances(self, step: Point) -> np.ndarray:
        """From each pixel of the window to the link that starts in its middle."""
        rows, columns = np.mgrid[-self.reach : self.reach + 1, -self.reach : self.reach + 1]
        along = np.clip((rows * step[0] + columns * step[1]) / (step[0] ** 2 + step[1] ** 2), 0, 1)
        distances: np.ndarray = np.hypot(rows - along * step[0], columns - along * step[1])
        return distances

    def _window_bits(self, pixels: np.ndarray) -> int:
        return _bits(np.pad(pixels, ((0, 0), (0, self.width - pixels.shape[1]))))

    def _turns(self, angle: float) -> tuple[list[int], list[float]]:
        """The steps that may follow one at `angle`, and the running sums of their weights."""
        turns = [abs(math.remainder(other - angle, 2 * math.pi)) for other in self.angles]
        weights = [math.cos(min(self.options.continuity * turn, math.pi / 2)) ** 2 for turn in turns]
        steps = [step for step, weight in enumerate(weights) if weight > 1e-9]
        return steps, list(accumulate(weights[step] for step in steps))

    def is_free(self, link: Link, occupied: int) -> bool:
        """Whether a link has pixels of its own, at a distance from all links whose zones are in `occupied`."""
        return not occupied >> self._shift(link.joint) & self.line[link.step]

    def zone_of(self, link: Link) -> int:
        """The pixels that no other link may touch, but the next of its snake."""
        return self.zone[link.step] << self._shift(link.joint)

    def _shift(self, joint: Point) -> int:
        return joint[0] * self.width + joint[1]

    def next_link(self, link: Link, occupied: int, random: Random) -> Link | None:
        """One that goes on from `link`, straight ahead most likely; None where all are taken."""
        joint = self.end(link)
        near = occupied >> self._shift(joint)
        steps, sums = self.turns[link.step]
        for _ in range(_DRAWS):  # drawing until one is free is faster than weighing the free ones
            step = steps[bisect(sums, random.random() * sums[-1])]
            if not near & self.line[step]:
                return Link(joint, step)
        weights = [b - a for a, b in zip([0.0, *sums], sums, strict=False)]
        free = [index for index, step in enumerate(steps) if not near & self.line[step]]
        if not free:
            return None
        return Link(joint, steps[random.choices(free, [weights[index] for index in free])[0]])

    def end(self, link: Link) -> Point:
        (row, column), (down, right) = link.joint, self.steps[link.step]
        return row + down, column + right

    def centre(self, link: Link) -> tuple[float, float]:
        (row, column), (down, right) = link.joint, self.steps[link.step]
        return row + down / 2, column + right / 2

    def paddle_end(self, link: Link, sign: Literal[-1, 1]) -> Point:
        """The pixel of a paddle's tail (-1) or head (1)."""
        (row, column), angle = self.centre(link), self.angles[link.step]
        half = sign * self.options.paddle_length / 2
        return math.floor(row + half * math.sin(angle) + 0.5), math.floor(column + half * math.cos(angle) + 0.5)

    @cached_property
    def paddles(self) -> list[np.ndarray]:
        """Of every step, a window (2 reach + 1)^2 around the joint with the paddle in it, 0 to 1."""
        return [self._paddle(step, angle) for step, angle in zip(self.steps, self.angles, strict=True)]

    def _paddle(self, step: Point, angle: float) -> np.ndarray:
        half = self.options.paddle_length / 2
        ends = [
            (
                self._fine(step[1] / 2 + sign * half * math.cos(angle)),
                self._fine(step[0] / 2 + sign * half * math.sin(angle)),
            )
            for sign in (-1, 1)
        ]
        canvas = self._canvas()
        ImageDraw.Draw(canvas).line(ends, fill=255, width=round(self.options.thickness * self.options.antialias))
        return self._reduced(canvas)

    @cached_property
    def marker(self) -> np.ndarray:
        """A window with a disc in its middle, 0 to 1."""
        radius = self.options.marker_radius * self.options.antialias
        middle = self._fine(0.0)
        canvas = self._canvas()
        ImageDraw.Draw(canvas).ellipse((middle - radius, middle - radius, middle + radius, middle + radius), fill=255)
        return self._reduced(canvas)

    def _canvas(self) -> Image.Image:
        side = (2 * self.reach + 1) * self.options.antialias
        return Image.new("L", (side, side))

    def _fine(self, offset: float) -> float:
        """A coordinate relative to the window's middle, on the enlarged canvas."""
        return (self.reach + offset + 0.5) * self.options.antialias - 0.5

    def _reduced(self, canvas: Image.Image) -> np.ndarray:
        side = 2 * self.reach + 1
        return np.asarray(canvas.resize((side, side), Image.Resampling.LANCZOS), np.float32) / 255


@dataclass(frozen=True)
class Scene:
    """Snakes on a board, targets first, and all that they occupy."""

    snakes: list[list[Link]]
    occupied: int


@dataclass(frozen=True)
class _Mark:
    """Two ends of a scene's targets that could be marked."""

    scene: Scene
    first: Point
    last: Point

    @property
    def distance(self) -> float:
        return math.dist(self.first, self.last)

    def place(self, size: int) -> tuple[float, ...]:
        """Rows and columns of both ends from the middle, turned and mirrored until the last is in one octant."""
        middle = (size - 1) / 2
        first, last = ([at - middle for at in end] for end in (self.first, self.last))
        signs = [math.copysign(1, at) for at in last]
        places = [[at * sign for at, sign in zip(end, signs, strict=True)] for end in (first, last)]
        return (*places[0], *places[1]) if places[1][0] >= places[1][1] else (*places[0][::-1], *places[1][::-1])


class Snakes:
    """Draws pictures. Image i of a seed depends on nothing but the options, the seed and i."""

    def __init__(self, options: SnakeOptions) -> None:
        self.options = options
        self.boards = [Board(options, margin) for margin in options.margins]

    def draw(self, seed: int, index: int) -> Drawing:
        """Image `index` of `seed`; the label is the toss of a fair coin."""
        random = Random(int.from_bytes(np.random.SeedSequence((seed, index)).generate_state(8).tobytes(), "little"))
        board = random.choice(self.boards)
        label = random.randrange(2)
        mark = self._marked(board, random)[label]
        links = [link for snake in mark.scene.snakes for link in snake]
        return Drawing(
            pixels=self._pixels(board, mark),
            label=label,
            markers=np.array([mark.first, mark.last], np.int16),
            centres=np.array([board.centre(link) for link in links], np.float32),
            orientations=np.array([board.angles[link.step] for link in links], np.float32),
        )

    def _marked(self, board: Board, random: Random) -> tuple[_Mark, _Mark]:
        """A scene with a mark on either snake, and one with both marks on one, in like places.

        Ends of one snake are about as far apart as it is long, ends of two are not, and snakes lead away from the
        middle: where the markers are would tell the label. So scenes of both kinds are drawn until two agree in their
        markers' places, but for quarter turns and mirroring, and then the label chooses one.
        """
        scenes: list[Scene] = []
        index = random.randrange(2)  # both labels have the first end of the same target
        while True:
            scenes += [self._targets(board, random) for _ in range(_CANDIDATES)]
            apart, joined = (self._marks(board, scenes, index, joined) for joined in (False, True))
            pairs = list(zip(*np.nonzero(self._alike(apart, joined)), strict=True))
            if pairs:
                a, j = random.choice(pairs)
                marks = (
                    self._with_distractors(board, apart[a], random),
                    self._with_distractors(board, joined[j], random),
                )
                if marks[0] and marks[1]:  # both, that a label is not favoured by leaving more room
                    return marks[0], marks[1]
                scenes.clear()

    def _marks(self, board: Board, scenes: list[Scene], index: int, joined: bool) -> list[_Mark]:
        """The first end of a target in each scene with the last end of the same or of the other, if not too near."""
        last = index if joined else 1 - index
        ends = [
            (scene, board.paddle_end(scene.snakes[index][0], -1), board.paddle_end(scene.snakes[last][-1], 1))
            for scene in scenes
        ]
        marks = [_Mark(*end) for end in ends]
        return [mark for mark in marks if mark.distance > 2 * self.options.marker_radius + 1]

    def _alike(self, marks: list[_Mark], others: list[_Mark]) -> np.ndarray:
        """(marks, others) bool, whether they are in like places."""
        size = self.options.size
        places = [np.array([mark.place(size) for mark in some]).reshape(-1, 1, 4) for some in (marks, others)]
        distances = [np.array([mark.distance for mark in some]).reshape(-1, 1) for some in (marks, others)]
        near: np.ndarray = (np.abs(places[0] - places[1].swapaxes(0, 1)) <= _SAME_PLACE * size).all(-1)
        near &= np.abs(distances[0] - distances[1].T) <= _SAME_DISTANCE * size
        return near

    def _targets(self, board: Board, random: Random) -> Scene:
        """Two snakes that start `seed_distance` apart near the middle."""
        while True:
            snakes = self._seeds(board, random)
            scene = snakes and self._grown(board, snakes, random)
            if scene:
                return scene

    def _seeds(self, board: Board, random: Random) -> list[list[Link]] | None:
        """The first links of the targets; None where they touch."""
        options = self.options
        low, high = 2 * options.seed_distance, options.size - 2 * options.seed_distance
        row, column = (low + random.random() * (high - low) - 0.5 for _ in range(2))
        direction = random.random() * 2 * math.pi
        down, right = (options.seed_distance * f(direction) for f in (math.sin, math.cos))
        first = self._link_from((row, column), board, random)
        second = self._link_from((row + down, column + right), board, random)
        if not board.is_free(first, board.border) or not board.is_free(second, board.border | board.zone_of(first)):
            return None
        return [[first], [second]]

    def _link_from(self, tail: tuple[float, float], board: Board, random: Random) -> Link:
        """A link in any direction whose paddle starts at a place."""
        step = random.randrange(len(board.steps))
        gap = board.margin / (self.options.paddle_length + 2 * board.margin)
        row, column = (round(at - gap * along) for at, along in zip(tail, board.steps[step], strict=True))
        return Link((row, column), step)

    def _grown(self, board: Board, snakes: list[list[Link]], random: Random) -> Scene | None:
        """The targets at full length; None where one has nowhere to go."""
        occupied = board.border
        latest = [board.zone_of(snake[0]) for snake in snakes]  # which the next link of the same snake may touch
        for _ in range(self.options.contour_length - 1):
            for index, snake in enumerate(snakes):
                link = board.next_link(snake[-1], occupied | latest[1 - index], random)
                if link is None:
                    return None
                snake.append(link)
                occupied |= latest[index]
                latest[index] = board.zone_of(link)
        return Scene(snakes, occupied | latest[0] | latest[1])

    def _with_distractors(self, board: Board, mark: _Mark, random: Random) -> _Mark | None:
        """The mark in its scene with all distractors; None where they do not fit."""
        snakes, occupied = list(mark.scene.snakes), mark.scene.occupied
        missing = self.options.num_distractors
        trials = missing * _DISTRACTOR_TRIALS
        while missing and trials:
            trials -= 1
            found = self._distractor(board, occupied, random)
            if found:
                snake, occupied = found
                snakes.append(snake)
                missing -= 1
        return None if missing else replace(mark, scene=Scene(snakes, occupied))

    def _distractor(self, board: Board, occupied: int, random: Random) -> tuple[list[Link], int] | None:
        """A snake anywhere it is free to start, and all that is occupied with it."""
        link = self._free_link(board, occupied, random)
        snake = []
        while link is not None:
            snake.append(link)
            if len(snake) == self.options.distractor_length:
                return snake, occupied | board.zone_of(link)
            link = board.next_link(snake[-1], occupied, random)
            occupied |= board.zone_of(snake[-1])
        return None

    def _free_link(self, board: Board, occupied: int, random: Random) -> Link | None:
        size = self.options.size
        places = size * size * len(board.steps)
        for _ in range(size * size):
            place, step = divmod(int(random.random() * places), len(board.steps))
            link = Link(divmod(place, size), step)
            if board.is_free(link, occupied):
                return link
        return None

    def _pixels(self, board: Board, mark: _Mark) -> np.ndarray:
        reach, size = board.reach, self.options.size
        canvas = np.zeros((size + 2 * reach, size + 2 * reach), np.float32)

        def brighten(place: Point, stamp: np.ndarray) -> None:
            window = canvas[place[0] : place[0] + 2 * reach + 1, place[1] : place[1] + 2 * reach + 1]
            np.maximum(window, stamp, out=window)

        for index, snake in enumerate(mark.scene.snakes):
            contrast = self.options.target_contrast if index < 2 else self.options.distractor_contrast
            for link in snake:
                brighten(link.joint, board.paddles[link.step] * contrast)
        for end in (mark.first, mark.last):
            brighten(end, board.marker)
        picture: np.ndarray = np.rint(np.minimum(canvas[reach:-reach, reach:-reach], 1) * 255)
        return picture.astype(np.uint8)


def _bits(pixels: np.ndarray) -> int:
    """A set of pixels as an integer, the first its lowest bit."""
    return int.from_bytes(np.packbits(pixels, bitorder="little").tobytes(), "little")
