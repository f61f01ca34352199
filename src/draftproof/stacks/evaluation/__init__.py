"""Runs a function of a stack's source on known values, from its syntax tree; nothing is imported.

A stack's own rules (how it rewrites a config, names a weight, chooses a kernel) are ordinary Python. This
package carries them out on the values at hand, and on `Unknown` where a value is not known::

    evaluator = Evaluator(tree, substitutes={"torch.cuda.get_device_capability": lambda *_: (12, 0)})
    config = pretrained_config({"architectures": ["Qwen3_5MoeForConditionalGeneration"]}, "hf_config")
    model = Given("model_config", {"hf_config": config, "is_draft_model": True}, missing=Missing.UNKNOWN)
    file, method = "sglang/srt/configs/model_config.py", "ModelConfig._config_draft_model"
    for outcome in evaluator.call(file, method, model):
        outcome.given["hf_config"].attributes["architectures"]     # ["Qwen3_5ForCausalLMMTP"]
        outcome.conditions                                          # what was assumed about unknown values
        outcome.log, outcome.events                                 # in order, each with its Place

Rules of the game:

* `call(file, name, *positional, **keywords)`: name is "function", "Class" (constructs) or "Class.method" (the
  object is the first positional argument). `value(file, name)` gives a constant of a module. Both return a
  tuple of `Outcome`: one for each way through the code. Always look at all of them: `conditions` says what
  each assumes, `not_understood` says where the evaluator gave up. `single(outcomes)` is the outcome when
  there is only one.
* Arguments are Python's own values, `Given` objects, `Named` things of the tree, `Unknown`, `Symbol`, or
  Python functions. Each way gets fresh copies.
* A test on an unknown value forks: both ways are followed. `Settings.decide` answers by the text of the
  condition. Two unknowns of the same name are one value: an assumption is made once.
* A module of the tree is evaluated lazily, name by name. A module that is not in the tree is unknown, except
  for the common parts of the standard library. `substitutes` maps dotted names, of either kind
  ("torch.cuda.is_available", "sglang.srt.utils.is_cuda", "vllm.config.model.ModelConfig.is_moe"), to what
  takes their place: a value, a Python function of the call's arguments, or `NotInstalled()`.
* An import of a module outside the tree, inside `try ... except ImportError`, is a question "import NAME".
* A call of an unknown function gives an unknown value and is listed in `outcome.unknown_calls`; it is taken
  to change none of its arguments.
* Functions with `yield` run to their end at once. Decorators that are unknown leave a function as it is.
* Bounds are in `Settings`; what lies beyond them, or is not supported, ends the way as `not_understood` or
  gives an `Unknown` with a `reason`.
"""

from draftproof.stacks.evaluation.config_object import pretrained_config
from draftproof.stacks.evaluation.evaluator import Evaluator, single
from draftproof.stacks.evaluation.outcomes import (
    Assignment,
    Condition,
    LogMessage,
    NotUnderstood,
    Outcome,
    RaisedError,
    TracedCall,
)
from draftproof.stacks.evaluation.settings import Given, Named, NotInstalled, Settings
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import ClassValue, Instance, Missing, Symbol

__all__ = [
    "Assignment",
    "ClassValue",
    "Condition",
    "Evaluator",
    "Given",
    "Instance",
    "LogMessage",
    "Missing",
    "Named",
    "NotInstalled",
    "NotUnderstood",
    "Outcome",
    "RaisedError",
    "Settings",
    "Symbol",
    "TracedCall",
    "Unknown",
    "Value",
    "pretrained_config",
    "single",
]
