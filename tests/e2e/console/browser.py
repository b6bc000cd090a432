"""Debian's Chromium, steered by Selenium, and axe-core, which looks for what people can't perceive or use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.clients import builds
from tests.fixtures.toolchains import need

HERE = Path(__file__).parent
PICTURES = HERE.parents[2] / "docs" / "assets"
SOURCES = [HERE / name for name in ("package.json", "package-lock.json")]
WITHIN_S = 60
HEIGHT = 900
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def axe_source() -> str:
    """The script of axe-core, which npm installs as its lock file says."""
    (npm,) = need("npm")

    def build(working: Path) -> None:
        for source in SOURCES:
            shutil.copy(source, working)
        builds.run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder=working)

    folder = builds.built("axe-core", SOURCES, build)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


class Browser:
    """One window. It types keys, as a person without a mouse does."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def types(self, *keys: str) -> None:
        """Into what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def chord(self, key: str) -> None:
        """With Ctrl."""
        webdriver.ActionChains(self.driver).key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()

    def tabs_to(self, label: str, most: int = 80) -> None:
        """By the key Tab alone, until what has the focus is called so."""
        for _ in range(most):
            webdriver.ActionChains(self.driver).send_keys(Keys.TAB).perform()
            if self.focused() == label:
                return
        raise AssertionError(f"{label!r} is not among what the key Tab reaches on {self.driver.current_url}")

    def focused(self) -> str:
        """The name of what has the focus, as assistive technology gets it."""
        return str(self.driver.switch_to.active_element.accessible_name)

    def shows(self, text: str) -> None:
        """Waits until the page has this text."""
        try:
            WebDriverWait(self.driver, WITHIN_S).until(lambda _: text in self.text())
        except TimeoutException:
            raise AssertionError(f"{self.driver.current_url} does not show {text!r}:\n{self.text()}") from None

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def resize(self, width: int) -> None:
        """The width of the page itself: Chromium's windows are wider than 375 px, its devices need not be."""
        metrics = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefers(self, scheme: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def is_as_wide_as_its_window(self) -> bool:
        script = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        return bool(self.driver.execute_script(script))

    def findings(self, axe: str) -> list[str]:
        """The findings of axe-core on the page: the rule, and the marks of the first element.

        The driver runs scripts beside the page's policy.
        """
        self.driver.execute_script(axe)
        script = (
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: arguments[0]})"
            ".then(done, error => done({violations: [], error: String(error)}))"
        )
        found: dict[str, Any] = self.driver.execute_async_script(script, STANDARDS)
        assert "error" not in found, found["error"]
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]

    def faults(self) -> list[str]:
        """The complaints of the browser: refused scripts, lost files."""
        log: Any = self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium types all but this
        return [str(each["message"]) for each in log]

    def first_paint_ms(self) -> float:
        """From the start of loading until something is there to read."""
        script = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        wait = WebDriverWait(self.driver, WITHIN_S)
        return float(wait.until(lambda driver: driver.execute_script(script), "the page is painted"))

    def picture(self, name: str) -> None:
        """Renews a picture of the docs, if MESH_WRITE_PICTURES=1."""
        if os.environ.get("MESH_WRITE_PICTURES"):
            self.driver.save_screenshot(str(PICTURES / f"{name}.png"))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A Chromium without a window."""
    chromium, chromedriver = need("chromium", "chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(chromedriver)))
    try:
        driver.set_page_load_timeout(WITHIN_S)
        driver.set_script_timeout(WITHIN_S)
        yield Browser(driver)
    finally:
        driver.quit()
