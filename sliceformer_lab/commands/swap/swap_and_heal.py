"""Swaps a pretrained model, heals it in two stages that survive a stop, and writes it with a report."""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sliceformer_lab.commands.swap.labelled_task import LabelledTask, layer_sets
from sliceformer_lab.commands.swap.pretrained_model import LibraryModel, open_model
from sliceformer_lab.commands.swap.swap_options import HealingInputs, LabelledInputs, SwapOptions
from sliceformer_lab.commands.swap.swap_report import Fidelity, SwapReport, measure, write_report
from sliceformer_lab.commands.swap.swap_verdict import TOGETHER, SwapVerdict, verdict_sentence
from sliceformer_lab.data.input_files import read_inputs
from sliceformer_lab.data.spec import Content
from sliceformer_lab.encoder.swap import swap
from sliceformer_lab.errors import ConfigError, DataError
from sliceformer_lab.runs.files import digest_of, whole_file
from sliceformer_lab.runs.folder import LOCK, lock_folder
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.training.heal import FinalHealing, Healing, Inputs, LayerHealing, find_blocks, with_original_blocks

STATE = "healing.pt"  # in the output, until the model is written
CONTROLS = "controls"  # folder in the output with the states of controls, as long
FIRST_LINE_S, LINE_S, SAVE_S = 10.0, 60.0, 60.0  # seconds to the first line, between lines, and between saved states
STAGES = ("layers", "together")


def swap_and_heal(
    options: SwapOptions,
    inputs: HealingInputs,
    labelled: LabelledInputs,
    layers: Sequence[int] | None,
    rows: Mapping[str, Mapping[str, object]],
) -> None:
    """Writes the folder `options.output`: the model with the first of `rows`, and a report; other rows are controls.

    `rows` maps attentions to their options. Raises LabError; what has healed stays for the same command.
    """
    output, subject = Path(options.output).expanduser(), next(iter(rows))
    model = options.model if options.is_folder else options.weights
    read = {"model": model, "data.file": inputs.file, "labelled.file": labelled.file}
    contents = {f"content of {key}": digest_of(Path(path).expanduser()) for key, path in read.items() if path}
    known = {**asdict(options), **asdict(inputs), "labelled": asdict(labelled), **contents}
    known |= {"attention": subject, "overrides": dict(rows[subject])}
    saved = _read_state(output, known)
    opened = open_model(options)
    healing, held_out = _split_inputs(inputs, opened)
    task = None if labelled.file is None else LabelledTask(opened, labelled, options.batch_size, options.seed)
    students = {name: _swap_attention(opened, options, layers, name, overrides) for name, overrides in rows.items()}
    depth = len(find_blocks(opened.trunk(opened.model)))
    chosen = list(range(depth) if layers is None else layers)
    console = PlainConsole()
    counts = f"{len(healing):,} inputs heal, {len(held_out)} measure"
    console.print(f"{subject} in {len(chosen)} of {depth} layers; {counts}")
    job = _Job(options, opened, chosen, healing, held_out, task, known, console)
    works = {
        name: _Work(job, student, output if name == subject else output / CONTROLS / name)
        for name, student in students.items()
    }
    with lock_folder(output):  # raises RunFolderError while another process heals there
        for name, work in works.items():
            if name != subject:
                console.print(f"control {name}")
                saved = _read_state(work.folder, known)
            work.heal(saved)
        verdict = None
        if task is not None:
            correct = {name: work.correct for name, work in works.items()}
            verdict = SwapVerdict(task.correct(opened.model), correct, task.num_training, len(chosen))
        note = {"name": subject, "layers": chosen, "keep_qk": options.keep_qk, "overrides": dict(rows[subject])}
        code = opened.save(students[subject], output, note)
        write_report(output, works[subject].report(subject, depth, code), verdict)
        shutil.rmtree(output / CONTROLS, ignore_errors=True)
        (output / STATE).unlink()
    console.print(f"agreement with the original and errors by layer: {output / 'report.md'}")
    if verdict is not None:
        console.print(verdict_sentence(verdict).replace("**", "").replace("`", ""))


def _swap_attention(
    opened: LibraryModel, options: SwapOptions, layers: Sequence[int] | None, name: str, overrides: Mapping[str, object]
) -> Any:
    """A copy of the model with this attention. Raises ConfigError if it does not fit."""
    torch.manual_seed(options.seed)
    try:
        return swap(
            copy.deepcopy(opened.model),
            name,
            layers,
            keep_qk=options.keep_qk,
            max_len=options.max_len,
            overrides=overrides,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _split_inputs(inputs: HealingInputs, opened: LibraryModel) -> tuple[list[Content], list[Content]]:
    """The inputs that heal and those that measure. Raises DataError for an input that cannot be read, or too few."""
    file, contents = Path(inputs.file).expanduser(), []
    for one in read_inputs(file, opened.kind, inputs.column):
        if isinstance(one.content, DataError):
            raise DataError(f"{one.place}: {one.content}")
        if isinstance(one.content, str) and not one.content.strip():
            continue  # an empty line between two paragraphs
        contents.append(one.content)
        if inputs.limit is not None and len(contents) == inputs.limit + inputs.held_out:
            break
    held_out = min(inputs.held_out, len(contents) // 10)
    if not held_out:
        raise DataError(f"data.file={inputs.file} has {len(contents)} inputs; at least 10 are needed")
    return contents[:-held_out][: inputs.limit], contents[-held_out:]


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


@dataclass(frozen=True)
class _Job:
    """What all rows share."""

    options: SwapOptions
    opened: LibraryModel
    layers: list[int]
    contents: list[Content]  # that heal
    held_out: list[Content]
    task: LabelledTask | None  # of the verdict
    known: Mapping[str, object]  # by which a state is recognised
    console: PlainConsole

    @cached_property
    def held_out_batches(self) -> list[Inputs]:
        size = self.options.batch_size
        return [self.opened.encode(self.held_out[i : i + size]) for i in range(0, len(self.held_out), size)]

    @property
    def steps_per_pass(self) -> int:
        return -(-len(self.contents) // self.options.batch_size)


@dataclass
class _Work:
    """The healing of one model."""

    job: _Job
    student: Any
    folder: Path  # of its state
    fidelity: dict[str, Fidelity] = field(default_factory=dict)  # "swapped", and after each stage
    correct: dict[str, np.ndarray] = field(default_factory=dict)  # of the task's inputs, by set of layers
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    def heal(self, saved: Mapping[str, Any] | None) -> None:
        """Both stages, from the saved state on."""
        stage = step = 0
        if saved is None:
            self.measure("swapped")
        else:
            stage, step = saved["stage"], saved["step"]
            self.fidelity = {name: Fidelity(**values) for name, values in saved["fidelity"].items()}
            self.seconds |= saved["seconds"]
            self.correct |= {name: right.numpy() for name, right in saved["correct"].items()}
            self.student.load_state_dict(saved["model"])
            self.job.console.print(f"goes on with stage {(*STAGES, 'report')[stage]}, step {step}")
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
        student, teacher = self.job.opened.trunk(self.student), self.job.opened.trunk(self.job.opened.model)
        steps = self.job.steps_per_pass * self.job.options.passes
        if stage == "layers":
            return LayerHealing(student, teacher, self.job.layers, lr=self.job.options.lr_layers, num_steps=steps)
        return FinalHealing(student, teacher, lr=self.job.options.lr_together, num_steps=steps)

    def heal_stage(self, number: int, healing: Healing, first: int) -> None:
        stage, steps = STAGES[number], self.job.steps_per_pass * self.job.options.passes
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
                    self.job.console.print(f"{stage}: {done:,}/{steps:,}, error {error:.3f}, {left / 60:.1f} min left")
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
        job, size = self.job, self.job.options.batch_size
        for done in range(first, job.steps_per_pass * job.options.passes):
            turn, place = divmod(done, job.steps_per_pass)
            generator = torch.Generator().manual_seed(job.options.seed + turn)
            chosen = torch.randperm(len(job.contents), generator=generator)[place * size :][:size]
            yield job.opened.encode([job.contents[index] for index in chosen.tolist()])

    def measure(self, stage: str) -> None:
        job, task = self.job, self.job.task
        self.fidelity[stage] = measure(job.opened, self.student, job.layers, job.held_out_batches)
        if task is not None and stage == "layers":
            ours, theirs = job.opened.trunk(self.student), job.opened.trunk(job.opened.model)
            for name, layers in layer_sets(job.layers).items():
                job.console.print(f"accuracy on {task.num_scored:,} inputs: {name} of {len(job.layers)} layers")
                with with_original_blocks(ours, theirs, set(job.layers) - set(layers)):
                    self.correct[name] = task.correct(self.student)
        elif task is not None and stage == "together":
            self.correct[TOGETHER] = task.correct(self.student)

    def save(self, stage: int, step: int, healing: Healing | None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "options": dict(self.job.known),
            "stage": stage,
            "step": step,
            "model": self.student.state_dict(),
            "healing": None if healing is None else healing.state(),
            "fidelity": {name: asdict(value) for name, value in self.fidelity.items()},
            "seconds": dict(self.seconds),
            "correct": {name: torch.from_numpy(right) for name, right in self.correct.items()},
        }
        with whole_file(self.folder / STATE) as unfinished:
            torch.save(state, unfinished)

    def report(self, name: str, depth: int, code: str) -> SwapReport:
        return SwapReport(
            model=self.job.options.model,
            attention=name,
            layers=self.job.layers,
            depth=depth,
            num_inputs=len(self.job.contents),
            num_held_out=len(self.job.held_out),
            fidelity=self.fidelity,
            seconds=self.seconds,
            options=dict(self.job.known),
            code=code,
        )
