"""Swaps a pretrained model, heals it in two stages that survive a stop, and writes it with a report."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from sliceformer_lab.commands.swap.pretrained_model import LibraryModel, open_model
from sliceformer_lab.commands.swap.swap_options import HealingInputs, SwapOptions
from sliceformer_lab.commands.swap.swap_report import Fidelity, SwapReport, measure, write_report
from sliceformer_lab.data.input_files import read_inputs
from sliceformer_lab.data.spec import Content
from sliceformer_lab.encoder.swap import swap
from sliceformer_lab.errors import ConfigError, DataError
from sliceformer_lab.runs.files import digest_of, whole_file
from sliceformer_lab.runs.folder import LOCK, lock_folder
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.training.heal import FinalHealing, Healing, Inputs, LayerHealing, blocks_of

STATE = "healing.pt"  # in the output, until the model is written
FIRST_LINE_S, LINE_S, SAVE_S = 10.0, 60.0, 60.0  # seconds to the first line, between lines, and between saved states
STAGES = ("layers", "together")


def run(
    options: SwapOptions,
    inputs: HealingInputs,
    layers: Sequence[int] | None,
    name: str,
    overrides: Mapping[str, object],
) -> None:
    """Writes the folder `options.output`. Raises LabError; what has healed stays for the same command."""
    output = Path(options.output).expanduser()
    read = {"model": options.model if options.is_folder else str(options.weights), "data.file": inputs.file}
    contents = {f"content of {key}": digest_of(Path(path).expanduser()) for key, path in read.items()}
    known = {**asdict(options), **asdict(inputs), **contents, "attention": name, "overrides": dict(overrides)}
    saved = _read_state(output, known)
    opened = open_model(options)
    healing, held_out = _contents(inputs, opened)
    torch.manual_seed(options.seed)
    try:
        student = swap(
            copy.deepcopy(opened.model),
            name,
            layers,
            keep_qk=options.keep_qk,
            max_len=options.max_len,
            overrides=overrides,
        )
        depth = len(blocks_of(opened.trunk(student)))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    chosen = list(range(depth) if layers is None else layers)
    batches = [opened.encode(held_out[i : i + options.batch_size]) for i in range(0, len(held_out), options.batch_size)]
    console = PlainConsole(highlight=False, soft_wrap=True)
    console.print(f"{name} in {len(chosen)} of {depth} layers; {len(healing):,} inputs heal, {len(held_out)} measure")
    work = _Work(options, opened, student, chosen, healing, batches, output, known, console)
    with lock_folder(output):  # raises RunFolderError while another process heals there
        work.heal(saved)
        note = {"name": name, "layers": chosen, "keep_qk": options.keep_qk, "overrides": dict(overrides)}
        code = opened.save(student, output, note)
        write_report(output, work.report(name, depth, code))
        (output / STATE).unlink()
    console.print(f"agreement with the original and errors by layer: {output / 'report.md'}")


def _contents(inputs: HealingInputs, opened: LibraryModel) -> tuple[list[Content], list[Content]]:
    """The inputs that heal and those that measure. Raises DataError for an input that cannot be read, or too few."""
    file, contents = Path(inputs.file).expanduser(), []
    for one in read_inputs(file, opened.kind, inputs.column):
        if isinstance(one.content, DataError):
            raise DataError(f"{one.place}: {one.content}")
        contents.append(one.content)
        if inputs.limit is not None and len(contents) == inputs.limit + inputs.held_out:
            break
    held_out = min(inputs.held_out, len(contents) // 10)
    if not held_out:
        raise DataError(f"data.file={inputs.file} has {len(contents)} inputs; at least 10 are needed")
    return contents[:-held_out], contents[-held_out:]


def _read_state(output: Path, known: Mapping[str, object]) -> dict[str, Any] | None:
    """The state of an unfinished swap. Raises ConfigError if the folder holds anything else."""
    file = output / STATE
    if not file.is_file():
        if output.exists() and (not output.is_dir() or {file.name for file in output.iterdir()} - {LOCK}):
            raise ConfigError(f"output={output} holds other files; name a new folder")
        return None
    state: dict[str, Any] = torch.load(file, weights_only=True)
    if changed := sorted(key for key in known if state["options"].get(key) != known[key]):
        raise ConfigError(
            f"output={output} holds an unfinished swap with another {', '.join(changed)}; repeat its options or name a "
            "new folder"
        )
    return state


@dataclass
class _Work:
    """The healing of one model."""

    options: SwapOptions
    opened: LibraryModel
    student: Any
    layers: list[int]
    contents: list[Content]
    held_out: list[Inputs]
    output: Path
    known: Mapping[str, object]
    console: PlainConsole
    fidelity: dict[str, Fidelity] = field(default_factory=dict)  # "swapped", and after each stage
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    @property
    def steps_per_pass(self) -> int:
        return -(-len(self.contents) // self.options.batch_size)

    def heal(self, saved: Mapping[str, Any] | None) -> None:
        """Both stages, from the saved state on."""
        stage = step = 0
        if saved is None:
            self.measure("swapped")
        else:
            stage, step = saved["stage"], saved["step"]
            self.fidelity = {name: Fidelity(**values) for name, values in saved["fidelity"].items()}
            self.seconds |= saved["seconds"]
            self.student.load_state_dict(saved["model"])
            self.console.print(f"goes on with stage {STAGES[stage]}, step {step}")
        for number in range(stage, len(STAGES)):
            healing = self.begin(STAGES[number])
            if number == stage and saved is not None and step:
                healing.load(saved["healing"])
            self.heal_stage(number, healing, step if number == stage else 0)
            self.measure(STAGES[number])
            if number + 1 < len(STAGES):
                self.save(number + 1, 0, None)
        self.save(len(STAGES), 0, None)

    def begin(self, stage: str) -> Healing:
        student, teacher = self.opened.trunk(self.student), self.opened.trunk(self.opened.model)
        steps = self.steps_per_pass * self.options.passes
        if stage == "layers":
            return LayerHealing(student, teacher, self.layers, lr=self.options.lr_layers, num_steps=steps)
        return FinalHealing(student, teacher, lr=self.options.lr_together, num_steps=steps)

    def heal_stage(self, number: int, healing: Healing, first: int) -> None:
        stage, steps = STAGES[number], self.steps_per_pass * self.options.passes
        before, started = self.seconds[stage], time.perf_counter()
        line, saving, done = started + FIRST_LINE_S, started + SAVE_S, first
        try:
            for inputs in self.batches(first):
                errors = healing.step(inputs)
                done += 1
                now = time.perf_counter()
                self.seconds[stage] = before + now - started
                if now >= line:
                    left = (now - started) / (done - first) * (steps - done)
                    error = sum(errors) / len(errors)
                    self.console.print(f"{stage}: step {done:,}/{steps:,}, error {error:.3f}, {left / 60:.1f} min left")
                    line = now + LINE_S
                if now >= saving and done < steps:
                    self.save(number, done, healing)
                    saving = time.perf_counter() + SAVE_S
        except BaseException:  # a signal too
            if first < done < steps:
                with suppress(OSError):
                    self.save(number, done, healing)
            raise

    def batches(self, first: int) -> Iterator[Inputs]:
        """The inputs of each step from `first` on; every pass has an order of its own."""
        for done in range(first, self.steps_per_pass * self.options.passes):
            turn, place = divmod(done, self.steps_per_pass)
            order = torch.randperm(
                len(self.contents), generator=torch.Generator().manual_seed(self.options.seed + turn)
            )
            chosen = order[place * self.options.batch_size :][: self.options.batch_size]
            yield self.opened.encode([self.contents[index] for index in chosen.tolist()])

    def measure(self, stage: str) -> None:
        self.fidelity[stage] = measure(self.opened, self.student, self.layers, self.held_out)

    def save(self, stage: int, step: int, healing: Healing | None) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        state = {
            "options": dict(self.known),
            "stage": stage,
            "step": step,
            "model": self.student.state_dict(),
            "healing": None if healing is None else healing.state(),
            "fidelity": {name: asdict(value) for name, value in self.fidelity.items()},
            "seconds": dict(self.seconds),
        }
        with whole_file(self.output / STATE) as unfinished:
            torch.save(state, unfinished)

    def report(self, name: str, depth: int, code: str) -> SwapReport:
        size = sum(
            len(batch if isinstance(batch, torch.Tensor) else next(iter(batch.values()))) for batch in self.held_out
        )
        return SwapReport(
            model=self.options.model,
            attention=name,
            layers=self.layers,
            depth=depth,
            num_inputs=len(self.contents),
            num_held_out=size,
            fidelity=self.fidelity,
            seconds=self.seconds,
            options=dict(self.known),
            code=code,
        )
