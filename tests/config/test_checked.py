"""The border: every node is checked once, and the result is a typed plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import small_config

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.plain_checks import missing_files, size_faults
from sliceformer_lab.config.schema import ConfigError


def test_a_changed_plan_checks_the_nodes_that_change_and_no_others() -> None:
    plan = check_config(small_config())
    changed = plan.with_options({"data.batch_size": 8, "optim.lr": 0.5})
    assert changed.trainer is plan.trainer and changed.callbacks is plan.callbacks
    assert changed.data.options["batch_size"] == 8 and changed.model.optim.options["lr"] == 0.5
    assert changed.plain["data"]["batch_size"] == 8 and plan.plain["data"]["batch_size"] != 8
    with pytest.raises(ConfigError, match=r"data\.batch_size: given 0"):
        plan.with_options({"data.batch_size": 0})


def test_every_size_without_memory_is_named() -> None:
    huge = 10**12
    for name in ("batch_size", "image_size", "max_len", "num_points", "vocab_size"):
        (fault,) = size_faults({"data": {name: huge}, "encoder": {"dim": 8}})
        assert fault.startswith(f"data.{name}={huge:,}: needs at least "), name
    for name in ("depth", "mlp_dim"):
        (fault,) = size_faults({"encoder": {"dim": 8, name: huge}})
        assert f"encoder.{name}={huge:,}" in fault, name


def test_a_number_of_an_option_is_no_name_of_it() -> None:
    with pytest.raises(ConfigError, match=r"optim\.field_0: there is no such option"):
        check_config(small_config("+optim.field_0=adam"))


def test_a_forgotten_folder_of_data_is_not_taken_for_the_folder_of_another_task(tmp_path: Path) -> None:
    (tmp_path / "mask_folder").mkdir()
    data = {"_target_": "sliceformer_lab.data.images.folders.ImageFolder", "root": str(tmp_path / "image_folder")}
    assert missing_files({"data": data}) == [
        f"data.root: {tmp_path / 'image_folder'} does not exist; set data.root to a folder of yours"
    ]
    (fault,) = missing_files({"data": data | {"root": str(tmp_path / "mask_folde")}})
    assert fault.endswith("does not exist; did you mean mask_folder?")
