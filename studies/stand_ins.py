"""Data sets in the formats that tasks read, made from other real data.

Those in official formats are never the official set. `STAND_INS[name](source, root)` writes what `data.root=ROOT` or
`data.file` of a task reads. `source` is a folder with these, as their owners publish them:
    cifar-10-batches-py   MNIST/raw   modelnet40_normal_resampled   lrgb/peptides-functional
    aeon/JapaneseVowels (the .ts files of the package aeon)   spoken_digits/recordings (Free Spoken Digit Dataset)
and with the tables
    molecules/zinc_20k.csv.gz (smiles, logP)   molecules/qm9_gap.csv.gz (SMILES, gap)   own/sms.csv (text, label, split)
"""

from __future__ import annotations

import csv
import gzip
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from rdkit import Chem
from rdkit.Chem import Crippen, Descriptors, rdMolDescriptors, rdmolops

from sliceformer_lab.data.images.cifar import LABELS
from sliceformer_lab.data.images.mnist import MNIST
from sliceformer_lab.data.pickles import load_arrays

Array = np.ndarray
CLASSES = LABELS.split()
STRUCTURE = (  # columns of Peptides-struct
    *("Inertia_mass_a", "Inertia_mass_b", "Inertia_mass_c", "Inertia_valence_a", "Inertia_valence_b"),
    *("Inertia_valence_c", "length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit"),
)


def cifar100(source: Path, root: Path) -> None:
    """10,000 and 2,000 pictures of CIFAR-10 as CIFAR-100's two files: 10 of its 100 labels occur."""
    (root / "cifar-100-python").mkdir(parents=True)
    for stage, count in (("train", 10_000), ("test", 2_000)):
        pixels, labels = _cifar(source, stage)
        content = {"data": pixels[:count].reshape(count, -1), "fine_labels": labels[:count].tolist()}
        (root / "cifar-100-python" / stage).write_bytes(pickle.dumps(content))


def tiny_imagenet(source: Path, root: Path) -> None:
    """5,000 and 1,000 pictures of CIFAR-10, enlarged to 64 x 64, in the folders of Tiny-ImageNet: 10 classes."""
    folder = root / "tiny-imagenet-200"
    for label, number, picture in _pictures(source, "train", 500):
        name = _word_net(label)
        _save(picture, folder / "train" / name / "images" / f"{name}_{number}.JPEG", side=64)
    rows = []
    for place, (label, _, picture) in enumerate(_pictures(source, "test", 100)):
        _save(picture, folder / "val" / "images" / f"val_{place}.JPEG", side=64)
        rows.append(f"val_{place}.JPEG\t{_word_net(label)}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(rows), encoding="utf-8")


def imagenet1k(source: Path, root: Path) -> None:
    """5,000 and 1,000 pictures of CIFAR-10 in the folders of ImageNet: 10 classes."""
    for stage, folder, count in (("train", "train", 500), ("test", "val", 100)):
        for label, number, picture in _pictures(source, stage, count):
            name = _word_net(label)
            _save(picture, root / folder / name / f"{name}_{number}.JPEG")


def dogs_vs_cats(source: Path, root: Path) -> None:
    """8,000 cats and dogs of CIFAR-10 under Kaggle's file names."""
    for label, number, picture in _pictures(source, "train", 4_000, ("cat", "dog")):
        _save(picture, root / "train" / f"{CLASSES[label]}.{number}.jpg")


def image_folder(source: Path, root: Path) -> None:
    """4,000 and 1,000 pictures of four classes of CIFAR-10 as folders of classes."""
    chosen = ("automobile", "bird", "frog", "ship")
    for stage, count in (("train", 1_000), ("test", 250)):
        for label, number, picture in _pictures(source, stage, count, chosen):
            _save(picture, root / stage / CLASSES[label] / f"{number}.png")


def image_csv(source: Path, root: Path) -> None:
    """4,000 and 1,000 digits of MNIST, each turned by an angle within 60 degrees, which the table names."""
    module = MNIST(root=str(source), download=False, verify=False)
    module.prepare_data()
    images = module.read()
    random = np.random.default_rng(0)
    rows = ["image,degrees,split"]
    (root / "digits").mkdir(parents=True)
    for stage, count in (("train", 4_000), ("test", 1_000)):
        for place in range(count):
            degrees = random.uniform(-60, 60)
            file = f"digits/{stage}_{place}.png"
            digit = Image.fromarray(images[stage].picture(place))
            digit.rotate(degrees, Image.Resampling.BICUBIC).save(root / file)
            rows.append(f"{file},{degrees:.2f},{stage}")
    (root / "digits.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def series_csv(source: Path, root: Path) -> None:
    """Twelve coefficients over time of 270 and 370 Japanese vowels, a row for each time; the label is the speaker."""
    root.mkdir(parents=True)
    rows = ["utterance,frame,speaker,split," + ",".join(f"c{place}" for place in range(1, 13))]
    for stage in ("train", "test"):
        file = source / "aeon" / "JapaneseVowels" / f"JapaneseVowels_{stage.upper()}.ts"
        series = file.read_text(encoding="utf-8").partition("@data\n")[2].splitlines()
        for number, line in enumerate(series):
            *channels, speaker = line.split(":")
            frames = zip(*(channel.split(",") for channel in channels), strict=True)
            name = f"{stage}{number}"
            rows += [f"{name},{place},{speaker},{stage},{','.join(values)}" for place, values in enumerate(frames)]
    (root / "vowels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def series_folder(source: Path, root: Path) -> None:
    """2,700 and 300 recordings of spoken digits in folders of classes; 0 to 4 of each are for testing."""
    for file in sorted((source / "spoken_digits" / "recordings").glob("*.wav")):
        digit, _, number = file.stem.split("_")
        folder = root / ("test" if int(number) < 5 else "train") / digit
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.name)


def point_folder(source: Path, root: Path) -> None:
    """1,000, 200 and 1,000 digits of MNIST as clouds of at most 96 bright pixels: x, y, brightness."""
    module = MNIST(root=str(source), download=False, verify=False)
    module.prepare_data()
    images = module.read()
    random = np.random.default_rng(0)
    for stage, part, first, count in (
        ("train", "train", 0, 1_000),
        ("val", "train", 1_000, 200),
        ("test", "test", 0, 1_000),
    ):
        for place in range(first, first + count):
            pixels = images[part].pixels[place, 0].numpy()  # type: ignore[attr-defined]
            rows, columns = np.nonzero(pixels > 64)
            chosen = random.permutation(len(rows))[:96]
            cloud = np.stack([columns[chosen], -rows[chosen], pixels[rows[chosen], columns[chosen]] / 64.0], axis=1)
            file = root / stage / str(int(images[part].targets[place])) / f"{place}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, cloud.astype(np.float32))


def lra_retrieval(source: Path, root: Path) -> None:
    """8,000, 1,000 and 1,000 pairs of short messages: are both spam, or both no spam? In the files of the AAN pairs.

    Each of the four kinds of pair has the same probability, so neither message alone gives the answer. No message is
    in two splits; within a split a message is in many pairs.
    """
    root.mkdir(parents=True, exist_ok=True)
    table = pd.read_csv(source / "own" / "sms.csv").drop_duplicates("text")
    random = np.random.default_rng(0)
    for name, stage, count in (("train", "train", 8_000), ("eval", "val", 1_000), ("test", "test", 1_000)):
        part = table[table["split"] == stage]
        groups = [
            [(row, " ".join(str(row_text).split())) for row, row_text in part[part["label"] == label]["text"].items()]
            for label in ("ham", "spam")
        ]
        lines = []
        for first, second in random.integers(2, size=(count, 2)):
            (one, text), (other, other_text) = (
                groups[kind][random.integers(len(groups[kind]))] for kind in (first, second)
            )
            lines.append(f"{float(first == second)}\tsms{one}\tsms{other}\t{text}\t{other_text}\n")
        (root / f"new_aan_pairs.{name}.tsv").write_text("".join(lines), encoding="utf-8")


def zinc(source: Path, root: Path) -> None:
    """8,000, 1,000 and 1,000 molecules of ZINC in the pickles that torch-geometric reads; the target is logP.

    The official target is logP minus the synthetic accessibility and the cycle penalty, each standardised. Atoms are
    numbered by how often their element, charge and explicit hydrogens occur; bonds are 1, 2 or 3.
    """
    folder = root / "ZINC" / "raw"
    folder.mkdir(parents=True)
    table = pd.read_csv(source / "molecules" / "zinc_20k.csv.gz").iloc[:10_000]
    molecules = [Chem.MolFromSmiles(smiles) for smiles in table["smiles"]]
    for molecule in molecules:
        Chem.Kekulize(molecule, clearAromaticFlags=True)
    kinds = [[(a.GetSymbol(), a.GetFormalCharge(), a.GetNumExplicitHs()) for a in m.GetAtoms()] for m in molecules]
    ranks = {
        kind: rank for rank, (kind, _) in enumerate(Counter(kind for found in kinds for kind in found).most_common())
    }
    graphs = [
        {
            "num_atom": molecule.GetNumAtoms(),
            "atom_type": torch.tensor([min(ranks[kind], 27) for kind in found]),
            "bond_type": torch.from_numpy(rdmolops.GetAdjacencyMatrix(molecule, useBO=True).round().astype(np.int32)),
            "logP_SA_cycle_normalized": torch.tensor([float(target)]),
        }
        for molecule, found, target in zip(molecules, kinds, table["logP"], strict=True)
    ]
    for stage, part in (("train", graphs[:8_000]), ("val", graphs[8_000:9_000]), ("test", graphs[9_000:])):
        (folder / f"{stage}.pickle").write_bytes(pickle.dumps(part))
        (folder / f"{stage}.index").write_text(",".join(map(str, range(len(part)))) + "\n", encoding="utf-8")


def pcqm4m(source: Path, root: Path) -> None:
    """6,000 and 1,000 molecules of QM9 with their gap, and 500 without, in the table and splits of PCQM4Mv2."""
    folder = root / "pcqm4m-v2"
    (folder / "raw").mkdir(parents=True)
    table = pd.read_csv(source / "molecules" / "qm9_gap.csv.gz")
    chosen = np.random.default_rng(0).permutation(len(table))[:7_500]
    gaps = [f"{gap:.6f}" for gap in table["gap"].iloc[chosen[:7_000]]] + [""] * 500
    smiles = table["SMILES"].iloc[chosen]
    _write_table(folder / "raw" / "data.csv.gz", {"idx": range(7_500), "smiles": list(smiles), "homolumogap": gaps})
    split = {"train": np.arange(6_000), "valid": np.arange(6_000, 7_000), "test-dev": np.arange(7_000, 7_500)}
    torch.save(split, folder / "split_dict.pt")


def peptides_struct(source: Path, root: Path) -> None:
    """2,400, 500 and 500 peptides with eleven numbers of their graphs in the columns of Peptides-struct.

    The official targets are moments of 3-D structures, which are not here. Each split is a part of the official one.
    """
    folder = root / "lrgb" / "peptides-structural"
    (folder / "raw").mkdir(parents=True)
    functional = source / "lrgb" / "peptides-functional"
    table = pd.read_csv(next((functional / "raw").glob("*.csv.gz")))
    parts = load_arrays(next(functional.glob("*.pickle")))
    counts = {"train": 2_400, "val": 500, "test": 500}
    chosen = [np.sort(np.asarray(parts[stage]))[:count] for stage, count in counts.items()]
    smiles = list(table["smiles"].iloc[np.concatenate(chosen)])
    numbers = np.array([_graph_numbers(text) for text in smiles])
    numbers = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    columns: dict[str, Sequence[object]] = {"": range(len(smiles)), "smiles": smiles}
    columns |= {name: [f"{value:.6f}" for value in numbers[:, i]] for i, name in enumerate(STRUCTURE)}
    _write_table(folder / "raw" / "peptide_structure_normalized_dataset.csv.gz", columns)
    ends = np.cumsum([0, *counts.values()])
    split = {stage: np.arange(ends[i], ends[i + 1]) for i, stage in enumerate(counts)}
    (folder / "splits_random_stratified_peptide_structure.pickle").write_bytes(pickle.dumps(split))


def shapenet_part(source: Path, root: Path) -> None:
    """ModelNet40's 60 + 60 airplanes and persons in ShapeNetPart's files; the parts are slices of equal length.

    Airplanes have four slices along their longest axis. ShapeNetPart has no persons: they are filed as `Rocket`, with
    three slices along the upright axis. 2,000 of 10,000 points of each cloud are written.
    """
    folder = root / "shapenetcore_partanno_segmentation_benchmark_v0_normal"
    (folder / "train_test_split").mkdir(parents=True)
    clouds = source / "modelnet40_normal_resampled"
    lists = {
        name: (clouds / f"modelnet40_{name}.txt").read_text(encoding="utf-8").split() for name in ("train", "test")
    }
    stages = {
        "train": [n for i, n in enumerate(lists["train"]) if i % 6],
        "val": lists["train"][::6],
        "test": lists["test"],
    }
    numbers = {"airplane": ("Airplane", "02691156", 2, 0, 4), "person": ("Rocket", "04099429", 1, 41, 3)}
    (folder / "synsetoffset2category.txt").write_text(
        "".join(f"{name}\t{number}\n" for name, number, *_ in numbers.values())
    )
    for stage, names in stages.items():
        listed = []
        for name in names:
            kind = name.rpartition("_")[0]
            _, number, axis, first, slices = numbers[kind]
            rows = np.loadtxt(clouds / kind / f"{name}.txt", delimiter=",", dtype=np.float32)[::5]
            heights = rows[:, axis] - rows[:, axis].min()
            part = first + np.minimum((heights / heights.max() * slices).astype(int), slices - 1)
            (folder / number).mkdir(exist_ok=True)
            np.savetxt(folder / number / f"{name}.txt", np.concatenate([rows, part[:, None]], axis=1), "%.6f")
            listed.append(f"shape_data/{number}/{name}")
        (folder / "train_test_split" / f"shuffled_{stage}_file_list.json").write_text(
            json.dumps(listed), encoding="utf-8"
        )


STAND_INS: Mapping[str, Callable[[Path, Path], None]] = {
    make.__name__: make
    for make in (
        *(cifar100, tiny_imagenet, imagenet1k, dogs_vs_cats, image_folder, image_csv, series_csv, series_folder),
        *(point_folder, lra_retrieval, zinc, pcqm4m, peptides_struct, shapenet_part),
    )
}


def _cifar(source: Path, stage: str) -> tuple[Array, Array]:
    """Pixels (n, 3, 32, 32) and labels (n,) of the first two batches, or of the test batch."""
    names = ("data_batch_1", "data_batch_2", "data_batch_3") if stage == "train" else ("test_batch",)
    batches = [load_arrays(source / "cifar-10-batches-py" / name) for name in names]
    pixels = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    return pixels, np.concatenate([np.asarray(batch["labels"]) for batch in batches])


def _pictures(source: Path, stage: str, count: int, kept: Sequence[str] = CLASSES) -> list[tuple[int, int, Array]]:
    """Label, number and pixels (32, 32, 3) of at most `count` pictures of each class."""
    pixels, labels = _cifar(source, stage)
    found = [(label, np.flatnonzero(labels == label)[:count]) for label in map(CLASSES.index, kept)]
    return [(label, i, pixels[row].transpose(1, 2, 0)) for label, rows in found for i, row in enumerate(rows)]


def _save(picture: Array, file: Path, side: int = 32) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).resize((side, side), Image.Resampling.BICUBIC).save(file, quality=95)


def _word_net(label: int) -> str:
    """A folder name that looks like the official ones and is none of them."""
    return f"n0000000{label}"


def _graph_numbers(smiles: str) -> tuple[float, ...]:
    """Eleven numbers of a molecule's graph."""
    molecule = Chem.MolFromSmiles(smiles)
    distances = rdmolops.GetDistanceMatrix(molecule)
    furthest = distances.max(axis=0)
    symbols = Counter(atom.GetSymbol() for atom in molecule.GetAtoms())
    return (
        *(Descriptors.MolWt(molecule), molecule.GetNumAtoms(), rdMolDescriptors.CalcNumRings(molecule)),  # type: ignore[attr-defined]
        *(symbols["N"], symbols["O"], symbols["S"]),
        *(furthest.max(), furthest.min(), distances.mean()),
        *(rdMolDescriptors.CalcFractionCSP3(molecule), Crippen.MolLogP(molecule)),  # type: ignore[attr-defined]
    )


def _write_table(file: Path, columns: Mapping[str, Sequence[object]]) -> None:
    with gzip.open(file, "wt", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
