"""What a head's class does: methods with a body, and a forward that reads the target's hidden states."""

from __future__ import annotations

import pytest

from draftproof.stacks.reading import Reading
from draftproof.stacks.sglang.code.head_class import implementation
from draftproof.stacks.sglang.code.registry import MODELS, registration
from draftproof.stacks.source import SourceTree
from tests.support.edited_tree import Edit, edited_tree, method_replaced, replaced
from tests.support.real_stacks import real_stack

HEAD = "Qwen3_5ForCausalLMMTP"
HEAD_FILE = f"{MODELS}/qwen3_5_mtp.py"


def judged(tree: SourceTree, name: str = HEAD) -> Reading[str]:
    registered = registration(tree, name)
    assert registered.value is not None, registered.sentence
    return implementation(tree, registered.value.cls)


def edited(edit: Edit, file: str = HEAD_FILE) -> SourceTree:
    return edited_tree(real_stack("sglang", "0.5.23").tree, {file: edit})


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.23"])
@pytest.mark.parametrize(
    "name",
    [
        HEAD,
        "Qwen3NextForCausalLMMTP",
        "DeepseekV3ForCausalLMNextN",
        "Glm4MoeForCausalLMNextN",
        "MiMoV2MTP",
        "Step3p5MTP",
        "Ernie4_5_MoeForCausalLMMTP",
    ],
)
def test_real_heads_are_no_stubs(version: str, name: str) -> None:
    reading = judged(real_stack("sglang", version).tree, name)
    assert reading.value == name, reading.sentence
    assert len(reading.places) == 4


def test_methods_that_only_hand_on_are_judged_by_their_base() -> None:
    """DeepSeek's head inherits the loading of the target."""
    reading = judged(real_stack("sglang", "0.5.23").tree, "DeepseekV3ForCausalLMNextN")
    assert f"{MODELS}/deepseek_v2.py" in {place.file for place in reading.places}


@pytest.mark.parametrize("method", ["forward", "load_weights", "__init__"])
@pytest.mark.parametrize("body", ["pass", '"""Later."""\nraise NotImplementedError', "return None"])
def test_a_method_without_a_body_is_a_stub(method: str, body: str) -> None:
    reading = judged(edited(method_replaced(method, body, HEAD)))
    assert reading.understood
    assert reading.value is None
    assert f"{method} of {HEAD} is a stub" in reading.sentence
    assert reading.places[0].file == HEAD_FILE


def test_a_stub_in_the_base_counts() -> None:
    tree = edited(method_replaced("load_weights", "pass", "Qwen3NextForCausalLM"), f"{MODELS}/qwen3_next.py")
    reading = judged(tree, "Qwen3NextForCausalLMMTP")
    assert reading.understood
    assert reading.value is None


def test_a_forward_without_the_targets_hidden_states_is_not_understood() -> None:
    tree = edited(
        replaced("hidden_states = forward_batch.spec_info.hidden_states", "hidden_states = input_embeds")
    )
    reading = judged(tree)
    assert not reading.understood
    assert "spec_info.hidden_states" in reading.sentence


def test_hidden_states_read_elsewhere_are_no_evidence() -> None:
    """Many other models read them; only the head's own forward and what it builds count."""
    tree = edited(replaced("forward_batch.spec_info.hidden_states", "forward_batch.hidden_states"))
    assert not judged(tree).understood
