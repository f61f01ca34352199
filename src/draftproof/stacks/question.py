"""A short name for a question about a checkpoint, for answers that are kept."""

from __future__ import annotations

import hashlib
import json

from draftproof.stacks.served_checkpoint import ServedCheckpoint


def question_name(asked: str, checkpoint: ServedCheckpoint, *details: object) -> str:
    """A name that differs whenever the configs or the details differ. Tensors do not count.

    Args:
        asked: what is asked: "sglang-launch".
        checkpoint: its name, revision and config files count.
        details: frozen data whose `repr` says everything.
    """
    configs = [checkpoint.name, checkpoint.revision, checkpoint.config, checkpoint.hf_quant_config]
    content = json.dumps(configs, sort_keys=True, default=repr) + "".join(map(repr, details))
    return f"{asked}-{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:24]}"
