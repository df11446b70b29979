#!/usr/bin/env bash
# Runs tests with other versions of the libraries: tests/versions.sh next|oldest [ARGUMENTS OF PYTEST]
#   next     the pre-releases of Hydra and OmegaConf, over the packages of .venv (20 MB)
#   oldest   the lowest version of every package in pyproject.toml's `dependencies`, in a fresh environment (6 GB)
# Environments stay in build/versions for the next call; remove a folder to make it anew.
set -euo pipefail
cd "$(dirname "$0")/.."
which=$1
shift
home=build/versions/$which
python=$home/bin/python

if [ ! -f "$home/installed" ]; then
  rm -rf "$home"
  .venv/bin/python -m venv "$home"
  own=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  if [ "$which" = next ]; then
    .venv/bin/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$own/zz_venv.pth"
    "$python" -m pip install --quiet --no-deps --pre --upgrade --ignore-installed hydra-core omegaconf setuptools
  elif [ "$which" = oldest ]; then
    .venv/bin/python -c '
import tomllib
for line in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]:
    print(line.split(",")[0].replace(">=", "=="))' >"$home/lowest.txt"
    "$python" -m pip install --quiet --requirement "$home/lowest.txt" 'setuptools>=77' --editable '.[dev]'
  else
    echo "tests/versions.sh next|oldest, not $which" >&2
    exit 2
  fi
  touch "$home/installed"
fi

"$python" -c '
from importlib.metadata import version
names = "torch pytorch-lightning torch-geometric timm hydra-core omegaconf numpy scipy pandas".split()
print("versions:", *(f"{name} {version(name)}" for name in names), sep="\n  ")'
OMP_NUM_THREADS=1 "$python" -m pytest -q -n 2 -m "not slow" "$@"
