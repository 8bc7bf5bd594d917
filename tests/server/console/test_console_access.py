"""Who gets into the console: with its token, from its own page, under its own name; a read-only one stays as it is."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from foldlog.errors import InvalidConfig
from foldlog.server.config.settings import ServerSettings
from foldlog.server.console.access import ConsoleAccess
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.site import StaticFiles
from foldlog.server.http.routes import HttpRequest
from server.console.console_site import WRITE_HEADERS, console

TOKEN = "correct-horse-battery"
HOME = {"host": "127.0.0.1:8080"}


def refusal(access: ConsoleAccess, method: str = "GET", path: str = "/api/overview", **headers: str) -> int | None:
    """The status, or None if the request may be answered."""
    found = HOME | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        access.check(HttpRequest.parse(method, path, found))
    except ApiError as error:
        return int(error.status)
    return None


LOCAL = ConsoleAccess(host="127.0.0.1", name="x")
GUARDED = ConsoleAccess(host="0.0.0.0", name="x", token=TOKEN)
WRITE = {"content_type": "application/json", "x_foldlog": "1"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:9000", "LOCALHOST", "[::1]:8080", "10.1.2.3", "localhost."]
)
def test_addresses_and_localhost_are_names_of_the_console(host: str) -> None:
    assert refusal(LOCAL, host=host) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "127.0.0.1.evil.example", "1", "[evil]:80"])
def test_a_name_that_somebody_else_made_to_point_here_is_refused(host: str) -> None:
    assert refusal(LOCAL, host=host) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_a_page_of_another_site_may_neither_read_nor_write(site: str) -> None:
    assert refusal(LOCAL, sec_fetch_site=site) == 403
    assert refusal(LOCAL, "POST", sec_fetch_site=site, **WRITE) == 403
    assert refusal(LOCAL, path="/", sec_fetch_site=site, sec_fetch_mode="no-cors") == 403
    assert refusal(LOCAL, path="/api/overview", sec_fetch_site=site, sec_fetch_mode="navigate") == 403


def test_the_consoles_own_page_and_a_link_to_it_are_welcome() -> None:
    assert refusal(LOCAL, sec_fetch_site="same-origin", origin="http://127.0.0.1:8080") is None
    assert refusal(LOCAL, sec_fetch_site="none") is None
    assert refusal(LOCAL, path="/", sec_fetch_site="cross-site", sec_fetch_mode="navigate") is None


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:3000", "http://127.0.0.1", "http://[", ""]
)
def test_another_origin_is_refused_whatever_else_is_said(origin: str) -> None:
    assert refusal(LOCAL, origin=origin) == 403
    assert refusal(LOCAL, "POST", origin=origin, **WRITE) == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (WRITE, None),
        ({**WRITE, "content_type": "application/json; charset=utf-8"}, None),
        ({**WRITE, "content_type": "text/plain"}, 415),
        ({"x_foldlog": "1"}, 415),
        ({"content_type": "application/json"}, 403),
        ({**WRITE, "x_foldlog": "yes"}, 403),
    ],
)
def test_a_write_is_json_with_a_header_that_no_form_sends(headers: dict[str, str], status: int | None) -> None:
    assert refusal(LOCAL, "POST", **headers) == status
    assert refusal(ConsoleAccess(host="127.0.0.1", name="x", read_only=True), "POST", **headers) == 403


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 401),
        ("/?token=" + TOKEN, {}, None),
        ("/?token=wrong", {}, 401),
        ("/?token=%ff%F0", {}, 401),
        ("/", {"authorization": f"Bearer {TOKEN}"}, None),
        ("/", {"authorization": f"bearer  {TOKEN} "}, None),
        ("/", {"authorization": "Bearer wrong"}, 401),
        ("/", {"authorization": f"Basic {TOKEN}"}, 401),
        ("/", {"cookie": f"foldlog_console_x={TOKEN}"}, 401),
        ("/", {"cookie": "foldlog_console_x=; ;;="}, 401),
        ("/console/style.css", {}, 401),
        ("/", {"host": "console.example"}, 401),
        ("/", {"host": "console.example", "authorization": f"Bearer {TOKEN}"}, None),
    ],
)
def test_a_token_is_asked_for_everything(path: str, headers: dict[str, str], status: int | None) -> None:
    assert refusal(GUARDED, path=path, **headers) == status


def test_whoever_opens_the_page_without_its_token_is_asked_for_it() -> None:
    browser = {"Accept": "text/html,*/*"}
    with console(token=TOKEN) as site:
        asked = site.ask("GET", "/", headers=browser)
        assert (asked.status, asked.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert b'name="token"' in asked.body
        assert "form-action 'self'" in asked.headers["content-security-policy"]
        wrong = site.ask("GET", "/?token=<script>", headers=browser)
        assert wrong.status == 401
        assert b"That is not the token" in wrong.body
        assert b"<script>" not in wrong.body
        assert site.ask("GET", "/api/overview", headers=browser).json["error"].startswith("the console needs its token")
        assert site.ask("GET", "/").json["error"].startswith("the console needs its token")


def test_a_link_of_another_site_leads_in_though_browsers_bring_no_cookie_with_it() -> None:
    """They hold a cookie that is SameSite=Strict back from a redirect as well; from a page of ours they bring it."""
    link = {"Accept": "text/html", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    with console(token=TOKEN) as site:
        brought = site.ask("GET", f"/?token={TOKEN}", headers=link)
        assert (brought.status, brought.headers["refresh"], brought.body) == (200, "0; url=/", b"")
        assert "SameSite=Strict" in brought.headers["set-cookie"]
        known = site.ask("GET", "/", headers=link)
        assert (known.status, known.headers["refresh"]) == (200, "0; url=/")
        assert "set-cookie" not in known.headers
        assert site.ask("GET", "/?token=wrong", headers=link).status == 401


def test_a_browser_brings_the_token_once_and_has_a_cookie_from_then_on() -> None:
    with console(token=TOKEN) as site:
        site.broker.create_topic("orders")
        assert site.ask("GET", "/api/overview").status == 401
        assert site.ask("GET", "/api/overview", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
        brought = site.ask("GET", f"/?token={TOKEN}")
        assert (brought.status, brought.headers["location"]) == (303, "/")
        cookie = brought.headers["set-cookie"]
        assert re.fullmatch(r"foldlog_console_[\w-]+=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict", cookie)
        assert TOKEN not in cookie
        known = {"Cookie": cookie.partition(";")[0]}
        assert site.ask("GET", "/api/overview", headers=known).status == 200
        assert site.ask("POST", "/api/topics/orders/records", b"{}", WRITE_HEADERS).status == 401
        assert site.ask("POST", "/api/topics/orders/records", b"{}", WRITE_HEADERS | known).status == 200
        assert "set-cookie" not in site.ask("GET", "/?token=wrong").headers


def test_a_read_only_console_says_so_and_changes_nothing() -> None:
    with console(read_only=True) as site:
        site.broker.create_topic("orders")
        assert site.get("/api/overview")["read_only"] is True
        refused = site.post("/api/topics/orders/records", {"value": "x"})
        assert refused.status == 403
        assert "read-only" in refused.json["error"]
        assert site.get("/api/topics/orders/0/strip")["end"] == 0


def test_every_answer_forbids_what_the_page_does_not_need() -> None:
    with console() as site:
        for path in ("/", "/console/x.js", "/api/overview", "/nowhere"):
            headers = site.ask("GET", path).headers
            assert headers["content-security-policy"].startswith("default-src 'self';")
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
            assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", headers["cache-control"])
        assert site.ask("GET", "/api/overview").headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in site.ask("OPTIONS", "/api/overview").headers


@pytest.mark.parametrize("token", ["short", "with a space inside", "ünïcödé-tökens-are-not", 123456789012])
def test_a_token_that_is_guessed_or_mistyped_easily_is_refused(token: object) -> None:
    with pytest.raises(InvalidConfig, match=r"foldlog\.console\.token"):
        ServerSettings.parse({"foldlog.console.token": token})


def test_the_token_is_shown_to_nobody() -> None:
    settings = ServerSettings.parse({"foldlog.console": "0.0.0.0:0", "foldlog.console.token": TOKEN})
    assert TOKEN not in repr(settings)
    row = next(row for row in settings.broker_configs() if row.name == "foldlog.console.token")
    assert (row.value, row.is_sensitive, row.is_default) == (None, True, False)


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_of_the_page_are_given_with_their_kind_and_not_sent_twice(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>hello")
    (tmp_path / "style.css").write_text("p {}")
    (tmp_path / "notes.txt").write_text("not for browsers")
    static = StaticFiles.load(tmp_path)
    page = static.answer(HttpRequest("GET", "/"), "index.html")
    assert (page.status, page.body, page.content_type) == (200, b"<p>hello", "text/html; charset=utf-8")
    etag = dict(page.headers)["etag"]
    again = static.answer(HttpRequest("GET", "/", headers={"if-none-match": f'"old", {etag}'}), "index.html")
    assert (again.status, again.body) == (304, b"")
    assert static.answer(HttpRequest("GET", "/", headers={"if-none-match": '"old"'}), "style.css").status == 200
    packed = static.answer(HttpRequest("GET", "/", headers={"accept-encoding": "br, gzip"}), "index.html")
    assert dict(packed.headers)["content-encoding"] == "gzip"
    assert isinstance(packed.body, bytes)
    assert gzip.decompress(packed.body) == b"<p>hello"
    assert dict(packed.headers)["etag"] != etag
    for missing in ("notes.txt", "../index.html", "", "style.css/"):
        assert static.answer(HttpRequest("GET", "/"), missing).status == 404
