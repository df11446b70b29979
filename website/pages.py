"""Write the pages of the site and its navigation: website/pages.py FOLDER (`make site`).

Pages of the repository are copied to the same places, so that their links between each other hold. A page for each
attention is made from its class, its YAML and the committed map; the gallery from the pictures that pages show; the
reference from docstrings.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "studies"))
from attentions import ARXIV, CAPABILITIES, layer, presets  # noqa: E402  from studies/

from sliceformer_lab.commands.compare.sentences import list_names  # noqa: E402
from sliceformer_lab.config.compose import option_file  # noqa: E402
from sliceformer_lab.config.schema import schema  # noqa: E402
from sliceformer_lab.runs.plain_text import markdown_table  # noqa: E402

COPIED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff", "LICENSE")
FOLDERS = {
    "docs": "*.md",
    "docs/figures": "*.png",
    "studies": "**/*.md",
    "studies/tuning": "**/*.png",
    "studies/figures": "*.png",
    "studies/results": "*.json*",
}
REFERENCE = {  # page -> its modules
    "For your own programs": (
        "sliceformer_lab.attention",
        "sliceformer_lab.encoder.swap",
        "sliceformer_lab.training.saved.saved_run",
    ),
    "Attention": ("sliceformer_lab.attention.base", "sliceformer_lab.attention.contract"),
    "Shift and sort": ("sliceformer_lab.permute.reference", "sliceformer_lab.permute.schedule"),
    "Encoder": ("sliceformer_lab.encoder.factory", "sliceformer_lab.encoder.base"),
    "Data": ("sliceformer_lab.data.base",),
    "Tasks": ("sliceformer_lab.tasks.base", "sliceformer_lab.training.interfaces"),
    "Measures": ("sliceformer_lab.measures.spectrum", "sliceformer_lab.measures.statistics"),
    "Configuration": ("sliceformer_lab.config.schema", "sliceformer_lab.config.option_types", "sliceformer_lab.errors"),
}
PROBES = "studies/probes.md"
MAP = ROOT / "studies" / "results" / "capability_map.json"
ABILITIES = {  # what each probe asks for
    "count": "counting",
    "recall": "look-up by content",
    "back": "carrying over a short distance",
    "back_far": "carrying over a long distance",
    "rank": "order statistics",
    "select": "moving by a rule that depends on the data",
    "hist": "comparing a token with an average",
    "words": "tracking a state",
}
SOLVED, MARGIN = 0.99, 0.02  # of a score on the test set, as in the map's own sentences
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")


def write(folder: Path) -> None:
    """Write all pages into an empty `folder`, and `folder`/../mkdocs.yml, which has the navigation."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in copied_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            target.write_text(with_site_links((ROOT / name).read_text("utf-8"), Path(name)), "utf-8")
        else:
            shutil.copy2(ROOT / name, target)
    made = {f"attentions/{name}.md": attention_page(name, others) for name, others in presets().items()}
    made |= {f"reference/{title.lower().replace(' ', '_')}.md": reference_page(title) for title in REFERENCE}
    made |= {"gallery.md": gallery(folder), "notebooks.md": notebooks()}
    for name, text in made.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    content = {"INHERIT": "../website/mkdocs.yml", "docs_dir": "pages", "site_dir": "site", "nav": navigation(folder)}
    (folder.parent / "mkdocs.yml").write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")


def copied_files() -> list[str]:
    """The files that the site takes from the repository."""
    found = [path for folder, pattern in FOLDERS.items() for path in (ROOT / folder).glob(pattern)]
    return [*COPIED, "website/style.css", *sorted(path.relative_to(ROOT).as_posix() for path in found)]


def with_site_links(text: str, page: Path) -> str:
    """A page whose links to folders lead to their page; what the site does not have becomes plain text."""
    text = re.sub(r"\[([^\]]*)\]\((?:\.\./)*(?:examples|studies/results|results)/?\)", r"\1", text)
    text = text.replace("](notebooks)", "](notebooks.md)")
    return LINK.sub(lambda link: f"{link[0]}README.md" if (ROOT / page.parent / link[0]).is_dir() else link[0], text)


def attention_page(name: str, others: Iterable[str]) -> str:
    """What an attention computes, costs, can do and does on the probes, its options, and its class."""
    built = layer(name)
    kind = type(built)
    number = ARXIV.get(name)
    paper = f"[{built.source}](https://arxiv.org/abs/{number})" if number else built.source
    text = option_file("attention", name).read_text(encoding="utf-8")
    facts = [
        ["Source", paper],
        ["Cost of the mixing", f"{built.complexity}, in N tokens and C channels"],
        *([label, "yes" if has(built) else "no"] for label, has in CAPABILITIES.items()),
    ]
    if built.deviation:
        facts.append(["The published code, unlike ours", built.deviation])
    comments = dict(re.findall(r"^(\w+):.*? # (.+)$", text, re.MULTILINE))
    options = [[f"`{key}`", f"`{default}`", comments.get(key, "")] for key, (_, default) in schema(kind).items()]
    parts = [
        f"# {name}",
        text.splitlines()[0].removeprefix("# "),
        f"```bash\npython -m sliceformer_lab attention={name}\n```",
        f"## When to use it\n\n{when_to_use(name)}",
        markdown_table(["", ""], *facts),
        *(["## On the probes", probe_row(name)] if probe_row(name) else []),
        *(["## Options", markdown_table(["option", "default", ""], *options)] if options else []),
        *([f"Presets of this class: {', '.join(f'`{other}`' for other in others)}."] if others else []),
        "[All attentions side by side](../docs/attentions.md)",
        f"## Class\n\n::: {kind.__module__}.{kind.__qualname__}\n    options:\n      heading_level: 3",
    ]
    return "\n\n".join(parts) + "\n"


def when_to_use(name: str) -> str:
    """Sentences from the class and the committed map: length, order, what is solved and what is not."""
    built = layer(name)
    cost = f"its mixing costs {built.complexity}"
    if built.source == "control":
        length = f"It is a control: use it to see what another attention adds; {cost}."
    elif re.search(r"N\^|N / b", built.complexity):
        length = f"Use it for short inputs: {cost}."
    else:
        length = f"It suits long inputs: {cost}."
    order = (
        "It depends on the order of the tokens by itself."
        if built.order_sensitive
        else "It sees no order: give the encoder positions (`encoder.position`) where order matters."
    )
    cells = [cell for cell in json.loads(MAP.read_text("utf-8")) if cell["row"] == name and cell["score"] is not None]
    floors = {
        cell["probe"]: max(cell["chance"], (cell["bag_level"] or 0) % 1) for cell in cells
    }  # a level of 1 is none
    solved = [ABILITIES[cell["probe"]] for cell in cells if cell["score"] >= SOLVED]
    unsolved = [ABILITIES[cell["probe"]] for cell in cells if cell["score"] <= floors[cell["probe"]] + MARGIN]
    found = [f"it solves {list_names(solved)}"] * bool(solved)
    found += [f"it is not above chance or a bag of tokens on {list_names(unsolved)}"] * bool(unsolved)
    on_probes = f"On the probes {'; '.join(found)} ([the map](../{PROBES}))." if found else ""
    return " ".join(filter(None, [length, order, on_probes]))


def probe_row(name: str) -> str:
    """The attention's row of the committed map, with its heading; '' if it has none."""
    lines = (ROOT / PROBES).read_text(encoding="utf-8").splitlines()
    row = next(
        (number for number, line in enumerate(lines) if line.startswith(f"| `{name}` |") and line.count("|") > 9), 0
    )
    start = row
    while lines[start - 1].startswith("|"):
        start -= 1
    table = "\n".join([lines[start], lines[start + 1], lines[row]])
    return f"{table}\n\nTest accuracy of three seeds; [protocol, controls and limits](../{PROBES})." if row else ""


def reference_page(title: str) -> str:
    """The public names of some modules, from their docstrings."""
    return f"# {title}\n\n" + "".join(f"::: {module}\n\n" for module in REFERENCE[title])


def gallery(folder: Path) -> str:
    """Every picture that a page shows, with what the page says of it."""
    found: dict[str, str] = {}
    for page in sorted(folder.rglob("*.md")):
        for alt, target in re.findall(r"!\[([^\]]+)\]\(([^)\s]+\.png)\)", page.read_text("utf-8")):
            picture, place = (page.parent / target).resolve().relative_to(folder.resolve()), page.relative_to(folder)
            found.setdefault(picture.as_posix(), f"![{alt}]({picture.as_posix()})\n\n{alt} ([{place}]({place}))")
    return (
        "# Gallery\n\nPictures of our own studies. Each page has the command, the seeds and the limits.\n\n"
        + "\n\n".join(found.values())
    )


def notebooks() -> str:
    """The notebooks, each with its first paragraph."""
    import nbformat

    parts = [
        "# Notebooks",
        "In a clone of the repository, in `notebooks/`; `make notebooks` executes all of them on digits.",
    ]
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(file, as_version=4).cells:
            text = re.sub(r"^# ", "## ", with_site_links(cell.source, Path("notebooks/x.md")))
            text = text.replace("](../", "](")
            parts.append(text if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
    return "\n\n".join(parts) + "\n"


def navigation(folder: Path) -> list[dict[str, object]]:
    """The tabs of the site."""

    def pages(pattern: str, *without: str) -> list[str]:
        return [
            p for p in sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern)) if p not in without
        ]

    use = ["docs/own_data.md", "docs/tasks.md", "docs/compare.md", "docs/sweeps.md", "docs/predict.md", "docs/wandb.md"]
    return [
        {"Start": "README.md"},
        {"Use": [*use, "docs/guarantees.md", "docs/speed.md", "notebooks.md"]},
        {"Attentions": ["docs/attentions.md", *pages("attentions/*.md")]},
        {
            "Results": [
                "studies/README.md",
                "studies/leaderboard.md",
                "gallery.md",
                *pages("studies/**/*.md", "studies/README.md", "studies/leaderboard.md"),
            ]
        },
        {"Reference": pages("reference/*.md")},
        {"Contribute": ["CONTRIBUTING.md", "docs/tour.md", "CHANGELOG.md", "SECURITY.md"]},
    ]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
