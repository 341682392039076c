"""The routes of the server."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from . import schema
from .bridge import Bridge, Stream
from .errors import RequestError
from .generation import Answer, Piece
from .metrics import Clock, Metrics
from .responses import ChatDocuments, CompletionDocuments, Documents
from .schema import Generation
from .served_model import ServedModel

BODY = 16 << 20  # bytes of a request at most


class Server:
    """Answers HTTP requests.

    Args:
        api_key: what requests to /v1 must present; "" for none.
        timeout: seconds that an answer may take.
        body: bytes that a request may have.
    """

    def __init__(
        self,
        model: ServedModel,
        bridge: Bridge,
        *,
        api_key: str = "",
        timeout: float = 600.0,
        body: int = BODY,
    ):
        self._model, self._bridge = model, bridge
        self._api_key, self._timeout, self._body = api_key, timeout, body
        self._metrics = Metrics()
        self._created = int(time.time())

    def app(self) -> Starlette:
        """The ASGI application; its lifespan is that of the engine's thread."""
        return Starlette(
            routes=[
                Route("/v1/completions", self._guarded(self._completions), methods=["POST"]),
                Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
                Route("/v1/models", self._guarded(self._models)),
                Route("/health", self._health),
                Route("/metrics", self._all_metrics),
            ],
            exception_handlers={HTTPException: _http_error, Exception: _internal_error},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        self._bridge.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._bridge.stop)

    def _guarded(self, handler: Any) -> Any:
        """A handler behind the API key, whose errors have OpenAI's format, and which is counted."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_key(request)
                response = await handler(request)
            except RequestError as e:
                response = _error(e)
            except ClientDisconnect:
                response = Response(status_code=499)  # for the count: the client has gone
            self._metrics.responses[request.url.path, response.status_code] += 1
            return response

        return guarded

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1")
        if self._api_key and not hmac.compare_digest(given, self._api_key.encode()):
            raise RequestError(401, "the API key is missing or wrong", code="invalid_api_key")

    async def _completions(self, request: Request) -> Response:
        arrived = time.monotonic()
        asked = schema.completion(await self._document(request))
        self._model.check_name(asked.generation.model)
        # long texts take seconds, in which others are answered
        prompts = await asyncio.to_thread(lambda: [self._model.prompt(p) for p in asked.prompts])
        echoes = [
            "" if not asked.echo else given if isinstance(given, str) else self._model.text(given)
            for given in asked.prompts
        ]
        documents = CompletionDocuments(
            self._model.name,
            sum(map(len, prompts)),
            asked.generation.usage_chunk,
            asked.generation.logprobs is not None,
        )
        return await self._answered(
            request, arrived, asked.generation, prompts, echoes, documents, "prompt", asked.echo
        )

    async def _chat(self, request: Request) -> Response:
        arrived = time.monotonic()
        asked = schema.chat(await self._document(request))
        self._model.check_name(asked.generation.model)
        prompt = await asyncio.to_thread(self._model.conversation, asked.messages)
        documents = ChatDocuments(
            self._model.name,
            len(prompt),
            asked.generation.usage_chunk,
            asked.generation.logprobs is not None,
        )
        return await self._answered(
            request, arrived, asked.generation, [prompt], [""], documents, "messages", False
        )

    async def _answered(
        self,
        request: Request,
        arrived: float,
        asked: Generation,
        prompts: Sequence[Sequence[int]],
        echoes: Sequence[str],
        documents: Documents,
        param: str,
        echo: bool,
    ) -> Response:
        requests = [self._model.request(p, asked, echo, param) for p in prompts]
        answer = Answer(self._model.tokenizer, requests, asked, echoes)
        stream = self._bridge.submit(requests, self._timeout)
        pieces = _pieces(stream, answer, Clock(self._metrics, arrived))
        try:
            if not asked.stream:
                whole = await _unless_gone(request.receive, _collected(pieces))
                stream.close()
                return JSONResponse(documents.answer(whole, answer.generated))
            # whether there is a first piece decides the status of the response
            first = await _unless_gone(request.receive, anext(pieces))
        except BaseException:
            stream.close()
            raise
        events = _events(first, pieces, answer, documents, asked.usage_chunk)
        return EventStream(events, stream.close)

    async def _document(self, request: Request) -> object:
        """The JSON of a request's body."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._body:
                message = f"the body has more than {self._body} bytes"
                raise RequestError(413, message, code="request_too_large")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as e:
            raise RequestError(400, f"the body is not JSON: {e}") from None

    async def _models(self, request: Request) -> Response:
        listed = {
            "id": self._model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "kernelwright",
            "max_model_len": self._model.context,
        }
        return JSONResponse({"object": "list", "data": [listed]})

    async def _health(self, request: Request) -> Response:
        error = self._bridge.error
        if error is None:
            return JSONResponse({"status": "ok"})
        message = f"the engine has failed: {type(error).__name__}: {error}"
        return JSONResponse({"status": "error", "message": message}, 503)

    async def _all_metrics(self, request: Request) -> Response:
        text = self._metrics.text(self._bridge.statistics, self._bridge.waiting)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


class EventStream(Response):
    """Server-sent events, until they end or the client is gone.

    Args:
        close: called then.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None]):
        self.status_code, self.background = 200, None
        self._events, self._close = events, close
        self.init_headers({"cache-control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _unless_gone(receive, self._send(send))
        except (ClientDisconnect, OSError):
            pass
        finally:
            self._close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _pieces(stream: Stream, answer: Answer, clock: Clock) -> AsyncIterator[Piece]:
    """The pieces of an answer as they come. Requests whose texts are finished are cancelled."""
    while answer.unfinished:
        items = await stream.next()
        now = time.monotonic()
        for piece in answer.add(items):
            clock.piece(piece.choice, piece.finish, now)
            yield piece
        for number in {number for number, _ in items}:
            if answer.done(number):
                stream.cancel(number)


async def _collected(pieces: AsyncIterator[Piece]) -> list[Piece]:
    return [piece async for piece in pieces]


async def _events(
    first: Piece,
    pieces: AsyncIterator[Piece],
    answer: Answer,
    documents: Documents,
    usage_chunk: bool,
) -> AsyncIterator[bytes]:
    """The events of a stream: a chunk per piece, then the usage, then [DONE]."""
    yield _event(documents.part(first))
    try:
        async for piece in pieces:
            yield _event(documents.part(piece))
    except RequestError as e:  # the status has been sent
        yield _event(e.document())
        return
    if usage_chunk:
        yield _event(documents.last(answer.generated))
    yield b"data: [DONE]\n\n"


def _event(document: Any) -> bytes:
    written = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + written.encode() + b"\n\n"


async def _unless_gone(receive: Receive, work: Awaitable[Any]) -> Any:
    """The result of some work, which is cancelled if the client disconnects.

    Raises:
        ClientDisconnect: it has disconnected.
    """
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(error: RequestError) -> JSONResponse:
    headers = {"retry-after": "1"} if error.status == 429 else None
    return JSONResponse(error.document(), error.status, headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """An unknown path or method, in OpenAI's format."""
    assert isinstance(error, HTTPException)
    return _error(RequestError(error.status_code, f"{request.url.path}: {error.detail}"))


async def _internal_error(request: Request, error: Exception) -> Response:
    """An error of the server itself, whose traceback uvicorn prints."""
    return _error(RequestError(500, f"internal error: {type(error).__name__}"))
