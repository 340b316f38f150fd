"""The engine: requests, scheduler, KV allocator, runners and clocks; the objects behind every picture of the course.

Read it in this order: `request`, `plan`, `pool`, `kv`, `paged`, `contiguous`, `policies`, `scheduler`, `runner`,
`engine`, `trace`. Importing it does not import torch; only running a model does.
"""

from engine.clock import RooflineClock, StepClock, WallClock
from engine.config import EngineConfig
from engine.contiguous import ContiguousKV
from engine.engine import Engine, StepRecord
from engine.errors import CapacityError, EngineError, InvariantError, ModelError, ValidationError
from engine.fake_runner import FakeRunner
from engine.paged import PagedKV
from engine.plan import Code, Decision, StepPlan
from engine.pool import BlockPool
from engine.request import Request, RequestState, SamplingParams, Sequence, Status
from engine.runner import CountingRunner, Limits, Runner, Sampled
from engine.scheduler import Scheduler
from engine.trace import Trace
from engine.usage import Usage

__all__ = [
    "BlockPool",
    "CapacityError",
    "Code",
    "ContiguousKV",
    "CountingRunner",
    "Decision",
    "Engine",
    "EngineConfig",
    "EngineError",
    "FakeRunner",
    "InvariantError",
    "Limits",
    "ModelError",
    "PagedKV",
    "Request",
    "RequestState",
    "RooflineClock",
    "Runner",
    "Sampled",
    "SamplingParams",
    "Scheduler",
    "Sequence",
    "Status",
    "StepClock",
    "StepPlan",
    "StepRecord",
    "Trace",
    "Usage",
    "ValidationError",
    "WallClock",
]
