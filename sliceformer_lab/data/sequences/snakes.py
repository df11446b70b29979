"""Images of dashed curves with two marked ends, which belong to one curve or to two (Pathfinder).

Two target snakes start near each other and grow in turns, distractors fill the remaining space, and two ends are
marked. This is the procedure of Linsley et al. (2018) and Kim et al. (2020) with the sizes of the Long Range Arena,
written anew. As published, a distractor has five trials and is left out if none fits; paddles and markers are drawn at
twice the size around the middle of a pixel; and the image is divided by its brightest value.

With 32 x 32 pixels the published code finds a place for the first paddle of a distractor in 30 of 360 directions only,
-150 to -121 degrees (up and left): its dilation kernel reaches over the border, where OpenCV returns the lowest number.
In other directions the trial fails. Most distractors are therefore missing: 1.2 of 5 are left in hard images, 3.4 of 10
in easy ones. `SnakeOptions.distractor_directions` repeats that. This was seen by running the code; the published files
were not at hand. Path-X finds places in nearly all directions. Our images differ from the published code's:

- links keep their distance, gaps between paddles included (published: snakes can cross in a gap). This is the likely
  reason why hard images have fewer distractors here, 0.7;
- a candidate that does not fit has no weight (published: it is drawn three times, and then the snake is given up);
- coordinates are rounded to the nearest pixel (published: rounded up);
- markers do not touch, and are not shifted by a quarter of a pixel;
- the distance of the markers has the same distribution for both labels (`Snakes._mark_targets`), and so has the
  number of distractors.

Mean brightness is 13.9, 15.8, 20.1 (easy, intermediate, hard; published: 13.1, 15.5, 20.3), and 25.5, 28.5, 35.6 % of
the pixels are not black (published: 23.0, 26.8, 34.2 %; studies/results/pathfinder.json).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from sliceformer_lab.data.sequences.snake_board import Link, PixelBoard, SnakeOptions, Square

GENERATOR_VERSION = 2  # of the images that a seed gives

_DISTRACTOR_TRIALS = 5  # for each distractor, before it is left out (published: 5)
_SCENES_PER_DRAW = 4  # scenes drawn at a time, until markers of two scenes agree
_SAME_PLACE = 1 / 32  # of the side of the image, between rows and between columns
_SAME_DISTANCE = 1 / 64  # of the side of the image


@dataclass(frozen=True)
class Scene:
    """Snakes on a board, targets first, and the pixels that they occupy."""

    snakes: list[list[Link]]
    occupied: int


@dataclass(frozen=True)
class Mark:
    """Two ends of targets in a scene that can be marked."""

    scene: Scene
    first: Square
    last: Square

    @property
    def distance(self) -> float:
        return math.dist(self.first, self.last)

    def place(self, size: int) -> tuple[float, ...]:
        """Offsets of both ends from the middle, rotated and mirrored so that the last end is in a fixed octant."""
        middle = (size - 1) / 2
        first, last = ([at - middle for at in end] for end in (self.first, self.last))
        signs = [math.copysign(1, at) for at in last]
        places = [[at * sign for at, sign in zip(end, signs, strict=True)] for end in (first, last)]
        return (*places[0], *places[1]) if places[1][0] >= places[1][1] else (*places[0][::-1], *places[1][::-1])


@dataclass(frozen=True)
class Drawing:
    """One image and its solution."""

    pixels: np.ndarray  # (H, W) uint8
    label: int  # 1: both markers on one snake
    board: PixelBoard
    mark: Mark


class Snakes:
    """Draws images. Image i of a seed depends only on the options, the seed and i."""

    def __init__(self, options: SnakeOptions) -> None:
        self.options = options
        self.boards = [PixelBoard(options, margin) for margin in options.margins]

    def draw(self, seed: int, index: int) -> Drawing:
        """Image `index` of `seed`; both labels are equally likely."""
        random = Random(int.from_bytes(np.random.SeedSequence((seed, index)).generate_state(8).tobytes(), "little"))
        board = random.choice(self.boards)
        label = random.randrange(2)
        mark = self._mark_targets(board, random)[label]
        return Drawing(self._pixels(board, mark), label, board, mark)

    def _mark_targets(self, board: PixelBoard, random: Random) -> tuple[Mark, Mark]:
        """A scene with marks on both targets and a scene with both marks on one target, at similar places.

        The ends of one snake are about as far apart as it is long, ends of two snakes are not, and snakes lead away
        from the middle, so the places of the markers would reveal the label. Therefore scenes of both kinds are drawn
        until the markers of two agree, up to quarter turns and mirroring; the label then chooses one of the two.
        """
        scenes: list[Scene] = []
        index = random.randrange(2)  # both labels have the first end of the same target
        while True:
            scenes += [self._targets(board, random) for _ in range(_SCENES_PER_DRAW)]
            apart, joined = (self._marks(board, scenes, index, joined) for joined in (False, True))
            pairs = list(zip(*np.nonzero(self._agree(apart, joined)), strict=True))
            if pairs:
                a, j = random.choice(pairs)
                return self._with_distractors(board, apart[a], joined[j], random)

    def _marks(self, board: PixelBoard, scenes: list[Scene], index: int, joined: bool) -> list[Mark]:
        """Marks on the first end of a target and the last end of the same or other target, unless they touch."""
        last = index if joined else 1 - index
        ends = [
            (scene, board.paddle_end(scene.snakes[index][0], -1), board.paddle_end(scene.snakes[last][-1], 1))
            for scene in scenes
        ]
        marks = [Mark(*end) for end in ends]
        return [mark for mark in marks if mark.distance > 2 * self.options.marker_radius + 1]

    def _agree(self, marks: list[Mark], others: list[Mark]) -> np.ndarray:
        """Whether marks are at similar places, (marks, others) bool."""
        size = self.options.size
        places = [np.array([mark.place(size) for mark in some]).reshape(-1, 1, 4) for some in (marks, others)]
        distances = [np.array([mark.distance for mark in some]).reshape(-1, 1) for some in (marks, others)]
        near: np.ndarray = (np.abs(places[0] - places[1].swapaxes(0, 1)) <= _SAME_PLACE * size).all(-1)
        near &= np.abs(distances[0] - distances[1].T) <= _SAME_DISTANCE * size
        return near

    def _targets(self, board: PixelBoard, random: Random) -> Scene:
        """Two snakes that start `seed_distance` apart near the middle."""
        while True:
            snakes = self._seeds(board, random)
            scene = snakes and self._grow(board, snakes, random)
            if scene:
                return scene

    def _seeds(self, board: PixelBoard, random: Random) -> list[list[Link]] | None:
        """The first links of the targets; None if they touch."""
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

    def _link_from(self, tail: tuple[float, float], board: PixelBoard, random: Random) -> Link:
        """A link in a random direction whose paddle starts at `tail`."""
        step = random.randrange(len(board.steps))
        gap = board.margin / (self.options.paddle_length + 2 * board.margin)
        row, column = (round(at - gap * along) for at, along in zip(tail, board.steps[step], strict=True))
        return Link((row, column), step)

    def _grow(self, board: PixelBoard, snakes: list[list[Link]], random: Random) -> Scene | None:
        """The targets at full length; None if one cannot continue."""
        occupied = board.border
        latest = [board.zone_of(snake[0]) for snake in snakes]  # zones that the next link of the same snake may touch
        for _ in range(self.options.contour_length - 1):
            for index, snake in enumerate(snakes):
                link = board.next_link(snake[-1], occupied | latest[1 - index], random)
                if link is None:
                    return None
                snake.append(link)
                occupied |= latest[index]
                latest[index] = board.zone_of(link)
        return Scene(snakes, occupied | latest[0] | latest[1])

    def _with_distractors(self, board: PixelBoard, first: Mark, second: Mark, random: Random) -> tuple[Mark, Mark]:
        """Both marks in scenes with equally many distractors, because their number would favour one label."""
        low, high = self.options.distractor_directions
        starts = []
        for _ in range(self.options.num_distractors):
            trials = [random.randrange(-180, 180) for _ in range(_DISTRACTOR_TRIALS)]
            starts.append([board.step_towards(degrees) for degrees in trials if low <= degrees <= high])
        found = [self._distractors(board, mark.scene.occupied, starts, random) for mark in (first, second)]
        number = min(map(len, found))
        full = [
            replace(mark, scene=Scene([*mark.scene.snakes, *snakes[:number]], mark.scene.occupied))
            for mark, snakes in zip((first, second), found, strict=True)
        ]
        return full[0], full[1]

    def _distractors(
        self, board: PixelBoard, occupied: int, starts: list[list[int]], random: Random
    ) -> list[list[Link]]:
        """A snake for each list of first steps, unless it fits with none of them."""
        snakes = []
        for steps in starts:
            found = next(filter(None, (self._distractor(board, step, occupied, random) for step in steps)), None)
            if found:
                snakes.append(found[0])
                occupied = found[1]
        return snakes

    def _distractor(self, board: PixelBoard, step: int, occupied: int, random: Random) -> tuple[list[Link], int] | None:
        """A snake with a first step at a random free place, and the pixels that are then occupied; None if stuck."""
        size = self.options.size
        starts = (Link(divmod(int(random.random() * size * size), size), step) for _ in range(size * size))
        link = next((start for start in starts if board.is_free(start, occupied)), None)
        snake = []
        while link is not None:
            snake.append(link)
            if len(snake) == self.options.distractor_length:
                return snake, occupied | board.zone_of(link)
            link = board.next_link(snake[-1], occupied, random)
            occupied |= board.zone_of(snake[-1])
        return None

    def _pixels(self, board: PixelBoard, mark: Mark) -> np.ndarray:
        reach, size = board.reach, self.options.size
        canvas = np.zeros((size + 2 * reach, size + 2 * reach), np.float32)

        def brighten(place: Square, stamp: np.ndarray) -> None:
            window = canvas[place[0] : place[0] + 2 * reach + 1, place[1] : place[1] + 2 * reach + 1]
            np.maximum(window, stamp, out=window)

        for index, snake in enumerate(mark.scene.snakes):
            contrast = self.options.target_contrast if index < 2 else self.options.distractor_contrast
            for link in snake:
                brighten(board.paddle_end(link, 1), board.paddles[link.step] * contrast)
        for end in (mark.first, mark.last):
            brighten(end, board.marker)
        shown = canvas[reach:-reach, reach:-reach]
        picture: np.ndarray = np.rint(shown * (255 / shown.max()))
        return picture.astype(np.uint8)
