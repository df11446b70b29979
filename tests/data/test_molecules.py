"""Molecules from the published files and from a user's table, and messages for those that cannot be read."""

from __future__ import annotations

import ctypes
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from rdkit import Chem, rdBase
from rdkit.Chem import Crippen, Descriptors
from support import official_graphs, task_modules
from support.plans import build_data, build_task, encoded, prepared, small_task
from torch.testing import assert_close

from sliceformer_lab.config.compose import preset_root
from sliceformer_lab.data.graphs import base, smiles
from sliceformer_lab.data.graphs.molecule import MoleculeTable
from sliceformer_lab.data.graphs.qm9 import HARTREE
from sliceformer_lab.data.graphs.smiles import molecule
from sliceformer_lab.data.graphs.store import GraphSplit
from sliceformer_lab.errors import DataError
from sliceformer_lab.measures.molecule_features import NUM_DESCRIPTORS, descriptors_of
from sliceformer_lab.tasks.graph import Graphormer


def table(tmp_path: Path, rows: list[str], header: str = "smiles,target", **options: Any) -> MoleculeTable:
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "molecules.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    wanted = {"targets": ("target",), "processes": 1, "val_fraction": 0.0, "test_fraction": 0.0} | options
    return MoleculeTable(root=str(tmp_path), file=str(file), **wanted)


def test_new_molecules_come_from_the_column_that_the_run_was_trained_on(tmp_path: Path) -> None:
    data = table(tmp_path, ["CCO,1"], "formula,target", smiles_column="formula")
    for column, content in ((None, "CCO"), ("target", "1")):
        assert [one.content for one in data.read_inputs(Path(data.file), column)] == [content]


def targets(data: Any, stage: str = "train") -> np.ndarray:
    split = data.splits[stage]
    assert isinstance(split, GraphSplit)
    return np.sort(split.store.targets[split.rows, 0])


def test_the_sha256_of_molecules_does_not_depend_on_the_name_of_their_file(tmp_path: Path) -> None:
    data = table(tmp_path, [f"{'C' * (i + 1)}O,{i}" for i in range(9)])
    renamed = tmp_path / "molecules_of_another_name.csv"
    renamed.write_bytes(Path(data.file).read_bytes())
    assert replace(data, file=str(renamed)).content_sha256() == data.content_sha256()


def test_another_rdkit_reads_the_molecules_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = table(tmp_path, ["CCO,1", "CC,2"])
    first = data.folder
    monkeypatch.setattr(rdBase, "rdkitVersion", "of a later year")
    again = replace(data)
    assert again.folder != first and again.content_sha256() == data.content_sha256()


MIXING = [("mha", "transformer"), ("samsa", "transformer"), ("csp", "transformer"), ("sliceformer", "transformer")]


@pytest.mark.parametrize(("attention", "block"), [*MIXING, ("mha", "gps"), ("mha", "set"), ("identity", "gatedgcn")])
def test_a_molecule_has_one_prediction_however_it_is_written_unless_the_attention_reads_the_order_of_atoms(
    attention: str, block: str, tmp_path: Path
) -> None:
    written = ["CC(=O)Oc1ccccc1C(=O)O", "C1CCC2CC(Cl)CCC2C1", "BrC", "NC(C)C(=O)O"]  # without chirality
    data = prepared(table(tmp_path, [f"{one},{i}.5" for i, one in enumerate(written)]))
    words = "encoder.position=none", f"attention={attention}", f"block={block}"  # as graph_small
    task = small_task("task=molecule_csv", *words, data=data.spec)
    with torch.no_grad():
        expected, found = task(encoded(data, written)), []
        for seed in (1, 2, 3):
            others = [Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(one), 1, randomSeed=seed)[0] for one in written]
            found.append(torch.allclose(task(encoded(data, others)), expected, atol=1e-5))
    assert all(found) != any(layer.depends_on_order for layer in task.encoder.attentions)


def test_qm9_of_moleculenet_is_in_hartree(tmp_path: Path) -> None:
    data = task_modules.ready("qm9_gap", tmp_path)
    everything = np.concatenate([targets(data, stage) for stage in ("train", "val", "test")])
    want = [official_graphs.gap_of(i) * HARTREE for i in range(official_graphs.COUNT)]
    np.testing.assert_allclose(np.sort(everything), np.sort(want), rtol=1e-6)
    assert [len(data.splits[stage]) for stage in ("test", "val", "train")] == [4, 4, 32]


def test_pcqm4m_keeps_the_official_parts_and_leaves_out_secret_gaps(tmp_path: Path) -> None:
    data = task_modules.ready("pcqm4m", tmp_path)
    assert [len(data.splits[stage]) for stage in ("train", "val", "test")] == [24, 8, 0]
    np.testing.assert_allclose(
        targets(data, "val"), np.sort([official_graphs.gap_of(i) for i in range(24, 32)]), rtol=1e-6
    )


class Foreign:
    def __reduce__(self) -> Any:
        return (print, ("code of a stranger",))


def test_a_split_of_another_set_or_with_code_is_refused_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    official_graphs.pcqm4m(tmp_path)
    file = tmp_path / "pcqm4m-v2" / "split_dict.pt"
    torch.save({"train": np.arange(10), "valid": np.array([99])}, file)
    with pytest.raises(DataError, match=r"names molecule 99, but .* has 40; use files of one set"):
        task_modules.ready("pcqm4m", tmp_path)
    torch.save({"train": Foreign()}, file)
    with pytest.raises(DataError, match="holds more than arrays; nothing of it was run"):
        task_modules.ready("pcqm4m", tmp_path)
    assert "stranger" not in capsys.readouterr().out
    file.write_bytes(pickle.dumps([1])[:3])
    with pytest.raises(DataError, match="damaged"):
        task_modules.ready("pcqm4m", tmp_path)


def test_unparsable_smiles_are_left_out_and_counted_in_a_remark_of_each_run(tmp_path: Path) -> None:
    rows = ["CCO,1", "C1CC,2", "CC,3", ",4", "CCCCCC,5", f"{'C' * 32_770},6"]
    for _ in range(2):  # the second finds them in the cache
        data = table(tmp_path, rows, max_nodes=5)
        data.setup()
        np.testing.assert_array_equal(targets(data), [1, 3])
        remark = data.remarks()[-1]
        assert remark.startswith("4 of 6 graphs are left out")
        for reason in ("does not parse as SMILES: 1", "has no atoms: 1", "has more nodes than data.max_nodes: 2"):
            assert reason in remark and reason in data.fingerprint()["note"]


def test_unparsable_smiles_raise_an_error_by_option(tmp_path: Path) -> None:
    large = table(tmp_path, ["CCO,1", "CCCCCC,5"], max_nodes=5, invalid="error")
    large.setup()  # a molecule that is too large is no fault of the file
    assert len(large.splits["train"]) == 1
    for row, message in (("C1CC,2", "line 3: 'C1CC' does not parse"), (",4", "line 3: '' has no atoms")):
        with pytest.raises(DataError, match=message):
            table(tmp_path, ["CCO,1", row], invalid="error").setup()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (["CCO,x"], {}, "line 2: target is 'x', not a number"),
        (["CCO,1", "CC,1_000"], {}, "line 3: target is '1_000', not a number"),
        (["CCO,1", "CC,-1e39"], {}, "line 3: target is -1e\\+39, beyond the largest number"),
        (["CCO,1"], {"targets": ("gap",)}, "no column 'gap'; data.targets can be one of smiles, target"),
        (["CCO,1"], {"smiles_column": "SMILES"}, "data.smiles_column can be one of"),
        (["C1CC,1"], {}, "none of 1 graphs can be used"),
        (["CCO,0.5"], {"kind": "classification"}, "target has the value 0.5, but labels are 0, 1 or empty"),
        (["CCO,1", "CC,2"], {"split_column": "target"}, "target is '1'; use one of train"),
    ],
)
def test_an_unusable_table_is_reported_in_one_sentence(
    tmp_path: Path, rows: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message) as error:
        table(tmp_path, rows, **options).setup()
    assert "\n" not in str(error.value)


def test_empty_fields_are_ignored_in_loss_and_metrics(tmp_path: Path) -> None:
    data = table(tmp_path, ["CCO,1,", "CC,3,5", "C,,5"], "smiles,target,other", targets=("target", "other"))
    mean, std = data.target_statistics()
    assert_close(mean, torch.tensor([2.0, 5.0]))
    assert_close(std, torch.tensor([1.0, 1.0]))  # one value has no deviation
    task = graphormer(data)
    batch = data.splits["train"].batch([0, 1, 2])  # type: ignore[attr-defined]
    output = task(batch)
    known = ~batch.target.isnan()
    task.test_metrics.update(output, batch.target)
    want = (output - batch.target)[known].abs().mean()
    assert_close(task.test_metrics.compute()["mae"], want.detach())
    loss = task.loss(output, batch.target)
    assert_close(loss, want)
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in task.parameters())
    assert task.chance(torch.tensor([[1.0, torch.nan], [3.0, 5.0]])) == pytest.approx(2 / 3)
    unknown = table(tmp_path, ["CCO,1,", "CC,3,"], "smiles,target,other", targets=("target", "other"))
    with pytest.raises(DataError, match="no training example has other"):
        unknown.target_statistics()


LABELS = ["CCO,0,1", "CC,1,", "C1CC1,0,0", "CCN,1,1"]


def labelled(tmp_path: Path, rows: list[str], **options: Any) -> MoleculeTable:
    return table(tmp_path, rows, "smiles,target,other", targets=("target", "other"), **options)


def test_targets_of_zeros_and_ones_are_labels_with_gaps(tmp_path: Path) -> None:
    data = labelled(tmp_path, LABELS)
    assert [str(choice) for choice in data.choices()] == [
        "data.kind=classification (every value of target, other is 0, 1 or empty)"
    ]
    data.setup()
    task = graphormer(data)
    batch = data.splits["train"].batch([0, 1, 2, 3])  # type: ignore[attr-defined]
    output = task(batch)
    known = ~batch.target.isnan()
    wanted = -torch.where(batch.target == 1, output.sigmoid(), 1 - output.sigmoid())[known].log().mean()
    assert_close(task.loss(output, batch.target), wanted)
    assert (task.monitor, task.monitor_mode, task.chance(batch.target)) == ("auc", "max", 0.5)
    task.test_metrics.update(torch.where(known, batch.target, 9.0) - 0.5, batch.target)
    assert {name: float(value) for name, value in task.test_metrics.compute().items()} == {
        "auc": 1.0,
        "average_precision": 1.0,
        "accuracy": 1.0,
    }


def test_descriptors_follow_from_the_size_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for many, kind in ((4, "rdkit"), (3, "both")):
        monkeypatch.setattr("sliceformer_lab.data.graphs.molecule.MIN_FINGERPRINT_MOLECULES", many)
        data = table(tmp_path, ["CCO,1.5", "C,2", "CC,3"], descriptors=None)
        assert f"data.descriptors={kind} (3 molecules in the table)" in map(str, data.choices())
        assert data.spec.context_channels == NUM_DESCRIPTORS[kind]


def test_descriptors_are_mass_logp_and_counts_of_parts() -> None:
    benzene = descriptors_of("c1ccccc1", "both")
    parsed = Chem.MolFromSmiles("c1ccccc1")
    for number in (Descriptors.ExactMolWt(parsed), Crippen.MolLogP(parsed), Descriptors.TPSA(parsed)):
        assert np.isclose(benzene[:43], number, rtol=1e-5).any()
    parts = benzene[NUM_DESCRIPTORS["rdkit"] :]
    np.testing.assert_allclose(np.sort(parts[parts > 0]), np.log([7, 7, 7]), rtol=1e-6)  # each of 3 parts, at 6 atoms


def test_a_model_reads_descriptors_and_refuses_batches_without_them(tmp_path: Path) -> None:
    data = table(tmp_path, [f"{smiles},1" for smiles in official_graphs.SMILES], descriptors="both")
    data.setup()
    split = cast(GraphSplit, data.splits["train"])
    rows = list(range(len(split)))
    batch = split.batch(rows)
    wanted = torch.stack([torch.from_numpy(descriptors_of(str(split.stored(row)), "both")) for row in rows])
    assert_close(batch.context, wanted, rtol=0, atol=0)
    task = graphormer(data)
    with torch.no_grad():
        before = task(batch)
        assert_close(before, torch.cat([task(split.batch([row])) for row in rows]), atol=1e-5, rtol=1e-4)
        assert not torch.equal(task(replace(batch, context=split.contexts() + 1)), before)
    with pytest.raises(ValueError, match="features of whole samples, which the batch has not"):
        task(replace(batch, context=None))


def graphormer(data: MoleculeTable) -> Graphormer:
    words = ("task=molecule_csv", "attention=mha", "encoder.position=none", "task.bias=true")
    task: Graphormer = small_task(*words, data=data.spec)
    return task


def test_numbers_are_standardised_unless_the_task_says_no() -> None:
    statistics = torch.tensor([2.0]), torch.tensor([3.0])
    composed = preset_root("task=qm9_gap", "encoder=tiny")
    for standardise, found in ((True, (2.0, 3.0)), (False, (0.0, 1.0))):
        config = composed | {"task": composed["task"] | {"standardise": standardise}}
        task: Any = build_task(config, build_data(config).spec)
        task._trainer = SimpleNamespace(datamodule=SimpleNamespace(target_statistics=lambda: statistics))
        task.setup("fit")
        assert (task.target_mean.item(), task.target_std.item()) == found


def test_a_molecule_that_takes_too_long_is_an_error_whatever_rdkit_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "RDKIT_TIMEOUT_S", 1.5)
    monkeypatch.setattr(base, "molecule", held_by_c_code)
    data = table(tmp_path, [f"{'C' * i},{i}" for i in range(1, 8)], processes=2)
    with pytest.raises(DataError, match=r"line 4: 'CCC' takes RDKit more than 1.5 s; delete its row"):
        data.setup()
    with pytest.raises(DataError, match=r"'CCC' takes RDKit more than"):
        data.encode_one("CCC")
    assert len(data.encode_one("CCCC")) == 4


@pytest.mark.parametrize("processes", [1, 2])
def test_molecules_without_rdkit_end_with_the_sentence_that_names_it(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)  # as if it were not installed
    smiles._import_rdkit.cache_clear()
    base._time_limited.cache_clear()  # a process that imported it may be left from another test
    try:
        with pytest.raises(DataError, match=r"reading SMILES needs RDKit: pip install 'sliceformer-lab\[graph\]'"):
            table(tmp_path, ["C,1", "CC,2"], processes=processes).prepare_data()
    finally:
        base._time_limited.cache_clear()


def test_molecules_are_read_after_the_thread_that_read_the_first_ones_has_ended(tmp_path: Path) -> None:
    first = Thread(target=table(tmp_path / "first", ["C,1", "CC,2"]).prepare_data)
    first.start()
    first.join()
    table(tmp_path / "second", ["CCC,1", "CCCC,2"]).prepare_data()


def held_by_c_code(smiles: str, most_atoms: int) -> Any:
    """Never returns for CCC, and never gives another thread or a signal handler of Python its turn."""
    if smiles == "CCC":
        ctypes.PyDLL(None).sleep(60)  # PyDLL keeps the lock of Python
    return molecule(smiles, most_atoms)


def test_a_molecule_has_at_most_as_many_atoms_as_are_wanted() -> None:
    with pytest.raises(smiles.TooManyAtomsError):
        molecule("C1CCCC1[H]", 4)
    assert len(molecule("[H]C([H])([H])C[NH3+]", 3) or "") == 3, "hydrogens do not count"
    assert molecule("C1CCCC", 4) is None, "a ring that is not closed"
