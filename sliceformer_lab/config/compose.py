"""Composes configurations: the whole one of a job, one option of a group, and values that depend on the choices.

Options come from our folder, from the plugins that are installed, and from the folders that the command line names.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import MISSING, DictConfig, ListConfig, Node, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue

from sliceformer_lab.config.plugins import plugins
from sliceformer_lab.config.schema import ConfigError, nearest
from sliceformer_lab.config.versions import HYDRA_DEFAULTS, register_resolver

CONF_DIR = Path(str(files("sliceformer_lab.conf")))
MAX_LISTED_OPTIONS = 50  # options of a group; more are too many to list in a message
UNUSED = ("output", "launcher", "help", "hydra_help", "hydra_logging", "job_logging", "env")  # of Hydra's own program
WITHOUT_UNUSED = tuple(f"~hydra/{part}" for part in UNUSED)  # saves a quarter of the time of composing
NOT_OF_A_RUN = ("hydra", "launcher", "sweep")  # keys of the root that say where a run is started
OTHER_NAMES = dict.fromkeys(("softmax", "sdpa", "attention", "self_attention", "transformer", "vanilla"), "mha")
LEFT_OUT = "(left out)"  # the value of a key that the chosen option does not have; `plain_values` drops the key


_named_too: tuple[Path, ...] = ()


def conf_folders() -> tuple[Path, ...]:
    """The folders of options: ours, those of plugins, and those that `with_conf_folders` adds at the moment.

    Raises ConfigError if two of them have an option of one name, as the first would silently win.
    """
    return _drop_repeated((CONF_DIR, *(plugin.conf for plugin in plugins()), *_named_too))


@cache
def _drop_repeated(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    unique = tuple(dict.fromkeys(folders))
    homes: dict[Path, Path] = {}
    for folder in unique:
        for group in sorted(path.name for path in CONF_DIR.iterdir() if path.is_dir()):
            for file in (folder / group).rglob("*.yaml"):
                option = file.relative_to(folder)
                if option in homes:
                    raise ConfigError(f"{homes[option] / option} and {file} are options of one name; rename one")
                homes[option] = folder
    return unique


@contextmanager
def with_conf_folders(folders: Sequence[str | Path]) -> Iterator[None]:
    """Adds folders of options, each with a sub-folder for a group, such as FOLDER/attention/my_attn.yaml.

    Raises ConfigError if one does not exist.
    """
    global _named_too
    paths = [Path(folder).expanduser().resolve() for folder in folders]
    if missing := [path for path in paths if not path.is_dir()]:
        raise ConfigError(f"{missing[0]}: there is no such folder of options")
    before = _named_too
    _named_too = (*before, *paths)
    try:
        yield
    finally:
        _named_too = before


def search_path() -> list[str]:
    """The override that gives Hydra the folders of options beside ours; [] if there are none."""
    return _search_word(conf_folders()[1:])


def named_folders() -> list[str]:
    """The override that names the folders of `with_conf_folders` in a command line; [] if there are none."""
    return _search_word(_named_too)


def _search_word(folders: Sequence[Path]) -> list[str]:
    return [f"hydra.searchpath=[{','.join(repr(f'file://{folder}') for folder in folders)}]"] if folders else []


def option_names(group: str) -> list[str]:
    """The options of a group such as 'attention', sorted; those in a sub-folder as folder/option.

    A folder whose name begins with _ holds parts of options, which cannot be chosen by themselves.
    """
    roots = [folder / group for folder in conf_folders()]
    files = [file.relative_to(root).with_suffix("") for root in roots for file in root.rglob("*.yaml")]
    return sorted(name.as_posix() for name in files if not any(part.startswith("_") for part in name.parts))


def option_file(group: str, name: str) -> Path:
    """The YAML file of an option. Raises ConfigError if there is none, as for a name that leaves the folder."""
    for folder in conf_folders():
        file = Path(group) / f"{name}.yaml"
        if ".." not in file.parts and not file.is_absolute() and (folder / file).is_file():
            return folder / file
    raise ConfigError(no_such_option(group, name, option_names(group)))


def no_such_option(group: str, name: str, names: list[str]) -> str:
    """The message for an option that is not among `names`."""
    known_as = OTHER_NAMES.get(name.lower()) if group == "attention" else None
    hint = f"; did you mean {known_as}?" if known_as in names else nearest(name, names)
    if len(names) > MAX_LISTED_OPTIONS:
        return f"{group}={name}: there is no such option{hint if 'did you mean' in hint else '; --help lists them'}"
    listed = "" if hint.startswith("; there are") or not names else f" (there are {', '.join(names)})"
    return f"{group}={name}: there is no such option{hint}{listed}"


def load_option(group: str, name: str) -> dict[str, Any]:
    """The node of one option, e.g. ('attention', 'csp'), as plain values. Raises ConfigError for an unknown option."""
    return deepcopy(_compose_group(group, name, conf_folders()))


def load_options(group: str) -> dict[str, dict[str, Any]]:
    """The node of each option of a group, as `load_option`, without those of the user that cannot be composed."""
    return deepcopy(_compose_options(group, conf_folders()))


@cache  # every attention that a task refuses asks for those that it takes
def _compose_options(group: str, folders: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """All options at once, which takes a fifth of the time of all one by one."""
    del folders  # part of the cache's key: `search_path` reads the same ones
    names = option_names(group)
    try:
        config = _compose_words([f"+{group}@option_{number}={name}" for number, name in enumerate(names)], None)
    except HydraException:
        found = {}
        for name in names:
            with suppress(ConfigError):
                found[name] = load_option(group, name)
        return found
    return {name: plain_values(config[f"option_{number}"]) for number, name in enumerate(names)}


@cache  # composing takes as long as building a small model
def _compose_group(group: str, name: str, folders: tuple[Path, ...]) -> dict[str, Any]:
    del folders  # part of the cache's key: `search_path` reads the same ones
    names = option_names(group)
    if name not in names:
        raise ConfigError(no_such_option(group, name, names))
    try:
        config = _compose_words([f"+{group}={name}"], None)
    except HydraException as error:
        raise ConfigError(f"{group}={name}: {str(error).splitlines()[0]}") from error
    return plain_values(config[group])


def written_option(group: str, name: str) -> dict[str, Any]:
    """What the YAML file of an option says, with one such as `_probe` that it starts from, before all is composed."""
    return deepcopy(_read_option(group, name, conf_folders()))


@cache  # a study reads its recipes several times
def _read_option(group: str, name: str, folders: tuple[Path, ...]) -> dict[str, Any]:
    own = plain_values(OmegaConf.load(option_file(group, name)), resolve=False)
    shared = [str(part) for part in own.get("defaults", []) if str(part).startswith("_") and part != "_self_"]
    merged = OmegaConf.merge(*(_read_option(group, part, folders) for part in shared), own)
    return plain_values(merged, resolve=False)


def compose_root(overrides: Sequence[str], config_name: str = "config") -> dict[str, Any]:
    """The whole configuration of one job with its node of Hydra, interpolations unresolved. Raises Hydra's errors."""
    return plain_values(_compose_words(overrides, config_name), resolve=False)


def compose_job(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration that a job with these overrides gets: all values resolved, without what is not of a run.

    Raises Hydra's and OmegaConf's errors.
    """
    register_choices()
    with running_config(overrides) as config, open_dict(config):
        for key in NOT_OF_A_RUN:
            del config[key]
        return plain_values(config)


def preset_root(*choices: str, config_name: str = "config") -> dict[str, Any]:
    """`compose_root` of options as their files say it, such as 'task=cifar10', composed once; it is not to be changed.

    Composing takes a quarter of a second, and every run of a study or a report asks for the same few.
    """
    return _root_once(config_name, choices, conf_folders())


def preset_job(*choices: str) -> dict[str, Any]:
    """`compose_job` of options as their files say it, composed once as `preset_root`; it is not to be changed."""
    return _job_once(choices, conf_folders())


@cache
def _root_once(config_name: str, choices: tuple[str, ...], folders: tuple[Path, ...]) -> dict[str, Any]:
    del folders  # part of the cache's key: `search_path` reads the same ones
    return compose_root(choices, config_name)


@cache
def _job_once(choices: tuple[str, ...], folders: tuple[Path, ...]) -> dict[str, Any]:
    del folders
    return compose_job(choices)


@contextmanager
def running_config(overrides: Sequence[str], config_name: str = "config") -> Iterator[DictConfig]:
    """The whole configuration of one job; inside, resolvers and `HydraConfig` read its node of Hydra.

    Raises Hydra's errors.
    """
    config = _compose_words(overrides, config_name)
    instance = HydraConfig.instance()
    outer = instance.cfg
    try:
        instance.set_config(config)
        yield config
    finally:
        instance.cfg = outer


def _compose_words(overrides: Sequence[str], config_name: str | None) -> DictConfig:
    with _own_hydra():
        words = [*WITHOUT_UNUSED, *search_path(), *overrides]
        return compose(config_name, overrides=words, return_hydra_config=True)


def own_option_files(overrides: Sequence[str], config_name: str = "config") -> list[Path]:
    """The files of plugins and of `with_conf_folders` that such a job is composed of, sorted.

    They include those that a chosen option starts from.

    Raises Hydra's errors.
    """
    folders = conf_folders()[1:]
    if not folders:
        return []
    with _own_hydra():
        loader = GlobalHydra.instance().config_loader()
        used = loader.compute_defaults_list(config_name, [*search_path(), *overrides], RunMode.RUN).defaults
    files = {folder / f"{part.config_path}.yaml" for folder in folders for part in used}
    return sorted(file for file in files if file.is_file())


def register_choices() -> None:
    """Teach OmegaConf `by_attention` and `by_task`, with which a YAML gives a value for each attention or task."""
    register_resolver("by_attention", by_attention)
    register_resolver("by_task", by_task)


def by_attention(values: Mapping[str, Any], *default: Any, _root_: DictConfig, _node_: Node) -> Any:
    """The value for the chosen attention: `${by_attention:{csp:128,mha:64},96}`.

    A preset without a value of its own takes the value of the attention that its name starts with: csp_wide takes
    csp's. Every other attention takes the default. Without a default the key keeps the value that the YAML of the
    chosen option gives it; if that YAML has no such key, the key is left out.
    """
    name = str(_root_.names.attention)
    while name not in values and "_" in name:
        name = name.rpartition("_")[0]
    return values[name] if name in values else _default_value(default, _node_)


def by_task(values: Mapping[str, Any], *default: Any, _root_: DictConfig, _node_: Node) -> Any:
    """The value for the chosen task, `${by_task:{digits:600,mnist:400},800}`; without a default, as `by_attention`.

    Raises MissingMandatoryValue if the default is ??? and there is no value for the task.
    """
    task = str(_root_.names.task)
    if task not in values and default == (MISSING,):
        raise MissingMandatoryValue(f"no value for task={task}")
    return values[task] if task in values else _default_value(default, _node_)


def _default_value(default: tuple[Any, ...], node: Node) -> Any:
    """The default, or the value that the option chosen for this part of the configuration has in its YAML."""
    if default:
        return default[0]
    name, _, key = str(node._get_full_key(None)).partition(".")
    choices = HydraConfig.get().runtime.choices
    group = name if name in choices else "task"  # a task's YAML has the node `data` too
    return preset_root(f"{group}={choices[group]}")[name].get(key, LEFT_OUT)


@contextmanager
def _own_hydra() -> Iterator[None]:
    """A Hydra on our options; one that the caller has initialised is restored afterwards."""
    instance = GlobalHydra.instance()
    running = instance.hydra
    instance.clear()
    try:
        with initialize_config_dir(str(CONF_DIR), **HYDRA_DEFAULTS):
            yield
    finally:
        GlobalHydra.instance().hydra = running


def plain_values(node: DictConfig | ListConfig, resolve: bool = True) -> dict[str, Any]:
    """A node as dicts, lists and scalars, without keys that are left out.

    Raises OmegaConf's errors for what is missing or cannot be resolved.
    """
    plain = OmegaConf.to_container(node, resolve=resolve, throw_on_missing=resolve)
    if not isinstance(plain, dict):
        raise ConfigError(f"expected a mapping of options, got {plain!r}")
    return {str(key): value for key, value in _without_left_out(plain).items()}


def _without_left_out(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_left_out(value) for key, value in node.items() if value != LEFT_OUT}
    return node
