"""A page of a collector with grants asks for a token, keeps it in a cookie, and then works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .live import expect

pytestmark = pytest.mark.browser

TOKEN = "0123456789abcdef0123456789abcdef"


def test_a_token_opens_the_page_and_no_script_reads_it(
    world: Any, look: Any, tmp_path: Path
) -> None:
    """A wrong one is refused with a sentence; events come with the cookie; a reload needs none."""
    grants = tmp_path / "grants"
    grants.write_text(f"read alice token:{TOKEN}\n")
    collector = world.collector(auth={"grant_files": [str(grants)]})
    page = look(collector)
    login = page.part("login")
    expect(login).to_be_visible()
    expect(page.part("first-steps")).not_to_be_visible()
    login.get_by_label("Token").fill("wrong-0123456789")
    login.get_by_role("button").click()
    expect(login.get_by_role("alert")).to_contain_text("no grant has this token")
    login.get_by_label("Token").fill(TOKEN)
    login.get_by_label("Token").press("Enter")
    expect(login).not_to_be_visible()
    expect(page.part("first-steps")).to_be_visible()
    page.has("connection", "data-state", "live")
    [cookie] = page.page.context.cookies()
    assert (cookie["value"], cookie["httpOnly"], cookie["sameSite"]) == (TOKEN, True, "Strict")
    assert page.page.evaluate("document.cookie + JSON.stringify(sessionStorage)") == "{}"
    page.page.reload()
    page.until_drawn()
    expect(page.part("first-steps")).to_be_visible()
    grants.write_text("# nobody\n")
    expect(login).to_be_visible(timeout=30_000)
    assert page.watched.failed
    assert all(each.endswith(": 401") for each in page.watched.failed)
    page.watched.expects_trouble = True  # all of it is asserted here
