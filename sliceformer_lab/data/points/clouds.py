"""Reading, subsampling and ordering of point clouds."""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.data.rounding import MAX_ROUNDING
from sliceformer_lab.errors import DataError
from sliceformer_lab.order import along_curve

ENDINGS = {".txt", ".pts", ".xyz", ".csv", ".npy", ".off", ".ply"}
MAX_COLUMNS = 12  # numbers of a point in clouds of as few points: coordinates, normal, colour and some more
MAX_COORDINATE = 1e18  # its square is a float32, which the size of a cloud needs
SURFACE_POINTS = 10_000  # sampled from a mesh, as in ModelNet40
Order = Literal["none", "morton", "hilbert"]
_BITS_PER_COORDINATE = 10  # per coordinate on a space-filling curve


def read_cloud(path: Path) -> np.ndarray:
    """The points of a file, (n, 3) float32, or (n, 6) with normals; of a mesh, surface points sampled with seed 0.

    A row of a text file or .npy starts with x y z or x y z nx ny nz. Raises DataError naming the file.
    """
    try:
        points = _read_cloud(path)
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read as a point cloud ({error}); replace or delete it") from error
    return as_cloud(points, str(path))


def as_cloud(array: object, name: str) -> np.ndarray:
    """The points (P, 3 or 6), float32, in an array with a row for each; columns after the normals are left out.

    Raises DataError, which calls it `name`, for anything else, and for coordinates that float32 would round visibly:
    for metres from the origin of a map, at 5,000,000 neighbouring numbers are half a metre apart.
    """
    if not isinstance(array, np.ndarray):
        raise DataError(f"{name} is {type(array).__name__}, expected an array with rows of x y z or x y z nx ny nz")
    if array.ndim != 2 or array.shape[1] < 3 or not len(array) or array.dtype.kind not in "fiu":
        raise DataError(f"{name} is {array.dtype} {array.shape}, expected rows of x y z or x y z nx ny nz")
    if len(array) <= MAX_COLUMNS < array.shape[1]:
        raise DataError(
            f"{name} has {len(array)} rows of {array.shape[1]:,} numbers, but a row is a point; transpose it"
        )
    points = array[:, : 6 if array.shape[1] >= 6 else 3].astype(np.float64)
    if (bad := ~(np.abs(points) <= MAX_COORDINATE)).any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"{name} has the number {points[row, column]:g} in point {row + 1}, expected up to {MAX_COORDINATE:g}; "
            "correct it or leave the point out"
        )
    xyz = points[:, :3]
    extent, error = np.ptp(xyz, axis=0).max(), np.abs(xyz.astype(np.float32) - xyz).max()
    if not extent:
        raise DataError(f"{name} has all its points at one place, so it has no shape; correct or delete it")
    if error > MAX_ROUNDING * extent:
        raise DataError(
            f"{name} has coordinates up to {np.abs(xyz).max():,.0f} in a cloud of the size {extent:.3g}, too far from "
            "0 for 32 bits; subtract an offset from all clouds"
        )
    return points.astype(np.float32)


def _read_cloud(path: Path) -> np.ndarray:
    ending = path.suffix.lower()
    if ending == ".npy":
        array: np.ndarray = np.load(path, allow_pickle=False)
        return array
    if ending in (".off", ".ply"):
        return _read_shape(path)
    return read_rows(path)


def read_rows(path: Path) -> np.ndarray:
    """The numbers of a text file, (n, columns), separated by commas or spaces. Raises ValueError or OSError."""
    text = path.read_text(encoding="ascii")
    first = text.partition("\n")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy only warns about an empty file
        try:
            rows: np.ndarray = np.loadtxt(
                text.splitlines(), delimiter="," if "," in first else None, ndmin=2, dtype=np.float64
            )
        except UserWarning as error:
            raise ValueError("it is empty") from error
    return rows


def _read_shape(path: Path) -> np.ndarray:
    try:
        import trimesh
    except ImportError as error:
        raise DataError(f"reading {path.name} needs trimesh: pip install 'sliceformer-lab[points]'") from error
    shape = trimesh.load(path, process=False)
    if isinstance(shape, trimesh.Trimesh) and len(shape.faces):
        points, faces = trimesh.sample.sample_surface(shape, SURFACE_POINTS, seed=0)
        return np.concatenate([points, shape.face_normals[faces]], axis=1)
    if not isinstance(shape, trimesh.Trimesh | trimesh.PointCloud):
        raise ValueError("it contains neither a mesh nor points")
    return np.asarray(shape.vertices)


def farthest_points(points: Tensor, count: int) -> Tensor:
    """Positions of `count` points of a cloud, each farthest from all points before it: (P, 3) -> (count,) int64.

    Starts with point 0, and takes no position twice: the cloud has at least `count` points.
    Source: Eldar et al. 1997; PointNet++ (Qi et al. 2017), section 3.2.
    """
    axes = points.T.contiguous()  # (3, P): subtracting contiguous rows is faster
    chosen = torch.zeros(count, dtype=torch.int64)
    nearest = torch.full((len(points),), torch.inf)
    for i in range(1, count):
        last = chosen[i - 1]
        torch.minimum(nearest, (axes - axes[:, last, None]).square_().sum(dim=0), out=nearest)
        nearest[last] = -1  # nearer than another point at the same place
        chosen[i] = nearest.argmax()
    return chosen


def choose_points(points: np.ndarray, count: int) -> tuple[np.ndarray, bool]:
    """`count` points of a cloud (P, 3 or 6) by farthest-point sampling, and whether it has too few.

    A cloud with too few points keeps all of them and repeats random ones, chosen by the bytes of their coordinates.
    """
    xyz = np.ascontiguousarray(points[:, :3])
    kept = points[farthest_points(torch.from_numpy(xyz), min(count, len(points))).numpy()]
    if not (missing := count - len(kept)):
        return kept, False
    repeated = np.random.default_rng(zlib.crc32(xyz.tobytes())).integers(len(points), size=missing)
    return np.concatenate([kept, points[repeated]]), True


def curve_order(points: Tensor, order: Order) -> Tensor:
    """Positions of the points along a space-filling curve: (B, N, 3) -> (B, N) int64; `none` keeps their order.

    Coordinates are rounded to 2^10 cells of each cloud's bounding cube.
    """
    if order == "none":
        return torch.arange(points.shape[1], device=points.device).expand(points.shape[:2])
    low = points.amin(dim=1, keepdim=True)
    extent = (points.amax(dim=1, keepdim=True) - low).amax(dim=2, keepdim=True).clamp_min(1e-12)
    cells = ((points - low) / extent * (2**_BITS_PER_COORDINATE - 1)).long()
    return along_curve(cells, _BITS_PER_COORDINATE, hilbert=order == "hilbert")
