"""The commands, examples and links of README and docs work, and their tables are complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import results
import torch
from pytest import MonkeyPatch

from sliceformer_lab import swap
from sliceformer_lab.__main__ import COMMANDS, load, main
from sliceformer_lab.config.compose import CONF_DIR, compose_root, option_names, with_conf_folders
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.sweeps.plan import is_sweep, plan_sweep

ROOT = CONF_DIR.parent
README = ROOT / "README.md"
FOR_USERS = [README, ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
PAGES = [*FOR_USERS, *sorted(ROOT.glob("studies/*.md"))]
PROGRAM = "python -m sliceformer_lab"
OF_OUR_STUDIES = "studies/conf"  # a folder of options
EXAMPLES = ("attention=A", "attention=NAME", "attention=reverse")  # stand for an attention of the reader
NOT_COMPOSED = ("resume=", "optim=tuned:", "hydra.", "only=")  # words that need a folder or belong to Hydra


def commands(pages: Sequence[Path] = PAGES) -> list[str]:
    """Every training and command line of the pages, in shell blocks and in running text, without its comment."""
    found: dict[str, None] = {}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        blocks = [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        inline = re.findall(rf"`({PROGRAM}[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        lines = [line.partition("  #")[0].strip() for line in (*blocks, *inline)]
        found |= dict.fromkeys(line for line in lines if line.startswith(PROGRAM))
    return list(found)


def first_and_last(word: str) -> str:
    """A sweep over many attentions as one over the first and the last of them; there is an option of each name."""
    names = word.removeprefix("attention=").split(",")
    if len(names) < 10 or not word.startswith("attention="):
        return word
    assert set(names) <= set(option_names("attention"))
    return f"attention={names[0]},{names[-1]}"


def compose(command: str) -> None:
    """Composes the configuration that a command starts from, of a sweep one job of each kind; no help pages."""
    register_resolvers()
    words = shlex.split(command)[3:]
    if "--help" in words:
        return
    if OF_OUR_STUDIES in words:
        with with_conf_folders([ROOT / OF_OUR_STUDIES]):
            compose(command.replace(f"--config-dir {OF_OUR_STUDIES} ", ""))
        return
    words = [word for word in words if word not in ("--cfg", "job", "my_conf")]
    name = words.pop(0) if words and words[0] in COMMANDS else "config"
    options = [first_and_last(word) for word in words if not word.startswith(("-", *NOT_COMPOSED))]
    if name in COMMANDS:
        options = load(name).own_words(load(name).overrides(options))
    elif is_sweep(options, "-m" in words) and plan_sweep(options, multirun="-m" in words):
        return
    compose_root(["attention=csp" if word in EXAMPLES else word for word in options], name)


OF_STUDIES = [pytest.param(line, marks=pytest.mark.slow) for line in commands() if line not in commands(FOR_USERS)]


@pytest.mark.parametrize("command", [*commands(FOR_USERS), *OF_STUDIES])
def test_command_composes(command: str) -> None:
    compose(command)


def test_readme_has_commands_of_every_kind() -> None:
    words = [shlex.split(command)[3:4] for command in commands()]
    assert len(words) > 20
    assert {word for found in words for word in found} >= {"report", "inspect", "benchmark", "--help", "-m"}


def test_readme_example_of_an_attention_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in re.findall(r"```(?:python|yaml)\n(# \S+\.(?:py|yaml)\n.*?)```", README.read_text("utf-8"), re.DOTALL):
        file = tmp_path / block.splitlines()[0].removeprefix("# ")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block)
    monkeypatch.chdir(tmp_path)
    train, check = (shlex.split(line)[3:] for line in commands() if "--config-dir my_conf" in line)
    assert main(check) == 0
    assert main([*train, "encoder=tiny", "data.limit_train=64", "debug=fast"]) == 0


def test_readme_example_swaps_the_attention_of_a_vit_and_a_bert(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 30}
    transformers.BertModel(transformers.BertConfig(num_hidden_layers=4, **sizes)).save_pretrained("FOLDER")
    names = readme_example("vit = swap(")
    found = swap(transformers.AutoModel.from_pretrained("SWAPPED"))
    ids = torch.arange(12).reshape(2, 6)
    bert = names["bert"].eval()
    torch.testing.assert_close(found.eval()(ids).last_hidden_state, bert(ids).last_hidden_state, rtol=0, atol=0)
    assert ["CSP" in repr(block.attn) for block in names["vit"].blocks[:4]] == [True, True, True, False]
    assert names["layer"](torch.zeros(1, 196, 384)).shape == (1, 196, 384)


def readme_example(word: str) -> dict[str, Any]:
    """The names that the README's Python block with this word defines."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(next(block for block in blocks if word in block), "README.md", "exec"), names)
    return names


def links() -> Iterator[tuple[Path, Path, str]]:
    """Every relative link of the pages: the page, the file it leads to, and the heading there, if any."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                file, _, heading = target.partition("#")
                yield page, page.parent / file if file else page, heading


def test_every_relative_link_has_a_target() -> None:
    missing = [f"{page.name}: {target}" for page, target, _ in links() if not target.exists()]
    assert missing == []


def test_every_link_to_a_heading_finds_it() -> None:
    wrong = [
        f"{page.name}: {target.name}#{name}" for page, target, name in links() if name and name not in anchors(target)
    ]
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """The names by which GitHub links to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_tour_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    files = re.findall(r"^\| \d+ \| `([^`]+)`", text, re.MULTILINE)
    assert len(files) == 14
    named = {*files, *re.findall(r"`((?:sliceformer_lab|tasks|tests|packages|conf|studies)/[^`]*)`", text)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_page_of_tasks_has_every_task_once() -> None:
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == option_names("task")


def test_page_of_tasks_names_those_with_committed_results_as_trained() -> None:
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    trained = re.findall(r"^\| `(\w+)` \|.*\| (?:yes|partly): [^|]*\|$", text, re.MULTILINE)
    studies = {file.stem for file in results.RESULTS.glob("*.jsonl")} - {"submissions"}  # lines about attentions
    in_lines = {run["task"] for study in studies for run in results.read(study)}
    in_tables = {"mask_folder", *(name for name in option_names("task") if name.startswith("probe_"))}  # .json
    assert sorted(trained) == sorted(in_lines | in_tables)
