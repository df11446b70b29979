"""The recipes whose whole training steps are measured, and the generated data that stand in for theirs."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.workloads import Comparison, Variant, Workload
from sliceformer_lab.config.compose import no_such_option, option_names
from sliceformer_lab.config.schema import ConfigError

LIGHTNING, BARE = "Lightning", "bare loop"
WAYS = (BARE, LIGHTNING)
PARTS = ("data", "model", "optimiser")  # of a step
ATTENTIONS = ("csp", "sliceformer", "samsa", "mha", "identity")
CONTROLS = ("mha", "identity")  # always measured, as the others are compared with them
MOST_BATCHES = 18  # in an epoch of generated data, as many as digits has
FEWEST = 100  # training examples, so that some of every class can be held out
HELD_OUT = 0.25  # more than any recipe holds out from training
# Generated molecules are chains of these groups, by their number of atoms other than hydrogen.
GROUPS = {"C": 1, "N": 1, "C(C)": 2, "C(=O)": 2, "c1ccccc1": 6}

FUSED = "encoder.attention_dropout=0"  # the recipe's own .1 keeps mha from torch's fused kernel on a CPU

Writer = Callable[[Path, int, int], None]  # of (folder, number of training examples, tokens)


@dataclass(frozen=True)
class TrainingRecipe:
    """The command line of a training, and the sizes at which it is measured on one core."""

    words: tuple[str, ...]
    channels: int
    batches: Mapping[int, int]  # tokens -> examples in a batch
    write: Writer | None = None  # writes generated data in the official format; None: real data
    length: str | None = None  # the option that sets the number of tokens; None: it is fixed
    reader: tuple[str, ...] = ()  # options with which the data module accepts generated files


def _pictures(folder: Path, count: int, tokens: int) -> None:
    """CIFAR-10's pickled batches with random pixels."""
    del tokens
    generator = np.random.default_rng(0)
    inner = folder / "cifar-10-batches-py"
    inner.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        here = 10 * -(-count // 50)
        pixels = generator.integers(0, 256, (here, 3072), dtype=np.uint8)
        (inner / name).write_bytes(pickle.dumps({"data": pixels, "labels": [i % 10 for i in range(here)]}))


def _reviews(folder: Path, count: int, tokens: int) -> None:
    """The folders of IMDB with random letters; every text fills `tokens`."""
    generator = np.random.default_rng(0)
    for stage, size in (("train", count), ("test", 4)):
        for number in range(size):
            path = folder / "aclImdb" / stage / ("pos", "neg")[number % 2] / f"{number}_{(9, 2)[number % 2]}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(generator.integers(97, 123, tokens, dtype=np.uint8).tobytes())


def _molecules(folder: Path, count: int, tokens: int) -> None:
    """The files of PCQM4Mv2 with random molecules of at most `tokens` atoms."""
    generator = np.random.default_rng(0)
    raw = folder / "pcqm4m-v2" / "raw"
    raw.mkdir(parents=True)
    lines = [f"{i},{''.join(_groups(generator, tokens))},{generator.normal(5.0):.4f}" for i in range(count + 8)]
    (raw / "data.csv.gz").write_bytes(gzip.compress("\n".join(["idx,smiles,homolumogap", *lines, ""]).encode()))
    torch.save({"train": np.arange(count), "valid": np.arange(count, count + 8)}, raw.parent / "split_dict.pt")


def _groups(generator: np.random.Generator, most: int) -> Iterator[str]:
    """Groups of a chain of most / 2 to `most` atoms."""
    left = int(generator.integers(most // 2, most, endpoint=True))
    while fitting := [group for group, size in GROUPS.items() if size <= left]:
        group = str(generator.choice(fitting))
        left -= GROUPS[group]
        yield group


def _clouds(folder: Path, count: int, tokens: int) -> None:
    """ModelNet40's text files with `tokens` random points for each cloud."""
    generator = np.random.default_rng(0)
    inner = folder / "modelnet40_normal_resampled"
    inner.mkdir()
    (inner / "modelnet40_shape_names.txt").write_text("\n".join(f"kind{i}" for i in range(40)), encoding="ascii")
    for stage, size in (("train", count), ("test", 2)):
        names = [f"kind{i % 2}_{stage}{i}" for i in range(size)]
        (inner / f"modelnet40_{stage}.txt").write_text("\n".join(names), encoding="ascii")
        for name in names:
            path = inner / name.partition("_")[0] / f"{name}.txt"
            path.parent.mkdir(exist_ok=True)
            np.savetxt(path, generator.normal(size=(tokens, 6)), "%.4f", ",")


RECIPES: dict[str, TrainingRecipe] = {
    "digits": TrainingRecipe(("task=digits",), 64, {16: 64}),
    "graphormer": TrainingRecipe(
        words=("recipe=sliceformer/table6_pcqm4m", "optim.accumulate=1"),
        channels=768,
        batches={20: 8},
        write=_molecules,
        reader=("data.download=false", "data.processes=1"),
    ),
    "vit_paper": TrainingRecipe(
        words=("recipe=csp/table3_cifar10",),
        channels=512,
        batches={64: 16},
        write=_pictures,
        reader=("data.verify=false",),
    ),
    "lra_text": TrainingRecipe(
        words=("recipe=sliceformer/table2_lra_text", FUSED),
        channels=256,
        batches={1024: 4, 4096: 1},
        write=_reviews,
        length="data.max_len",
        reader=("data.verify=false",),
    ),
    "points": TrainingRecipe(
        words=("recipe=points/modelnet_quick",),
        channels=128,
        batches={1024: 4},
        write=_clouds,
        length="data.num_points",
        reader=("data.download=false", "data.processes=1"),
    ),
}
FIXED = {tokens for recipe in RECIPES.values() if recipe.length is None for tokens in recipe.batches}


def training_comparisons(options: BenchmarkOptions) -> list[Comparison]:
    """A comparison for each recipe and number of tokens. Raises ConfigError for an unknown attention."""
    if unknown := [name for name in options.attentions or () if name not in option_names("attention")]:
        raise ConfigError(no_such_option("attentions", unknown[0], option_names("attention")))
    names = dict.fromkeys((*(options.attentions or ATTENTIONS), *CONTROLS))
    variants = tuple(Variant(name, way) for name in names for way in WAYS)
    against = Variant("mha", LIGHTNING)
    found = []
    for name, recipe in RECIPES.items():
        for tokens in _lengths(recipe, options.sizes):
            shortest = min(recipe.batches)
            batch = options.batch or recipe.batches[max((n for n in recipe.batches if n <= tokens), default=shortest)]
            workload = Workload(name, "recipe", tokens, batch, recipe.channels)
            found.append(Comparison(workload, variants, against, modes=("training",)))
    return found


def _lengths(recipe: TrainingRecipe, sizes: Sequence[int] | None) -> list[int]:
    """The numbers of tokens at which a recipe is measured: a fixed number only where `sizes` names it."""
    if sizes is None:
        return list(recipe.batches)
    return [n for n in sizes if (n in recipe.batches if recipe.length is None else n not in FIXED)]


def training_words(workload: Workload, attention: str, options: BenchmarkOptions, folder: Path) -> list[str]:
    """The command line of a training on the data that `write_data` left in `folder`."""
    recipe = RECIPES[workload.name]
    precision = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}[options.precision]
    words = [
        *recipe.words,
        f"attention={attention}",
        "callbacks=minimal",
        f"trainer={'gpu' if options.device == 'cuda' else 'cpu'}",
        f"trainer.precision={precision}",
        f"trainer.compile={options.compile}",
        f"data.batch_size={workload.batch}",
        "data.num_workers=0",
        *recipe.reader,
    ]
    if recipe.write is not None:
        words.append(f"data.root={folder}")
    if recipe.length is not None:
        words.append(f"{recipe.length}={workload.tokens}")
    return words


def write_data(workload: Workload, folder: Path) -> None:
    """Write the generated data of a workload, if it needs any."""
    recipe = RECIPES[workload.name]
    if recipe.write is not None:
        recipe.write(folder, max(FEWEST, int(MOST_BATCHES * workload.batch / (1 - HELD_OUT)) + 1), workload.tokens)
