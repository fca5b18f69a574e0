"""The one exception of this package."""


class FetchError(RuntimeError):
    """Data could not be had; the message is one sentence that says what, where and what to do."""
