"""How the CPU kernel becomes part of a wheel; the setup.py of this package and that of sliceformer_lab use it."""

from __future__ import annotations

import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

FLAGS = ["-std=c++17", "-O3", "-g0", "-Wno-psabi", "-fvisibility=hidden"]
# Flags of each instruction set that kernel.cpp is compiled for; which of them runs is decided at run time.
KERNELS = {"portable": []}
MACHINE = sysconfig.get_platform().rsplit("-", 1)[-1]  # the wheel's, which _PYTHON_HOST_PLATFORM can set
if MACHINE in ("x86_64", "amd64"):
    FLAGS += ["-DSHIFT_SORT_X86"]
    KERNELS |= {
        "avx2": ["-mavx2"],
        "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"],
    }


def kernel_extension(package: str, folder: str) -> Extension:
    """The kernel as a library of `package`, from the sources in `folder`."""
    return Extension(
        f"{package}._shift_sort",
        sources=[f"{folder}/kernel.cpp", f"{folder}/dispatch.cpp"],
        depends=[f"{folder}/shift_sort.h", f"{folder}/vectors.h"],
        language="c++",
        optional=True,
    )


class BuildKernel(build_ext):
    """Compiles one source once per instruction set. Without a compiler, setuptools warns and installs the rest."""

    def get_ext_filename(self, fullname: str) -> str:
        """A library without Python's version in its name, since ctypes opens it."""
        return f"{Path(*fullname.split('.'))}.so"

    def build_extension(self, ext: Extension) -> None:
        """Raises CompileError; setuptools prints it and goes on, because the extension is optional."""
        try:
            if self.compiler.compiler_type == "msvc":
                raise CompileError("it needs GCC or clang")
            self.build_kernel(ext)
        except (CompileError, LinkError) as error:
            name = self.distribution.get_name()
            raise CompileError(f"{error}; {name} works without its CPU kernel, more slowly") from error

    def build_kernel(self, ext: Extension) -> None:

        def compile_source(source: str, folder: str, flags: list[str]) -> list[str]:
            output = str(Path(self.build_temp, folder))
            return self.compiler.compile([source], output_dir=output, extra_postargs=[*FLAGS, *flags])

        kernel, dispatch = ext.sources
        jobs = [(kernel, name, [f"-DKERNEL=kernel_{name}", *flags]) for name, flags in KERNELS.items()]
        jobs.append((dispatch, "dispatch", []))
        with ThreadPoolExecutor(max_workers=2) as pool:
            objects = [file for files in pool.map(lambda job: compile_source(*job), jobs) for file in files]
        path = self.get_ext_fullpath(ext.name)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(objects, path, extra_postargs=["-pthread"], target_lang="c++")


class AnyPythonWheel(bdist_wheel):
    """A wheel for every Python: ctypes opens the library. Without the library, it is for every machine too."""

    def get_tag(self) -> tuple[str, str, str]:
        build = self.get_finalized_command("build_ext")
        (extension,) = self.distribution.ext_modules
        built = Path(build.build_lib, build.get_ext_filename(extension.name)).exists()
        return "py3", "none", super().get_tag()[2] if built else "any"


COMMANDS = {"build_ext": BuildKernel, "bdist_wheel": AnyPythonWheel}
