"""Shortest paths of small graphs by Floyd and Warshall, and the nodes along them."""

import numpy as np

UNREACHABLE = 255  # distance of nodes without a path
DIRECT = 255  # middle node of a path with one edge, and of nodes without a path
MAX_NODES = 254  # number of nodes of a graph


def shortest_paths(edges: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances and middle nodes of all pairs of nodes: edges (2, e) -> (n, n) uint8, (n, n) uint8.

    A distance is a number of edges, or UNREACHABLE. The middle node splits a path in two; it is DIRECT for a single
    edge. Among equally short paths, the one of Graphormer's published code is taken: middle nodes are tried in
    ascending order, and only a strictly shorter path replaces a known one. Raises ValueError for more than MAX_NODES
    nodes.
    """
    if num_nodes > MAX_NODES:
        raise ValueError(f"given {num_nodes} nodes, expected at most {MAX_NODES}, whose distances fit into a byte")
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
    """The first num_edges + 1 nodes of each shortest path, both ends included: (B, N, N) -> (B, N, N, K + 1) int16.

    Takes the results of `shortest_paths` for a batch of graphs; gives -1 beyond the end of a path and without a path.
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
    for length in range(2, longest + 1):  # from shorter paths to longer ones, which consist of two shorter ones
        b, i, j = np.nonzero(distances == length)
        k = middle[b, i, j]
        first = distances[b, i, k].astype(np.int16)[:, None]
        late = np.clip(places - first, 0, num_edges)
        second_half = np.take_along_axis(nodes[b, k, j], late, axis=1)
        nodes[b, i, j] = np.where(places <= first, nodes[b, i, k], second_half)
    return nodes
