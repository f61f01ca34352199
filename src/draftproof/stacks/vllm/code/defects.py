"""Known defects of vLLM's loading of a head. Those of launching and of kernels have tables of their own."""

from __future__ import annotations

from draftproof.stacks.defect import Defect, DefectFinding, DefectLink, Harm
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code import defect_conditions as concerns
from draftproof.stacks.vllm.code import defect_queries as asks

_ALL = ("0.19.0", "0.26.0", "0.33.0")
_SILENT = "the server starts, the text is right, hardly any draft is accepted"

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "vllm-projection-packed",
        DefectLink.CODE,
        Harm.BREAKS,
        "mtp.fc is built NVFP4 because ModelOpt's list does not name it",
        "vllm-project/vllm#38832",
        ("0.19.0",),
        "an exception for modelopt_fp4 where Qwen3_5MultiTokenPredictor builds fc",
        asks.projection_follows_config,
        concerns.plain_projection_unlisted_in_modelopt_fp4,
        "loading stops at mtp.fc with a size mismatch",
        'add "mtp*" to the list of excluded modules, or use a version with the exception',
    ),
    Defect(
        "vllm-projection-exception-narrow",
        DefectLink.CODE,
        Harm.BREAKS,
        "mtp.fc is built quantised wherever the list of modules does not name it",
        "vllm-project/vllm#38832",
        _ALL,
        "names of quantisations for which Qwen3_5MultiTokenPredictor builds fc plain",
        asks.projection_exception_is_narrow,
        concerns.plain_projection_unlisted_elsewhere,
        "loading stops at mtp.fc",
        "name mtp.fc on the checkpoint's list of modules that are not quantised",
    ),
    Defect(
        "vllm-unwritten-unnoticed",
        DefectLink.CODE,
        Harm.WEAKENS,
        "Nobody looks for unwritten parameters of a quantised model",
        "vllm-project/vllm#43455",
        _ALL,
        "a condition `quantization is None` around the loader's check",
        asks.unwritten_unnoticed_when_quantised,
        concerns.quantised,
        f"a head with missing tensors is served with whatever memory held: {_SILENT}",
        """--model-loader-extra-config '{"enable_weights_track": true}' where the version has it""",
    ),
    Defect(
        "vllm-linears-exempt",
        DefectLink.CODE,
        Harm.WEAKENS,
        "The check for unwritten parameters leaves out every linear",
        "none known",
        ("0.26.0", "0.33.0"),
        "`loaded_weights.add` for modules with a quant_method, in track_weights_loading",
        asks.linears_exempt_from_check,
        concerns.not_quantised,
        f"a head whose linears are missing is served; only missing norms stop the start: {_SILENT}",
        "check the files first: draftproof verify without --stack",
    ),
    Defect(
        "vllm-other-prefixes-skipped",
        DefectLink.CODE,
        Harm.BREAKS,
        'A head that is not called "mtp." at the top level is passed over',
        "none known",
        _ALL,
        'a test for names that start with "mtp." in the Qwen3.5 head\'s loader',
        asks.other_prefixes_skipped,
        concerns.head_under_another_prefix,
        f"no tensor of the head is read: {_SILENT}",
        'rename the tensors so that they start with "mtp."',
    ),
    Defect(
        "vllm-unindexed-dropped",
        DefectLink.CODE,
        Harm.BREAKS,
        "A head in a file that the index does not list is not read",
        "none known",
        _ALL,
        "a filter by the index without a message, in filter_duplicate_safetensors_files",
        asks.unindexed_files_dropped,
        concerns.head_in_unindexed_file,
        f"the file is dropped without a word: {_SILENT}",
        "add the file's tensors to model.safetensors.index.json",
    ),
    Defect(
        "vllm-unmatched-experts-dropped",
        DefectLink.CODE,
        Harm.WEAKENS,
        "A tensor of an expert that matches no mapping disappears",
        "none known",
        _ALL,
        "an end of the experts' loop without an error",
        asks.unmatched_experts_dropped,
        concerns.has_experts,
        "an expert's tensor with an unusual name is lost without a word",
        "compare the names with those of the release: draftproof verify without --stack",
    ),
    Defect(
        "vllm-path-changes-method",
        DefectLink.CODE,
        Harm.BREAKS,
        "The path of the checkpoint overrules the method",
        "none known",
        _ALL,
        "tests for words in the lower-cased path before the test for MTP",
        asks.path_changes_method,
        concerns.path_with_a_telling_word,
        "vLLM takes the checkpoint for another drafter than MTP",
        "rename the folder",
    ),
    Defect(
        "vllm-part-of-a-name",
        DefectLink.CODE,
        Harm.BREAKS,
        "A model type that is a part of pangu_ultra_moe gets that model's head",
        "none known",
        _ALL,
        '`model_type in ("…")` with a string, in hf_config_override',
        asks.membership_in_a_string,
        concerns.model_type_is_part_of_pangu,
        "the head of another family is built",
        "none: the model type must be another",
    ),
    Defect(
        "vllm-zero-layers-divide",
        DefectLink.CODE,
        Harm.BREAKS,
        "A declared depth of zero ends in a ZeroDivisionError",
        "none known",
        _ALL,
        "`num_speculative_tokens % n_predict` without a test for zero",
        asks.depth_divides_without_a_look,
        concerns.declares_no_layer,
        "the start ends with ZeroDivisionError instead of a sentence about the missing head",
        "start without --speculative-config: this checkpoint declares no head",
    ),
    Defect(
        "vllm-text-only-unmapped",
        DefectLink.CODE,
        Harm.BREAKS,
        "Text-only checkpoints of the Qwen3.5 line have no draft",
        "none known",
        ("0.19.0", "0.26.0"),
        "qwen3_5_text and qwen3_5_moe_text among the mapped model types",
        asks.text_only_not_mapped,
        concerns.is_text_only_qwen,
        "the start ends with: Unsupported speculative method: 'mtp'",
        "use a version that maps them",
    ),
    Defect(
        "vllm-layers-counted-twice",
        DefectLink.CODE,
        Harm.WEAKENS,
        "Without mtp_num_hidden_layers config and class disagree about the head's layers",
        "none known",
        _ALL,
        "defaults of getattr(…, 'mtp_num_hidden_layers', …) in the config's convertor and in the class",
        asks.layers_counted_twice,
        concerns.declares_nothing,
        "the cache is planned for another number of layers than is built",
        "add mtp_num_hidden_layers to the config",
    ),
    Defect(
        "vllm-unknown-names-passed-over",
        DefectLink.CODE,
        Harm.WEAKENS,
        "GLM-4's head passes over tensors that no parameter is called after",
        "none known",
        _ALL,
        "`if name not in params_dict: continue` without a message",
        asks.unknown_names_passed_over,
        concerns.is_glm4,
        f"a renamed tensor is lost without a word: {_SILENT}",
        "compare the names with those of the release: draftproof verify without --stack",
    ),
)


def code_defects(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation
) -> tuple[DefectFinding, ...]:
    """What the queries of all defects find, and which of them concern this checkpoint."""
    return tuple(
        DefectFinding(defect, defect.query(tree), defect.applies(checkpoint, situation)) for defect in DEFECTS
    )
