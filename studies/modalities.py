"""Figures of graphs and point clouds from finished runs: a molecule and its bias, pooled points, singular spectra.

usage: python studies/modalities.py molecule RUN_FOLDER     figures/molecule.png: the first test molecule with a ring
       python studies/modalities.py points RUN_FOLDER       figures/points.png: a test cloud of each class
       python studies/modalities.py spectra RUN_FOLDER...   figures/modality_spectra.png: one curve a run
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import torch
from rdkit.Chem import GetPeriodicTable

from sliceformer_lab.data.graphs.smiles import ATOM_FEATURES
from sliceformer_lab.measures.probe import ProbeRecord
from sliceformer_lab.training.saved.saved_run import load_run

FIGURES = Path(__file__).resolve().parent / "figures"
IN_RING = list(ATOM_FEATURES).index("in_ring")
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 130})


def draw_molecule(folder: str) -> None:
    """Draw the molecule as a graph and the learned bias of each head for its pairs of tokens."""
    run = load_run(folder)
    run.data.prepare_data()
    run.data.setup()
    split = run.data.splits["test"]
    row = next(i for i in range(len(split)) if split.batch([i]).inputs[0, :, IN_RING].any() and split.lengths()[i] > 7)
    batch = split.batch([row])
    with torch.no_grad():
        bias = run.model.eval().bias(batch.structure, batch.padding)[0]  # (H, 1 + n, 1 + n)
        predicted = run.model(batch)
    table = GetPeriodicTable()
    names = [table.GetElementSymbol(int(number) + 1) for number in batch.inputs[0, :, 0]]
    graph = nx.Graph(batch.structure.edge_index.T.tolist())
    figure, axes = plt.subplot_mosaic([["m", "m", 0, 1, 2, 3], ["m", "m", 4, 5, 6, 7]], figsize=(11, 4))
    places = nx.kamada_kawai_layout(graph)
    nx.draw_networkx_edges(graph, places, ax=axes["m"], width=2, edge_color="#888888")
    nx.draw_networkx_nodes(graph, places, ax=axes["m"], node_color="white", edgecolors="#888888", node_size=380)
    labels = {node: f"{names[node]}{node + 1}" for node in graph}
    nx.draw_networkx_labels(graph, places, labels, ax=axes["m"], font_size=9)
    axes["m"].set_axis_off()
    axes["m"].set_title(
        f"gap {float(batch.target[0, 0]):.2f} eV, predicted {float(predicted[0, 0]):.2f} ({run.summary['attention']})"
    )
    limit = float(bias.abs().max())
    ticks = ["G", *(labels[node] for node in sorted(graph))]
    for head in range(8):
        axes[head].imshow(bias[head % len(bias)], cmap="PuOr", vmin=-limit, vmax=limit)
        axes[head].set_title(f"head {head + 1}", fontsize=8)
        axes[head].set_xticks([])
        axes[head].set_yticks(range(len(ticks)) if head in (0, 4) else [], ticks if head in (0, 4) else [], fontsize=6)
    image = axes[7].images[0]
    figure.colorbar(image, ax=[axes[i] for i in range(8)], shrink=0.7, label="added to the pair (G: graph token)")
    figure.savefig(FIGURES / "molecule.png", bbox_inches="tight")


def draw_points(folder: str) -> None:
    """Draw a test cloud of each class; coloured points hold the maximum of at least one pooled channel."""
    run = load_run(folder)
    run.data.prepare_data()
    run.data.setup()
    split, model = run.data.splits["test"], run.model.eval()
    targets = np.array([int(split.batch([i]).target) for i in range(len(split))])
    figure = plt.figure(figsize=(9, 4))
    for place, label in enumerate(np.unique(targets)[:2]):
        batch = split.batch([int(np.flatnonzero(targets == label)[0])])
        with torch.no_grad():
            tokens = model.encoder(model.embedding(batch.inputs))[0]  # (N, C)
            guess = int(model(batch).argmax())
        read = torch.bincount(tokens.argmax(dim=0), minlength=len(tokens))
        x, y, z = batch.inputs[0, :, :3].T
        axes = figure.add_subplot(1, 2, place + 1, projection="3d")
        axes.scatter(x, z, y, s=2, color="#bbbbbb")
        chosen = read > 0
        axes.scatter(x[chosen], z[chosen], y[chosen], s=14, color="#0072B2", depthshade=False)
        names = run.data.classes()
        axes.set_title(
            f"{names[label]}, predicted {names[guess]}\n{int(chosen.sum())} of {len(read)} points are pooled"
        )
        axes.set_axis_off()
        axes.set_box_aspect(np.ptp(np.stack([x, z, y]), axis=1) + 1e-9, zoom=1.25)
    figure.savefig(FIGURES / "points.png", bbox_inches="tight")


def draw_spectra(folders: Sequence[str]) -> None:
    """Draw singular values in the middle layer and stable rank by layer of the operator's output, mean removed."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    styles = {"csp": "-", "mha": "--", "sliceformer": ":", "samsa": "-."}
    runs = [load_run(folder) for folder in folders]
    tasks = list(dict.fromkeys(run.summary["task"] for run in runs))
    colours = dict(zip(tasks, ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"], strict=False))
    for run in runs:
        record = ProbeRecord.load(run.folder / "spectrum.npz")
        task, attention = run.summary["task"], run.summary["attention"]
        look = {"color": colours[task], "linestyle": styles.get(attention, "-"), "label": f"{task}, {attention}"}
        spectrum = record.at("spectrum", "output", "mean_removed")  # (L, R)
        middle = spectrum[len(spectrum) // 2]
        middle = middle[np.isfinite(middle) & (middle > 0)]
        left.semilogy(np.arange(1, len(middle) + 1) / len(middle), middle, **look)
        ranks = record.at("stable_rank", "output", "mean_removed")
        right.plot(range(1, len(ranks) + 1), ranks, marker="o", markersize=3, **look)
    left.set(xlabel="share of the singular values", ylabel="s_i / s_1, middle layer", ylim=(1e-5, 1.2))
    right.set(xlabel="layer", ylabel="stable rank of the operator's output")
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=3.5)
    right.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(FIGURES / "modality_spectra.png", bbox_inches="tight")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["molecule", folder]:
            draw_molecule(folder)
        case ["points", folder]:
            draw_points(folder)
        case ["spectra", *folders] if folders:
            draw_spectra(folders)
        case _:
            sys.exit(__doc__)
