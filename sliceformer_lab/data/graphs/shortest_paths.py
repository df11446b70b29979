"""Shortest paths of small graphs by Floyd and Warshall, and the nodes along them."""

import numpy as np

UNREACHABLE = 255  # as a distance
DIRECT = 255  # as a middle node: the path is one edge, or there is none
LARGEST = 254  # nodes of a graph that fits


def shortest_paths(edges: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances and middle nodes of every pair of nodes: edges (2, e) -> (n, n) uint8, (n, n) uint8.

    A distance counts edges; UNREACHABLE where there is no path. The middle node splits a path in two, DIRECT where it
    is a single edge. Of equally short paths the one that Graphormer's published code finds: middle nodes are tried in
    ascending order, and only a strictly shorter path replaces the one known.
    Raises ValueError for more than LARGEST nodes.
    """
    if num_nodes > LARGEST:
        raise ValueError(f"{num_nodes} nodes are more than the {LARGEST} whose distances fit into a byte")
    distances = np.full((num_nodes, num_nodes), 2 * UNREACHABLE, dtype=np.int16)
    distances[edges[0], edges[1]] = 1
    np.fill_diagonal(distances, 0)
    middle = np.full((num_nodes, num_nodes), DIRECT, dtype=np.uint8)
    for node in range(num_nodes):
        through = distances[:, node, None] + distances[None, node]
        shorter = through < distances
        distances[shorter] = through[shorter]
        middle[shorter] = node
    return np.minimum(distances, UNREACHABLE).astype(np.uint8), middle


def path_nodes(distances: np.ndarray, middle: np.ndarray, num_edges: int) -> np.ndarray:
    """The first num_edges + 1 nodes of every shortest path, both ends included: (B, N, N) -> (B, N, N, K + 1) int16.

    Takes a batch of graphs as `shortest_paths` describes them; -1 beyond a path's end and in pairs without one.
    """
    size = distances.shape[-1]
    nodes = np.full((*distances.shape, num_edges + 1), -1, dtype=np.int16)
    here = np.arange(size, dtype=np.int16)
    reached = distances < UNREACHABLE
    nodes[..., 0] = np.where(reached, here[:, None], -1)
    direct = distances == 1
    if num_edges > 0:
        nodes[..., 1] = np.where(direct, here[None, :], -1)
    longest = int(distances[reached].max(initial=0))
    places = np.arange(num_edges + 1)
    for length in range(2, longest + 1):  # both halves of a path are shorter than it
        b, i, j = np.nonzero(distances == length)
        k = middle[b, i, j]
        first = distances[b, i, k].astype(np.int16)[:, None]
        late = np.clip(places - first, 0, num_edges)
        second_half = np.take_along_axis(nodes[b, k, j], late, axis=1)
        nodes[b, i, j] = np.where(places <= first, nodes[b, i, k], second_half)
    return nodes
