"""The embedded checkpoint and its prompts, which the model never saw."""

from __future__ import annotations

import torch

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.request import Request
from draftproof.kernels.select import kernels_for
from draftproof.links.prompts import shipped_prompts
from draftproof.models.account import TensorAccount
from draftproof.models.loading import LoadedModel, load_model
from draftproof.models.stored_linear import DenseBackend, LoadTarget
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.sampling import SamplingParameters
from draftproof.text.tokenizer import Tokenizer
from tests.support.engines import CPU, POSITIONS


def load_embedded(dtype: torch.dtype, *, packed: bool = False, device: torch.device = CPU) -> LoadedModel:
    """Target and head, as the step loop or device steps want them."""
    opened = open_checkpoint("tiny")
    assert opened.folder is not None
    target = LoadTarget(dtype, WeightStorage.DENSE, DenseBackend.TORCH)
    if packed:
        experts = kernels_for(device).experts_of_prompt
        target = LoadTarget(dtype, WeightStorage.PACKED, DenseBackend.PACKED_BLOCKS, experts)
    account = TensorAccount(opened.folder, opened.inventory.tensors, device)
    with torch.inference_mode():
        return load_model(spec_from_config(opened.config), account, target, POSITIONS, device, with_head=True)


def embedded_tokenizer() -> Tokenizer:
    """Its tokenizer."""
    opened = open_checkpoint("tiny")
    assert opened.folder is not None
    return Tokenizer.load(opened.folder)


def embedded_requests(count: int, max_tokens: int) -> list[Request]:
    """Greedy and sampled in turns."""
    opened = open_checkpoint("tiny")
    tokenizer = embedded_tokenizer()
    prompts = [prompt for prompt in shipped_prompts(opened) if prompt.kind != "chat"]
    return [
        Request(
            f"r{number}",
            tuple(tokenizer.encode(prompts[number % len(prompts)].text)),
            SamplingParameters(
                temperature=0.8 * (number % 2),
                seed=number,
                max_tokens=max_tokens,
                ignore_eos=True,
                top_k=20 if number % 4 == 3 else 0,
            ),
        )
        for number in range(count)
    ]
