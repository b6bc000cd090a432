"""The HTTP side of the console: who looks, what they get, and what they may send."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import structlog
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from mesh.rpc import admin
from services.console import metrics
from services.console.asking import Ask, View
from services.console.control import NOBODY_CAN_LOG_IN, Caller, Control
from services.console.headers import STREAM, Door, is_from_here
from services.console.live import follow, look_at, refresh_of
from services.console.outcomes import CONTROL, STATUS, CallError, Ending
from services.console.parts import Cell, File, Form, Moved, Notice, Page, Part, Tone, hidden
from services.console.records.access import Records
from services.console.routes import CHANGES, PAGES
from services.console.sessions import NAME_BYTES, FormKeys, Sessions, is_token
from services.console.settings import ConsoleSettings
from services.console.views.proposals import waiting
from services.console.views.record_rows import events_of

HERE = Path(__file__).parent
LONGEST_FORM = 64 * 1024
"""Bytes."""
MOST_UNTOLD = 1_000
"""Names of cookies; more than people who look at one console."""
KEY = "key"
"""The field of a form with its key."""
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".LICENSE": "text/plain"}
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that every page uses."""

    body: bytes
    media_type: str
    tag: str

    @classmethod
    def read(cls, path: Path) -> Asset:
        body = path.read_bytes()
        return cls(body, TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


@dataclass(frozen=True, slots=True)
class Viewer:
    """The viewer: the name in the cookie, and how control knows the viewer; None: control is not asked."""

    name: str
    caller: Caller | None
    token: str = field(default="", repr=False)

    @property
    def logged_in(self) -> bool:
        return self.caller is not None and self.caller.logged_in


class Console:
    """The pages, for an event loop. `stopping` ends open streams."""

    def __init__(
        self,
        settings: ConsoleSettings,
        control: Control,
        sessions: Sessions,
        records: Records,
        stopping: asyncio.Event,
    ) -> None:
        self._settings, self._control, self._sessions = settings, control, sessions
        self._records, self._stopping = records, stopping
        self._keys = FormKeys()
        self._cookie = "__Host-mesh-console" if settings.browsers_use_tls else "mesh-console"
        self._streams = 0
        self._untold: dict[str, None] = {}
        """Viewers who may not know how many changes wait, by the names in their cookies."""
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._files = {each.name: Asset.read(each) for each in (HERE / "static").iterdir() if each.suffix in TYPES}

    def app(self) -> ASGIApp:
        routes = [
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/live/records", self._tail, methods=["GET"]),
            Route("/live/{what:path}", self._live, methods=["GET"]),
            Route("/static/{name}", self._static, methods=["GET"]),
        ]
        routes += [Route(row.path, self._changing(row.view), methods=["POST"]) for row in CHANGES]
        routes += [Route(row.path, self._showing(row.view), methods=["GET"]) for row in PAGES]
        handlers: Any = {HTTPException: self._lost}
        return Door(Starlette(routes=routes, exception_handlers=handlers), self._settings.known_hosts)

    def _viewer(self, request: Request) -> Viewer:
        """A page that updates itself does not keep a session from ending: its requests do not count as use."""
        name = request.cookies.get(self._cookie, "")
        by_itself = "hx-request" in request.headers or request.url.path.startswith(STREAM)
        session = self._sessions.peek(name) if by_itself else self._sessions.find(name)
        if session is not None:
            return Viewer(name, self._control.by_token(session.token), session.token)
        return Viewer(name, self._control.by_certificate() if self._settings.reads_without_login else None)

    def _showing(self, view: View) -> Any:
        async def show(request: Request) -> Response:
            viewer = self._viewer(request)
            if viewer.caller is None:
                return self._login_form(request, viewer, HTTPStatus.UNAUTHORIZED, "Log in to see this mesh.")
            waits = asyncio.create_task(self._waits(viewer.name, viewer.caller))
            try:
                made = await view(self._ask(request, viewer, viewer.caller, {}))
            except CallError as failure:
                waits.cancel()
                return self._failed(request, viewer, failure, {})
            if isinstance(made, File):
                waits.cancel()
                return _saved(made)
            assert isinstance(made, Page)  # only changes lead elsewhere
            return self._page(request, viewer, made, await waits)

        return show

    async def _waits(self, name: str, caller: Caller) -> int:
        """How many changes wait for a second person; 0 for a viewer who may not know, and is not asked for again."""
        if name in self._untold:
            return 0
        try:
            return await waiting(caller)
        except CallError as failure:
            if failure.ending is Ending.NOT_ALLOWED:  # each refusal is on record at control
                self._untold[name] = None
                if len(self._untold) > MOST_UNTOLD:
                    del self._untold[next(iter(self._untold))]
            return 0

    def _changing(self, view: View) -> Any:
        async def carry_out(request: Request) -> Response:
            viewer = self._viewer(request)
            form = await self._form(request, viewer)
            if viewer.caller is None or not viewer.logged_in:
                return self._login_form(request, viewer, HTTPStatus.UNAUTHORIZED, "Changes need a log-in.")
            try:
                made = await view(self._ask(request, viewer, viewer.caller, form))
            except CallError as failure:
                if failure.proposal:
                    return RedirectResponse(f"/proposals/{failure.proposal}", HTTPStatus.SEE_OTHER)
                return self._failed(request, viewer, failure, form)
            assert isinstance(made, Moved)
            return RedirectResponse(made.to, HTTPStatus.SEE_OTHER)

        return carry_out

    def _ask(self, request: Request, viewer: Viewer, caller: Caller, form: Mapping[str, str]) -> Ask:
        records = self._records.of(viewer.token)
        return Ask(caller, request.url.path, records, request.path_params, dict(request.query_params), form)

    async def _form(self, request: Request, viewer: Viewer) -> dict[str, str]:
        """The fields of a form that a page of this console sent. HTTPException."""
        if not is_from_here(request.headers):
            raise HTTPException(HTTPStatus.FORBIDDEN, "Another site sent this form.")
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > LONGEST_FORM:
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too long.")
            fields = dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=100))
        except (ValueError, ClientDisconnect):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "The form can't be read.") from None
        if not self._keys.fits(viewer.name, fields.pop(KEY, "")):
            raise HTTPException(HTTPStatus.FORBIDDEN, "The form is out of date: load its page again.")
        return fields

    async def _login_page(self, request: Request) -> Response:
        viewer = self._viewer(request)
        return self._login_form(request, viewer, HTTPStatus.OK, "")

    async def _login(self, request: Request) -> Response:
        viewer = self._viewer(request)
        fields = await self._form(request, viewer)
        token = fields.get("token", "").strip()
        if not is_token(token):
            return self._login_form(request, viewer, HTTPStatus.BAD_REQUEST, "This is no token.")
        try:
            caller = self._control.by_token(token)
            await caller.call(caller.stubs.decisions.GetStatus, admin.GetStatusRequest())
        except CallError as failure:
            if failure.ending is not Ending.NOT_ALLOWED:  # control knows a caller whose rights are narrow
                text = f"{failure.title}. {failure}"
                return self._login_form(request, viewer, STATUS[failure.ending], text)
        if viewer.name:
            self._sessions.close(viewer.name)
        answer = RedirectResponse(_inner(fields.get("next", "")), HTTPStatus.SEE_OTHER)
        self._set_cookie(answer, self._sessions.open(token))
        metrics.sessions.set(len(self._sessions))
        return answer

    async def _logout(self, request: Request) -> Response:
        viewer = self._viewer(request)
        await self._form(request, viewer)
        self._sessions.close(viewer.name)
        metrics.sessions.set(len(self._sessions))
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(self._cookie, secure=self._settings.browsers_use_tls, httponly=True, samesite="strict")
        return answer

    async def _live(self, request: Request) -> Response:
        viewer = self._viewer(request)
        what = request.path_params["what"]
        look, refresh_s = look_at(what), refresh_of(what)
        if viewer.caller is None or look is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)  # by which a browser does not come again
        if self._streams >= self._settings.max_streams:
            metrics.streams_refused.inc()
            return Response(status_code=HTTPStatus.NO_CONTENT)
        caller, name, logged_in = viewer.caller, viewer.name, viewer.logged_in

        async def events() -> Any:
            self._streams += 1
            metrics.streams.set(self._streams)
            try:
                goes_on = lambda: not logged_in or self._sessions.peek(name) is not None  # noqa: E731
                async for each in follow(look, caller, goes_on=goes_on, stopping=self._stopping, refresh_s=refresh_s):
                    yield each
            finally:
                self._streams -= 1
                metrics.streams.set(self._streams)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _tail(self, request: Request) -> Response:
        viewer = self._viewer(request)
        if viewer.caller is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        ask = self._ask(request, viewer, viewer.caller, {})
        row = self._templates.get_template("parts.html").module.row  # type: ignore[attr-defined]  # its macro

        def goes_on() -> bool:
            ended = viewer.logged_in and self._sessions.peek(viewer.name) is None
            return not ended and not self._stopping.is_set()

        return StreamingResponse(events_of(ask, goes_on, row), media_type="text/event-stream")

    async def _static(self, request: Request) -> Response:
        """From memory: a thread for each file that is read would cost more than the files."""
        asset = self._files.get(request.path_params["name"])
        if asset is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == asset.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(asset.body, media_type=asset.media_type, headers=headers)

    async def _lost(self, request: Request, error: HTTPException) -> Response:
        """No such page, or a form that does not count."""
        viewer = self._viewer(request)
        lost = error.status_code == HTTPStatus.NOT_FOUND
        text = "The console has no such page." if lost else error.detail
        page = Page("No such page" if lost else "Not done", [Notice(text, Tone.BAD)], status=error.status_code)
        return self._page(request, viewer, page)

    def _failed(self, request: Request, viewer: Viewer, failure: CallError, form: Mapping[str, str]) -> Response:
        """How a call to control ended that had no good answer."""
        ending = failure.ending
        if ending is Ending.LOGIN_NEEDED and viewer.logged_in:
            self._sessions.close(viewer.name)
            return self._login_form(request, Viewer(viewer.name, None), STATUS[ending], str(failure))
        log.info("control gave no good answer", path=request.url.path, ending=ending.value, code=failure.code)
        tone = Tone.WARNING if ending is Ending.UNKNOWN else Tone.BAD
        parts: list[Part] = [Notice(str(failure), tone, list(failure.details))]
        links: list[Cell] = []
        if ending is Ending.UNKNOWN and failure.by == CONTROL:
            fields = tuple(hidden(name, value) for name, value in form.items())
            again = "Ask again. Control makes the change once, however often you ask"
            parts.append(Form(again, request.url.path, "Ask control again", fields, changes=True))
            links.append(Cell("Look into the history", "/history"))
        if ending in (Ending.NOT_ALLOWED, Ending.LOGIN_NEEDED) and not viewer.logged_in:
            links.append(Cell("Log in", "/login"))
        page = Page(failure.title, parts, links=links, status=STATUS[ending])
        return self._page(request, viewer, page)

    def _login_form(self, request: Request, viewer: Viewer, status: int, text: str) -> Response:
        if not self._control.takes_tokens:
            text = f"{text} {NOBODY_CAN_LOG_IN}".strip()
        shown = request.method == "GET" and request.url.path != "/login"
        target = request.query_params.get("next", "") or (_address(request) if shown else "/")
        return self._render(
            request, viewer, "login.html", status, title="Log in", text=text, target=_inner(target),
            takes_tokens=self._control.takes_tokens,
        )  # fmt: skip

    def _page(self, request: Request, viewer: Viewer, page: Page, waits: int = 0) -> Response:
        """`waits`: how many changes wait for a second person."""
        first = [part for part in page.parts if isinstance(part, Form) and part.first]
        last = [part for part in page.parts if isinstance(part, Form) and not part.first]
        found = [part for part in page.parts if not isinstance(part, Form)]
        return self._render(
            request, viewer, "page.html", page.status, title=page.title, page=page, first=first, found=found, last=last,
            address=_address(request), waits=waits,
        )  # fmt: skip

    def _render(self, request: Request, viewer: Viewer, template: str, status: int, **values: Any) -> Response:
        name = viewer.name or secrets.token_urlsafe(NAME_BYTES)
        values = {"waits": 0, **values}
        text = self._templates.get_template(template).render(
            key=self._keys.key(name),
            menu=[row for row in PAGES if row.label and row.in_menu],
            palette=[row for row in PAGES if row.label],
            path=request.url.path,
            logged_in=viewer.logged_in,
            can_log_in=self._control.takes_tokens,
            **values,
        )
        answer = HTMLResponse(text, status)
        if not viewer.name:
            self._set_cookie(answer, name)
        return answer

    def _set_cookie(self, answer: Response, name: str) -> None:
        answer.set_cookie(
            self._cookie, name, path="/", secure=self._settings.browsers_use_tls, httponly=True, samesite="strict"
        )


def _saved(file: File) -> Response:
    """The browser saves it, whatever it is, and shows none of it."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"}
    return Response(file.body, media_type="application/octet-stream", headers=headers)


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _inner(address: str) -> str:
    """An address of this console; the first page in place of any other."""
    inside = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if inside else "/"
