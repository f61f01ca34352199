"""What is asked of vLLM's source to find the known defects of loading a head.

Each query answers True when the source at hand has the defect, False when it was looked for and is not there;
it says that it did not understand when the place that it knows is written in another way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.noticing import tracking
from draftproof.stacks.vllm.code.source_search import called_names, function_node, place_of, strings

SPECULATIVE = "vllm/config/speculative.py"
OVERRIDE = "SpeculativeConfig.hf_config_override"
QWEN_HEAD = "vllm/model_executor/models/qwen3_5_mtp.py"
QWEN_PREDICTOR = "Qwen3_5MultiTokenPredictor"
QWEN_CLASS = "Qwen3_5MTP"
WEIGHT_FILES = "vllm/model_executor/model_loader/weight_utils.py"
ROUTED_EXPERTS = "vllm/model_executor/layers/fused_moe/routed_experts.py"
EXPERT_LAYER = "vllm/model_executor/layers/fused_moe/layer.py"
GLM_HEAD = "vllm/model_executor/models/glm4_moe_mtp.py"
CONVERTOR = "vllm/transformers_utils/model_arch_config_convertor.py"
_MESSAGES = frozenset(("warning", "warning_once", "info", "info_once", "error"))
_NO_EXCEPTION = "mtp.fc is built by the checkpoint's quantisation config, without exception"
_TEXT_TYPES = ("qwen3_5_text", "qwen3_5_moe_text")


def projection_follows_config(tree: SourceTree) -> Reading[bool]:
    """mtp.fc of the Qwen3.5 head is built by the quantisation config, for ModelOpt NVFP4 too."""
    names, place, problem = _projection_exceptions(tree)
    if place is None:
        return not_understood(problem)
    if "modelopt_fp4" in names:
        return found(False, "mtp.fc is built plain where the quantisation is called modelopt_fp4", place)
    return found(True, _NO_EXCEPTION, place)


def projection_exception_is_narrow(tree: SourceTree) -> Reading[bool]:
    """mtp.fc is built plain for ModelOpt NVFP4 only; other quantisations must name it themselves."""
    names, place, problem = _projection_exceptions(tree)
    if place is None:
        return not_understood(problem)
    if not names:
        return found(
            True, "mtp.fc is built by the checkpoint's quantisation config, without exception", place
        )
    sentence = f"mtp.fc is built plain only where the quantisation is called {', '.join(names)}"
    return found(True, sentence, place)


def unwritten_unnoticed_when_quantised(tree: SourceTree) -> Reading[bool]:
    """The loader looks for unwritten parameters only in models without quantisation."""
    rule = tracking(tree)
    if rule.value is None:
        return not_understood(rule.sentence, *rule.places)
    return found(rule.value.only_unquantised, rule.sentence, rule.value.place)


def linears_exempt_from_check(tree: SourceTree) -> Reading[bool]:
    """The loader's check counts every parameter of a module with a quant_method as loaded."""
    rule = tracking(tree)
    if rule.value is None:
        return not_understood(rule.sentence, *rule.places)
    if rule.value.exemption is None:
        return found(False, "no parameter is counted as loaded that was not", rule.value.place)
    sentence = "parameters of every linear, expert and embedding are counted as loaded"
    return found(True, sentence, rule.value.exemption)


def other_prefixes_skipped(tree: SourceTree) -> Reading[bool]:
    """The Qwen3.5 head's loader goes on without a word where a name does not start with "mtp."."""
    wanted = f'a test `name.startswith("mtp.")` in load_weights of {QWEN_CLASS}, {QWEN_HEAD}'
    load = _function(tree, QWEN_HEAD, f"{QWEN_CLASS}.load_weights")
    if isinstance(load, str):
        return not_understood(f"looked for {wanted}: {load}")
    helper = _function(tree, QWEN_HEAD, f"{QWEN_CLASS}.is_unused_checkpoint_weight")
    for function in (load, helper):
        if isinstance(function, str):
            continue
        test = _starts_with(function, "mtp.")
        if test is not None:
            skips = any(isinstance(node, ast.Continue) for node in ast.walk(load))
            place = place_of(QWEN_HEAD, test)
            if skips:
                return found(True, 'names that do not start with "mtp." are passed over', place)
            return found(False, "no name is passed over", place)
    return not_understood(f"looked for {wanted}", place_of(QWEN_HEAD, load))


def unindexed_files_dropped(tree: SourceTree) -> Reading[bool]:
    """Weight files that the index does not list are left out without a message."""
    wanted = f"filter_duplicate_safetensors_files in {WEIGHT_FILES}"
    function = _function(tree, WEIGHT_FILES, "filter_duplicate_safetensors_files")
    if isinstance(function, str):
        return not_understood(f"looked for {wanted}: {function}")
    for node in ast.walk(function):
        if isinstance(node, ast.ListComp) and node.generators[0].ifs:
            test = node.generators[0].ifs[0]
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In):
                logged = called_names(function) & _MESSAGES
                place = place_of(WEIGHT_FILES, node)
                if logged:
                    return found(False, "files that the index does not list are left out and logged", place)
                return found(True, "files that the index does not list are left out without a word", place)
    return not_understood(f"looked for a list of the files in the index in {wanted}")


def unmatched_experts_dropped(tree: SourceTree) -> Reading[bool]:
    """A tensor of an expert that no mapping matches is dropped by the experts' own loader."""
    for file, name in ((ROUTED_EXPERTS, "RoutedExperts"), (EXPERT_LAYER, "FusedMoE")):
        function = _function(tree, file, f"{name}.load_weights")
        if isinstance(function, str):
            continue
        outer = [node for node in function.body if isinstance(node, ast.For)]
        if not outer:
            break
        after = [statement for statement in outer[-1].body if isinstance(statement, (ast.If, ast.Raise))]
        refuses = any(_mentions(statement, "matched") for statement in after)
        inner = [node for node in outer[-1].body if isinstance(node, ast.For)]
        refuses = refuses or any(node.orelse for node in inner)
        place = place_of(file, function)
        if refuses:
            return found(False, "an expert's tensor without a mapping is refused or logged", place)
        return found(True, "an expert's tensor that no mapping matches is dropped without a word", place)
    wanted = f"load_weights of RoutedExperts in {ROUTED_EXPERTS} or of FusedMoE in {EXPERT_LAYER}"
    return not_understood(f"looked for a loop over the tensors in {wanted}")


def path_changes_method(tree: SourceTree) -> Reading[bool]:
    """The method is changed when the path of the checkpoint holds certain words."""
    words = path_words(tree)
    if words.value is None:
        return not_understood(words.sentence, *words.places)
    if not words.value:
        return found(False, words.sentence, *words.places)
    return found(True, words.sentence, *words.places)


def path_words(tree: SourceTree) -> Reading[tuple[str, ...]]:
    """Words in a path that make vLLM change the method, in the order in which they are tried."""
    wanted = f'tests `"word" in ….model.lower()` in __post_init__ of SpeculativeConfig, {SPECULATIVE}'
    function = _function(tree, SPECULATIVE, "SpeculativeConfig.__post_init__")
    if isinstance(function, str):
        return not_understood(f"looked for {wanted}: {function}")
    tests = sorted(_path_tests(function), key=lambda pair: pair[1].line)
    if not tests:
        return found((), "the path of the checkpoint has no say", place_of(SPECULATIVE, function))
    words = tuple(word for word, _ in tests)
    sentence = f"a path with {', '.join(words)} in it changes the method, whatever the user said"
    return Reading(words, sentence, tuple(place for _, place in tests))


def membership_in_a_string(tree: SourceTree) -> Reading[bool]:
    """`model_type in ("name")`: a string and no tuple, so parts of the name match too."""
    function = _function(tree, SPECULATIVE, OVERRIDE)
    if isinstance(function, str):
        return not_understood(f"looked for {OVERRIDE} in {SPECULATIVE}: {function}")
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            operand = node.comparators[0]
            if _is_model_type(node.left) and isinstance(operand, ast.Constant):
                sentence = f"`{ast.unparse(node)}` asks for a part of a string"
                return found(True, sentence, place_of(SPECULATIVE, node))
    return found(False, "every `model_type in …` asks a tuple or a set", place_of(SPECULATIVE, function))


def depth_divides_without_a_look(tree: SourceTree) -> Reading[bool]:
    """K is divided by the declared depth without a look whether that is zero."""
    wanted = f"`num_speculative_tokens % n_predict` in __post_init__ of SpeculativeConfig, {SPECULATIVE}"
    function = _function(tree, SPECULATIVE, "SpeculativeConfig.__post_init__")
    if isinstance(function, str):
        return not_understood(f"looked for {wanted}: {function}")
    division = next(
        (
            node
            for node in ast.walk(function)
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mod)
            and isinstance(node.right, ast.Name)
            and node.right.id == "n_predict"
        ),
        None,
    )
    if division is None:
        return not_understood(f"looked for {wanted}", place_of(SPECULATIVE, function))
    place = place_of(SPECULATIVE, division)
    if _guards_zero(function):
        return found(False, "a depth of zero is not divided by", place)
    return found(True, "K is divided by the declared depth, which may be zero", place)


def text_only_not_mapped(tree: SourceTree) -> Reading[bool]:
    """The text-only model types of the Qwen3.5 line have no draft."""
    function = _function(tree, SPECULATIVE, OVERRIDE)
    if isinstance(function, str):
        return not_understood(f"looked for {OVERRIDE} in {SPECULATIVE}: {function}")
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and _is_model_type(node.left):
            names = tuple(strings(node.comparators[0]))
            if "qwen3_5_moe" in names and "qwen3_5" in names:
                place = place_of(SPECULATIVE, node)
                missing = [name for name in _TEXT_TYPES if name not in names]
                if missing:
                    return found(True, f"{', '.join(missing)} is not among {', '.join(names)}", place)
                return found(False, f"{', '.join(_TEXT_TYPES)} are mapped too", place)
    wanted = "a test of model_type against qwen3_5 and qwen3_5_moe"
    return not_understood(f"looked for {wanted} in {OVERRIDE}", place_of(SPECULATIVE, function))


def layers_counted_twice(tree: SourceTree) -> Reading[bool]:
    """Without mtp_num_hidden_layers the config counts no layer and the head's class builds one."""
    counted, counted_at = _default_of(
        tree, CONVERTOR, "Qwen3_5MTPModelArchConfigConvertor.get_num_hidden_layers", "mtp_num_hidden_layers"
    )
    built, built_at = _default_of(tree, QWEN_HEAD, f"{QWEN_PREDICTOR}.__init__", "mtp_num_hidden_layers")
    if counted_at is None or built_at is None:
        wanted = "getattr(…, 'mtp_num_hidden_layers', default)"
        return not_understood(f"looked for {wanted} in {CONVERTOR} and {QWEN_HEAD}")
    sentence = f"without the field the config counts {counted} layers and the head builds {built}"
    return found(counted != built, sentence, built_at, counted_at)


def unknown_names_passed_over(tree: SourceTree) -> Reading[bool]:
    """The loader of GLM-4's head goes on where no parameter has the name."""
    function = _function(tree, GLM_HEAD, "Glm4MoeMTP.load_weights")
    if isinstance(function, str):
        return not_understood(f"looked for Glm4MoeMTP.load_weights in {GLM_HEAD}: {function}")
    for node in ast.walk(function):
        if isinstance(node, ast.If) and _is_name_test(node.test) and _goes_on_silently(node):
            sentence = "a name that no parameter has is passed over without a word"
            return found(True, sentence, place_of(GLM_HEAD, node))
    return found(False, "no name is passed over without a word", place_of(GLM_HEAD, function))


def _projection_exceptions(tree: SourceTree) -> tuple[tuple[str, ...], Place | None, str]:
    """Names of quantisations for which the Qwen3.5 head builds mtp.fc plain, and where fc is built."""
    wanted = f"`self.fc = …(quant_config=…)` in {QWEN_PREDICTOR}.__init__, {QWEN_HEAD}"
    function = _function(tree, QWEN_HEAD, f"{QWEN_PREDICTOR}.__init__")
    if isinstance(function, str):
        return (), None, f"looked for {wanted}: {function}"
    call = _assigned_call(function, "fc")
    keyword = next((item for item in call.keywords if item.arg == "quant_config"), None) if call else None
    if call is None or keyword is None:
        return (), None, f"looked for {wanted}"
    if not isinstance(keyword.value, ast.Name) or keyword.value.id == "quant_config":
        return (), place_of(QWEN_HEAD, call), ""
    for node in ast.walk(function):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id == keyword.value.id and isinstance(node, ast.Assign):
            if not isinstance(node.value, ast.IfExp):
                break
            return tuple(strings(node.value.test)), place_of(QWEN_HEAD, node), ""
    return (), None, f"looked for `{keyword.value.id} = None if … else quant_config` in {QWEN_HEAD}"


def _assigned_call(function: ast.FunctionDef, attribute: str) -> ast.Call | None:
    """The call whose result is assigned to `self.attribute`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and target.attr == attribute:
                return node.value
    return None


def _function(tree: SourceTree, file: str, name: str) -> ast.FunctionDef | str:
    """A function; or, in words, why it is not there."""
    try:
        node = function_node(tree, file, name)
    except SourceError as error:
        return error.message
    return node if node is not None else f"{file} has no {name}"


def _starts_with(function: ast.FunctionDef, prefix: str) -> ast.Call | None:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith(".startswith")
            and prefix in strings(node)
        ):
            return node
    return None


def _path_tests(function: ast.FunctionDef) -> Iterator[tuple[str, Place]]:
    for node in ast.walk(function):
        if not (isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant)):
            continue
        operand = node.comparators[0]
        lowered = (
            isinstance(node.ops[0], ast.In)
            and isinstance(operand, ast.Call)
            and isinstance(operand.func, ast.Attribute)
            and operand.func.attr == "lower"
            and isinstance(operand.func.value, ast.Attribute)
            and operand.func.value.attr == "model"
        )
        if lowered:
            yield str(node.left.value), place_of(SPECULATIVE, node)


def _is_model_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "model_type"


def _guards_zero(function: ast.FunctionDef) -> bool:
    """Whether n_predict is compared with a number, or used as a truth."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = any(isinstance(side, ast.Name) and side.id == "n_predict" for side in sides)
            number = any(isinstance(side, ast.Constant) and isinstance(side.value, int) for side in sides)
            if named and number:
                return True
        if isinstance(node, (ast.If, ast.IfExp)) and ast.unparse(node.test) == "n_predict":
            return True
    return False


def _default_of(tree: SourceTree, file: str, function: str, field: str) -> tuple[object, Place | None]:
    """The default of `getattr(…, field, default)` in a function, and where it stands."""
    node = _function(tree, file, function)
    if isinstance(node, str):
        return None, None
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Call) or ast.unparse(inner.func) != "getattr":
            continue
        if len(inner.args) == 3 and field in strings(inner.args[1]):
            default = inner.args[2]
            value = default.value if isinstance(default, ast.Constant) else ast.unparse(default)
            return value, place_of(file, inner)
    return None, None


def _is_name_test(test: ast.expr) -> bool:
    """`name not in params_dict`, alone or beside other conditions."""
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.NotIn)
        and isinstance(node.comparators[0], ast.Name)
        and node.comparators[0].id == "params_dict"
        for node in ast.walk(test)
    )


def _goes_on_silently(node: ast.If) -> bool:
    """Its body has a `continue` and no message."""
    logs = any(called_names(statement) & _MESSAGES for statement in node.body)
    return not logs and any(isinstance(statement, ast.Continue) for statement in node.body)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))
