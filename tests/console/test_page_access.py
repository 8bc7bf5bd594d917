"""The room Access in a real Chromium: users and ACLs are made, listed and deleted, each after a question that says what
it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console.chromium import page_of
from console.conftest import OpenPage, served_log
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, USER, sasl_broker

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SETTINGS = ("-X", "authorizer.class.name=foldlog", "-X", "super.users=User:ANONYMOUS")


@pytest.fixture
def guarded(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page of a broker that asks ACLs, and whose super user is whoever opens it."""
    stack, served = served_log(tmp_path / "data", *SETTINGS, *getattr(request, "param", ()))
    with stack, page_of(browser, served.url) as (page, _):
        page.goto(f"/?token={served.token}")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.goto("/#/access")
        yield page


def test_a_user_is_made_gets_another_password_and_is_deleted(open_page: OpenPage) -> None:
    page = open_page("#/access")
    users, dialog = page.locator(".card", has_text="Users"), page.get_by_role("dialog")
    expect(users).to_contain_text("There are none.")
    users.get_by_role("button", name="New user").click()
    expect(dialog).to_contain_text("may do nothing until an ACL says so")
    dialog.get_by_label("Name").fill("bob")
    dialog.get_by_label("Password").fill("correct horse")
    dialog.get_by_role("button", name="Create").click()
    row = users.get_by_role("row").filter(has_text="bob")
    expect(row).to_contain_text("SCRAM-SHA-256")
    row.get_by_role("button", name="Password").click()
    expect(dialog.get_by_label("Name")).not_to_be_editable()
    dialog.get_by_label("Password").fill("battery staple")
    dialog.get_by_role("button", name="Set the password").click()
    expect(page.locator(".toast").last).to_have_text("bob has a new password.")
    row.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text("They can no longer log in. Their ACLs stay.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(row).to_be_visible()
    row.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(users).to_contain_text("There are none.")


@pytest.mark.faults
def test_an_acl_says_what_it_allows_before_it_is_made_and_before_it_goes(guarded: Page) -> None:
    page = guarded
    acls, dialog = page.locator(".card", has_text="ACLs").last, page.get_by_role("dialog")
    acls.get_by_role("button", name="New ACL").click()
    create = dialog.get_by_role("button", name="Create")
    expect(create).to_be_disabled()
    dialog.get_by_label("Who").fill("User:carol")
    dialog.get_by_label("Name", exact=True).fill("orders")
    expect(dialog.locator(".preview")).to_have_text("User:carol may read topic orders.")
    dialog.get_by_label("Permission").select_option("DENY")
    dialog.get_by_label("The name is").select_option("PREFIXED")
    dialog.get_by_label("From host").fill("127.0.0.9")
    expect(dialog.locator(".preview")).to_have_text("User:carol may not read topic orders…, from 127.0.0.9.")
    create.click()
    row = acls.get_by_role("row").filter(has_text="User:carol")
    expect(row).to_have_text("User:carolmay not readtopic orders…127.0.0.9Delete")
    row.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text("User:carol may not read topic orders…")
    dialog.get_by_role("button", name="Delete").click()
    expect(acls).to_contain_text("There are none.")


@pytest.mark.faults
@pytest.mark.parametrize("guarded", [["--console-read-only"]], indirect=True)
def test_a_read_only_console_shows_access_and_changes_nothing(guarded: Page) -> None:
    expect(guarded.get_by_role("heading", name="ACLs")).to_be_visible()
    expect(guarded.locator("main").get_by_role("button")).to_have_count(0)


@pytest.mark.faults
def test_a_new_topic_is_offered_to_who_may_create_one(browser: Browser) -> None:
    settings = {"foldlog.console": "127.0.0.1:0", "authorizer.class.name": "foldlog", "super.users": f"User:{USER}"}
    with sasl_broker(settings) as (_, server):
        assert server.console_address is not None
        host, port = server.console_address
        for name, count in ((SIMPLE_USER, 0), (USER, 1)):
            with page_of(browser, f"http://{host}:{port}") as (page, _):
                page.request.post("/login", form={"user": name, "password": PASSWORD})
                page.goto("/#/topics")
                expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
                expect(page.get_by_role("button", name="New topic")).to_have_count(count)
