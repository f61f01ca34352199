"""Heads of families that are not planned tensor by tensor: found by name, judged by their siblings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from draftproof.architecture.families import FAMILIES
from draftproof.architecture.mtp_layout import HeadSurvey, survey_head
from draftproof.architecture.registry import mtp_declaration
from draftproof.checkpoint.config import ConfigReader
from draftproof.errors import ConfigError
from tests.support.public_configs import public_config

ATTENTION = ("self_attn.q_proj.weight", "self_attn.kv_a_proj_with_mqa.weight", "self_attn.o_proj.weight")
NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")
DENSE = ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")
MOE = (
    "mlp.gate.weight",
    "mlp.gate.e_score_correction_bias",
    *(f"mlp.experts.{e}.{p}_proj.weight" for e in range(4) for p in ("gate", "up", "down")),
)
SCALES = tuple(f"{name}_scale_inv" for name in (*ATTENTION, *MOE[2:]))
SPECIAL = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight")


def layer(prefix: str, *groups: Iterable[str]) -> list[str]:
    return [prefix + name for group in groups for name in group]


def trunk(prefix: str, layers: int) -> list[str]:
    """A dense layer first, then layers with experts."""
    names = [f"{prefix.removesuffix('layers.')}embed_tokens.weight", "lm_head.weight"]
    for index in range(layers):
        names += layer(f"{prefix}{index}.", NORMS, ATTENTION, MOE if index else DENSE)
    return names


def survey(config: dict[str, Any], names: Iterable[str]) -> HeadSurvey:
    reader = ConfigReader("config.json", "", config)
    return survey_head(mtp_declaration(reader), reader, names)


GLM = {"model_type": "glm4_moe", "num_hidden_layers": 3, "num_nextn_predict_layers": 1}
GLM_TRUNK = trunk("model.layers.", 3)
GLM_HEAD = layer("model.layers.3.", SPECIAL, NORMS, ATTENTION, MOE)


def test_an_appended_layer_is_the_head() -> None:
    found = survey(GLM, [*GLM_TRUNK, *GLM_HEAD])
    assert found.names == tuple(sorted(GLM_HEAD))
    assert (found.is_complete, found.layers, found.missing) == (True, (0,), ())
    # Not the dense layer: the head has experts.
    assert found.sibling in ("model.layers.1.", "model.layers.2.")


def test_quantisation_of_head_or_trunk_alone_changes_nothing() -> None:
    scaled_trunk = [*GLM_TRUNK, *(name for i in (1, 2) for name in layer(f"model.layers.{i}.", SCALES))]
    scaled_head = [*GLM_HEAD, *layer("model.layers.3.", SCALES)]
    for names in ([*scaled_trunk, *GLM_HEAD], [*GLM_TRUNK, *scaled_head]):
        assert survey(GLM, names).is_complete


@pytest.mark.parametrize(
    "lost",
    [
        "eh_proj.weight",
        "self_attn.o_proj.weight",
        "mlp.experts.3.up_proj.weight",
        "mlp.gate.e_score_correction_bias",
    ],
)
def test_a_lost_tensor_is_named(lost: str) -> None:
    names = [name for name in (*GLM_TRUNK, *GLM_HEAD) if name != f"model.layers.3.{lost}"]
    assert survey(GLM, names).missing == (f"model.layers.3.{lost.removesuffix('.weight')}",)


def test_a_stripped_head_has_no_names() -> None:
    found = survey(GLM, GLM_TRUNK)
    assert (found.names, found.layers, found.expected_layers, found.is_complete) == ((), (), 1, False)


def test_a_head_that_the_config_denies_is_still_found() -> None:
    found = survey({**GLM, "num_nextn_predict_layers": 0}, [*GLM_TRUNK, *GLM_HEAD])
    assert (found.expected_layers, found.layers, found.is_complete) == (0, (0,), True)


def test_names_of_the_nested_form_are_found_whatever_the_table_says() -> None:
    config = {
        "model_type": "glm5_next",
        "text_config": {"num_hidden_layers": 3, "num_nextn_predict_layers": 1},
    }
    prefix = "model.language_model.layers."
    head = layer(f"{prefix}3.", SPECIAL, NORMS, ATTENTION, MOE)
    assert survey(config, [*trunk(prefix, 3), *head]).names == tuple(sorted(head))


def test_deepseek_needs_its_own_embedding_and_output_head() -> None:
    config = {**GLM, "model_type": "deepseek_v3"}
    own = layer("model.layers.3.", ("embed_tokens.weight", "shared_head.head.weight"))
    assert survey(config, [*GLM_TRUNK, *GLM_HEAD, *own]).is_complete
    assert survey(config, [*GLM_TRUNK, *GLM_HEAD]).missing == (
        "model.layers.3.embed_tokens",
        "model.layers.3.shared_head.head",
    )


def test_three_layers_of_which_one_is_gone() -> None:
    """Step: each layer has a block below `transformer.` and an output head of its own."""
    config = {"model_type": "step3p5", "num_hidden_layers": 3, "num_nextn_predict_layers": 3}
    special = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.output.weight")
    block = [f"transformer.{name}" for name in (*NORMS, *ATTENTION, *MOE)]
    heads = [layer(f"model.layers.{index}.", special, block) for index in (3, 4, 5)]
    whole = [*GLM_TRUNK, *heads[0], *heads[1], *heads[2]]
    assert survey(config, whole).is_complete
    assert survey(config, [*GLM_TRUNK, *heads[0], *heads[2]]).missing == ("model.layers.4.*",)
    lost = "model.layers.5.transformer.self_attn.q_proj"
    assert survey(config, [name for name in whole if name != f"{lost}.weight"]).missing == (lost,)


def test_mimo_has_a_block_under_its_own_prefix() -> None:
    config = {"model_type": "mimo", "num_hidden_layers": 3, "num_nextn_predict_layers": 1}
    special = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
    head = layer("model.mtp_layers.0.", [f"{name}.weight" for name in special], NORMS, ATTENTION, DENSE)
    assert survey(config, [*GLM_TRUNK, *head]).is_complete
    without = [name for name in head if "input_proj" not in name]
    assert survey(config, [*GLM_TRUNK, *without]).missing == ("model.mtp_layers.0.input_proj",)


def test_ernie_numbers_its_special_modules() -> None:
    config = {"model_type": "ernie4_5_moe", "num_hidden_layers": 3, "num_nextn_predict_layers": 1}
    special = [f"model.mtp_{name}.0.weight" for name in ("emb_norm", "hidden_norm", "linear_proj")]
    head = [*special, *layer("model.mtp_block.0.", NORMS, ATTENTION, DENSE)]
    assert survey(config, [*GLM_TRUNK, *head]).is_complete
    assert survey(config, [*GLM_TRUNK, *head[1:]]).missing == ("model.mtp_emb_norm.0",)


def test_nemotron_splits_a_layer_by_its_pattern() -> None:
    config = {
        "model_type": "nemotron_h",
        "num_hidden_layers": 2,
        "num_nextn_predict_layers": 1,
        "mtp_hybrid_override_pattern": "*E",
    }
    names = ["backbone.layers.0.mixer.in_proj.weight", "backbone.layers.1.mixer.up_proj.weight"]
    first = layer("mtp.layers.0.", ("enorm.weight", "hnorm.weight", "eh_proj.weight", "mixer.q_proj.weight"))
    second = layer("mtp.layers.1.", ("mixer.experts.0.up_proj.weight", "final_layernorm.weight"))
    found = survey(config, [*names, *first, *second])
    assert (found.expected_layers, found.layers, found.missing) == (2, (0, 1), ())
    assert survey(config, [*names, *first]).missing == ("mtp.layers.1.*",)


def test_a_head_with_fewer_experts_than_the_trunk() -> None:
    config = {
        "model_type": "interns2_mobius",
        "text_config": {"num_hidden_layers": 3, "mtp_num_hidden_layers": 1, "mtp_num_experts": 2},
    }
    specials = [
        f"mtp.{name}.weight" for name in ("fc", "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    ]
    experts = [name for name in MOE if "experts.2." not in name and "experts.3." not in name]
    head = [*specials, *layer("mtp.layers.0.", NORMS, ATTENTION, experts)]
    found = survey(config, [*trunk("model.language_model.layers.", 3), *head])
    assert (found.is_complete, found.missing) == (True, ())
    short = [name for name in head if name != "mtp.layers.0.mlp.experts.1.up_proj.weight"]
    assert survey(config, [*trunk("model.language_model.layers.", 3), *short]).missing == (
        "mtp.layers.0.mlp.experts.1.up_proj",
    )


def test_minimax_m2_promises_three_modules_and_ships_none() -> None:
    config = {**public_config("MiniMaxAI_MiniMax-M2"), "num_hidden_layers": 3}
    found = survey(config, GLM_TRUNK)
    assert (found.expected_layers, found.names) == (3, ())


def test_a_block_like_no_trunk_layer_is_judged_by_its_special_modules_alone() -> None:
    config = {"model_type": "mimo_v2", "num_hidden_layers": 3, "num_nextn_predict_layers": 1}
    found = survey(config, [*GLM_TRUNK, "model.mtp.layers.0.a.weight", "model.mtp.layers.0.b.weight"])
    assert (found.sibling, found.is_complete) == (None, True)


def test_the_rule_needs_the_number_of_trunk_layers() -> None:
    with pytest.raises(ConfigError, match=r"config\.json: num_hidden_layers"):
        survey({"model_type": "glm4_moe", "num_nextn_predict_layers": 1}, GLM_TRUNK)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.model_types], ids=lambda family: family.key)
def test_every_family_finds_a_head_by_its_own_rule(family: Any) -> None:
    """A head of the table's own prefixes and required modules is whole, and not without one of them."""
    model_type = family.model_types[0].replace("*", "")
    config = {"model_type": model_type, "num_hidden_layers": 3}
    if family.count_fields:
        outer, _, key = family.count_fields[0].rpartition(".")
        config |= {outer: {key: 1}} if outer else {key: 1}
    prefix = family.prefixes[0].format(trunk="model.layers.", layer=3, i=0)
    head = [f"{prefix}made_up.weight"]
    head += [
        f"{name[1:]}.weight" if name.startswith("=") else f"{prefix}{name}.weight" for name in family.required
    ]
    found = survey(config, [*GLM_TRUNK, *head])
    assert set(head) <= set(found.names) or family.key == "gemma4_assistant"
    assert found.missing == ()
    for lost in head[1:]:
        assert survey(config, [*GLM_TRUNK, *(name for name in head if name != lost)]).missing
