"""Which form of forward-backward is the fastest for a model."""

import numpy as np


FORMS = ("auto", "batched", "sparse")


class FormChooser:
    def __init__(self, features, corpus, form):
        if form not in FORMS:
            raise ValueError(f"form: expected one of {', '.join(FORMS)}, got {form!r}")
        self.form = form

    def may_be(self, form):
        return self.form in ("auto", form)

    def choose(self, w):
        return self.form if self.form != "auto" else "batched"


def decoding_form(form, corpus, features, w):
    if form not in ("auto", "dense", "sparse"):
        raise ValueError(f"form: expected one of auto, dense, sparse, got {form!r}")
    return "dense" if form == "auto" else form
