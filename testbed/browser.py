"""A real headless Chromium for pages that this package writes."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LAPTOP = (1366, 768)
_READY_S = 30.0


def missing() -> str:
    """What is not installed of what a browser needs; "" if nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "needs the package selenium (`make build` installs it)"
    programs = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    if programs:
        return f"needs {' and '.join(programs)} (Debian: apt-get install chromium chromium-driver)"
    return ""


class Browser:
    """A page in Chromium; what it logs is kept."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, *, dark: bool = False) -> None:
        """Loads a report and waits until its charts are drawn."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(page.as_uri())
        deadline = time.monotonic() + _READY_S
        while not self.run("return document.documentElement.dataset.ready || ''"):
            assert time.monotonic() < deadline, f"{page} is not drawn: {self.log()}"
            time.sleep(0.02)

    def resize(self, width: int, height: int = LAPTOP[1]) -> None:
        """Gives the page another size, in CSS pixels."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def processor_s(self) -> float:
        """Of the page's thread, since the first call: the same however busy the cores are."""
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        found = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return float(next(entry["value"] for entry in found if entry["name"] == "TaskDuration"))

    def log(self) -> list[str]:
        """What the page wrote to the console since the last call.

        Without the browser's advice to tests that read pixels often.
        """
        messages = [entry["message"] for entry in self.driver.get_log("browser")]
        return [message for message in messages if "willReadFrequently" not in message]

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        found = self.driver.find_elements("css selector", selector)
        return [element.text for element in found]

    def press(self, selector: str, *keys: str) -> None:
        """Types into an element that takes the focus, and waits for the next frame."""
        self.find(selector).send_keys(*keys)
        self.wait_for_frame()

    def wait_for_frame(self) -> None:
        """Until what was changed is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def screenshot(self, path: Path, *, height: int | None = None) -> None:
        """The whole page, however far down it goes."""
        full = height or self.run("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": LAPTOP[0], "height": full, "scale": 1}
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with the window of a laptop, without a network."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root has none
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--window-size={LAPTOP[0]},{LAPTOP[1]}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        opened = Browser(driver)
        opened.resize(*LAPTOP)  # the window has borders; the page has what a laptop shows
        yield opened
    finally:
        driver.quit()
