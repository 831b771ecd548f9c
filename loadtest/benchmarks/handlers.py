"""What the service's uploads are held against: the same framework and server, and almost no work."""

from typing import Annotated

import polyline
import typer
import uvicorn
from fastapi import FastAPI, Request

READ = "/read"
DECODE = "/decode"

app = FastAPI()


@app.get("/readyz")
async def ready() -> dict[str, str]:
    """The process answers."""
    return {"status": "ready"}


@app.put(READ)
async def read(request: Request) -> dict[str, int]:
    """Read the body, and nothing else."""
    return {"bytes": len(await request.body())}


@app.put(DECODE)
async def decode(request: Request) -> dict[str, int]:
    """Read the body and decode it with the polyline package, as a straightforward server would."""
    return {"pairs": len(polyline.decode((await request.body()).decode("ascii"), 4))}


def main(port: Annotated[int, typer.Option()]) -> None:
    """Serve as uvicorn comes: httptools, uvloop, and its own way of reading bodies."""
    uvicorn.run(app, port=port, http="httptools", loop="uvloop", access_log=False, log_level="warning")


if __name__ == "__main__":
    typer.run(main)
