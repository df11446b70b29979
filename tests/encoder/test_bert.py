"""The weights and the tokenizer of a BERT in our encoder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.plans import encoded, prepared
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.__main__ import main
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.data.sequences.text_csv import TextCSV
from sliceformer_lab.data.sequences.tokenizer import PretrainedTokenizer
from sliceformer_lab.encoder.embed import TokenEmbedding
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.pretrained import initialise_texts
from sliceformer_lab.errors import ConfigError, DataError

transformers = pytest.importorskip("transformers")

WORDS = ("red", "blue", "dog", "cat", "runs", "sleeps", "under", "tree", "##s", "the")
SIZES = {"dim": 24, "depth": 2, "num_heads": 3, "mlp_dim": 48}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random BERT and its tokenizer, as Transformers saves them."""
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
    options = {"vocab_size": 15, "max_position_embeddings": 16, "initializer_range": 0.5}
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**sizes, **options))
    for parameter in model.parameters():  # so that no bias or scale passes unseen
        parameter.data += 0.1 * torch.randn_like(parameter)
    for table in (model.embeddings.word_embeddings, model.embeddings.position_embeddings):
        table.weight.data *= 0.01  # so small that an epsilon of 1e-5 would be seen
    model.embeddings.token_type_embeddings.weight.data *= 0.01
    model.save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def parts(folder: Path, attention: str = "mha", *, block: str = "bert", **encoder: Any) -> tuple[TokenEmbedding, Any]:
    torch.manual_seed(1)
    given = load_option("encoder", "minilm") | SIZES | {"init": "bert", "init_file": str(folder)} | encoder
    built = build_encoder(given, load_option("block", block), load_option("attention", attention), 12)
    return TokenEmbedding(15, 0, 24).eval(), built.eval()


def ids_and_lengths() -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, 15, (3, 12), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([12, 7, 3])
    return ids * (torch.arange(12) < lengths[:, None]), lengths


def test_a_bert_gives_the_same_tokens_in_our_encoder(folder: Path) -> None:
    embedding, encoder = parts(folder, init_attention=True)
    initialise_texts(embedding, encoder)
    ids, lengths = ids_and_lengths()
    real = torch.arange(12) < lengths[:, None]
    with torch.no_grad():
        ours = encoder(embedding(ids), Padding.from_lengths(lengths, 12))
        theirs = transformers.BertModel.from_pretrained(folder).eval()(ids, real.long()).last_hidden_state
    assert_close(ours[real], theirs[real], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("attention", "with_attention", "copied"),
    [
        ("csp", False, set()),
        ("csp", True, {"value", "out"}),
        ("mha", False, set()),
        ("mha", True, {"query", "key", "value", "out"}),
    ],
)
def test_an_attention_starts_new_or_with_the_layers_it_shares(
    folder: Path, attention: str, with_attention: bool, copied: set[str]
) -> None:
    (embedding, encoder), (_, fresh) = (parts(folder, attention, init_attention=with_attention) for _ in range(2))
    initialise_texts(embedding, encoder)
    for name, parameter in encoder.named_parameters():
        layer = name.split(".attention.")[-1].split(".")[0] if ".attention." in name else None
        is_new = torch.equal(parameter, fresh.get_parameter(name))
        assert is_new == (layer is not None and layer not in copied), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mlp_dim": 32}, r"mlp.fc1.weight is \(48, 24\) in the pretrained model and \(32, 24\) here"),
        ({"depth": 3}, "has no encoder.blocks.2.norm1.weight"),
        ({"depth": 1}, "no parameter for encoder.blocks.1"),
        ({"num_heads": 4}, "its num_attention_heads is 3, and this encoder has 4"),
        ({"embed_norm": False}, "no parameter for encoder.embed_norm.bias"),
        ({"block": "transformer"}, "has no encoder.norm.weight"),
        ({"init": "timm:vit_tiny_patch16_224"}, "a ViT reads pictures; texts take bert"),
    ],
)
def test_a_bert_that_does_not_fit_is_refused_in_a_sentence(folder: Path, options: dict[str, Any], message: str) -> None:
    embedding, encoder = parts(folder, **options)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    with pytest.raises(ConfigError, match=message) as error:
        initialise_texts(embedding, encoder)
    assert "\n" not in str(error.value)
    assert_close(dict(encoder.state_dict()), before)


def test_a_folder_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    embedding, encoder = parts(tmp_path)
    with pytest.raises(ConfigError, match=r"has no config.json with model.safetensors"):
        initialise_texts(embedding, encoder)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "roberta"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ConfigError, match="its model_type is roberta, and this encoder has bert"):
        initialise_texts(embedding, encoder)


def test_the_tokenizer_gives_the_ids_of_transformers(folder: Path, tmp_path: Path) -> None:
    texts = ["the red dogs run", "Blue  CAT", "[PAD] tree", "nothing known here"]
    ours = PretrainedTokenizer(folder)
    ours.train(texts, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for number, (text, ids) in enumerate(zip(texts, ours.encode(texts, tmp_path), strict=True)):
        assert ids.dtype == np.uint16
        if number != 2:  # "[PAD]" in a text is text for us
            assert ids.tolist() == theirs(text)["input_ids"]
        assert 0 not in ids
    assert ours.decode(next(iter(ours.encode(["the Red dogs"], tmp_path))), tmp_path) == "the red dogs"
    assert ours.vocab_size == 15


def test_a_cut_text_keeps_its_last_token_as_transformers_cuts_it(folder: Path, tmp_path: Path) -> None:
    texts = ["the red dogs run under the tree", "blue cat", "red dogs", "the cat sleeps under the blue tree"]
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(texts * 8)))
    data = prepared(TextCSV(file=table, tokenizer_folder=folder, max_len=5, root=tmp_path / "tokens"))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    rows = list(range(16))
    for row, example in zip(rows, data.examples("train", rows), strict=True):
        ids = theirs(example.content, truncation=True, max_length=5)["input_ids"]
        assert data.splits["train"].batch([row]).inputs.tolist() == [ids]
        assert encoded(data, [example.content]).inputs.tolist() == [ids]
    assert data.rule_of_ids.endswith("without padding; of more than 5, the first 4 and the last")


def test_a_text_that_the_tokenizer_empties_is_named_by_its_place(folder: Path, tmp_path: Path) -> None:
    bare = json.loads((folder / "tokenizer.json").read_text()) | {"post_processor": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(bare))
    table, rows = tmp_path / "texts.csv", "text,label\n" + "red dogs,0\nblue cat,1\n" * 20
    table.write_text(rows)
    data = prepared(TextCSV(file=table, tokenizer_folder=tmp_path, root=tmp_path / "tokens"))
    with pytest.raises(DataError, match="no letter that the tokenizer reads"):
        data.encode_one("\u200b")
    table.write_text(f"{rows}\u200b,1\n")
    with pytest.raises(DataError, match="line 42 has an empty text"):
        prepared(replace(data))


def test_a_folder_without_a_tokenizer_as_berts_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data.tokenizer_folder=.*: has no readable tokenizer.json"):
        PretrainedTokenizer(tmp_path).key()
    changed = (folder / "tokenizer.json").read_text().replace("[PAD]", "[NIL]")
    (tmp_path / "tokenizer.json").write_text(changed)
    with pytest.raises(DataError, match=r"padding has the id None of 15; choose a tokenizer as BERT's"):
        PretrainedTokenizer(tmp_path).key()


def test_a_run_starts_from_a_bert_and_predicts_and_is_exported_after_that_and_the_data_are_gone(
    folder: Path, tmp_path: Path
) -> None:
    bert, cache = shutil.copytree(folder, tmp_path / "bert"), tmp_path / "data"
    rows = [f"the {color} {animal},{animal}" for color in ("red", "blue") for animal in ("dog", "cat")] * 10
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["recipe=sequences/minilm", f"data.file={tmp_path / 'texts.csv'}", f"encoder.init_file={bert}"]
    words += [*(f"encoder.{name}={value}" for name, value in SIZES.items()), "data.max_len=12", "optim.epochs=12"]
    words += ["attention=csp", "optim.lr=0.003", f"data.root={cache}", f"hydra.run.dir={tmp_path / 'run'}"]
    assert main([*words, "callbacks=minimal", "pictures=false", "reference=null"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"]["test/accuracy"] == 1.0
    for gone in (bert, cache):
        shutil.rmtree(gone)
    (tmp_path / "texts.csv").unlink()
    (tmp_path / "new.csv").write_text("text\nThe red cat\n")
    predict = ["predict", f"resume={tmp_path / 'run'}", f"input={tmp_path / 'new.csv'}", f"output={tmp_path / 'p.csv'}"]
    assert main(predict) == 0
    assert "cat" in (tmp_path / "p.csv").read_text().splitlines()[1]
    assert main(["export", f"resume={tmp_path / 'run'}", "format=safetensors"]) == 0
    assert "of more than 12, the first 11 and the last" in (tmp_path / "run/export/safetensors/README.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["encoder.init_file=nope"], "encoder.init_file: nope does not exist"),
        (["task=digits", "encoder.init=bert", "encoder.init_file=."], "a BERT reads texts"),
        (["data.tokens=bytes", "data.tokenizer_folder=."], "tokenizer_folder decides the tokens"),
    ],
)
def test_words_that_make_no_sense_are_refused(
    words: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")  # a run records a digest of the folder `.`
    (tmp_path / "texts.csv").write_text("text,label\na,b\n")
    task = [] if words[0].startswith("task=") else ["recipe=sequences/minilm", f"data.file={tmp_path / 'texts.csv'}"]
    folders = [f"paths.outputs={tmp_path}", f"paths.data={tmp_path}"]
    assert main([*task, *folders, *words, "hydra.run.dir=" + str(tmp_path / "run")]) == 1
    assert message in capfd.readouterr().err
