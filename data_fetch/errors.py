"""The one exception of this package."""


class FetchError(RuntimeError):
    """Data could not be had; the message is one sentence that says what, where and what to do.

    Servers write parts of it. So every character that a terminal would obey, not show, stands as "?".
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else "?" for c in message))
