"""Reading, subsampling and ordering of point clouds."""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.data.rounding import find_cloud_fault
from sliceformer_lab.errors import DataError
from sliceformer_lab.order import along_curve

ENDINGS = {".txt", ".pts", ".xyz", ".csv", ".npy", ".off", ".ply"}
MAX_COLUMNS = 12  # numbers of a point in clouds of as few points: coordinates, normal, colour and some more
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
    if points.ndim != 2 or points.shape[1] < 3 or not len(points):
        raise DataError(f"{path} has the shape {points.shape}, expected rows of x y z or x y z nx ny nz")
    if len(points) <= MAX_COLUMNS < points.shape[1]:
        raise DataError(
            f"{path} has {len(points)} rows of {points.shape[1]:,} numbers, but a row is a point; transpose it"
        )
    points = points[:, : 6 if points.shape[1] >= 6 else 3]
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise DataError(f"{path} contains NaN or infinity in point {row + 1}; correct or delete the file")
    if fault := find_cloud_fault(points):
        raise DataError(f"{path} {fault}")
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
