"""The spectrum callback measures real tokens only and does not change training."""

from __future__ import annotations

import logging
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from pytorch_lightning import LightningDataModule, LightningModule, Trainer
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.callbacks.record_spectrum import Spectrum
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.measures.probe import measure
from sliceformer_lab.measures.probe_record import FORMS, MEASURES, PLACES, ProbeRecord
from sliceformer_lab.training.context import RunContext

DIM, GRID, DEPTH = 16, (3, 4), 2
TOKENS = 1 + GRID[0] * GRID[1]  # a CLS token in front


class Model(LightningModule):
    """An encoder with dropout and running statistics, which a probe must not disturb."""

    def __init__(self, attention: str = "mha", depth: int = DEPTH) -> None:
        super().__init__()
        torch.manual_seed(0)
        encoder = load_option("encoder", "tiny") | {"dim": DIM, "depth": depth, "num_heads": 2, "dropout": 0.2}
        block = load_option("block", "transformer") | {"norm": "batchnorm"}
        node = load_option("attention", attention)
        self.encoder = build_encoder(encoder, block, node, TOKENS, num_prefix=1, grid=GRID)
        self.head = nn.Linear(DIM, 2)

    def forward(self, batch: Batch) -> Tensor:
        tokens = self.encoder(batch.inputs, batch.padding)
        logits: Tensor = self.head(tokens[:, 0])
        return logits

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch), batch.target)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(LightningDataModule):
    """24 random rows, padded if `lengths` are given."""

    def __init__(self, lengths: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.rows = torch.randn(24, TOKENS, DIM, generator=torch.Generator().manual_seed(1))
        self.lengths = lengths

    def collate(self, ids: list[int]) -> Batch:
        index = torch.tensor(ids)
        lengths = None if self.lengths is None else torch.tensor(self.lengths)[index % len(self.lengths)]
        padding = None if lengths is None else Padding.from_lengths(lengths, TOKENS)
        inputs = self.rows[index].clone()
        if padding is not None:
            inputs[~padding.mask] = 1e3  # must never reach a measure
        return Batch(inputs, index % 2, index, padding)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(range(24), batch_size=8, shuffle=True, collate_fn=self.collate)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(range(24), batch_size=8, collate_fn=self.collate)  # type: ignore[arg-type]


def probe(folder: Path, **options: Any) -> Spectrum:
    context = RunContext(folder=folder, seed=0, monitor=None, monitor_mode="max")
    return Spectrum(context, **({"num_samples": 6, "every_n_epochs": 2} | options))


def train(
    folder: Path, model: Model, data: Data, *callbacks: Spectrum, epochs: int = 3, logger: CSVLogger | None = None
) -> Trainer:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    trainer = Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=logger or False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        limit_val_batches=1,
    )
    trainer.fit(model, datamodule=data)
    return trainer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the picture, except in the module's fixture `trained`."""
    monkeypatch.setattr("sliceformer_lab.measures.plots.plot_spectra", lambda record, path: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A run of three epochs with the callback, and its trained model."""
    folder, model = tmp_path_factory.mktemp("run"), Model()
    train(folder, model, Data(), probe(folder), logger=CSVLogger(folder, name="csv"))
    return folder, model


def test_training_is_bit_equal_with_and_without_the_callback(trained: tuple[Path, Model], tmp_path: Path) -> None:
    _, watched = trained
    alone = Model()
    train(tmp_path, alone, Data())
    for name, value in alone.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_measuring_restores_modes_statistics_and_generators(tmp_path: Path) -> None:
    model, data = Model(), Data()
    callback = probe(tmp_path)
    trainer = train(tmp_path, model, data, callback, epochs=1)
    model.train()
    model.encoder.blocks[0].mlp.eval()  # a frozen part must stay frozen
    modes = {name: module.training for name, module in model.named_modules()}
    states = {name: value.clone() for name, value in model.state_dict().items()}
    generators = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    callback._measure(trainer, model, epoch=7)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert all(torch.equal(value, states[name]) for name, value in model.state_dict().items())
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == generators
    assert all(p.grad is None or not p.grad.isnan().any() for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.encoder.modules())


def test_record_covers_start_every_second_epoch_and_the_end(trained: tuple[Path, Model]) -> None:
    record = ProbeRecord.load(trained[0] / "spectrum.npz")
    assert record.epochs.tolist() == [-1, 1, 2]
    assert record.sample_ids.tolist() == list(range(6))
    assert record.num_tokens.tolist() == [TOKENS - 1] * 6
    assert record.attentions.tolist() == ["MHA"] * DEPTH
    for name in MEASURES:
        shape = (3, DEPTH, len(PLACES), len(FORMS)) + ((TOKENS - 1,) if name == "spectrum" else ())
        assert record.mean[name].shape == record.std[name].shape == shape
        known = np.isfinite(record.mean[name])
        assert known[..., :-1].all() if name == "spectrum" else known.all()  # a removal leaves a 0 at the end
    assert not np.allclose(record.at("cosine", "stream", "raw", moment=0), record.at("cosine", "stream", "raw"))


def test_record_holds_the_measures_of_the_last_weights_without_cls(trained: tuple[Path, Model]) -> None:
    folder, model = trained
    record = ProbeRecord.load(folder / "spectrum.npz")
    block = model.eval().encoder.blocks[0]
    with torch.no_grad():
        x = model.encoder.position(Data().rows[:6])
        v = block.attention.value(block.norm1(x))
        q, k = block.attention.query(block.norm1(x)), block.attention.key(block.norm1(x))
        places = {"input": v, "output": block.attention.mix(v, q, k), "stream": block(x)}
    for place, tokens in places.items():
        for name, values in measure(tokens[:, 1:]).items():
            mean = values.mean(0)
            np.testing.assert_allclose(record.mean[name][-1, 0, PLACES.index(place)], mean, rtol=1e-4, atol=1e-6)


def test_padding_never_reaches_a_measure_and_the_note_says_what_is_left_out_of_long_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = (5, 5, 12)  # with CLS
    with caplog.at_level(logging.INFO, logger="sliceformer_lab.callbacks.record_spectrum"):
        train(tmp_path, Model(), Data(lengths), probe(tmp_path, num_samples=3, max_tokens=8), epochs=1)
    record = ProbeRecord.load(tmp_path / "spectrum.npz")
    assert record.num_tokens.tolist() == [4, 4, 8] and record.mean["spectrum"].shape[-1] == 8
    assert np.isfinite(record.mean["stable_rank"]).all()
    assert np.isnan(record.mean["spectrum"][..., 4:]).all(), "most samples have four values"
    assert float(record.mean["cosine"][0, 0, 0, 0]) < 0.5  # rows of 1e3 would all point one way
    assert "4 to 11 tokens without CLS and padding, at most 8 of each, drawn with seed 0" in record.note
    assert record.note in caplog.text


def test_means_over_layers_reach_the_logger_and_a_picture_the_folder(trained: tuple[Path, Model]) -> None:
    folder, _ = trained
    logged = pd.read_csv(next(folder.glob("csv/version_0/metrics.csv")))
    record = ProbeRecord.load(folder / "spectrum.npz")
    for place, form, name in product(
        ("output", "stream"), ("raw", "mean_removed"), ("stable_rank", "residual", "cosine")
    ):
        column = logged[f"spectrum/{place}_{name}{'_centred' * (form == 'mean_removed')}_mean"].dropna()
        expected = record.mean[name][:, :, PLACES.index(place), FORMS.index(form)].mean(axis=1)
        np.testing.assert_allclose(column, expected, rtol=1e-6)
    with Image.open(folder / "spectrum.png") as picture:
        assert min(picture.size) > 500
    assert not list(folder.glob("*.unfinished"))
