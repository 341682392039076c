"""Errors of requests, in OpenAI's format."""

from __future__ import annotations

from typing import Any

_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class RequestError(Exception):
    """A request that is refused or has failed.

    Attributes:
        status: of the HTTP response.
        param: the field at fault, or None.
        code: a word for programs, or None.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def document(self) -> dict[str, Any]:
        """The body of the response."""
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {
            "message": self.message,
            "type": _KINDS.get(self.status, usual),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def refused(error: Exception) -> RequestError:
    """The answer to a UsageError about an argument, whose message begins with its name."""
    message = str(error)
    name, colon, _ = message.partition(": ")
    return RequestError(400, message, name if colon and name.isidentifier() else None)
