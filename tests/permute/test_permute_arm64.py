"""The CPU kernel compiled for 64-bit ARM, run by qemu: bits equal to the kernels of this machine, and vector code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sliceformer_lab.permute import backend

if "cpu" in backend.missing_backends():
    pytest.skip(backend.missing_backends()["cpu"], allow_module_level=True)

from sliceformer_lab.permute import cpu

SOURCES = Path(__file__).parents[2] / "packages" / "shift-sort" / "csrc"
DIGESTS = Path(__file__).with_name("kernel_digests.cpp")
FLAGS = ("-std=c++17", "-O3", "-Wno-psabi", "-pthread")
CROSS = "aarch64-linux-gnu"
PACKAGES = {f"{CROSS}-g++": "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user", "g++": "g++"}

pytestmark = pytest.mark.slow
for _program, _package in PACKAGES.items():
    if shutil.which(_program) is None:
        pytest.skip(f"there is no {_program} (apt-get install {_package})", allow_module_level=True)


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


@pytest.fixture(scope="module")
def arm_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("arm64") / "digests"
    sources = (SOURCES / "kernel.cpp", SOURCES / "dispatch.cpp", DIGESTS)
    output_of(f"{CROSS}-g++", *FLAGS, "-static", "-DKERNEL=kernel_portable", "-o", program, *sources)
    return program


def test_arm64_gives_the_bits_of_every_kernel_here(arm_program: Path, tmp_path: Path) -> None:
    here = tmp_path / "digests"
    output_of("g++", *FLAGS, "-o", here, DIGESTS, cpu._LIBRARY, f"-Wl,-rpath,{cpu._LIBRARY.parent}")
    lines = output_of("qemu-aarch64", arm_program).splitlines()
    assert len(lines) > 1900
    for isa in cpu.BACKEND.isas:
        assert output_of(here, str(cpu.ISAS.index(isa))).splitlines() == lines


def test_arm64_orders_and_compares_in_vectors(arm_program: Path) -> None:
    """GCC compiles some operations on wide vectors lane by lane, and then moves lanes to integer registers."""
    code = output_of(f"{CROSS}-objdump", "-dC", "--no-show-raw-insn", arm_program)
    functions = dict(re.findall(r"^[0-9a-f]+ <(.*)>:\n((?:.+\n)*)", code, re.MULTILINE))
    for name, vector_code in (
        ("sort_rows<(anonymous namespace)::Single<int>", ("smin", "smax")),
        ("sort_rows<(anonymous namespace)::Single<long>", ("cmgt", "bsl")),
        ("sort_tile<(anonymous namespace)::Packed<int, long>", ("cmgt", "bsl", "uzp1")),
        ("pair_tile<int>", ("cmgt", "bsl")),
        ("pair_tile<short>", ("cmgt", "bsl")),
        ("unswap_tile<int>", ("cmtst", "bsl")),
    ):
        (body,) = (body for full_name, body in functions.items() if name in full_name)
        operations = {line.split("\t")[1].strip() for line in body.splitlines() if "\t" in line}
        assert set(vector_code) <= operations, name
        assert not operations & {"umov", "smov"}, name
