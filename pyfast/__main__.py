"""`pyfast` and `python -m pyfast`: the command line. Ctrl-C prints one line, even while modules are loading."""

import os
import signal
import sys


def main() -> None:
    """Run the command line. `pyfast.commands.cli` is imported inside the function, because importing it takes half
    a second."""
    # An exception would surface inside an import, and some code there would carry on without the module.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    from pyfast.errors import MissingPackageError
    from pyfast.utils.extras import explained

    try:
        with explained():
            from pyfast.commands.cli import main as run
    except MissingPackageError as error:
        os.write(2, f"pyfast: {error}\n".encode())
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _stop(*_: object) -> None:
    os.write(2, b"pyfast: stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
