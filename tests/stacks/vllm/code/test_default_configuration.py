"""What is added to a config before a model is built from it."""

from __future__ import annotations

from draftproof.stacks.vllm.code.default_configuration import with_defaults


def test_tied_embeddings_at_the_top_hold_for_the_text_model() -> None:
    filled = with_defaults({"tie_word_embeddings": True, "text_config": {"hidden_size": 4}})
    assert filled["text_config"]["tie_word_embeddings"] is True
    own = with_defaults({"tie_word_embeddings": True, "text_config": {"tie_word_embeddings": False}})
    assert own["text_config"]["tie_word_embeddings"] is False


def test_nothing_said_is_not_tied() -> None:
    assert with_defaults({"hidden_size": 4})["tie_word_embeddings"] is False


def test_older_rotary_fields_take_the_newer_form() -> None:
    filled = with_defaults({"rope_theta": 5e6, "rope_scaling": {"type": "yarn", "factor": 4.0}})
    assert filled["rope_parameters"] == {
        "rope_type": "yarn",
        "rope_theta": 5e6,
        "type": "yarn",
        "factor": 4.0,
    }
    newer = {"rope_parameters": {"rope_type": "default"}}
    assert with_defaults(newer)["rope_parameters"] == {"rope_type": "default"}
