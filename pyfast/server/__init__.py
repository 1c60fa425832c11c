"""pyfast over HTTP, in the shape of OpenAI's API, on the public API alone. It needs the extra `server`."""

from pyfast.extras import explained

with explained():
    from pyfast.server.app import create_app
    from pyfast.server.limits import Limits
    from pyfast.server.listen import serve

__all__ = ["Limits", "create_app", "serve"]
