"""Long options of the commands, for type checkers and editors.

Nothing reads this module at run time: the program itself checks what it is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
Names = Union[str, Iterable[str]]
Numbers = Union[int, float, str, Iterable[Union[int, float, str]]]


class TextOptions(TypedDict, total=False):
    """How texts of a log are read."""

    tokenizer: Path
    skip_bad: bool


class TraceOptions(TextOptions, total=False):
    """How a trace is read."""

    format: str
    arrivals: float
    block_tokens: int


class SessionOptions(TraceOptions, total=False):
    """Sessions of a trace, and the share of them that counts."""

    arrivals_seed: int
    turn_gap: float
    keep_duplicates: bool
    no_infer: bool
    scale: float
    cold: float
    threads: int


class ReplayOptions(SessionOptions, total=False):
    policies: Names
    capacities: Numbers
    predictors: Names
    encoder: Path
    model: Path
    kv_dtype: str
    per_class: bool
    html: Path


class AnalyzeOptions(TraceOptions, total=False):
    full: bool
    replicas: int
    capacity: int | str
    model: Path
    kv_bytes: int
    kv_dtype: str
    cost_model: Path
    gpu_hour: float
    price_table: Path
    show_text: bool
    html: Path
    export: Path


class WhyOptions(TextOptions, total=False):
    url: str
    api_key_file: Path
    show_text: bool


class LintOptions(TextOptions, total=False):
    baseline: Path
    write_baseline: Path
    show_text: bool


class PlanOptions(SessionOptions, total=False):
    kv_dtype: str
    gpu: str
    gpus: int
    device_gib: float
    cost_model: Path
    policy: str
    host_gbps: float
    disk_gbps: float
    enough: float


class SimulateOptions(TypedDict, total=False):
    preset: str
    request_rate: float
    hours: float
    speed: float
    rates: Numbers
    rung_seconds: float
    users: Numbers
    think_time: float
    strategies: Names
    replicas: int
    gateways: int
    cost_model: Path
    kv_tokens: Numbers
    replica_speeds: Numbers
    event_delay: float
    event_loss: float
    gateway_restart: float
    replica_crash: float
    policy: str
    seed: int
    threads: int
    html: Path


class SynthOptions(TypedDict, total=False):
    seed: int
    duration: float
    requests: int
    rate: float
    gaps: str
    block_tokens: int
