"""The two processors one after the other: the second sorts the whole vocabulary, of which 50 entries are left."""

from shared import TOP_K, TOP_P, make_step
from transformers import TopKLogitsWarper, TopPLogitsWarper


def build():
    top_k, top_p = TopKLogitsWarper(TOP_K), TopPLogitsWarper(TOP_P)
    return make_step(lambda scores: top_p(None, top_k(None, scores)).softmax(-1))
