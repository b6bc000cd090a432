"""Writes all files that follow from the code or from one description: `make reference`. Tests compare each file.

The other modules of docs/ have those of docs/reference; deploy/monitoring/files.py has the alerts with their page, and
the dashboards.
"""

from __future__ import annotations

from deploy.monitoring.files import description
from deploy.monitoring.files import files as monitoring
from docs import calls, chart, commands, log_events, mesh_file, metrics, names, settings


def main() -> None:
    pages = {
        module.page(service): module.written(service) for module in (metrics, settings) for service in metrics.SERVICES
    }
    pages |= {
        commands.PAGE: commands.written(),
        log_events.PAGE: log_events.written(),
        names.PAGE: names.written(),
        **calls.files(),
        **mesh_file.files(),
        **chart.files(),
        **monitoring(description()),
    }
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
