"""Where clients log in, the page asks who opens it, shows who that is, and lets go again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from cli.serving import serving
from foldlog.broker.broker import Broker
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, set_password

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_person_logs_in_and_out(browser: Browser, tmp_path: Path) -> None:
    with Broker.open(str(tmp_path / "data")) as broker:
        broker.create_topic("orders", 1)
        set_password(broker, SIMPLE_USER, PASSWORD)
    arguments = (str(tmp_path / "data"), "--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--console", "127.0.0.1:0")
    with serving(*arguments) as process:
        found = re.search(r"console (http://[\d.:]+)/", process.ready)
        assert found is not None, process.ready
        context = browser.new_context()
        page = context.new_page()
        page.goto(found[1])
        page.fill("#user", SIMPLE_USER)
        page.fill("#password", "wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("the password is wrong").wait_for()
        assert page.input_value("#user") == SIMPLE_USER
        page.fill("#password", PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name=f"{SIMPLE_USER}: log out").click()
        page.get_by_role("button", name="Log in").wait_for()
        context.close()
