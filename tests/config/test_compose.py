"""Single options of a group, and hybrids of attentions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException

from sliceformer_lab.attention import build_layer
from sliceformer_lab.attention.contract import make_spec
from sliceformer_lab.attention.fnet import FNet
from sliceformer_lab.attention.identity import Identity
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.config.compose import (
    CONF_DIR,
    load_option,
    load_options,
    option_names,
    preset_job,
    preset_root,
    with_conf_folders,
)
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import ConfigError

PATTERN = ["fnet", "identity", "mha"]


def test_a_preset_is_composed_once_for_the_same_folders_of_options(tmp_path: Path) -> None:
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mine.yaml").write_text("_target_: sliceformer_lab.attention.identity.Identity\n")
    assert preset_root("task=digits") is preset_root("task=digits") and preset_root() is preset_root()
    assert preset_job("task=digits") is preset_job("task=digits") and "hydra" not in preset_job("task=digits")
    assert preset_root(config_name="audit").keys() != preset_root().keys()
    with with_conf_folders([tmp_path]):
        assert preset_root("attention=mine")["hydra"]["runtime"]["choices"]["attention"] == "mine"
    with pytest.raises(HydraException):  # what one folder has, the others lack
        preset_root("attention=mine")


def test_running_hydra_is_left_as_it_was() -> None:
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        load_option("attention", "mha")
        with pytest.raises(ConfigError):
            load_option("attention", "cps")
        assert GlobalHydra.instance().hydra is running
        assert compose(overrides=["+attention=mha"]).attention.gate is False
    assert not GlobalHydra.instance().is_initialized()


def test_hybrid_repeats_its_pattern_over_the_layers() -> None:
    node = load_option("attention", "hybrid") | {"pattern": PATTERN}
    built = [type(build_layer(node, make_spec(index=index))) for index in range(5)]
    layers = [layer.target for layer in attention_nodes(node, depth=5)]
    assert built == layers == [FNet, Identity, MHA, FNet, Identity]


def test_hybrid_passes_options_to_the_attention_they_name() -> None:
    node = load_option("attention", "hybrid") | {"pattern": PATTERN, "options": {"mha": {"gate": True}}}
    assert build_layer(node, make_spec(index=2)).gate is not None


def test_every_fault_of_a_hybrid_is_named_at_the_place_the_user_wrote_it() -> None:
    options = {"mha": {"gat": True}, "fnet": {"modes": 1}, "fnt": {}}
    with pytest.raises(ConfigError) as refused:
        attention_nodes(load_option("attention", "hybrid") | {"pattern": PATTERN, "options": options})
    for place in (
        "mha.gat: there is no such option; did you mean gate",
        "fnet.modes: ",
        "fnt: fnt is not in the pattern",
    ):
        assert f"attention.options.{place}" in str(refused.value)


def test_all_options_of_a_group_at_once_are_those_one_by_one_without_what_cannot_be_composed(tmp_path: Path) -> None:
    whole = load_options("attention")
    assert [*whole] == option_names("attention")
    assert all(whole[name] == load_option("attention", name) for name in ("csp", "hybrid", "samsa_published", "mha"))
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "broken.yaml").write_text("defaults: [nowhere]\n")
    (tmp_path / "attention" / "mine.yaml").write_text("defaults: [csp]\ngroup_size: 3\n")
    with with_conf_folders([tmp_path]):
        found = load_options("attention")
    assert {*found} - {*whole} == {"mine"} and found["mine"]["group_size"] == 3
