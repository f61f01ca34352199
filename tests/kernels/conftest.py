"""Triton kernels run under its interpreter where there is no GPU: decided before any of them is imported."""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
