"""Settings that are one switch under several names, so that one change shows in all of them.

`torch.backends.cuda.matmul.allow_tf32 = True` also changes `torch.float32_matmul_precision` and two more.
"""

from __future__ import annotations

from collections.abc import Iterable

_BACKENDS = "torch.backends."
_ALL = f"{_BACKENDS}fp32_precision"
_CUDA = f"{_BACKENDS}cudnn.fp32_precision"
_MKLDNN = f"{_BACKENDS}mkldnn.fp32_precision"
_MATMUL = f"{_BACKENDS}cuda.matmul.allow_tf32"
_CUDNN = f"{_BACKENDS}cudnn.allow_tf32"
_WORD = "torch.float32_matmul_precision"
_CUDA_MATMUL = f"{_BACKENDS}cuda.matmul.fp32_precision"
_MKLDNN_MATMUL = f"{_BACKENDS}mkldnn.matmul.fp32_precision"
_CUDA_PARTS = tuple(f"{_BACKENDS}cudnn.{part}.fp32_precision" for part in ("conv", "rnn"))
_MKLDNN_PARTS = tuple(f"{_BACKENDS}mkldnn.{part}.fp32_precision" for part in ("conv", "rnn"))
# What setting one changes too: a switch above those that follow it, an old switch and the new ones it sets.
_SETS: dict[str, tuple[str, ...]] = {
    _ALL: (_CUDA, _MKLDNN, _CUDA_MATMUL, *_CUDA_PARTS, _MKLDNN_MATMUL, *_MKLDNN_PARTS),
    _CUDA: (_CUDA_MATMUL, *_CUDA_PARTS),
    _MKLDNN: (_MKLDNN_MATMUL, *_MKLDNN_PARTS),
    _WORD: (_MATMUL, _CUDA_MATMUL, _MKLDNN_MATMUL),
    _MATMUL: (_WORD, _CUDA_MATMUL),
    _CUDNN: _CUDA_PARTS,
    "torch.num_threads": ("env.OMP_NUM_THREADS", "env.MKL_NUM_THREADS"),
}
# The name that a reader knows best comes first; `allow_tf32` alone is better known than the word, which does more.
_NATURAL = (
    _ALL,
    _CUDA,
    _MKLDNN,
    _MATMUL,
    _WORD,
    _CUDNN,
    _CUDA_MATMUL,
    _MKLDNN_MATMUL,
    *_CUDA_PARTS,
    *_MKLDNN_PARTS,
    "torch.num_threads",
)


def aliases(name: str) -> tuple[str, ...]:
    """Return the settings that may change when this one does because they are the same switch; not itself."""
    found = {*_SETS.get(name, ()), *(other for other, others in _SETS.items() if name in others)}
    return tuple(sorted(found, key=_rank))


def group_aliases(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the names in groups of one switch each, the most natural name first, in the order they are given.

    Two that only a third one joins, such as a precision above both, are apart unless that one is among the names.
    """
    left = dict.fromkeys(names)
    groups = []
    while left:
        group, queue = [], [next(iter(left))]
        while queue:
            name = queue.pop()
            if name in left:
                del left[name]
                group.append(name)
                queue += aliases(name)
        groups.append(tuple(sorted(group, key=_word_first if _does_more(group) else _rank)))
    return groups


def _does_more(group: list[str]) -> bool:
    """Return whether more changed than `allow_tf32` alone can change."""
    return _WORD in group and _MKLDNN_MATMUL in group


def _word_first(name: str) -> tuple[int, str]:
    return (-1, name) if name == _WORD else _rank(name)


def _rank(name: str) -> tuple[int, str]:
    return (_NATURAL.index(name) if name in _NATURAL else len(_NATURAL)), name
