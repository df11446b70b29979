"""Options of a group by themselves, and hybrids of attentions."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from support.attention_checks import make_spec

from sliceformer_lab.attention import attention_class, build_attention
from sliceformer_lab.attention.fnet import FNet
from sliceformer_lab.attention.hybrid import hybrid
from sliceformer_lab.attention.identity import Identity
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.config.compose import CONF_DIR, HYBRID, load_option, option_names, resolve_hybrid
from sliceformer_lab.config.schema import ConfigError, locate

PATTERN = "pattern=[fnet,identity,mha]"


def test_option_names_are_the_files_of_the_group() -> None:
    assert {"mha", "csp", "identity"} <= set(option_names("attention"))


def test_overrides_replace_the_values_of_the_file() -> None:
    assert load_option("attention", "mha")["gate"] is False
    assert load_option("attention", "mha", ["gate=true"])["gate"] is True


def test_unknown_option_names_the_nearest_and_the_rest() -> None:
    with pytest.raises(
        ConfigError, match=r"attention=mah: there is no such option; did you mean mha\? \(there are .*fnet"
    ):
        load_option("attention", "mah")


def test_misspelt_override_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"attention.gat: there is no such option; did you mean gate\?"):
        build_attention(load_option("attention", "mha", ["gat=true"]), make_spec())


def test_override_without_a_value_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^attention=mha: .*gate") as told:
        load_option("attention", "mha", ["gate"])
    assert "\n" not in str(told.value)


def test_running_hydra_is_left_as_it_was() -> None:
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        load_option("attention", "mha")
        with pytest.raises(ConfigError):
            load_option("attention", "mha", ["gate"])
        assert GlobalHydra.instance().hydra is running
        assert compose(overrides=["+attention=mha"]).attention.gate is False
    assert not GlobalHydra.instance().is_initialized()


def test_hybrid_repeats_its_pattern_over_the_layers() -> None:
    node = resolve_hybrid(load_option("attention", "hybrid", [PATTERN]))
    built = [type(build_attention(node, make_spec(index=index))) for index in range(5)]
    assert built == [attention_class(node, index) for index in range(5)] == [FNet, Identity, MHA, FNet, Identity]


def test_hybrid_passes_options_to_the_attention_they_name() -> None:
    node = resolve_hybrid(load_option("attention", "hybrid", [PATTERN, "options={mha: {gate: true}}"]))
    assert build_attention(node, make_spec(index=2)).gate is not None


def test_hybrid_tells_a_fault_at_the_place_the_user_wrote_it() -> None:
    node = resolve_hybrid(load_option("attention", "hybrid", [PATTERN, "options={mha: {gat: true}}"]))
    with pytest.raises(ConfigError, match=r"attention.options.mha.gat: .*did you mean gate\?"):
        attention_class(node, 2)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("pattern=[mha,cps]", "attention=cps: there is no such option; did you mean csp"),
        ("pattern=[mha,hybrid]", "hybrid is itself a hybrid"),
        ("options={fnt: {}}", r"attention.options.fnt: fnt is not in the pattern \['csp', 'mha'\]"),
    ],
)
def test_wrong_hybrid_is_refused_before_anything_is_built(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        resolve_hybrid(load_option("attention", "hybrid", [override]))


@pytest.mark.parametrize(("override", "told"), [("pattern=[]", "attention.pattern: given"), ("members={}", "resolve")])
def test_hybrid_that_was_not_resolved_is_refused(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_attention(load_option("attention", "hybrid", [override]), make_spec())


def test_the_name_by_which_a_hybrid_is_known_is_that_of_the_function() -> None:
    assert locate(HYBRID) is hybrid


def test_attention_that_is_no_hybrid_is_left_as_it_is() -> None:
    node = load_option("attention", "mha")
    assert resolve_hybrid(node) == node


def test_rope_is_refused_where_there_are_no_queries_and_keys() -> None:
    with pytest.raises(ConfigError, match="attention: rope turns queries and keys"):
        build_attention(load_option("attention", "identity"), make_spec(rope=True))
