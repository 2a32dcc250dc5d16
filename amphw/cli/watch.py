"""`amphw watch`: a run that is under way, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amphw.cli.output import remarks


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, under way or ended.")],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Of this machine; 0: any that is free.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = False,
) -> None:
    """Show a run as it goes on: a page for this machine's browser, until Ctrl-C."""
    from amphw.host.run_folder import RunFolder
    from amphw.library.watch import serving

    server = serving(RunFolder.open(run).single(), port)
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    remarks().print(f"watching {run} at {address} (Ctrl-C ends this, not the run)", soft_wrap=True)
    if browser:
        import webbrowser

        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
