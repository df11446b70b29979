"""The machine and software of a measurement."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.measures.call_cost import peak_source
from sliceformer_lab.permute import available_backends, missing_backends
from sliceformer_lab.runs.commit import git_commit

CPU_FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "amx_bf16", "asimd", "sve")


def machine(options: BenchmarkOptions) -> dict[str, Any]:
    """Processor, flags, load, accelerator, versions, threads, instruction set, backends and commit."""
    cpuinfo = _read_cpuinfo()
    flags = (cpuinfo.get("flags") or cpuinfo.get("Features") or "").split()
    cuda = options.device == "cuda"
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "processor": cpuinfo.get("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "cpu_flags": [flag for flag in CPU_FLAGS if flag in flags],
        "accelerator": torch.cuda.get_device_name() if cuda else None,
        "threads": options.threads,
        "torch_isa": torch.backends.cpu.get_cpu_capability(),
        "kernel_isa": os.environ.get("SLICEFORMER_ISA", "chosen by the kernel"),
        "backends": list(available_backends()),
        "missing_backends": missing_backends(),
        "peak_memory": peak_source(options.device),
        "versions": {package: version(package) for package in ("torch", "numpy")}
        | {"python": platform.python_version()},
        "git_commit": git_commit(),
    }


def describe_machine(facts: dict[str, Any]) -> str:
    """The machine in three lines of text."""
    place = facts["accelerator"] or f"{facts['processor']} ({', '.join(facts['cpu_flags'])})"
    backends, versions = ", ".join(facts["backends"]), facts["versions"]
    return (
        f"{place}; {facts['threads']} of {facts['cores']} cores, load {facts['load_before']} before\n"
        f"torch {versions['torch']} ({facts['torch_isa']}), backends {backends}; commit {facts['git_commit']}\n"
        f"peak memory: {facts['peak_memory']}"
    )


def _read_cpuinfo() -> dict[str, str]:
    """The first processor in /proc/cpuinfo; empty without that file."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").partition("\n\n")[0].splitlines() if file.exists() else []
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}
