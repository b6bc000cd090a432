"""The contract for its readers: `/spec.yaml`, and a page that shows it. All of it comes from installed packages."""

from pathlib import Path

import swagger_ui_bundle
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from services.sidecar.api.contract import CONTRACT, DOCUMENT, parameters

_ASSETS = Path(str(swagger_ui_bundle.swagger_ui_path))
_MEDIA_TYPES = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
"""The media types of the page's parts. The package holds other files too; the page does not request them."""
_FOR_A_DAY = {"Cache-Control": "public, max-age=86400"}
_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>Kafka Mesh sidecar</title>
  <link rel="icon" href="favicon.ico">
  <link rel="stylesheet" href="specui/swagger-ui.css">
</head>
<body>
  <div id="contract"></div>
  <script src="specui/swagger-ui-bundle.js"></script>
  <script>
    SwaggerUIBundle({url: "spec.yaml", dom_id: "#contract", deepLinking: true, validatorUrl: null});
  </script>
</body>
</html>
"""


class DocumentEndpoints:
    """The files with which a browser shows the contract and tries its calls."""

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.get_home, self.get_document, self.get_reader, self.get_reader_asset, self.get_icon)

    async def get_home(self, request: Request) -> Response:
        return RedirectResponse("specui.html")

    async def get_document(self, request: Request) -> Response:
        return FileResponse(DOCUMENT, media_type="text/yaml")

    async def get_reader(self, request: Request) -> Response:
        return HTMLResponse(_PAGE)

    async def get_reader_asset(self, request: Request) -> Response:
        asset = parameters(request)["asset"]
        if asset not in _MEDIA_TYPES:
            raise HTTPException(404)
        return _file(asset, _MEDIA_TYPES[asset])

    async def get_icon(self, request: Request) -> Response:
        return _file("favicon-32x32.png", "image/png")


def _file(name: str, media_type: str) -> Response:
    return FileResponse(_ASSETS / name, media_type=media_type, headers=_FOR_A_DAY)
