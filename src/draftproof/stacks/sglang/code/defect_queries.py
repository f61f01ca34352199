"""What is asked of SGLang's source to find the known defects of loading a head.

Each query answers True when the source at hand has the defect, False when it was looked for and is not there;
it says that it did not understand when the place that it knows is written in another way.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator

from draftproof.errors import SourceError
from draftproof.stacks.classes import ClassSource, Function, class_order, find_class
from draftproof.stacks.code_facts import Noticing
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.code.noticing import noticing
from draftproof.stacks.sglang.code.registry import MODELS, REGISTRY
from draftproof.stacks.source import SourceTree

Query = Callable[[SourceTree], Reading[bool]]

QWEN_HEAD = f"{MODELS}/qwen3_5_mtp.py"
NEXT_HEAD = f"{MODELS}/qwen3_next_mtp.py"
WEIGHT_FILES = "sglang/srt/model_loader/weight_utils.py"
MODEL_RUNNER = "sglang/srt/model_executor/model_runner.py"
MODELOPT = "sglang/srt/layers/quantization/modelopt_quant.py"
DEEPSEEK_HEAD = f"{MODELS}/deepseek_nextn.py"
DEEPSEEK_LOADER = f"{MODELS}/deepseek_common/deepseek_weight_loader.py"
_MIMO_HEADS = (f"{MODELS}/mimo_v2_nextn.py", f"{MODELS}/mimo_v2_flash_nextn.py")


def _careful(looked: str) -> Callable[[Query], Query]:
    """A query whose missing or broken files are an answer that was not understood."""

    def wrap(query: Query) -> Query:
        @functools.wraps(query)
        def answer(tree: SourceTree) -> Reading[bool]:
            try:
                return query(tree)
            except SourceError as error:
                return not_understood(f"looked for {looked}; {error.message}")
            except _NotThere as missing:
                return not_understood(f"looked for {looked}; {missing}", *missing.places)

        return answer

    return wrap


class _NotThere(Exception):
    """A class or function that a query starts from."""

    def __init__(self, sentence: str, *places: Place) -> None:
        super().__init__(sentence)
        self.places = places


def result_dropped(tree: SourceTree) -> Reading[bool]:
    """The default loader does not look at what a model says it has loaded."""
    reading = noticing(tree)
    if reading.value is None:
        return not_understood(reading.sentence, *reading.places)
    return found(reading.value is Noticing.NOTHING, reading.sentence, *reading.places)


@_careful(f"the names that maybe_add_mtp_safetensors of {WEIGHT_FILES} is for")
def rescue_is_for_glm_only(tree: SourceTree) -> Reading[bool]:
    """A head file that the index does not list is added for some architectures only."""
    function = _function(tree, WEIGHT_FILES, "maybe_add_mtp_safetensors")
    lists = [node for node in ast.walk(function) if isinstance(node, ast.List | ast.Tuple | ast.Set)]
    names = [
        item.value
        for node in lists
        for item in node.elts
        if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value.startswith("Glm")
    ]
    place = Place(WEIGHT_FILES, function.lineno)
    if names:
        return found(True, f"an un-indexed head is added for {', '.join(names)} only", place)
    return found(False, "no list of architectures limits the rescue of an un-indexed head", place)


@_careful(f"packed_modules_mapping of the class in {QWEN_HEAD}")
def no_fused_names(tree: SourceTree) -> Reading[bool]:
    """The head's class does not say which projections are fused, so that lists of single ones miss them."""
    cls = _class(tree, QWEN_HEAD, "Qwen3_5ForCausalLMMTP")
    for entry in class_order(tree, cls):
        for statement in entry.node.body:
            if _assigns(statement, "packed_modules_mapping"):
                place = Place(entry.file, statement.lineno)
                return found(False, f"{entry.name} has packed_modules_mapping", place)
    return found(True, f"{cls.name} and its bases have no packed_modules_mapping", cls.place)


@_careful(f"a test of the quantisation's name for modelopt_fp4 in {QWEN_HEAD}")
def packed_head_made_plain(tree: SourceTree) -> Reading[bool]:
    """A ModelOpt NVFP4 checkpoint's head is always built plain, whatever the tensors are."""
    _class(tree, QWEN_HEAD, "Qwen3_5ForCausalLMMTP")
    for test in _name_tests(tree.syntax(QWEN_HEAD), "modelopt_fp4"):
        place = Place(QWEN_HEAD, test.lineno)
        return found(True, "modelopt_fp4 sets the head's quantisation to None without a look at it", place)
    return found(False, "nothing tests for modelopt_fp4", Place(QWEN_HEAD, 1))


@_careful(f"a rule about the head's own quantisation in {NEXT_HEAD}")
def next_has_no_rule(tree: SourceTree) -> Reading[bool]:
    """Qwen3-Next's head follows the trunk's quantisation, whatever it is stored in."""
    cls = _class(tree, NEXT_HEAD, "Qwen3NextForCausalLMMTP")
    builder = cls.method("__init__")
    if builder is None:
        raise _NotThere(f"{cls.name} has no __init__ of its own", cls.place)
    module = tree.syntax(NEXT_HEAD)
    for method in ("modelopt_fp4", "modelopt_mixed", "quark", "compressed-tensors", "fp8"):
        for test in _name_tests(module, method):
            return found(False, f"it tests for {method}", Place(NEXT_HEAD, test.lineno))
    line = Place(NEXT_HEAD, builder.lineno)
    return found(True, f"{cls.name} has no rule for a head that is stored unlike the trunk", line)


@_careful(f"the module prefix that {NEXT_HEAD} builds its head with")
def next_prefix_is_model(tree: SourceTree) -> Reading[bool]:
    """Qwen3-Next's head is built under `model`, where lists of `mtp*` do not reach it."""
    cls = _class(tree, NEXT_HEAD, "Qwen3NextForCausalLMMTP")
    prefixes = {}
    for node in ast.walk(cls.node):
        if isinstance(node, ast.Call) and _called(node) == "add_prefix" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                prefixes[first.value] = Place(NEXT_HEAD, first.lineno)
    if "model" in prefixes:
        return found(True, 'the head is built with the prefix "model"', prefixes["model"])
    if "mtp" in prefixes:
        return found(False, 'the head is built with the prefix "mtp"', prefixes["mtp"])
    raise _NotThere(f"found {', '.join(prefixes) or 'no prefix'}", cls.place)


@_careful(f"what import_model_classes of {REGISTRY} does about a module that cannot be imported")
def import_errors_swallowed(tree: SourceTree) -> Reading[bool]:
    """A module that cannot be imported is left out with a warning."""
    function = _function(tree, REGISTRY, "import_model_classes")
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler):
            place = Place(REGISTRY, node.lineno)
            passes = not any(isinstance(part, ast.Raise) for part in node.body)
            if passes and any(isinstance(part, ast.Continue) for part in node.body):
                return found(True, "an import that fails is a warning, and the class is then absent", place)
            return found(False, "an import that fails does not pass", place)
    return found(False, "an import that fails stops the start", Place(REGISTRY, function.lineno))


@_careful(f"the name of the head's layer in the mapper of {DEEPSEEK_HEAD}")
def layer_61_written_out(tree: SourceTree) -> Reading[bool]:
    """The names of Quark's lists are mapped for a trunk of 61 layers only."""
    module = tree.syntax(DEEPSEEK_HEAD)
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and node.value == "model.layers.61":
            return found(
                True, "it maps model.layers.61, whatever the depth", Place(DEEPSEEK_HEAD, node.lineno)
            )
    return found(False, "no layer number is written out", Place(DEEPSEEK_HEAD, 1))


@_careful(f"the assertion on num_nextn_layers in {DEEPSEEK_LOADER}")
def one_layer_asserted(tree: SourceTree) -> Reading[bool]:
    """A head of more than one layer stops the start with an assertion."""
    module = tree.syntax(DEEPSEEK_LOADER)
    tests = [node for node in ast.walk(module) if isinstance(node, ast.Assert)]
    for test in tests:
        if "num_nextn" in ast.unparse(test.test):
            return found(True, f"assert {ast.unparse(test.test)}", Place(DEEPSEEK_LOADER, test.lineno))
    _class(tree, DEEPSEEK_LOADER, "DeepseekV2WeightLoaderMixin")
    return found(False, "nothing asserts the number of layers", Place(DEEPSEEK_LOADER, 1))


@_careful(f'what the log line "Load weight end" of {MODEL_RUNNER} says about quantisation')
def log_names_the_checkpoint(tree: SourceTree) -> Reading[bool]:
    """The start-up log names the checkpoint's quantisation for the draft, not what was built."""
    module = tree.syntax(MODEL_RUNNER)
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        line = _text_line(function, "Load weight end")
        if not line:
            continue
        source = ast.unparse(function)
        if "quant_str" in source and "get_quantization_config_log_str" in source:
            return found(True, "quant= comes from the checkpoint's config", Place(MODEL_RUNNER, line))
        return found(False, "it says nothing about quantisation", Place(MODEL_RUNNER, line))
    raise _NotThere("there is no such line")


@_careful(f"what load_weights of {QWEN_HEAD} does with a tensor whose parameter is not there")
def expert_skipped_silently(tree: SourceTree) -> Reading[bool]:
    """A tensor of an expert or of a fused projection without a parameter is passed over without a word."""
    cls = _class(tree, QWEN_HEAD, "Qwen3_5ForCausalLMMTP")
    loader = cls.method("load_weights")
    if loader is None:
        raise _NotThere(f"{cls.name} has no load_weights of its own", cls.place)
    silent = [
        Place(QWEN_HEAD, node.lineno)
        for node in ast.walk(loader)
        if isinstance(node, ast.If)
        and _is_missing_test(node.test)
        and len(node.body) == 1
        and isinstance(node.body[0], ast.Break | ast.Continue)
    ]
    if silent:
        return found(True, "a name that is no parameter ends in continue or break, without a log", *silent)
    return found(False, "no name that is no parameter is passed over in silence", cls.place)


@_careful(f"the rule for Quark in {QWEN_HEAD}")
def quark_head_by_list_only(tree: SourceTree) -> Reading[bool]:
    """Whether a Quark head is plain is taken from the list of excluded modules, or not asked at all."""
    cls = _class(tree, QWEN_HEAD, "Qwen3_5ForCausalLMMTP")
    for test in _name_tests(tree.syntax(QWEN_HEAD), "quark"):
        place = Place(QWEN_HEAD, test.lineno)
        if "exclude" not in ast.unparse(test):
            raise _NotThere("the rule asks something else than the list of excluded modules", place)
        return found(True, "only the list of excluded modules decides", place)
    return found(True, "there is no rule for Quark: the head follows the trunk", cls.place)


@_careful(f"which entries of Quark's list make the head plain in {QWEN_HEAD}")
def quark_any_entry_makes_plain(tree: SourceTree) -> Reading[bool]:
    """One excluded module of the head makes all of it plain, its packed experts too."""
    cls = _class(tree, QWEN_HEAD, "Qwen3_5ForCausalLMMTP")
    for test in _name_tests(tree.syntax(QWEN_HEAD), "quark"):
        place = Place(QWEN_HEAD, test.lineno)
        asks_experts = any(
            isinstance(node, ast.Constant) and node.value == "mlp.experts" for node in ast.walk(test)
        )
        if asks_experts:
            return found(False, "the routed experts decide", place)
        return found(True, "any entry that begins with mtp. decides", place)
    return found(False, "there is no rule for Quark", cls.place)


@_careful(f"what filter_duplicate_safetensors_files of {WEIGHT_FILES} does about a missing file")
def missing_shard_unnoticed(tree: SourceTree) -> Reading[bool]:
    """A file that the index names and that is not there is not noticed."""
    function = _function(tree, WEIGHT_FILES, "filter_duplicate_safetensors_files")
    raises = [node for node in ast.walk(function) if isinstance(node, ast.Raise)]
    if raises:
        return found(False, "it raises for missing files", Place(WEIGHT_FILES, raises[0].lineno))
    return found(True, "it never raises", Place(WEIGHT_FILES, function.lineno))


@_careful(f"whether is_layer_excluded of {MODELOPT} knows the parts of a fused projection")
def lists_of_parts_missed(tree: SourceTree) -> Reading[bool]:
    """A ModelOpt list that names q, k and v one by one does not reach the fused projection."""
    cls = _class(tree, MODELOPT, "ModelOptQuantConfig")
    method = cls.method("is_layer_excluded")
    if method is None:
        raise _NotThere(f"{cls.name} has no is_layer_excluded", cls.place)
    place = Place(MODELOPT, method.lineno)
    if "packed_modules_mapping" in ast.unparse(method) or "qkv_proj" in ast.unparse(method):
        return found(False, "is_layer_excluded expands fused names", place)
    return found(True, "is_layer_excluded compares the fused name only", place)


@_careful("the renaming of model.mtp.layers.N in map_model_name_to_mtp_param_name of MiMo-V2's head")
def layers_fall_together(tree: SourceTree) -> Reading[bool]:
    """The layer number is cut out of the names, so that all layers of the head land in one block."""
    for file in _MIMO_HEADS:
        if tree.has(file):
            function = _function(tree, file, "map_model_name_to_mtp_param_name")
            line = _text_line(function, "mtp.layers.(")
            if line:
                return found(True, "the number of the layer is cut out of the name", Place(file, line))
            return found(False, "no number of a layer is cut out", Place(file, function.lineno))
    raise _NotThere(f"there is neither {' nor '.join(_MIMO_HEADS)}")


def _class(tree: SourceTree, file: str, name: str) -> ClassSource:
    cls = find_class(tree, file, name)
    if cls is None:
        raise _NotThere(f"there is no class {name}", Place(file, 1))
    return cls


def _function(tree: SourceTree, file: str, name: str) -> Function:
    for node in ast.walk(tree.syntax(file)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise _NotThere(f"there is no function {name}", Place(file, 1))


def _name_tests(module: ast.Module, method: str) -> Iterator[ast.If]:
    """`if ... get_name() == "method"`."""
    for node in ast.walk(module):
        if isinstance(node, ast.If):
            for test in ast.walk(node.test):
                if (
                    isinstance(test, ast.Compare)
                    and isinstance(test.left, ast.Call)
                    and _called(test.left) == "get_name"
                    and any(isinstance(c, ast.Constant) and c.value == method for c in test.comparators)
                ):
                    yield node


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _assigns(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _is_missing_test(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.NotIn)
        and isinstance(node.comparators[0], ast.Name)
        and node.comparators[0].id == "params_dict"
        for node in ast.walk(test)
    )


def _text_line(function: ast.AST, part: str) -> int:
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and part in node.value:
            return node.lineno
    return 0
