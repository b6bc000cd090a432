"""What serve counts. README.md lists these with their meaning."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

_PREFIX = "kafka_mesh_pipeline_"

drivers = Gauge(f"{_PREFIX}drivers", "Drivers that run.", ["job"])
driver_starts = Counter(f"{_PREFIX}driver_starts", "Drivers that were started.", ["job"])
driver_deaths = Counter(f"{_PREFIX}driver_deaths", "Drivers that ended without having been told to, undone.", ["job"])
job_up = Gauge(f"{_PREFIX}job_up", "1 while a continuous job runs, 0 while it waits to be started again.", ["job"])
replays = Gauge(f"{_PREFIX}replays", "Replays that this member has, by what they do.", ["state"])
following = Gauge(f"{_PREFIX}following", "1 while control can tell this member what to carry out.")
reports = Counter(f"{_PREFIX}reports", "Reports to control: ok, failed (told again), refused (unwanted).", ["outcome"])
reports_waiting = Gauge(f"{_PREFIX}reports_waiting", "Replays of which control has not heard the newest.")
