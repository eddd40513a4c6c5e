"""What the API's description says of errors: problem details, and which statuses an operation may answer.

FastAPI's own error schemas are taken out of the document: no operation ever answers them.
"""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

_TYPE: Final = "application/problem+json"
_REF: Final = "#/components/schemas/{model}"
_MEANING: Final = {
    400: "The body is not JSON, or what is asked makes no sense",
    401: "No bearer token, or none that is valid now",
    403: "The role for this was not granted",
    404: "No such thing within the caller's reach",
    408: "The body came too slowly",
    409: "The stored evidence does not allow it",
    413: "The body is too large",
    422: "The request does not have the declared form; `errors` names each field",
    429: "Too many octets of bodies are being read: try again",
    500: "An internal error; the log names it",
    503: "Could not tell: a part that is needed is away",
}
Responses = dict[int | str, dict[str, Any]]


class FieldError(BaseModel):
    """One field that is wrong."""

    at: str = Field(description="Path of the field, such as body.object.metadata.name.")
    message: str


class Problem(BaseModel):
    """Problem details (RFC 9457). Never quotes what was sent."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="Always about:blank: title and status say it.")
    title: str
    status: int
    detail: str
    fix: str | None = Field(default=None, description="What to do next, in one sentence.")
    errors: list[FieldError] | None = Field(default=None, description="With 422: each field that is wrong.")


def problems(*statuses: int) -> Responses:
    """Entries of `responses=` for these statuses."""
    content = {_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}
    return {status: {"description": _MEANING[status], "content": content} for status in sorted(statuses)}


# Whoever has a token may hear these from any operation; `WITH_BODY` where there is one to read.
COMMON: Final = problems(401, 403, 422, 500, 503)
WITH_BODY: Final = problems(400, 408, 413, 429)


def describe_problems(app: FastAPI) -> None:
    """Have the OpenAPI document hold the form of a problem, and no form that is never answered."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for name, schema in _schemas().items():
            schemas[name] = schema
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _schemas() -> Mapping[str, Any]:
    schema = Problem.model_json_schema(ref_template=_REF)
    return {**schema.pop("$defs"), "Problem": schema}
