"""The page in a real browser: it draws, reacts, fits a phone, and asks nobody for anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advmdp.report.page import render
from tests.report.example import HOSTILE, LEARNERS, results

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser import asked_for, chromium, forget_logs
from tests.browser import show as show_address


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(results(states={0: "pending"}, pictures=True)), encoding="utf-8")
    return path


def show(browser, path: Path, width: int = 1200, scheme: str = "light") -> None:
    show_address(browser, path.as_uri(), width, scheme)


def curves(browser, figure: str = "problem-0") -> list[str]:
    return [
        group.get_attribute("data-learner")
        for group in browser.find_elements(By.CSS_SELECTOR, f"#{figure} .curves > g")
    ]


def ticks(browser, axis: str) -> list[str]:
    return [t.text for t in browser.find_elements(By.CSS_SELECTOR, f"#problem-0 .{axis}-tick")]


def button(browser, learner: str):
    return browser.find_element(By.CSS_SELECTOR, f"button[data-learner='{learner}']")


def background(browser) -> str:
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_curves_are_drawn_inside_their_frames(browser, page):
    show(browser, page)
    for figure in ("problem-0", "problem-1", "profile"):
        assert curves(browser, figure) == list(LEARNERS)
    inside = browser.execute_script("""
        return [...document.querySelectorAll(".curves path.curve")].map((curve) => {
          const a = curve.getBoundingClientRect(), b = curve.closest("svg").getBoundingClientRect();
          const across = a.width > 100 && a.left >= b.left - 2 && a.right <= b.right + 2;
          return across && a.top >= b.top && a.bottom <= b.bottom;
        });""")
    assert inside == [True] * 12


def test_labels_of_ticks_do_not_overlap(browser, page):
    show(browser, page, width=320)
    browser.find_element(By.ID, "logX").click()
    overlaps = browser.execute_script("""
        const texts = [...document.querySelectorAll("#problem-0 .x-tick, #problem-0 .y-tick")];
        const boxes = texts.map((text) => text.getBoundingClientRect());
        const apart = (a, b) => a.left >= b.right || b.left >= a.right || a.top >= b.bottom || b.top >= a.bottom;
        return boxes.flatMap((a, i) => boxes.filter((b, j) => i < j && !apart(a, b))).length;""")
    assert overlaps == 0
    assert len(ticks(browser, "x")) >= 3


def test_toggling_a_learner_hides_its_curve_everywhere(browser, page):
    show(browser, page)
    before = ticks(browser, "y")
    button(browser, "uniform").click()
    assert button(browser, "uniform").get_attribute("aria-pressed") == "false"
    for figure in ("problem-0", "problem-1", "profile"):
        assert "uniform" not in curves(browser, figure)
    assert ticks(browser, "y") != before  # the largest is gone, so the others get the room
    button(browser, "uniform").send_keys(Keys.ENTER)  # and back, by the keyboard
    assert curves(browser) == list(LEARNERS)


def test_logarithmic_axes_change_the_ticks_and_leave_out_what_is_not_positive(browser, page):
    show(browser, page)
    assert ticks(browser, "x")[0] == "0"
    browser.find_element(By.ID, "logX").click()
    assert ticks(browser, "x") == ["1", "2", "5", "10", "20", "50", "100"]
    browser.find_element(By.ID, "logY").click()
    assert "hindsight" not in curves(browser)
    assert "1 without positive values" in browser.find_element(By.CSS_SELECTOR, "#problem-0 .note").text
    assert all(float(tick.replace(",", "")) > 0 for tick in ticks(browser, "y"))
    browser.find_element(By.ID, "logY").click()
    assert "hindsight" in curves(browser)


def test_bands_can_be_switched_off(browser, page):
    show(browser, page)
    bands = "return document.querySelectorAll('#problem-0 .band').length"
    assert browser.execute_script(bands) == len(LEARNERS)
    browser.find_element(By.ID, "bands").click()
    assert browser.execute_script(bands) == 0
    assert curves(browser) == list(LEARNERS)


def test_loss_trust_and_bounds_are_drawn_and_fit_a_phone(browser, tmp_path):
    example = results(("x",), pictures=True, cumulative_loss=50.0, **{"trust in a": 0.25, "trust in b": 0.75})
    bound = np.where((example.rows["episode"] == 100) & (example.rows["learner"] == "fast"), 300.0, np.nan)
    path = tmp_path / "report.html"
    path.write_text(render(replace(example, rows=example.rows.assign(bound=bound))), encoding="utf-8")
    forget_logs(browser)
    show(browser, path, width=390)
    assert curves(browser) == list(LEARNERS)  # 300 is far above what was lost, at most 48
    above = browser.find_element(By.CSS_SELECTOR, "#problem-0 .above")
    top = float(ticks(browser, "y")[-1])
    assert top < 100
    assert (
        above.text
        == f"Above the picture: proved bound of fast (300 after 100 episodes, {300 / top:.3g} times its top)."
    )
    assert curves(browser, "loss-0") == list(LEARNERS)
    assert curves(browser, "trust-0-0") == ["trust in a", "trust in b"]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    browser.find_element(By.ID, "bounds").click()
    assert above.text == ""
    button(browser, "trust in a").click()
    assert curves(browser, "trust-0-0") == ["trust in b"]
    assert browser.get_log("browser") == []


def test_a_bound_is_drawn_as_far_as_it_is_in_the_picture_and_never_stretches_it(browser, tmp_path):
    example = results(("x",), pictures=True)
    path = tmp_path / "report.html"
    path.write_text(render(example), encoding="utf-8")
    show(browser, path)
    without = ticks(browser, "y")
    growing = np.where(example.rows["learner"] == "fast", 3.0 * example.rows["episode"], np.nan)  # H k is 4 k
    low = np.where((example.rows["episode"] == 100) & (example.rows["learner"] == "slow"), 30.0, growing)
    path.write_text(render(replace(example, rows=example.rows.assign(bound=low))), encoding="utf-8")
    show(browser, path)
    assert ticks(browser, "y") == without
    assert curves(browser) == [*LEARNERS, "proved bound of slow", "proved bound of fast"]
    assert browser.find_elements(By.CSS_SELECTOR, "#problem-0 [data-learner='proved bound of slow'] circle")
    above = browser.find_element(By.CSS_SELECTOR, "#problem-0 .above").text
    assert above.startswith("Above the picture: proved bound of fast (300 after 100 episodes")
    assert "slow" not in above
    browser.find_element(By.ID, "bounds").click()
    assert curves(browser) == list(LEARNERS)


def test_wide_bands_do_not_squeeze_the_curves(browser, tmp_path):
    example = results(("x",), {"slow": 2.0}, seeds=2)
    noisy = example.rows.assign(regret=example.rows["regret"] * np.where(example.rows["seed"] == 0, 0.1, 1.9))
    path = tmp_path / "report.html"
    path.write_text(render(replace(example, rows=noisy)), encoding="utf-8")  # intervals are 12 times the mean
    show(browser, path)
    assert float(ticks(browser, "y")[-1]) < 3 * noisy[noisy["episode"] == 100]["regret"].mean()


def test_the_short_table_fits_a_phone(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render(results(("x",), {"vlsuob-reps-tight": 2.0}, cumulative_loss=50.0)), encoding="utf-8")
    show(browser, path, width=390)
    hidden = browser.execute_script(
        "const box = document.querySelector('.verdict + .scroll'); return box.scrollWidth - box.clientWidth"
    )
    assert hidden <= 0


def test_another_measure_can_be_chosen(browser, page):
    show(browser, page)
    browser.find_element(By.CSS_SELECTOR, "select option[value='over_sqrt']").click()
    assert max(float(tick) for tick in ticks(browser, "y")) < 10  # regret over sqrt(100)
    assert curves(browser) == list(LEARNERS)


def test_pointing_and_arrow_keys_show_values(browser, page):
    show(browser, page)
    plot = browser.find_element(By.CSS_SELECTOR, "#problem-0 .plot")
    tip = browser.find_element(By.CSS_SELECTOR, "#problem-0 .tip")
    assert not tip.is_displayed()
    webdriver.ActionChains(browser).move_to_element_with_offset(plot, plot.size["width"] // 2 - 15, 0).perform()
    assert tip.text.startswith("100 episodes")
    assert [name for name in LEARNERS if name in tip.text] == list(LEARNERS)
    assert "±" in tip.text
    beside, around = tip.rect, plot.rect
    assert around["y"] <= beside["y"] <= beside["y"] + beside["height"] <= around["y"] + around["height"]
    assert around["x"] <= beside["x"] <= beside["x"] + beside["width"] <= around["x"] + around["width"]
    browser.execute_script("arguments[0].focus()", plot)
    plot.send_keys(Keys.HOME)
    live = browser.find_element(By.ID, "live")
    assert live.get_attribute("textContent").startswith("1 episodes; uniform: ")
    plot.send_keys(Keys.ARROW_RIGHT)
    assert live.get_attribute("textContent").startswith("2 episodes; ")
    plot.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_nothing_overflows_sideways(browser, page, width):
    show(browser, page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_dark_follows_the_system_and_the_button(browser, page):
    show(browser, page)
    light = background(browser)
    show(browser, page, scheme="dark")
    dark = background(browser)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")
    browser.find_element(By.ID, "theme").click()
    assert background(browser) == light


def test_controls_have_names(browser, page):
    show(browser, page)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    nameless = [
        element.tag_name
        for element in browser.find_elements(By.CSS_SELECTOR, "button, select, .plot, .scroll, img")
        if not element.accessible_name
    ]
    assert nameless == []


def test_no_error_and_no_request_beyond_the_file(browser, page):
    forget_logs(browser)
    show(browser, page)
    button(browser, "slow").click()
    browser.find_element(By.ID, "logY").click()
    assert browser.get_log("browser") == []
    asked = asked_for(browser)
    assert page.as_uri() in asked
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}


def test_hostile_labels_run_nothing(browser, tmp_path):
    path = tmp_path / "report.html"
    hostile = results((HOSTILE,), {HOSTILE: 1.0, "uniform": 2.0}, title=HOSTILE, states={1: "failed"})
    path.write_text(render(hostile), encoding="utf-8")
    browser.get_log("browser")
    show(browser, path, width=390)
    assert browser.title == " ".join(HOSTILE.split())
    assert curves(browser) == [HOSTILE, "uniform"]
    assert browser.find_elements(By.CSS_SELECTOR, "img[src=x]") == []
    plot = browser.find_element(By.CSS_SELECTOR, "#problem-0 .plot")
    browser.execute_script("arguments[0].focus()", plot)
    plot.send_keys(Keys.END)
    assert HOSTILE in browser.find_element(By.CSS_SELECTOR, "#problem-0 .tip").text
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert browser.get_log("browser") == []


def test_even_a_script_that_slipped_in_would_not_run(browser, page, tmp_path):
    path = tmp_path / "report.html"
    slipped = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    path.write_text(page.read_text(encoding="utf-8").replace("</body>", slipped + "</body>"), encoding="utf-8")
    show(browser, path)
    assert browser.title == "An experiment"
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
