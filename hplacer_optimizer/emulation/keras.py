"""What Keras does by itself where it sees a GPU, and emulated ones cannot: XLA and cuDNN."""

from __future__ import annotations

from typing import Any

import wrapt


def keep_to_known_kernels() -> None:
    """Keras will neither compile by itself nor take cuDNN's kernels, once it is imported."""
    wrapt.register_post_import_hook(_leave_uncompiled, "keras.src.trainers.trainer")
    wrapt.register_post_import_hook(_leave_out_cudnn, "keras.src.backend.tensorflow.rnn")


def _leave_uncompiled(module: Any) -> None:
    """With `jit_compile="auto"`, its default, Keras compiles where there is a GPU."""
    if hasattr(module.Trainer, "_resolve_auto_jit_compile"):
        module.Trainer._resolve_auto_jit_compile = lambda self: False


def _leave_out_cudnn(module: Any) -> None:
    """With `use_cudnn="auto"`, their default, recurrent layers take cuDNN where there is a GPU."""
    if hasattr(module, "cudnn_ok"):
        module.cudnn_ok = lambda *arguments, **keywords: False
