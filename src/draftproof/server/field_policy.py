"""What happens to fields that no body names: those that would change the answer are refused by name, those
that would not are taken without a word, and unknown ones are named once in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.server.errors import ApiError

logger = logging.getLogger("draftproof.server")

MOST_REMEMBERED = 1_000
"""Field names come from outside: no more of them are kept."""

LONGEST_SHOWN = 80
FORM_REMEDY = "Use response_format or structured_outputs"


@dataclass(frozen=True)
class Unsupported:
    """A field that changes what an answer is, which this server cannot do.

    Attributes:
        neutral: values that ask for nothing.
        remedy: what to do instead; empty when there is nothing.
    """

    neutral: tuple[object, ...] = ()
    remedy: str = ""


UNSUPPORTED: Mapping[str, Unsupported] = {
    "audio": Unsupported(),
    "modalities": Unsupported((["text"],), "This server answers in text"),
    "prediction": Unsupported((), "Speculation needs no prediction here"),
    "web_search_options": Unsupported(),
    "functions": Unsupported(([],), "Use tools"),
    "function_call": Unsupported(("none", "auto"), "Use tool_choice"),
    "verbosity": Unsupported(("medium",), "Say it in the prompt"),
    "best_of": Unsupported((1,), "Use n"),
    "suffix": Unsupported(("",)),
    "use_beam_search": Unsupported((False,)),
    "length_penalty": Unsupported((1, 0)),
    "early_stopping": Unsupported((False,)),
    "include_stop_str_in_output": Unsupported((False,)),
    "no_stop_trim": Unsupported((False,)),
    "spaces_between_special_tokens": Unsupported((True,)),
    "truncate_prompt_tokens": Unsupported((), "Shorten the prompt"),
    "prompt_logprobs": Unsupported((0,)),
    "logprob_token_ids": Unsupported(([],)),
    "allowed_token_ids": Unsupported(([],), "Use logit_bias"),
    "bad_words": Unsupported(([],), "Use logit_bias"),
    "prompt_embeds": Unsupported(),
    "chat_template": Unsupported((), "The server's owner chooses it with --chat-template"),
    "mm_processor_kwargs": Unsupported(({},)),
    "media_io_kwargs": Unsupported(({},)),
    "priority": Unsupported((0,)),
    "lora_path": Unsupported(),
    "return_tokens_as_token_ids": Unsupported((False,), "Use return_token_ids"),
    "return_hidden_states": Unsupported((False,)),
    "repetition_detection": Unsupported(),
    "kv_transfer_params": Unsupported(),
    "separate_reasoning": Unsupported((True,)),
    "guided_json": Unsupported((), FORM_REMEDY),
    "guided_regex": Unsupported((), FORM_REMEDY),
    "guided_choice": Unsupported((), FORM_REMEDY),
    "guided_grammar": Unsupported((), FORM_REMEDY),
    "json_schema": Unsupported((), FORM_REMEDY),
    "regex": Unsupported((), FORM_REMEDY),
    "ebnf": Unsupported((), FORM_REMEDY),
    "structural_tag": Unsupported((), FORM_REMEDY),
}

UNSUPPORTED_IN_RESPONSES: Mapping[str, Unsupported] = {
    **UNSUPPORTED,
    "previous_response_id": Unsupported((), "Send the whole conversation as input"),
    "conversation": Unsupported((), "Send the whole conversation as input"),
    "prompt": Unsupported((), "Send its text as input"),
    "background": Unsupported((False,)),
    "max_tool_calls": Unsupported((), "Set parallel_tool_calls to false"),
    "top_logprobs": Unsupported((0,), "Use /v1/chat/completions"),
    "truncation": Unsupported(("disabled",), "Shorten the input"),
}

WITHOUT_EFFECT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "session_id",
        "cache_salt",
        "stream_interval",
        "return_spec_tokens_details",
        "stream_reasoning",
        "include",
    }
)
"""Fields that leave the answer as it is."""


class FieldPolicy:
    """Looks at fields that no body names."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def check(
        self,
        path: str,
        fields: Mapping[str, object],
        unsupported: Mapping[str, Unsupported] = UNSUPPORTED,
    ) -> None:
        """Refuse what cannot be done, and name what is not known.

        Args:
            path: of the route, for the log.
            fields: that the body does not name.
            unsupported: those of them that are refused.

        Raises:
            ApiError: 400 for the first unsupported one.
        """
        for name, value in fields.items():
            rule = unsupported.get(name)
            if rule is not None:
                if value is not None and value not in rule.neutral:
                    remedy = f"{rule.remedy}." if rule.remedy else "Leave it out."
                    raise ApiError(
                        400,
                        f"{name} is not supported by this server. {remedy}",
                        param=name,
                        code="unsupported_parameter",
                    )
            elif name not in WITHOUT_EFFECT:
                self._name_once(path, name)

    def _name_once(self, path: str, name: str) -> None:
        shown = name[:LONGEST_SHOWN]
        if shown in self._named or len(self._named) >= MOST_REMEMBERED:
            return
        self._named.add(shown)
        logger.warning("%s: unknown field %r is ignored; said once", path, shown)
