"""A browser through chromedriver's HTTP interface (W3C WebDriver), in as much as the tests need."""

import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


class Browser:
    """A headless chromium with the network off, for file: pages."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 900, dark: bool = False):
        port_file = folder / "driver.log"
        self.log = port_file.open("w")
        self.process = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=self.log, stderr=subprocess.STDOUT
        )
        self.base = f"http://127.0.0.1:{self._port(port_file)}"
        arguments = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--hide-scrollbars", f"--window-size={width},{height}"),
            f"--user-data-dir={folder / 'profile'}",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        ]
        options = {"args": arguments}
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._post("/session", {"capabilities": {"alwaysMatch": always}})
        self.base += f"/session/{made['sessionId']}"
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        override = {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics}
        self._post("/goog/cdp/execute", override)
        offline = {"offline": True, "latency": 0, "throughput": 0}
        self._post("/chromium/network_conditions", {"network_conditions": offline})

    def open(self, page: Path) -> None:
        self._post("/url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """The value that a piece of JavaScript returns."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def console(self) -> list[dict]:
        return self._post("/se/log", {"type": "browser"})

    def close(self) -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(self.base, method="DELETE"), timeout=30)
        finally:
            self.process.terminate()
            self.process.wait()
            self.log.close()

    def _post(self, path: str, content: dict) -> Any:
        request = urllib.request.Request(
            self.base + path, json.dumps(content).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]

    def _port(self, log: Path) -> int:
        """The port that chromedriver chose, from what it prints."""
        for _ in range(300):
            for line in log.read_text().splitlines():
                if "successfully on port " in line:
                    return int(line.rpartition("on port ")[2].rstrip("."))
            time.sleep(0.1)
        raise TimeoutError("chromedriver does not print its port")
