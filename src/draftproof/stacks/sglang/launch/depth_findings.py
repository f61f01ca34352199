"""How many layers of the head SGLang takes the checkpoint to have, and where it learns that."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.launch_context import LaunchContext
from draftproof.stacks.sglang.launch.model_view import CONFIG, MODEL_CONFIG

RULE = "_config_draft_model"
FIELD = "num_nextn_predict_layers"
CONFIGS = "sglang/srt/configs"
REWRITER = "def configure_draft_model("
_CLAIM = "The version finds a head of at least one layer."


def depth_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """One finding: the number after the version's own rewriting of the draft's config."""
    draft = {
        "is_draft_model": True,
        "speculative_algorithm": context.resolution.value("speculative_algorithm"),
        "is_multi_layer_eagle": context.resolution.value("enable_multi_layer_eagle"),
    }
    outcome = context.resolver.model_check(RULE, draft, context.environment, context.gpu)
    subject = context.checkpoint.architecture
    expected = f"{FIELD} of at least 1 in the draft's config"
    if outcome is None or not outcome.has_returned or CONFIG not in outcome.given:
        yield LaunchFinding(
            check="depth-found",
            subject=subject,
            ruling=Ruling.UNKNOWN,
            claim=_CLAIM,
            expected=expected,
            observed=f"ModelConfig.{RULE} in {MODEL_CONFIG} could not be followed",
            places=(Place(MODEL_CONFIG, 1),),
        )
        return
    config = outcome.given[CONFIG]
    depth, place = config.attributes.get(FIELD), config.place_of(FIELD)
    whose = "set by a rule of the version" if place is not None else "as config.json says"
    names = config.attributes.get("architectures")
    if names == [context.checkpoint.architecture]:
        ruling, observed = _unchanged(context)
    elif not isinstance(depth, int):
        ruling, observed = (
            Ruling.WARNS,
            f"neither {RULE} nor config.json gives {FIELD}; the class has its own",
        )
    elif depth < 1:
        ruling, observed = Ruling.BREAKS, f"{FIELD} is {depth}, {whose}"
    else:
        ruling, observed = Ruling.HOLDS, f"{FIELD} is {depth}, {whose}"
    yield LaunchFinding(
        check="depth-found",
        subject=subject,
        ruling=ruling,
        claim=_CLAIM,
        expected=expected,
        observed=observed,
        places=(place,) if place is not None else (),
    )


def _unchanged(context: LaunchContext) -> tuple[Ruling, str]:
    """The draft keeps the target's architecture; a config class of its own may still change it."""
    name, kind = context.checkpoint.architecture, context.checkpoint.model_type
    own = set(context.tree.containing(CONFIGS, REWRITER)) & set(context.tree.containing(CONFIGS, f'"{kind}"'))
    if own and kind:
        return Ruling.UNKNOWN, f"{sorted(own)[0]} may rewrite the draft's config, which was not followed"
    return Ruling.BREAKS, f"{RULE} leaves {name} as it is: the whole target would be loaded as its own draft"
