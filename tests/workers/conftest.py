"""A service in memory for one federation, a loop whose time jumps, and a stand-in for a GPU."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from fedat_service.clock import LoopClock
from fedat_service.params import Manifest, Model, Params, TensorSpec, to_params
from fedat_service.virtual import run_virtual
from fedat_service.wire.bundle import Bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import BUNDLE_TYPE, PROBLEM_TYPE, ManifestMessage, Task
from fedat_service.wire.settings import CodecSettings, Method, Rounds, Solver, Stop, Tiering
from workers.client import FedATClient, ModelCache, Retry, open_http
from workers.training.jobs import ClientTraining, DueFirst, ExecutorTraining, InlineExecutor
from workers.training.trainer import EvaluationResult, Kept, Sync, TrainResult
from workers.worker import Tally, Worker

CODEC = CodecSettings(name="float32")


class FakeService:
    """Plays a script of tasks, then says that the federation is finished.

    `first[path_end]` holds answers to be given, one each, before the real one.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.version = 3
        self.model = Model(np.linspace(-1, 1, manifest.num_floats, dtype=np.float32), np.zeros(0, np.int64))
        self.tasks: list[Task | httpx.Response] = []
        self.first: dict[str, list[httpx.Response | Exception]] = {}
        self.requests: list[httpx.Request] = []
        self.at_s: list[float] = []
        self.updates: list[Bundle] = []
        self.status = "training"
        self.down: dict[str, tuple[str, ...]] = {}

    @property
    def calls(self) -> Counter[str]:
        """How often each kind of request came: `GET task`, `PUT update` ..."""
        return Counter(f"{r.method} {r.url.path.rpartition('/')[2]}" for r in self.requests)

    def task(self, number: int = 1, **fields: Any) -> Task:
        whole = {"weights": tuple(self.manifest.spans)}
        up = {} if fields.get("purpose") == "profile" else whole
        return Task(
            **{
                "task": f"t1.r{number}.s0.c000",
                "federation": "f",
                "client": "c000",
                "purpose": "train",
                "tier": 1,
                "round": number,
                "sync": 0,
                "base_version": self.version,
                "last": True,
                "blocks": 1,
                "down": whole,
                "up": up,
                "solver": Solver(),
                "codec": CODEC,
                "seed": number,
                "deadline_in_s": 600.0,
                **fields,
            }
        )

    def bundle(self, names: Collection[str] | None = None, **fields: Any) -> bytes:
        tensors = self.manifest.tensors if names is None else self.manifest.named(names)
        entries = model_entries(self.model, self.manifest, tensors, make_codec(CODEC))
        header = {"federation": "f", "version": self.version, "entries": entries}
        return encode_bundle(Bundle(**{**header, **fields}))

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.at_s.append(asyncio.get_running_loop().time())
        end = request.url.path.rpartition("/")[2]
        if queue := self.first.get(end):
            answer = queue.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return getattr(self, f"_{end}")(request)

    def _f(self, _: httpx.Request) -> httpx.Response:
        view = {
            "name": "f", "status": self.status, "reason": "", "version": self.version, "now_s": 0.0,
            "clock_rate": 1.0, "update_counts": [], "weights": [], "clients": 0, "lost_clients": 0,
            "method": Method(codec=CODEC).model_dump(), "tiering": Tiering().model_dump(),
            "rounds": Rounds().model_dump(), "stop": Stop().model_dump(), "seed": 0,
            "manifest": ManifestMessage.of(self.manifest).model_dump(),
        }  # fmt: skip
        return httpx.Response(200, json=view)

    def _clients(self, _: httpx.Request) -> httpx.Response:
        view = {
            "name": "c000",
            "num_examples": 8,
            "status": "tiered",
            "tier": 1,
            "latency_s": 1.0,
            "reason": "",
            "accuracy": None,
        }
        return httpx.Response(201, json=view)

    def _task(self, _: httpx.Request) -> httpx.Response:
        if not self.tasks:
            return problem(410, "gone")
        task = self.tasks.pop(0)
        if isinstance(task, Task):
            self.down[task.task] = task.down.get("weights", ())
        return task if isinstance(task, httpx.Response) else httpx.Response(200, json=task.model_dump())

    def _model(self, request: httpx.Request) -> httpx.Response:
        asked = None if "layers" in request.url.params else self.down.get(request.url.params.get("task", ""))
        is_whole = asked is None or set(asked) == set(self.manifest.spans)
        etag = f'"v{self.version}{"" if is_whole else asked}"'
        if request.headers.get("if-none-match") == etag:
            return httpx.Response(304, headers={"ETag": etag})
        headers = {"ETag": etag, "Content-Type": BUNDLE_TYPE}
        return httpx.Response(200, content=self.bundle(asked), headers=headers)

    def _update(self, request: httpx.Request) -> httpx.Response:
        self.updates.append(parse_bundle(request.content, self.manifest))
        return httpx.Response(201, json={"task": "t", "accepted": True})

    def _evaluation(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(201, content=request.content)

    _evaluations = _evaluation


def problem(status: int, kind: str, detail: str = "no", **headers: str) -> httpx.Response:
    document = {
        "type": f"https://fedat.invalid/problems/{kind}",
        "title": "t",
        "status": status,
        "detail": detail,
    }
    return httpx.Response(status, json=document, headers={"Content-Type": PROBLEM_TYPE, **headers})


@pytest.fixture
def virtually() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """`virtually(main())` runs a coroutine on a loop whose time jumps to its next timer."""

    return run_virtual


@pytest.fixture
def service() -> FakeService:
    tensors = (TensorSpec("fc.weight", (3, 4), "float32", "fc"), TensorSpec("fc.bias", (3,), "float32", "fc"))
    return FakeService(Manifest(tensors))


@pytest.fixture
def params(service) -> Params:
    """The parameters that the service publishes."""
    return to_params(service.model, service.manifest)


@pytest.fixture
def models(service) -> ModelCache:
    return ModelCache("f", service.manifest, InlineExecutor())


@pytest.fixture
def connect(service) -> Callable[..., FedATClient]:
    """`connect()` is a new client of the service; a lost connection is given up after a minute."""

    def new(retry: Retry = Retry(total_s=60.0), **options: Any) -> FedATClient:  # noqa: B008
        http = open_http("http://service", httpx.MockTransport(service))
        return FedATClient(http, "f", jitter=np.random.default_rng(0), retry=retry, **options)

    return new


@pytest.fixture
def refusal() -> Callable[..., httpx.Response]:
    """`refusal(status, kind, detail, **headers)` is a problem document."""
    return problem


class Adding:
    """A trainer that adds 1 to every parameter, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[Params, Solver, int, Sync, Kept]] = []
        self.found = EvaluationResult(4, 3, 0.5)

    def train(self, start: Params, solver: Solver, seed: int, sync: Sync, kept: Kept) -> TrainResult:
        self.given.append((start, solver, seed, sync, kept))
        count = kept.client.get("count", {"n": np.zeros(1, np.float32)})["n"] + 1
        added = {name: array + np.float32(1) for name, array in start.items()}
        return TrainResult(added, 8, {}, kept=Kept(client={"count": {"n": count}}))

    def evaluate(self, _: Params) -> EvaluationResult:
        return self.found


@pytest.fixture
def trainer() -> Adding:
    return Adding()


@pytest.fixture
def work(virtually, connect, models, trainer) -> Callable[..., tuple[Tally, float]]:
    """`work(**options)` runs a worker to its end; gives its tally and the federation's time then."""

    def run(training: ClientTraining | None = None, rate: float = 1.0, **options: Any) -> tuple[Tally, float]:
        async def main() -> tuple[Tally, float]:
            clock, made = LoopClock(rate), training or ExecutorTraining(trainer, DueFirst(InlineExecutor()))
            worker = Worker("c000", 8, made, client=connect(), models=models, clock=clock, **options)
            return await worker.run(), clock.now()

        return virtually(main())

    return run


class AwayTensor(Tensor):
    """A tensor that says it is elsewhere; its values, `here`, are real."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    __torch_dispatch__ = classmethod(lambda *_: NotImplemented)

    @staticmethod
    def __new__(cls, here: Tensor) -> "AwayTensor":
        layout = {"strides": here.stride(), "storage_offset": here.storage_offset(), "dtype": here.dtype}
        return Tensor._make_wrapper_subclass(cls, here.shape, device="meta", **layout)

    def __init__(self, here: Tensor) -> None:
        self.here = here

    data = property(lambda self: self.detach(), lambda self, other: setattr(self, "here", other.here))

    def numpy(self, *, force: bool = False) -> np.ndarray:
        if not force:
            raise TypeError("can't convert a tensor that is away to numpy")
        return self.detach().cpu().numpy()


class AwayMode(TorchDispatchMode):
    """Computes here what is to be away; a number on the CPU may take part in what is done to a tensor."""

    def __torch_dispatch__(self, function, _, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        away = {id(tensor.here): tensor for tensor in tensors if isinstance(tensor, AwayTensor)}
        is_away = bool(away)
        if function is torch.ops.aten.copy_.default:
            is_away = isinstance(args[0], AwayTensor)
        elif kwargs.get("device") is not None:
            is_away = torch.device(kwargs["device"]).type == "meta"
            kwargs = {**kwargs, "device": "cpu"}
        elif is_away:
            with_numbers = isinstance(args[0], AwayTensor)
            if any(not isinstance(t, AwayTensor) and (t.dim() or not with_numbers) for t in tensors):
                raise RuntimeError(f"{function}: tensors on two devices")
        args, kwargs = tree_map_only(AwayTensor, lambda t: t.here, (args, kwargs))
        result = function(*args, **kwargs)
        return tree_map_only(Tensor, lambda t: away.get(id(t), AwayTensor(t)), result) if is_away else result


@pytest.fixture
def away(monkeypatch, no_cover) -> Iterator[torch.device]:
    """A device by torch's rules, on any machine: what mixes it with the CPU raises; bits are the CPU's."""
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # where our tensors have no views
    monkeypatch.setattr("workers.training.optimizer._on_cpu", lambda _: False)  # Adam has others there
    with AwayMode():
        yield torch.device("meta")


@pytest.fixture
def gpu() -> torch.device:
    """A real one."""
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return torch.device("cuda:0")


@pytest.fixture(autouse=True)
def _on_the_cpu(request, monkeypatch) -> None:
    """Wherever there is a GPU, `auto` is the CPU for tests of other things."""
    if "gpu" not in request.fixturenames:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
