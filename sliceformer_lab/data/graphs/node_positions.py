"""Encodings of a node's place in its graph: Laplacian eigenvectors and return probabilities of random walks."""

import numpy as np


def spectrum(edges: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (size,) of D^-1/2 A D^-1/2 in descending order, and its eigenvectors as columns (size, size).

    Edges (2, e) contain both directions. A node without edges has a row of zeros in the matrix.
    """
    adjacency = np.zeros((size, size))
    adjacency[edges[0], edges[1]] = 1
    scale = 1 / np.sqrt(adjacency.sum(axis=1).clip(min=1))
    values, vectors = np.linalg.eigh(adjacency * scale[:, None] * scale)
    return values[::-1], vectors[:, ::-1]


def laplacian_vectors(vectors: np.ndarray, count: int) -> np.ndarray:
    """Laplacian eigenvectors of the `count` smallest eigenvalues after the first: (n, n) -> (n, count) float32.

    The Laplacian is I - D^-1/2 A D^-1/2, so its eigenvectors are those of `spectrum` in the same order. They are scaled
    to a mean square of 1, their signs are arbitrary, and a small graph has columns of 0.
    Source: Dwivedi & Bresson 2021 (A Generalization of Transformer Networks to Graphs), section 2.1.
    """
    size = len(vectors)
    wanted = vectors[:, 1 : count + 1] * np.sqrt(size)
    return np.pad(wanted, ((0, 0), (0, count - wanted.shape[1]))).astype(np.float32)


def return_probabilities(values: np.ndarray, vectors: np.ndarray, steps: int) -> np.ndarray:
    """Probability that a random walk is back at its node after 1 to `steps` steps: (n,), (n, n) -> (n, steps) float32.

    Takes the `spectrum` of D^-1/2 A D^-1/2, whose powers have the same diagonals as those of D^-1 A.
    Source: Dwivedi et al. 2022 (Graph Neural Networks with Learnable Structural and Positional Representations),
    equation (8).
    """
    return np.asarray(vectors**2 @ values[:, None] ** np.arange(1, steps + 1), dtype=np.float32)
