"""Lists the packages and builds the optional CPU kernel; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

FLAGS = ["-std=c++17", "-O3", "-g0", "-Wno-psabi", "-fvisibility=hidden"]
# Flags of each instruction set that csrc/kernel.cpp is compiled for; which of them runs is decided at run time.
KERNELS = {"portable": []}
MACHINE = sysconfig.get_platform().rsplit("-", 1)[-1]  # the wheel's, which _PYTHON_HOST_PLATFORM can set
if MACHINE in ("x86_64", "amd64"):
    FLAGS += ["-DSHIFT_SORT_X86"]
    KERNELS |= {
        "avx2": ["-mavx2"],
        "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"],
    }


class BuildKernel(build_ext):
    """Compiles one source once per instruction set. Without a compiler, setuptools warns and installs the rest."""

    def get_ext_filename(self, fullname: str) -> str:
        """A library without Python's version in its name, since ctypes opens it."""
        return f"{Path(*fullname.split('.'))}.so"

    def build_extension(self, ext: Extension) -> None:
        """Raises CompileError, which setuptools tells and passes over, as the extension is optional."""
        try:
            if self.compiler.compiler_type == "msvc":
                raise CompileError("it needs GCC or clang")
            self.build_kernel(ext)
        except (CompileError, LinkError) as error:
            raise CompileError(f"{error}; sliceformer_lab works without its CPU kernel, more slowly") from error

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


OUTSIDE = ("tasks", "callbacks", "conf")  # folders at the top of the repository, sub-packages once installed

setup(
    packages=[*find_packages(include=["sliceformer_lab*"]), *(f"sliceformer_lab.{name}" for name in OUTSIDE)],
    package_dir={f"sliceformer_lab.{name}": name for name in OUTSIDE},
    ext_modules=[
        Extension(
            "sliceformer_lab.permute._shift_sort",
            sources=["csrc/kernel.cpp", "csrc/dispatch.cpp"],
            depends=["csrc/shift_sort.h", "csrc/vectors.h"],
            language="c++",
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": AnyPythonWheel},
)
