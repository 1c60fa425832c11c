"""Serve pyfast over HTTP, with the paths and formats of OpenAI's API, or to agents through MCP. Requires the extra
`server` and, for MCP, also `mcp`.
"""

from pyfast.utils.extras import explained

with explained():
    from pyfast.server.app import create_app
    from pyfast.server.http_server import serve
    from pyfast.server.limits import Limits
    from pyfast.server.mcp import mcp_server, serve_mcp

__all__ = ["Limits", "create_app", "mcp_server", "serve", "serve_mcp"]
